"""How each limit of each budget was held over its stretch of a run."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gearshift.runtime.bench.drive import Run, Served
from gearshift.runtime.bench.windows import WINDOW_S, sliding_power_w
from gearshift.runtime.budget import Budget, LatencyLimit

Values = dict[str, Any]


def budgets_held(run: Run) -> list[Values]:
    """For each stretch of the run under one budget, every limit with what was achieved."""
    ends = [start for start, _ in run.budgets[1:]] + [run.seconds]
    stretches = []
    for number, ((start, budget), end) in enumerate(zip(run.budgets, ends, strict=True)):
        stretches.append(
            {
                "budget": str(budget),
                "from_s": start,
                "to_s": end,
                "limits": _limits(budget, _stretch(run, number, start, end)),
            }
        )
    return stretches


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stretch:
    """Part of a run under one budget.

    Attributes:
        frames: Served in it.
        seconds: Its length.
        windows: Mean power of every window of `WINDOW_S` within it.
        power_w: Mean power over its samples.
        reason: Why there are no windows; None where there are.
    """

    frames: Sequence[Served]
    seconds: float
    windows: Sequence[float]
    power_w: float | None
    reason: str | None


def _stretch(run: Run, number: int, start: float, end: float) -> _Stretch:
    inside = [sample for sample in run.powers if sample.start_s >= start and sample.end_s <= end]
    seconds = sum(sample.end_s - sample.start_s for sample in inside)
    windows = [watts for _, watts in sliding_power_w(inside, WINDOW_S)]
    why = run.energy.reason if run.energy is not None and not inside else None
    return _Stretch(
        frames=[frame for frame in run.frames if frame.budget == number],
        seconds=end - start,
        windows=windows,
        power_w=sum(sample.energy_j for sample in inside) / seconds if seconds else None,
        reason=None if windows else why or f"no power was read in a whole window of {WINDOW_S:g} s",
    )


def _limits(budget: Budget, stretch: _Stretch) -> list[Values]:
    limits = []
    if budget.power_w is not None:
        limits.append(_mean_limit("power", "W", budget.power_w, stretch, 1.0))
    if budget.mission is not None:
        limits.append(_mean_limit("mission", "W", budget.mission.power_w, stretch, 1.0))
    if budget.energy_j is not None:
        period = stretch.seconds / len(stretch.frames) if stretch.frames else None
        limits.append(_mean_limit("energy per frame", "J", budget.energy_j, stretch, period))
    if budget.latency is not None:
        limits.append(_latency_limit(budget.latency, stretch.frames))
    return limits


def _mean_limit(kind: str, unit: str, limit: float, stretch: _Stretch, seconds: float | None) -> Values:
    """A limit on mean power x `seconds`; energy per frame is power x the mean time per frame."""
    scale = seconds or 0.0
    windows = [] if seconds is None else [watts * scale for watts in stretch.windows]
    mean = None if stretch.power_w is None or seconds is None else stretch.power_w * scale
    return {
        "kind": kind,
        "unit": unit,
        "limit": limit,
        "mean": mean,
        "worst_1s_window": max(windows, default=None),
        "windows": len(windows),
        "windows_in_violation": _share([value > limit for value in windows]),
        "held_on_average": None if mean is None else mean <= limit,
        "reason": "no frame was served" if seconds is None else stretch.reason,
    }


def _latency_limit(limit: LatencyLimit, frames: Sequence[Served]) -> Values:
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
        "reason": None if len(latencies) else "no frame was served",
    }


def _share(flags: Sequence[bool]) -> float | None:
    return sum(flags) / len(flags) if flags else None
