"""The energy report of a bench: from what happened, what the meter said, and the conditions around it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gearshift.profiler.meters import IdlePower, Measurement, Meter, is_estimate
from gearshift.profiler.meters.conditions import Conditions
from gearshift.runtime.bench.drive import Run, Served
from gearshift.runtime.bench.switching import SwitchCost
from gearshift.runtime.report.energy.model import (
    ConditionsRecord,
    Deadlines,
    Domain,
    EnergyMeter,
    Idle,
    LatencyFigures,
    QualityFigure,
    RunEnergy,
)
from gearshift.runtime.report.energy.per_frame import (
    Consumed,
    frames_per_wh,
    gross_figure,
    net_figure,
    windows_of,
)
from gearshift.runtime.report.energy.spread import Stretch, stretches, window_length_s
from gearshift.units import kilowatt_hours

ReadConditions = Callable[[], Conditions]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A run with what was read around it.

    Attributes:
        run: What happened.
        summary: The same, as `summarise` tells it.
        started: UTC.
        before: Conditions when it began.
        after: Conditions when it ended.
        path: That it was fixed to, or None.
    """

    run: Run
    summary: Mapping[str, Any]
    started: str
    before: Conditions
    after: Conditions
    path: str | None


def run_energy(outcome: Outcome, meter: Meter, idle: IdlePower, data: str, switch: SwitchCost) -> RunEnergy:
    """One run of the report.

    Args:
        outcome: The run.
        meter: Where energy was read.
        idle: Power without our work.
        data: What its frames showed.
        switch: What a change of path costs.
    """
    run, summary = outcome.run, outcome.summary
    consumed = _consumed(run, meter, idle)
    gross = gross_figure(consumed)
    return RunEnergy(
        path=outcome.path,
        started=outcome.started,
        seconds=run.seconds,
        frames=len(run.frames),
        camera_fps=run.fps,
        fps=summary["fps"],
        source=meter.source,
        gross_j=consumed.gross_j,
        gross_kwh=None if consumed.gross_j is None else kilowatt_hours(consumed.gross_j),
        reason=consumed.reason,
        power_w=None if run.energy is None else run.energy.power_w,
        gross_j_per_frame=gross,
        net_j_per_frame=net_figure(consumed),
        frames_per_wh=frames_per_wh(gross),
        windows=windows_of(consumed),
        domains=_domains(run.energy),
        warnings=() if run.energy is None else run.energy.warnings,
        conditions_before=ConditionsRecord(**outcome.before.to_dict()),
        conditions_after=ConditionsRecord(**outcome.after.to_dict()),
        latency=_latency(len(run.frames), summary["latency_ms"]),
        quality=_quality(summary["quality"], data),
        deadlines=_deadlines(run),
        switches=switch.of_run(summary["switches"]),
    )


def meter_of(meter: Meter) -> EnergyMeter:
    """How energy was obtained; a meter that gave nothing says why in its notes."""
    precision = meter.precision
    estimated, nothing = is_estimate(meter.source), meter.source == "none"
    by_counter = precision.what == "counter update"
    return EnergyMeter(
        name=meter.name,
        source=meter.source,
        method="none" if nothing else "estimate" if estimated else "counter" if by_counter else "integral",
        estimated=estimated,
        boundary=meter.boundary,
        period_s=precision.period_s,
        resolution_s=None if nothing else precision.resolution_s,
        resolution_is="" if nothing else precision.what if precision.resolution_s else "read continuously",
        resolution_j=precision.resolution_j,
        relative_uncertainty=None if nothing else precision.relative,
        reason=(meter.notes[0] if meter.notes else "nothing is measured") if nothing else None,
        notes=meter.notes,
    )


def idle_of(idle: IdlePower) -> Idle:
    """Power without our work."""
    return Idle(
        power_w=idle.power_w,
        uncertainty_w=idle.uncertainty_w,
        seconds=idle.seconds,
        source=idle.source,
        how=idle.how,
        reason=idle.reason,
        warnings=idle.warnings,
    )


def _consumed(run: Run, meter: Meter, idle: IdlePower) -> Consumed:
    found = run.energy
    windows = _windows(run, meter.precision.resolution_s)
    gross_j = None if found is None else found.energy_j
    return Consumed(
        frames=len(run.frames),
        seconds=run.seconds if found is None else found.seconds,
        gross_j=gross_j,
        reason=None if gross_j is not None else (found.reason if found is not None else None) or "no reason given",
        uncertainty_j=None if found is None else found.uncertainty_j,
        idle_power_w=idle.power_w,
        idle_uncertainty_w=idle.uncertainty_w,
        windows=windows if gross_j is not None else [],
        least_window_s=window_length_s(run.seconds, meter.precision.resolution_s),
        why_no_windows=None if windows else "no whole window within the power samples",
        period_s=meter.precision.resolution_s,
        budgets=len(run.budgets),
    )


def _windows(run: Run, period_s: float) -> list[Stretch]:
    if not run.powers:
        return []
    edges = [run.powers[0].start_s, *(sample.end_s for sample in run.powers)]
    starts = [frame.start_s for frame in run.frames]
    watts = [sample.power_w for sample in run.powers]
    return stretches(starts, edges, watts, window_length_s(run.seconds, period_s))


def _domains(found: Measurement | None) -> tuple[Domain, ...]:
    parts = {} if found is None else found.parts
    return tuple(
        Domain(name=name, energy_j=joules, reason="it could not be read" if joules is None else None)
        for name, joules in parts.items()
    )


def _latency(frames: int, found: Mapping[str, Any]) -> LatencyFigures:
    return LatencyFigures(
        n=frames,
        p50_ms=found["p50"],
        p95_ms=found["p95"],
        p99_ms=found["p99"],
        max_ms=found["max"],
        reason=found.get("reason"),
    )


def _quality(found: Mapping[str, Any], data: str) -> QualityFigure:
    return QualityFigure(
        metric=found["metric"],
        value=found["value"],
        reason=found.get("reason"),
        ci95_low=found["ci95_low"],
        ci95_high=found["ci95_high"],
        ci_reason=found["ci_reason"],
        data=data,
        n_frames=found["frames"],
        n_pictures=found["pictures"],
    )


def _deadlines(run: Run) -> Deadlines:
    """Each frame against the latency limit in force, or where there is none the camera's period."""
    limits = [budget.latency for _, budget in run.budgets]
    bounds_s = [1 / run.fps if limit is None else limit.seconds for limit in limits]
    late = _late(run.frames, bounds_s)
    same = len(set(bounds_s)) == 1
    given = {limit is not None for limit in limits}
    what = {
        frozenset({True}): "latency limit of the budget",
        frozenset({False}): "the camera's period: no budget limits latency",
    }.get(frozenset(given), "latency limit of the budget in force, else the camera's period")
    return Deadlines(
        what=what,
        deadline_ms=bounds_s[0] * 1e3 if same else None,
        n_frames=len(run.frames),
        misses=late if run.frames else None,
        dropped=run.camera_frames - len(run.frames),
        reason=None if run.frames else "no frame was served",
    )


def _late(frames: Sequence[Served], bounds_s: Sequence[float]) -> int:
    return sum(frame.latency_s > bounds_s[frame.budget] for frame in frames)
