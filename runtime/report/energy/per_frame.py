"""Gross and net energy of a frame, from a run's total and its windows. Pure functions."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gearshift.runtime.report.energy.model import EnergyFigure, Windows
from gearshift.runtime.report.energy.spread import METER_PERIODS, Spread, Stretch, spread_of

HOW = "whole frames with the pauses after them, one window after the other"
CHANGED = " The budget changed during the run, and what that did is part of the spread."


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumed:
    """What a run took.

    Attributes:
        frames: Served.
        seconds: That the energy is of.
        gross_j: Of the whole run, or None.
        reason: Why there is none.
        uncertainty_j: The meter's half-width of `gross_j`.
        idle_power_w: To be left out of net energy, or None.
        idle_uncertainty_w: Its half-width, or None.
        windows: That the run was cut into; none where that cannot be.
        least_window_s: That windows were to have.
        why_no_windows: Why; None where there are windows.
        period_s: Of the meter; None where it is not known.
        budgets: How many in turn.
    """

    frames: int
    seconds: float
    gross_j: float | None
    reason: str | None
    uncertainty_j: float | None
    idle_power_w: float | None
    idle_uncertainty_w: float | None
    windows: Sequence[Stretch]
    least_window_s: float
    why_no_windows: str | None
    period_s: float | None
    budgets: int = 1


def gross_figure(run: Consumed) -> EnergyFigure:
    """All energy that the meter saw."""
    reason = _why_nothing(run)
    value = None if reason or run.gross_j is None else run.gross_j / run.frames
    uncertainty = None if value is None or run.uncertainty_j is None else run.uncertainty_j / run.frames
    return _figure(value, reason, uncertainty, spread_of([window.gross_j() for window in run.windows]), run)


def net_figure(run: Consumed) -> EnergyFigure:
    """Energy above idle; negative where the device idled more deeply during the run than before it."""
    idle_w = run.idle_power_w
    reason = _why_nothing(run) or ("idle power is not known" if idle_w is None else None)
    if reason or run.gross_j is None or idle_w is None:
        return _figure(None, reason, None, spread_of([]), run)
    value = (run.gross_j - idle_w * run.seconds) / run.frames
    uncertainty = None
    if run.uncertainty_j is not None and run.idle_uncertainty_w is not None:
        uncertainty = math.hypot(run.uncertainty_j, run.idle_uncertainty_w * run.seconds) / run.frames
    return _figure(value, None, uncertainty, spread_of([window.net_j(idle_w) for window in run.windows]), run)


def windows_of(run: Consumed) -> Windows:
    """What the windows were, and whether they may be taken for independent."""
    lengths = [window.seconds for window in run.windows]
    spread = spread_of([window.gross_j() for window in run.windows])
    periods = min(lengths) / run.period_s if lengths and run.period_s else None
    return Windows(
        how=HOW,
        least_s=run.least_window_s,
        n=len(lengths),
        shortest_s=min(lengths, default=None),
        longest_s=max(lengths, default=None),
        meter_periods=periods,
        too_short=None if not lengths or run.period_s is None else periods is not None and periods < METER_PERIODS,
        independent=spread.independent,
        note=_note(spread, periods) + (CHANGED if run.budgets > 1 else ""),
    )


def frames_per_wh(gross: EnergyFigure) -> float | None:
    """Frames for a watt-hour; None where that is not known, or nothing was consumed."""
    return 3600.0 / gross.value_j if gross.value_j is not None and gross.value_j > 0 else None


def _why_nothing(run: Consumed) -> str | None:
    if run.gross_j is None:
        return run.reason or "no reason given"
    return None if run.frames else "no frame was served"


def _figure(
    value: float | None, reason: str | None, uncertainty: float | None, spread: Spread, run: Consumed
) -> EnergyFigure:
    return EnergyFigure(
        value_j=value,
        reason=reason,
        sensor_uncertainty_j=uncertainty,
        sensor_uncertainty_relative=uncertainty / abs(value) if uncertainty is not None and value else None,
        n_windows=spread.n,
        n_effective=spread.n_effective if spread.n else None,
        mean_j=spread.mean,
        std_j=spread.std,
        ci95_low_j=spread.low,
        ci95_high_j=spread.high,
        neighbour_correlation=spread.correlation,
        spread_reason=spread.reason and (reason or run.why_no_windows or spread.reason),
    )


def _note(spread: Spread, periods: float | None) -> str:
    few = ""
    if periods is not None and periods < METER_PERIODS:
        few = (
            f" The shortest window holds {periods:.3g} meter periods, fewer than {METER_PERIODS}: "
            "the sensor's steps are part of the spread."
        )
    if spread.independent is None:
        return f"Too few windows to tell whether neighbours are alike.{few}"
    found = f"correlation of neighbours {spread.correlation or 0.0:.2f}, n = {spread.n}"
    if spread.independent:
        return f"Neighbouring windows may be independent: they are no more alike than chance allows ({found}).{few}"
    if spread.n_effective < spread.n:
        return (
            f"Neighbouring windows are not independent ({found}): the interval is that of "
            f"{spread.n_effective:.3g} independent windows.{few}"
        )
    return f"Neighbouring windows are not independent ({found}): the interval is rather too wide.{few}"
