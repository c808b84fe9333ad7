"""What came of a run: budget against achieved, latency, energy, quality of the frames as run, time on each path."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gearshift.paths.quality import ConfusionQuality, agreement, class_map
from gearshift.runtime.bench.drive import Run, Served
from gearshift.runtime.bench.windows import sliding_power_w
from gearshift.runtime.budget import Budget
from gearshift.runtime.stream import Pictures

WINDOW_S = 1.0
Document = dict[str, Any]


def summarise(
    run: Run, pictures: Pictures, classes: int, idle_power_w: float | None, stock: Callable[[Tensor], Any]
) -> Document:
    """A run as plain values; what was not measured is None with a reason beside it.

    `stock` is the stock model, the reference for pictures without labels.
    """
    return {
        "seconds": run.seconds,
        "camera_fps": run.fps,
        "frames": len(run.frames),
        "dropped": _dropped(run),
        "fps": len(run.frames) / run.seconds if run.seconds else None,
        "latency_ms": _latency_ms(run.frames),
        "energy": _energy(run, idle_power_w),
        "quality": _quality(run, pictures, classes, stock),
        "paths": _paths(run.frames),
        "switches": sum(a.path != b.path for a, b in zip(run.frames, run.frames[1:], strict=False)),
        "budgets": budgets_held(run),
        "shortfalls": run.shortfalls,
    }


def budgets_held(run: Run) -> list[Document]:
    """For each stretch of the run under one budget, every limit with what was achieved."""
    ends = [start for start, _ in run.budgets[1:]] + [run.seconds]
    stretches = []
    for number, ((start, budget), end) in enumerate(zip(run.budgets, ends, strict=True)):
        frames = [frame for frame in run.frames if frame.budget == number]
        stretches.append(
            {
                "budget": str(budget),
                "from_s": start,
                "to_s": end,
                "limits": _limits(budget, frames, run, start, end),
            }
        )
    return stretches


def _limits(budget: Budget, frames: Sequence[Served], run: Run, start: float, end: float) -> list[Document]:
    limits = []
    power_w = budget.power_w
    if power_w is not None:
        limits.append(_power_limit("power", power_w, run, start, end))
    if budget.mission is not None:
        limits.append(_power_limit("mission", budget.mission.power_w, run, start, end))
    if budget.energy_j is not None:
        limits.append(_energy_limit(budget.energy_j, frames, run, start, end))
    if budget.latency is not None:
        limits.append(_latency_limit(budget, frames))
    return limits


def _power_limit(kind: str, limit_w: float, run: Run, start: float, end: float) -> Document:
    windows, mean = _windows_between(run, start, end)
    over = [watts for watts in windows if watts > limit_w]
    return {
        "kind": kind,
        "unit": "W",
        "limit": limit_w,
        "mean": mean,
        "worst_1s_window": max(windows, default=None),
        "windows": len(windows),
        "windows_in_violation": len(over) / len(windows) if windows else None,
        "held_on_average": None if mean is None else mean <= limit_w,
        "reason": None if windows else "no power was read in a whole window of 1 s",
    }


def _energy_limit(limit_j: float, frames: Sequence[Served], run: Run, start: float, end: float) -> Document:
    """Energy per frame: window power over window frame rate."""
    rate = len(frames) / (end - start) if end > start else 0.0
    windows, mean = _windows_between(run, start, end)
    per_frame = [watts / rate for watts in windows] if rate else []
    return {
        "kind": "energy per frame",
        "unit": "J",
        "limit": limit_j,
        "mean": None if mean is None or not rate else mean / rate,
        "worst_1s_window": max(per_frame, default=None),
        "windows": len(per_frame),
        "windows_in_violation": _share([value > limit_j for value in per_frame]),
        "held_on_average": None if mean is None or not rate else mean / rate <= limit_j,
        "reason": None if per_frame else "no power was read in a whole window of 1 s",
    }


def _latency_limit(budget: Budget, frames: Sequence[Served]) -> Document:
    limit = budget.latency
    assert limit is not None  # the caller looked
    latencies = np.array([frame.latency_s for frame in frames]) * 1e3
    bound_ms = limit.seconds * 1e3
    achieved = None
    if len(latencies):
        achieved = float(latencies.mean() if limit.quantile is None else np.quantile(latencies, limit.quantile))
    return {
        "kind": "latency" if limit.quantile is None else f"latency p{limit.quantile * 100:g}",
        "unit": "ms",
        "limit": bound_ms,
        "mean": float(latencies.mean()) if len(latencies) else None,
        "achieved": achieved,
        "worst_frame": float(latencies.max()) if len(latencies) else None,
        "frames_in_violation": _share([bool(value > bound_ms) for value in latencies]),
        "held": None if achieved is None else achieved <= bound_ms,
    }


def _windows_between(run: Run, start: float, end: float) -> tuple[list[float], float | None]:
    """Window powers that lie within a stretch, and the stretch's mean power."""
    inside = [sample for sample in run.powers if sample.start_s >= start - 1e-9 and sample.end_s <= end + 0.2]
    seconds = sum(sample.end_s - sample.start_s for sample in inside)
    mean = sum(sample.energy_j for sample in inside) / seconds if seconds else None
    return [watts for _, watts in sliding_power_w(inside, WINDOW_S)], mean


def _latency_ms(frames: Sequence[Served]) -> Document:
    if not frames:
        return {"p50": None, "p95": None, "p99": None, "max": None, "reason": "no frame was served"}
    values = np.array([frame.latency_s for frame in frames]) * 1e3
    p50, p95, p99 = (float(value) for value in np.percentile(values, [50, 95, 99]))
    return {"p50": p50, "p95": p95, "p99": p99, "max": float(values.max())}


def _energy(run: Run, idle_power_w: float | None) -> Document:
    found = run.energy
    if found is None or found.energy_j is None or not run.frames:
        reason = found.reason if found is not None and found.reason else "no frame was served"
        return {
            "gross_j_per_frame": None,
            "net_j_per_frame": None,
            "power_w": None,
            "source": found.source if found is not None else None,
            "reason": reason,
        }
    windows = [watts for _, watts in sliding_power_w(run.powers, WINDOW_S)]
    rate = len(run.frames) / found.seconds
    spread = float(np.subtract(*np.percentile(windows, [75, 25]))) if windows else None
    net = None if idle_power_w is None else (found.energy_j - idle_power_w * found.seconds) / len(run.frames)
    return {
        "gross_j": found.energy_j,
        "seconds": found.seconds,
        "gross_j_per_frame": found.energy_j / len(run.frames),
        "net_j_per_frame": net,
        "spread_j_per_frame": None if spread is None else spread / rate,
        "spread": "interquartile range over windows of 1 s",
        "uncertainty_j": found.uncertainty_j,
        "power_w": found.power_w,
        "idle_power_w": idle_power_w,
        "worst_1s_window_w": max(windows, default=None),
        "source": found.source,
        "warnings": list(found.warnings),
        "reason": None,
    }


def _quality(run: Run, pictures: Pictures, classes: int, stock: Callable[[Tensor], Any]) -> Document:
    """Judge every frame as it was answered; a frame whose output was not kept is left out and counted."""
    judged = [frame for frame in run.frames if (frame.picture, frame.path) in run.outputs]
    if not judged:
        return {"metric": None, "value": None, "frames": 0, "reason": "no output was kept"}
    maps = {key: _map(logits, pictures, key[0]) for key, logits in run.outputs.items()}
    answers = [maps[frame.picture, frame.path] for frame in judged]
    if pictures.labelled:
        confusion = ConfusionQuality(classes)
        for frame, answer in zip(judged, answers, strict=True):
            confusion.update(answer, torch.from_numpy(pictures.frames[frame.picture].labels))
        result = confusion.result()
    else:
        with torch.inference_mode():
            reference = {
                picture: _map(stock(pictures.pixels(picture)).logits.cpu(), pictures, picture)
                for picture in sorted({frame.picture for frame in judged})
            }
        result = agreement(answers, [reference[frame.picture] for frame in judged])
    return {
        "metric": result.metric,
        "value": result.value,
        "per_class": list(result.per_class),
        "frames": len(judged),
        "not_judged": len(run.frames) - len(judged),
    }


def _map(logits: Tensor, pictures: Pictures, picture: int) -> Tensor:
    height, width = pictures.frames[picture].labels.shape
    return class_map(logits, (height, width))[0]


def _paths(frames: Sequence[Served]) -> list[Document]:
    """Frames and computing time of each path, most used first."""
    rows: dict[str, list[float]] = {}
    for frame in frames:
        rows.setdefault(frame.path, []).append(frame.latency_s)
    total = sum(frame.latency_s for frame in frames)
    table = [
        {
            "path": path,
            "frames": len(times),
            "share_of_frames": len(times) / len(frames),
            "share_of_time": sum(times) / total,
            "median_ms": float(np.median(times)) * 1e3,
        }
        for path, times in rows.items()
    ]
    return sorted(table, key=lambda row: -float(row["frames"]))


def _dropped(run: Run) -> int:
    if not run.frames:
        return 0
    return run.frames[-1].index + 1 - len(run.frames)


def _share(flags: Sequence[bool]) -> float | None:
    return sum(flags) / len(flags) if flags else None
