"""Image classification: the class of the whole frame, as top-1 accuracy."""

from typing import Any

import numpy as np
from torch import Tensor

from gearshift.errors import DataError
from gearshift.paths.data.frames import Frame, LabelledImage
from gearshift.paths.outputs import logits_of
from gearshift.paths.tasks.task import Counts, Task, share


class Classification(Task):
    """Logits `(B, K)` to the likeliest class."""

    name = "classification"
    metric = "top-1"

    def essence(self, output: Any) -> Tensor:
        """The logits."""
        return logits_of(output)

    def answer(self, essence: Tensor, frame: Frame) -> Tensor:
        """The class, a tensor of one number."""
        return essence[0].argmax().cpu()

    def score(self, answer: Tensor, frame: Frame) -> Counts:
        """Right answers and all answers."""
        if not isinstance(frame, LabelledImage) or frame.label is None:
            raise DataError("a classification model is judged on images with one class each")
        return np.array([float(int(answer) == frame.label), 1.0])

    def value(self, counts: Counts) -> float:
        """Share of right answers."""
        return share(counts)

    def agree(self, answer: Tensor, reference: Tensor) -> Counts:
        """Whether the class is the stock model's."""
        return np.array([float(int(answer) == int(reference)), 1.0])
