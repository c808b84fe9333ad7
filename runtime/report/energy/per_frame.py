"""Gross and net energy of a frame, from a run's total and its windows. Pure functions.

The figure is that of the whole run: all energy over all frames. Windows leave out frames at its edges (before the
first power sample, in a last stretch too short for a window), so that their ratio of sums differs from it a little.
The interval is nevertheless of the figure, and lies around it; the windows give its standard error, which holds for
fewer frames than the figure is of and is thus rather too large than too small:

    gross:  value * exp(-+ t * se / value),  se = value * se(R) / R      above 0, as gross energy is
    net:    value -+ t * se,                 se = se(R)                  may reach below 0

with R, se(R) and the degrees of freedom of t, n_effective - 1, as in `spread`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gearshift.runtime.report.energy.model import EnergyFigure, Windows
from gearshift.runtime.report.energy.spread import METER_PERIODS, RatioSpread, Stretch, half_width, ratio_of

HOW = "whole frames with the pauses after them, one window after the other"
OF_GROSS = (
    "of all energy over all frames: standard error of the ratio of sums over windows, by linearisation; Student's t "
    "on the logarithm"
)
OF_NET = (
    "of all energy above idle over all frames: standard error of the ratio of sums over windows, by linearisation; "
    "Student's t"
)
NO_LOGARITHM = "an interval on the logarithm needs positive energy, and windows that are not worlds apart"
LARGEST_EXPONENT = 100.0
"""An interval beyond that says nothing."""
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
    return _figure(value, reason, uncertainty, run, idle_w=0.0, logarithmic=True)


def net_figure(run: Consumed) -> EnergyFigure:
    """Energy above idle; negative where the device idled more deeply during the run than before it."""
    idle_w = run.idle_power_w
    reason = _why_nothing(run) or ("idle power is not known" if idle_w is None else None)
    if reason or run.gross_j is None or idle_w is None:
        return _figure(None, reason, None, run, idle_w=0.0, logarithmic=False)
    value = (run.gross_j - idle_w * run.seconds) / run.frames
    uncertainty = None
    if run.uncertainty_j is not None and run.idle_uncertainty_w is not None:
        uncertainty = math.hypot(run.uncertainty_j, run.idle_uncertainty_w * run.seconds) / run.frames
    return _figure(value, None, uncertainty, run, idle_w=idle_w, logarithmic=False)


def windows_of(run: Consumed) -> Windows:
    """What the windows were, and whether they may be taken for independent."""
    lengths = [window.seconds for window in run.windows]
    spread = _ratio(run.windows, 0.0)
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
    value: float | None,
    reason: str | None,
    uncertainty: float | None,
    run: Consumed,
    *,
    idle_w: float,
    logarithmic: bool,
) -> EnergyFigure:
    windows = [] if value is None else run.windows
    spread = _ratio(windows, idle_w)
    per_frame = np.asarray([window.above_j(idle_w) / window.frames for window in windows])
    error = _standard_error(value, spread, relative=logarithmic)
    low, high = _interval(value, error, spread, logarithmic=logarithmic)
    missing = reason or (run.why_no_windows if not windows else None) or spread.reason or NO_LOGARITHM
    return EnergyFigure(
        value_j=value,
        reason=reason,
        sensor_uncertainty_j=uncertainty,
        sensor_uncertainty_relative=uncertainty / abs(value) if uncertainty is not None and value else None,
        n_windows=spread.n,
        n_effective=spread.n_effective if spread.n else None,
        windows_j=spread.ratio,
        standard_error_j=error,
        mean_j=float(per_frame.mean()) if spread.n else None,
        std_j=float(per_frame.std(ddof=1)) if spread.n > 1 else None,
        ci95_low_j=low,
        ci95_high_j=high,
        interval_method=None if low is None else OF_GROSS if logarithmic else OF_NET,
        neighbour_correlation=spread.correlation,
        spread_reason=missing if low is None else None,
    )


def _ratio(windows: Sequence[Stretch], idle_w: float) -> RatioSpread:
    return ratio_of([window.above_j(idle_w) for window in windows], [window.frames for window in windows])


def _standard_error(value: float | None, spread: RatioSpread, *, relative: bool) -> float | None:
    """Of `value`; `relative` where the windows give it as a share, None where there is nothing to give it of."""
    if value is None or spread.ratio is None or spread.standard_error is None:
        return None
    if not relative:
        return spread.standard_error
    return value * spread.standard_error / spread.ratio if value > 0 and spread.ratio > 0 else None


def _interval(
    value: float | None, error: float | None, spread: RatioSpread, *, logarithmic: bool
) -> tuple[float | None, float | None]:
    """Around `value`."""
    if value is None or error is None:
        return None, None
    half = half_width(error, spread.n_effective)
    if not logarithmic:
        return value - half, value + half
    if half / value > LARGEST_EXPONENT:
        return None, None
    return value * math.exp(-half / value), value * math.exp(half / value)


def _note(spread: RatioSpread, periods: float | None) -> str:
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
