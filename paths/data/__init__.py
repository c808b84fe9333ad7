"""Labelled frames: rendered street scenes, folders of images, and what a network is fed."""

from gearshift.paths.data.classes import CAMVID_CLASSES, CAMVID_COLOURS, IGNORE_INDEX
from gearshift.paths.data.folder import SegmentationFolder
from gearshift.paths.data.frames import Frame, LabelledFrame, LabelledImage
from gearshift.paths.data.images import ImageFolder
from gearshift.paths.data.preprocess import IMAGENET_MEAN, IMAGENET_STD, Preprocessing, normalise
from gearshift.paths.data.scenes import SceneStream

__all__ = [
    "CAMVID_CLASSES",
    "CAMVID_COLOURS",
    "IGNORE_INDEX",
    "IMAGENET_MEAN",
    "IMAGENET_STD",
    "Frame",
    "ImageFolder",
    "LabelledFrame",
    "LabelledImage",
    "Preprocessing",
    "SceneStream",
    "SegmentationFolder",
    "normalise",
]
