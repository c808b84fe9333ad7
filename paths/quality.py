"""How good is a path: a figure of merit with its name, and mean intersection over union on labelled frames.

The metric's name travels with the value, so that an agreement is never read as an accuracy.
"""

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
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
        metric: `mIoU` (mean over the classes that occur), `top-1` (share of right classes) or `agreement` (share
            of pixels, frames or boxes that are the stock model's).
        value: The figure, in [0, 1].
        per_class: IoU of each class; None for a class that occurs neither in labels nor in predictions. Empty
            for other metrics.
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
        self._matrix = np.zeros((num_classes, num_classes))
        self._classes, self._ignored = num_classes, ignore_index
        self._images = 0

    def update(self, predicted: Tensor, labels: Tensor) -> None:
        """Add class maps `(B, H, W)` or `(H, W)`, both integer and of equal shape.

        Raises:
            DataError: The shapes differ, or a class is out of range.
        """
        self._matrix += confusion(predicted, labels, self._classes, self._ignored)
        self._images += 1 if predicted.ndim == 2 else len(predicted)

    def result(self) -> Quality:
        """Return IoU = TP / (TP + FP + FN) per class, and the mean over classes that occur.

        Raises:
            DataError: No labelled pixel was seen.
        """
        return quality_of(self._matrix, self._images)


def confusion(predicted: Tensor, labels: Tensor, num_classes: int, ignore_index: int) -> NDArray[np.float64]:
    """Confusion matrix of one class map, rows by label: pixels whose label is `ignore_index` are left out.

    Raises:
        DataError: The shapes differ, or a class is out of range.
    """
    if predicted.shape != labels.shape:
        raise DataError(f"a class map of {tuple(predicted.shape)} has labels of {tuple(labels.shape)}")
    counted = labels[labels != ignore_index]
    for name, values in (("label", counted), ("predicted class", predicted)):
        wrong = values[(values < 0) | (values >= num_classes)]
        if len(wrong):
            raise DataError(
                f"{name} {int(wrong[0])} is out of range; allowed are 0 to {num_classes - 1}"
                f" and {ignore_index} for pixels that do not count"
            )
    from torchmetrics.functional.classification import multiclass_confusion_matrix  # half a second to import

    matrix = multiclass_confusion_matrix(
        predicted, labels.long(), num_classes, ignore_index=ignore_index, validate_args=False
    )
    counts: NDArray[np.float64] = matrix.double().numpy()
    return counts


def mean_of(matrix: NDArray[np.float64]) -> float:
    """Mean IoU over the classes that occur, of a confusion matrix that may be a weighted sum."""
    union = matrix.sum(0) + matrix.sum(1) - matrix.diagonal()
    return float((matrix.diagonal()[union > 0] / union[union > 0]).mean())


def quality_of(matrix: NDArray[np.float64], images: int) -> Quality:
    """Mean IoU and the IoU of each class, of a confusion matrix.

    Raises:
        DataError: No labelled pixel was counted.
    """
    if not matrix.any():
        raise DataError("no labelled pixel: every label is the ignore index; give frames with labels")
    true_positive = matrix.diagonal()
    union = matrix.sum(0) + matrix.sum(1) - true_positive
    per_class = tuple(float(hit / size) if size else None for hit, size in zip(true_positive, union, strict=True))
    return Quality(metric="mIoU", value=mean_of(matrix), per_class=per_class, images=images)


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
