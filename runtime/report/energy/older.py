"""The energy report of a document that was written before there was one: what it does not hold is null and says so."""

from collections.abc import Mapping
from typing import Any

from gearshift.runtime.report.document import FixedRun, Run, RunDocument, Trace
from gearshift.runtime.report.energy.model import (
    CONDITIONS,
    SCHEMA,
    ConditionsRecord,
    Deadlines,
    EnergyMeter,
    EnergyReport,
    Idle,
    LatencyFigures,
    QualityFigure,
    RunEnergy,
    Setting,
    SwitchEnergy,
    Switches,
    SwitchTime,
    Windows,
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

NOT_KEPT = "not kept when this run was recorded"
NOT_TRACED = "fixed paths were recorded without their power samples"


def energy_report_of(document: RunDocument) -> EnergyReport:
    """The document's energy report; one of an older document is put together from what that holds."""
    if document.energy_report is not None:
        return document.energy_report
    return EnergyReport(
        schema_version=SCHEMA,
        created=document.created,
        meter=EnergyMeter(
            name=document.meter.name,
            source=document.meter.source,
            method=None,
            estimated=document.estimated,
            boundary=document.meter.boundary,
            period_s=None,
            resolution_s=None,
            resolution_is="",
            resolution_j=None,
            relative_uncertainty=None,
            reason=NOT_KEPT,
            notes=document.meter.notes,
        ),
        idle=Idle(
            power_w=document.meter.idle_power_w,
            how=document.meter.idle_how,
            reason=NOT_KEPT if document.meter.idle_power_w is None else None,
        ),
        setting=_setting(document),
        run=_run(document, document.run, None, _windows(document.trace, document.run.seconds)),
        baselines={name: _run(document, run, run.path, []) for name, run in document.baselines.items()},
    )


def _setting(document: RunDocument) -> Setting:
    return Setting(
        device=document.device,
        versions=document.versions,
        threads=document.threads,
        dtype=None,
        input_shape=document.input_shape,
        model=document.model.reference,
        weights_sha256=document.model.weights_sha256,
        trained=document.model.trained,
        data=document.frames_from,
        pictures=document.pictures,
        seed=document.seed,
        budget=document.budget,
    )


def _windows(trace: Trace, seconds: float) -> list[Stretch]:
    """Of the traced run; when its first power sample began is not known, so that one is left out."""
    powers = [watts for watts in trace.power_w[1:] if watts is not None]
    if not powers or len(powers) + 1 < len(trace.power_w):
        return []
    return stretches(trace.start_s, trace.power_end_s, powers, window_length_s(seconds, 0.0))


def _run(document: RunDocument, run: Run | FixedRun, path: str | None, windows: list[Stretch]) -> RunEnergy:
    energy = run.energy
    seconds = energy.seconds or run.seconds
    gross_j = energy.gross_j
    if gross_j is None and energy.gross_j_per_frame is not None:
        gross_j = energy.gross_j_per_frame * run.frames
    consumed = Consumed(
        frames=run.frames,
        seconds=seconds,
        gross_j=gross_j,
        reason=energy.reason or (NOT_KEPT if gross_j is None else None),
        uncertainty_j=energy.uncertainty_j,
        idle_power_w=document.meter.idle_power_w if energy.idle_power_w is None else energy.idle_power_w,
        idle_uncertainty_w=None,
        windows=windows,
        least_window_s=window_length_s(run.seconds, 0.0),
        why_no_windows=None if windows else NOT_TRACED if path is not None else None,
        period_s=None,
        budgets=len(run.budgets),
    )
    gross, found = gross_figure(consumed), windows_of(consumed)
    return RunEnergy(
        path=path,
        started=None,
        seconds=run.seconds,
        frames=run.frames,
        camera_fps=run.camera_fps,
        fps=run.fps,
        source=energy.source,
        gross_j=gross_j,
        gross_kwh=None if gross_j is None else kilowatt_hours(gross_j),
        reason=None if gross_j is not None else consumed.reason,
        power_w=energy.power_w,
        gross_j_per_frame=gross,
        net_j_per_frame=net_figure(consumed),
        frames_per_wh=frames_per_wh(gross),
        windows=found if windows else _none(found),
        domains=(),
        warnings=energy.warnings,
        conditions_before=_unknown(),
        conditions_after=_unknown(),
        latency=LatencyFigures(
            n=run.frames,
            p50_ms=run.latency_ms.p50,
            p95_ms=run.latency_ms.p95,
            p99_ms=run.latency_ms.p99,
            max_ms=run.latency_ms.max,
            reason=run.latency_ms.reason,
        ),
        quality=_quality(document, run),
        deadlines=Deadlines(
            what=NOT_KEPT,
            deadline_ms=None,
            n_frames=run.frames,
            misses=None,
            dropped=run.dropped,
            reason=NOT_KEPT,
        ),
        switches=Switches(
            count=run.switches,
            energy=SwitchEnergy(value_j=None, reason=NOT_KEPT, source=energy.source or "none", method="none"),
            time=SwitchTime(value_ms=None, reason=NOT_KEPT, method="none"),
        ),
    )


def _none(windows: Windows) -> Windows:
    return windows.model_copy(update={"note": "The run was not cut into windows."})


def _unknown() -> ConditionsRecord:
    nothing: Mapping[str, Any] = dict.fromkeys(CONDITIONS)
    return ConditionsRecord(**nothing, missing=dict.fromkeys(CONDITIONS, NOT_KEPT))


def _quality(document: RunDocument, run: Run) -> QualityFigure:
    quality = run.quality
    return QualityFigure(
        metric=quality.metric,
        value=quality.value,
        reason=None if quality.value is not None else quality.reason or NOT_KEPT,
        ci_reason=NOT_KEPT,
        data=document.frames_from,
        n_frames=quality.frames,
    )
