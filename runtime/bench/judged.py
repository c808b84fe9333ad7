"""Quality of a run's frames as they were answered: against labels, or where there are none the stock.

Its interval is a bootstrap over pictures, each with all its answers. Pictures of one drive follow each other and
resemble each other, so that the interval is rather too narrow.
"""

from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torchmetrics.functional.classification import multiclass_confusion_matrix

from gearshift.paths.data import IGNORE_INDEX
from gearshift.paths.quality import ConfusionQuality, Quality, agreement, class_map
from gearshift.runtime.bench.drive import Run
from gearshift.runtime.stream import Pictures

Answers = Counter[tuple[int, str]]
"""How often each (picture, path) answered."""
Counts = dict[int, NDArray[np.float64]]
"""By picture, what quality is worked out from: a confusion matrix, or pixels that agree and all pixels."""

RESAMPLES = 999
SEED = 0


def quality(run: Run, pictures: Pictures, classes: int, stock: Callable[[Tensor], Any]) -> dict[str, Any]:
    """Judge every frame; one whose output was not kept is left out and counted.

    Args:
        run: What happened.
        pictures: What the frames showed.
        classes: How many the model knows.
        stock: The stock model.
    """
    answers = Counter((frame.picture, frame.path) for frame in run.frames)
    judged = Counter({key: times for key, times in answers.items() if key in run.outputs})
    if not judged:
        return {
            "metric": None,
            "value": None,
            **_no_interval("no output was kept"),
            "frames": 0,
            "pictures": 0,
            "reason": "no output was kept",
        }
    if any(pictures.has_labels(picture) for picture, _ in judged):
        result, counts = _against_labels(run, judged, pictures, classes)
    else:
        result, counts = _against_stock(run, judged, pictures, stock)
    return {
        "metric": result.metric,
        "value": result.value,
        **_interval(counts, _mean_iou if result.metric == "mIoU" else _share),
        "per_class": list(result.per_class),
        "frames": judged.total(),
        "pictures": len(counts),
        "not_judged": len(run.frames) - judged.total(),
    }


def _against_labels(run: Run, judged: Answers, pictures: Pictures, classes: int) -> tuple[Quality, Counts]:
    confusion = ConfusionQuality(classes)
    counts: Counts = {}
    for (picture, path), times in judged.items():
        answer = _class_map(run.outputs[picture, path], pictures, picture)
        labels = torch.from_numpy(pictures.frames[picture].labels)
        for _ in range(times):
            confusion.update(answer, labels)
        matrix = multiclass_confusion_matrix(
            answer, labels.long(), classes, ignore_index=IGNORE_INDEX, validate_args=False
        )
        _add(counts, picture, times * matrix.double().numpy())
    return confusion.result(), {picture: matrix for picture, matrix in counts.items() if matrix.any()}


def _against_stock(
    run: Run, judged: Answers, pictures: Pictures, stock: Callable[[Tensor], Any]
) -> tuple[Quality, Counts]:
    @lru_cache(maxsize=1)
    def reference(picture: int) -> Tensor:
        return _class_map(stock(pictures.pixels(picture)).logits.cpu(), pictures, picture)

    counts: Counts = {}
    with torch.inference_mode():
        for (picture, path), times in sorted(judged.items()):
            answer = _class_map(run.outputs[picture, path], pictures, picture)
            share = agreement([answer], [reference(picture)]).value
            _add(counts, picture, times * answer.numel() * np.array([share, 1.0]))
    return Quality(metric="agreement", value=_share(sum(counts.values())), images=judged.total()), counts


def _add(counts: Counts, picture: int, more: NDArray[np.float64]) -> None:
    counts[picture] = counts[picture] + more if picture in counts else more


def _share(counts: Any) -> float:
    return float(counts[0] / counts[1])


def _mean_iou(matrix: NDArray[np.float64]) -> float:
    """As `ConfusionQuality` defines it, of a matrix that may be a weighted sum."""
    union = matrix.sum(0) + matrix.sum(1) - matrix.diagonal()
    return float((matrix.diagonal()[union > 0] / union[union > 0]).mean())


def _interval(counts: Counts, value: Callable[[NDArray[np.float64]], float]) -> dict[str, Any]:
    """The 95 % interval of `value` over pictures drawn again."""
    if len(counts) < 2:
        return _no_interval("one picture: an interval needs two or more")
    drawn = np.random.default_rng(SEED).multinomial(len(counts), [1 / len(counts)] * len(counts), size=RESAMPLES)
    stacked = np.stack(list(counts.values()))
    values = [value(np.tensordot(weights, stacked, axes=1)) for weights in drawn]
    low, high = (float(bound) for bound in np.percentile(values, [2.5, 97.5]))
    return {"ci95_low": low, "ci95_high": high, "ci_reason": None}


def _no_interval(reason: str) -> dict[str, Any]:
    return {"ci95_low": None, "ci95_high": None, "ci_reason": reason}


def _class_map(logits: Tensor, pictures: Pictures, picture: int) -> Tensor:
    height, width = pictures.frames[picture].labels.shape
    return class_map(logits, (height, width))[0]
