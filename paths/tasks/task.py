"""What a model is for, as far as judging it goes: from an output to an answer, and from answers to a figure of merit.

Every figure is worked out from *counts* that add up over frames (a confusion matrix; right answers and all answers), so
that frames can be weighted and drawn again.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gearshift.errors import DataError
from gearshift.paths.data.frames import Frame
from gearshift.paths.quality import Quality

Counts = NDArray[np.float64]
AGREEMENT = "agreement"


class Task(ABC):
    """One kind of job.

    Attributes:
        name: Such as `segmentation`.
        metric: Of labelled frames; None where there is no labelled figure.
    """

    name: ClassVar[str]
    metric: ClassVar[str | None]

    @abstractmethod
    def essence(self, output: Any) -> Tensor:
        """What of a model's output is judged, with the batch first."""

    @abstractmethod
    def answer(self, essence: Tensor, frame: Frame) -> Tensor:
        """What the model says of one frame, on the CPU; `essence` has a batch of 1."""

    @abstractmethod
    def score(self, answer: Tensor, frame: Frame) -> Counts:
        """Counts against the frame's labels."""

    @abstractmethod
    def value(self, counts: Counts) -> float:
        """The metric, of counts that were added up."""

    @abstractmethod
    def agree(self, answer: Tensor, reference: Tensor) -> Counts:
        """How much of the answer is the stock model's: (equal, all)."""

    def judging(self, references: Iterable[Tensor]) -> "Task":
        """The task as it judges a set of frames, of which these are the stock model's answers; by default itself."""
        return self

    def quality(self, counts: Counts, images: int) -> Quality:
        """The labelled figure of merit.

        Raises:
            DataError: Nothing was counted.
        """
        if self.metric is None or not counts.any():
            raise DataError("no label was counted; give frames with labels")
        return Quality(metric=self.metric, value=self.value(counts), images=images)

    def agreement(self, counts: Counts, images: int) -> Quality:
        """The agreement with the stock model."""
        return Quality(metric=AGREEMENT, value=share(counts), images=images)


def share(counts: Counts) -> float:
    """First count by second; 1 where there was nothing to count, as nothing differed."""
    return float(counts[0] / counts[1]) if counts[1] else 1.0
