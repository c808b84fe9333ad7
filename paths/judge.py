"""Judging paths on frames: mIoU where there are labels, agreement with the stock model where there are none."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from gearshift.errors import DataError
from gearshift.paths.data import IGNORE_INDEX, LabelledFrame, normalise
from gearshift.paths.quality import ConfusionQuality, Quality, agreement, class_map


class Judge:
    """Judges any number of paths on the same frames.

    Args:
        stock: The stock model, whose class maps are the reference where labels are missing.
        frames: At least one; with labels throughout, or (every pixel of every label ignored) without.
        device: Where paths run.
        prepare: From a frame's image to pixel values `(1, 3, H, W)`.
    """

    def __init__(
        self,
        stock: Any,
        frames: Sequence[LabelledFrame],
        device: torch.device | None = None,
        prepare: Callable[[Any], Tensor] = normalise,
    ) -> None:
        if not frames:
            raise DataError("no frame to judge on; give a folder with at least one image")
        self._frames = frames
        self._stock = stock
        self._device = device or torch.device("cpu")
        self._prepare = prepare
        self._classes = stock.config.num_labels
        self.labelled = any(bool((frame.labels != IGNORE_INDEX).any()) for frame in frames)
        self._reference: list[Tensor] | None = None

    @property
    def metric(self) -> str:
        """Name of the metric: `mIoU` or `agreement`."""
        return "mIoU" if self.labelled else "agreement"

    def judge(self, path: Callable[[Tensor], Any], every: int = 1) -> Quality:
        """Judge a path on every `every`-th frame."""
        chosen = self._frames[::every]
        if self.labelled:
            quality = ConfusionQuality(self._classes)
            for frame in chosen:
                quality.update(self.class_map(path, frame), torch.from_numpy(frame.labels))
            return quality.result()
        if self._reference is None:
            self._reference = [self.class_map(self._stock, frame) for frame in self._frames]
        return agreement((self.class_map(path, frame) for frame in chosen), self._reference[::every])

    def class_map(self, path: Callable[[Tensor], Any], frame: LabelledFrame) -> Tensor:
        """Classes `(H, W)` that a path gives a frame, at the frame's size."""
        height, width = frame.labels.shape
        with torch.inference_mode():
            logits = path(self._prepare(frame.image).to(self._device)).logits
            return class_map(logits, (height, width))[0].cpu()
