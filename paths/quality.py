"""How good is a path: mean intersection over union on labelled frames, or agreement with the stock model.

The metric's name travels with the value, so that an agreement is never read as an accuracy.
"""

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from gearshift.errors import DataError
from gearshift.paths.data import IGNORE_INDEX, LabelledFrame, normalise

Predict = Callable[[Tensor], Tensor]
"""Pixel values `(1, 3, H, W)` to logits `(1, K, h, w)`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """A figure of merit in [0, 1] with the metric that it is.

    Attributes:
        metric: `mIoU` (mean over the classes that occur) or `agreement` (share of pixels whose class is the
            stock model's).
        value: The figure, in [0, 1].
        per_class: IoU of each class; None for a class that occurs neither in labels nor in predictions. Empty
            for `agreement`.
        images: Number of frames judged.
    """

    metric: str
    value: float
    per_class: tuple[float | None, ...] = ()
    images: int


class ConfusionQuality:
    """Accumulates predictions against labels; `result()` is the mean IoU.

    Pixels whose *label* is `ignore_index` are left out, whatever is predicted there. To ignore one of the
    classes therefore hides what is wrongly predicted within it, and is warned of.
    """

    def __init__(self, num_classes: int, ignore_index: int = IGNORE_INDEX) -> None:
        if 0 <= ignore_index < num_classes:
            warnings.warn(
                f"the ignored label {ignore_index} is one of the {num_classes} classes: "
                "what is wrongly predicted on its pixels will not count",
                stacklevel=2,
            )
        from torchmetrics.classification import MulticlassConfusionMatrix  # here: half a second to import

        self._matrix = MulticlassConfusionMatrix(num_classes, ignore_index=ignore_index, validate_args=False)
        self._classes, self._ignored = num_classes, ignore_index
        self._images = 0

    def update(self, predicted: Tensor, labels: Tensor) -> None:
        """Add class maps `(B, H, W)` or `(H, W)`, both integer and of equal shape.

        Raises:
            DataError: The shapes differ, or a class is out of range.
        """
        if predicted.shape != labels.shape:
            raise DataError(f"a class map of {tuple(predicted.shape)} has labels of {tuple(labels.shape)}")
        counted = labels[labels != self._ignored]
        for name, values in (("label", counted), ("predicted class", predicted)):
            wrong = values[(values < 0) | (values >= self._classes)]
            if len(wrong):
                raise DataError(
                    f"{name} {int(wrong[0])} is out of range; allowed are 0 to {self._classes - 1}"
                    f" and {self._ignored} for pixels that do not count"
                )
        self._matrix.update(predicted, labels.long())
        self._images += 1 if predicted.ndim == 2 else len(predicted)

    def result(self) -> Quality:
        """Return IoU = TP / (TP + FP + FN) per class, and the mean over classes that occur.

        Raises:
            DataError: No labelled pixel was seen.
        """
        matrix = self._matrix.confmat.double()
        true_positive = matrix.diagonal()
        union = matrix.sum(0) + matrix.sum(1) - true_positive
        if not bool(matrix.sum()):
            raise DataError("no labelled pixel: every label is the ignore index; give frames with labels")
        iou = true_positive / union
        per_class = tuple(float(value) if bool(size) else None for value, size in zip(iou, union, strict=True))
        present = [value for value in per_class if value is not None]
        return Quality(metric="mIoU", value=sum(present) / len(present), per_class=per_class, images=self._images)


def class_map(logits: Tensor, size: tuple[int, int]) -> Tensor:
    """Upsample logits `(B, K, h, w)` bilinearly, as SegFormer is evaluated: classes `(B, *size)`."""
    return F.interpolate(logits.float(), size=size, mode="bilinear", align_corners=False).argmax(1)


def mean_iou(predict: Predict, frames: Iterable[LabelledFrame], num_classes: int) -> Quality:
    """Judge `predict` on labelled frames, one at a time, at the labels' own size."""
    quality = ConfusionQuality(num_classes)
    with torch.inference_mode():
        for frame in frames:
            labels = torch.from_numpy(frame.labels)
            logits = predict(normalise(frame.image))
            quality.update(class_map(logits.cpu(), (labels.shape[0], labels.shape[1]))[0], labels)
    return quality.result()


def agreement(predicted: Iterable[Tensor], reference: Iterable[Tensor]) -> Quality:
    """Share of pixels on which class maps `(H, W)` equal the stock model's.

    Raises:
        DataError: There is no frame, or two maps differ in shape.
    """
    equal = total = images = 0
    for ours, theirs in zip(predicted, reference, strict=True):
        if ours.shape != theirs.shape:
            raise DataError(f"cannot compare class maps of {tuple(ours.shape)} and {tuple(theirs.shape)}")
        equal += int((ours == theirs).sum())
        total += theirs.numel()
        images += 1
    if not total:
        raise DataError("no frame to compare; give at least one image")
    return Quality(metric="agreement", value=equal / total, images=images)
