"""Quality of a run's frames as they were answered: against labels, or where there are none the stock."""

from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from gearshift.paths.quality import ConfusionQuality, Quality, agreement, class_map
from gearshift.runtime.bench.drive import Run
from gearshift.runtime.stream import Pictures

Answers = Counter[tuple[int, str]]
"""How often each (picture, path) answered."""


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
        return {"metric": None, "value": None, "frames": 0, "reason": "no output was kept"}
    if any(pictures.has_labels(picture) for picture, _ in judged):
        result = _against_labels(run, judged, pictures, classes)
    else:
        result = _against_stock(run, judged, pictures, stock)
    return {
        "metric": result.metric,
        "value": result.value,
        "per_class": list(result.per_class),
        "frames": judged.total(),
        "not_judged": len(run.frames) - judged.total(),
    }


def _against_labels(run: Run, judged: Answers, pictures: Pictures, classes: int) -> Quality:
    confusion = ConfusionQuality(classes)
    for (picture, path), times in judged.items():
        answer = _class_map(run.outputs[picture, path], pictures, picture)
        labels = torch.from_numpy(pictures.frames[picture].labels)
        for _ in range(times):
            confusion.update(answer, labels)
    return confusion.result()


def _against_stock(run: Run, judged: Answers, pictures: Pictures, stock: Callable[[Tensor], Any]) -> Quality:
    @lru_cache(maxsize=1)
    def answer(picture: int, path: str) -> Tensor:
        return _class_map(run.outputs[picture, path], pictures, picture)

    @lru_cache(maxsize=1)
    def reference(picture: int) -> Tensor:
        return _class_map(stock(pictures.pixels(picture)).logits.cpu(), pictures, picture)

    keys = sorted(judged.elements())
    with torch.inference_mode():
        return agreement((answer(*key) for key in keys), (reference(picture) for picture, _ in keys))


def _class_map(logits: Tensor, pictures: Pictures, picture: int) -> Tensor:
    height, width = pictures.frames[picture].labels.shape
    return class_map(logits, (height, width))[0]
