"""Object detection: boxes and their classes, judged by their agreement with the stock model's alone."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gearshift.errors import DataError
from gearshift.paths.data.frames import Frame
from gearshift.paths.detr.agreement import CONFIDENT, Detections, agreement, detections, judged_threshold
from gearshift.paths.tasks.task import Counts, Task, share

BOX = 4


class Detection(Task):
    """Logits `(B, Q, K or K + 1)` and boxes `(B, Q, 4)` of queries.

    Args:
        classes: How many (K).
        threshold: Least score of a detection that counts.
    """

    name = "detection"
    metric = None

    def __init__(self, classes: int, threshold: float = CONFIDENT) -> None:
        self._classes, self._threshold = classes, threshold

    def essence(self, output: Any) -> Tensor:
        """Logits and boxes side by side."""
        return torch.cat([output.logits, output.pred_boxes], dim=-1)

    def answer(self, essence: Tensor, frame: Frame) -> Tensor:
        """The same of one frame."""
        return essence[0].cpu()

    def score(self, answer: Tensor, frame: Frame) -> Counts:
        """Refused: labels of objects are not read."""
        raise DataError("a detection model is judged by its agreement with the stock model; labels are not read")

    def value(self, counts: Counts) -> float:
        """Share of detections that have a partner."""
        return share(counts)

    def agree(self, answer: Tensor, reference: Tensor) -> Counts:
        """Detections of both sides that have a partner, and all of them."""
        return np.array(agreement(self._found(answer), self._found(reference)), dtype=np.float64)

    def judging(self, references: Iterable[Tensor]) -> "Detection":
        """With the threshold that the stock model's own detections in all frames call for."""
        every = Detection(self._classes, 0.0)
        best = [float(every._found(reference).scores.max()) for reference in references]
        return Detection(self._classes, judged_threshold(best))

    def _found(self, answer: Tensor) -> Detections:
        return detections(answer[:, :-BOX], answer[:, -BOX:], self._classes, self._threshold)
