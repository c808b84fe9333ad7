"""The ratio of two figures, with an interval where both have a spread. Pure functions."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from gearshift.runtime.report.energy.model import EnergyFigure

RESAMPLES = 499
SEED = 0
LARGEST_BATCH = 2_000_000
"""Numbers drawn at a time while resampling."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """A ratio b / a.

    Attributes:
        value: Or None.
        low, high: 95 % interval, or None.
        how: How the interval was obtained; None without one.
        reason: Why there is no ratio, or no interval; None where there are both.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    how: str | None = None
    reason: str | None = None


def plain_ratio(a: float | None, b: float | None, why_no_interval: str) -> Ratio:
    """Of two figures without a spread."""
    if a is None or b is None:
        return Ratio(value=None, reason="not measured in both")
    if a <= 0 or b < 0:
        return Ratio(value=None, reason="a ratio needs positive figures")
    return Ratio(value=b / a, reason=why_no_interval)


def energy_ratio(a: EnergyFigure, b: EnergyFigure) -> Ratio:
    """Of energies per frame, by Welch's t on their logarithms; it lies around the ratio.

    The variance of the logarithm of a figure is that of the figure over its square (the delta method); degrees of
    freedom are Welch and Satterthwaite's. An older document, which holds no standard error of the figure, gives that
    of the mean of its windows, as a share. The sensor's own error is not in it: between runs on one meter it cancels,
    between two meters it does not.
    """
    found = plain_ratio(a.value_j, b.value_j, "one of them has no spread")
    if found.value is None:
        return found
    first, second = _log_variance(a), _log_variance(b)
    if first is None or second is None:
        return found
    (variance_a, freedom_a), (variance_b, freedom_b) = first, second
    variance = variance_a + variance_b
    half = 0.0
    if variance > 0:
        freedom = variance**2 / (variance_a**2 / freedom_a + variance_b**2 / freedom_b)
        half = float(stats.t.ppf(0.975, freedom)) * math.sqrt(variance)
    return Ratio(
        value=found.value,
        low=found.value * math.exp(-half),
        high=found.value * math.exp(half),
        how="Welch's t on the logarithm",
    )


def _log_variance(figure: EnergyFigure) -> tuple[float, float] | None:
    """Variance of the figure's logarithm, and its degrees of freedom."""
    n, relative = figure.n_effective, _relative_error(figure)
    return None if n is None or n < 2 or relative is None else (relative**2, n - 1)


def _relative_error(figure: EnergyFigure) -> float | None:
    """Standard error, as a share."""
    value, n, mean, std = figure.value_j, figure.n_effective, figure.mean_j, figure.std_j
    if value is None or value <= 0:
        return None
    if figure.standard_error_j is not None:
        return figure.standard_error_j / value
    return std / math.sqrt(n) / mean if n and std is not None and mean is not None and mean > 0 else None


def percentile_ratio(a: Sequence[float], b: Sequence[float], percentile: float) -> Ratio:
    """Of percentiles of all frames, by a bootstrap that takes frames as independent of each other."""
    if len(a) < 2 or len(b) < 2:
        return Ratio(value=None, reason="fewer than two frames")

    def ratio(first: Any, second: Any, axis: int = -1) -> Any:
        return np.percentile(second, percentile, axis=axis) / np.percentile(first, percentile, axis=axis)

    value = float(ratio(np.asarray(a), np.asarray(b)))
    if len(set(a)) == 1 and len(set(b)) == 1:
        return Ratio(value=value, low=value, high=value, how="all frames took the same time")
    interval = stats.bootstrap(
        (a, b),
        ratio,
        n_resamples=RESAMPLES,
        batch=max(1, LARGEST_BATCH // max(len(a), len(b))),
        vectorized=True,
        paired=False,
        method="percentile",
        random_state=np.random.default_rng(SEED),
    ).confidence_interval
    return Ratio(value=value, low=float(interval.low), high=float(interval.high), how="bootstrap over frames")
