"""Semantic segmentation: the class of each pixel, as mean IoU."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from gearshift.errors import DataError
from gearshift.paths.data.classes import IGNORE_INDEX
from gearshift.paths.data.frames import Frame, LabelledFrame
from gearshift.paths.outputs import logits_of
from gearshift.paths.quality import Quality, class_map, confusion, mean_of, quality_of
from gearshift.paths.tasks.task import Counts, Task


class Segmentation(Task):
    """Logits `(B, K, h, w)` to class maps at the frame's size.

    Args:
        classes: How many.
    """

    name = "segmentation"
    metric = "mIoU"

    def __init__(self, classes: int) -> None:
        self._classes = classes

    def essence(self, output: Any) -> Tensor:
        """The logits."""
        return logits_of(output)

    def answer(self, essence: Tensor, frame: Frame) -> Tensor:
        """Classes `(H, W)`."""
        height, width = frame.labels.shape if isinstance(frame, LabelledFrame) else frame.image.shape[:2]
        return class_map(essence, (height, width))[0].cpu()

    def score(self, answer: Tensor, frame: Frame) -> Counts:
        """The confusion matrix."""
        if not isinstance(frame, LabelledFrame):
            raise DataError("a segmentation model is judged on frames with a class for each pixel")
        return confusion(answer, torch.from_numpy(frame.labels), self._classes, IGNORE_INDEX)

    def value(self, counts: Counts) -> float:
        """Mean IoU over the classes that occur."""
        return mean_of(counts)

    def quality(self, counts: Counts, images: int) -> Quality:
        """Mean IoU, with the IoU of each class."""
        return quality_of(counts, images)

    def agree(self, answer: Tensor, reference: Tensor) -> Counts:
        """Equal pixels and all pixels."""
        if answer.shape != reference.shape:
            raise DataError(f"cannot compare class maps of {tuple(answer.shape)} and {tuple(reference.shape)}")
        return np.array([float((answer == reference).sum()), float(reference.numel())])
