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
from torch import Tensor

from gearshift.paths.tasks.task import Counts, Task, share
from gearshift.runtime.bench.drive import Run
from gearshift.runtime.stream import Pictures

Answers = Counter[tuple[int, str]]
"""How often each (picture, path) answered."""
CountsByPicture = dict[int, Counts]
"""By picture, what quality is worked out from (see `tasks`)."""

RESAMPLES = 999
SEED = 0


def quality(run: Run, pictures: Pictures, task: Task, stock: Callable[[Tensor], Any]) -> dict[str, Any]:
    """Judge every frame; one whose output was not kept is left out and counted.

    Args:
        run: What happened.
        pictures: What the frames showed.
        task: How the model's answers are judged.
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
    labelled = task.metric is not None and any(pictures.frames[picture].labelled for picture, _ in judged)
    counts = (
        _against_labels(run, judged, pictures, task) if labelled else _against_stock(run, judged, pictures, task, stock)
    )
    total = np.sum(list(counts.values()), axis=0)
    result = (task.quality if labelled else task.agreement)(total, judged.total())
    return {
        "metric": result.metric,
        "value": result.value,
        **_interval(counts, task.value if labelled else share),
        "per_class": list(result.per_class),
        "frames": judged.total(),
        "pictures": len(counts),
        "not_judged": len(run.frames) - judged.total(),
    }


def _against_labels(run: Run, judged: Answers, pictures: Pictures, task: Task) -> CountsByPicture:
    counts: CountsByPicture = {}
    for (picture, path), times in judged.items():
        frame = pictures.frames[picture]
        if frame.labelled:
            _add(counts, picture, times * task.score(task.answer(run.outputs[picture, path], frame), frame))
    return counts


def _against_stock(
    run: Run, judged: Answers, pictures: Pictures, task: Task, stock: Callable[[Tensor], Any]
) -> CountsByPicture:
    @lru_cache(maxsize=1)
    def reference(picture: int) -> Tensor:
        return task.answer(task.essence(stock(pictures.pixels(picture))).cpu(), pictures.frames[picture])

    counts: CountsByPicture = {}
    with torch.inference_mode():
        task = task.judging(reference(picture) for picture in sorted({picture for picture, _ in judged}))
        for (picture, path), times in sorted(judged.items()):
            answer = task.answer(run.outputs[picture, path], pictures.frames[picture])
            _add(counts, picture, times * task.agree(answer, reference(picture)))
    return counts


def _add(counts: CountsByPicture, picture: int, more: Counts) -> None:
    counts[picture] = counts[picture] + more if picture in counts else more


def _interval(counts: CountsByPicture, value: Callable[[Counts], float]) -> dict[str, Any]:
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
