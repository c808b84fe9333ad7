"""What came of a run, as plain values: budgets held, latency, energy, quality, use of paths.

Quality is that of the frames as they were answered. What was not measured is None with a reason beside it.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from gearshift.paths.tasks import Task
from gearshift.runtime.bench.drive import Run, Served
from gearshift.runtime.bench.held import budgets_held
from gearshift.runtime.bench.judged import quality
from gearshift.runtime.bench.windows import WINDOW_S, sliding_power_w
from gearshift.runtime.stream import Pictures

Document = dict[str, Any]


def summarise(
    run: Run, pictures: Pictures, task: Task, idle_power_w: float | None, stock: Callable[[Tensor], Any]
) -> Document:
    """A run as plain values; what was not measured is None with a reason beside it.

    `stock` is the stock model, the reference for pictures without labels.
    """
    return {
        "seconds": run.seconds,
        "camera_fps": run.fps,
        "frames": len(run.frames),
        "dropped": run.camera_frames - len(run.frames),
        "fps": len(run.frames) / run.seconds if run.seconds else None,
        "latency_ms": _latency_ms(run.frames),
        "energy": _energy(run, idle_power_w),
        "quality": quality(run, pictures, task, stock),
        "paths": _paths(run.frames),
        "switches": sum(a.path != b.path for a, b in zip(run.frames, run.frames[1:], strict=False)),
        "budgets": budgets_held(run),
        "shortfalls": run.shortfalls,
    }


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
