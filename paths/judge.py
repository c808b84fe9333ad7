"""Judging paths on frames: the task's own metric where there are labels, agreement with the stock model elsewhere."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from gearshift.errors import DataError
from gearshift.paths.build import family_of
from gearshift.paths.data import Frame, Preprocessing
from gearshift.paths.quality import Quality
from gearshift.paths.tasks import task_of
from gearshift.paths.tasks.task import AGREEMENT


class Judge:
    """Judges any number of paths on the same frames.

    Args:
        stock: The stock model, whose answers are the reference where labels are missing.
        frames: At least one; with labels throughout, or (all unlabelled) without.
        device: Where paths run.
        prepare: From a frame's image to pixel values `(1, 3, H, W)`; by default as ImageNet's are normalised.
    """

    def __init__(
        self,
        stock: Any,
        frames: Sequence[Frame],
        device: torch.device | None = None,
        prepare: Callable[[Any], Tensor] | None = None,
    ) -> None:
        if not frames:
            raise DataError("no frame to judge on; give a folder with at least one image")
        self._frames = frames
        self._stock = stock
        self._device = device or torch.device("cpu")
        self._prepare = prepare or Preprocessing().prepared
        traits = family_of(stock).traits(stock)
        self._task = task_of(traits.task, len(traits.classes))
        self.labelled = self._task.metric is not None and any(frame.labelled for frame in frames)
        self._reference: list[Tensor] | None = None

    @property
    def metric(self) -> str:
        """Name of the metric: the task's own, or `agreement`."""
        return self._task.metric or AGREEMENT if self.labelled else AGREEMENT

    def judge(self, path: Callable[[Tensor], Any], every: int = 1) -> Quality:
        """Judge a path on every `every`-th frame."""
        chosen = self._frames[::every]
        answers = [self.answer(path, frame) for frame in chosen]
        if self.labelled:
            scores = [self._task.score(answer, frame) for answer, frame in zip(answers, chosen, strict=True)]
            return self._task.quality(sum(scores[1:], start=scores[0]), len(chosen))
        if self._reference is None:
            self._reference = [self.answer(self._stock, frame) for frame in self._frames]
            self._task = self._task.judging(self._reference)
        agreed = [self._task.agree(*pair) for pair in zip(answers, self._reference[::every], strict=True)]
        return self._task.agreement(sum(agreed[1:], start=agreed[0]), len(chosen))

    def answer(self, path: Callable[[Tensor], Any], frame: Frame) -> Tensor:
        """What a path says of a frame."""
        with torch.inference_mode():
            essence = self._task.essence(path(self._prepare(frame.image).to(self._device)))
            return self._task.answer(essence, frame)
