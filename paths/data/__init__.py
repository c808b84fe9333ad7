"""Labelled frames: rendered street scenes, folders of images, and what a network is fed."""

from gearshift.paths.data.classes import CAMVID_CLASSES, CAMVID_COLOURS, IGNORE_INDEX
from gearshift.paths.data.folder import SegmentationFolder
from gearshift.paths.data.preprocess import IMAGENET_MEAN, IMAGENET_STD, normalise
from gearshift.paths.data.scenes import LabelledFrame, SceneStream

__all__ = [
    "CAMVID_CLASSES",
    "CAMVID_COLOURS",
    "IGNORE_INDEX",
    "IMAGENET_MEAN",
    "IMAGENET_STD",
    "LabelledFrame",
    "SceneStream",
    "SegmentationFolder",
    "normalise",
]
