"""Energy per frame over windows of a run, and how sure a mean or a ratio over them is. Pure functions.

A window is a stretch of whole frames, each with the pause after it: from the start of its first frame to the
start of the next window's first, at least `length_s` long. Windows follow each other and share nothing but what
goes on: temperature, the controller's turns, a sensor's lag. So neighbours may be alike, and n windows then tell
less than n independent ones. Where their correlation at lag 1 is beyond chance, the interval is that of

    n_effective = n (1 - r) / (1 + r)

independent windows (a first-order autoregressive process; Zięba 2010, "Effective number of observations").

Energy per frame is a ratio of sums, R = sum(E) / sum(frames), and windows differ in how many frames they hold: the
mean of the windows' own energies per frame is another figure. The standard error of R is that of its linearisation
(Cochran 1977, "Sampling Techniques", section 6.4), from the residuals d = E - R * frames, which sum to 0:

    se(R) = s(d) / (mean(frames) sqrt(n_effective)),    s(d)^2 = sum(d^2) / (n - 1)

With as many frames in each window it is the standard error of the mean. Neighbours are compared by their d. Of fewer
than about ten windows that differ manyfold in frames it is rather too small, as linearisation is.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

WINDOW_S = 1.0
"""Windows are no shorter, save ..."""
MOST_SHARE = 1 / 3
"""... that a run is not cut into fewer than three for the meter's sake."""
METER_PERIODS = 10
"""A window of fewer meter periods is flagged: its edges are uncertain by more than a tenth."""
CHANCE = 1.96
"""Correlations of n independent values lie within this over the root of n, 95 times in 100."""
FEWEST_TO_TELL = 8
"""With fewer windows nothing is said of their independence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A window.

    Attributes:
        frames: In it, all of them whole.
        seconds: Its length.
        energy_j: Gross.
    """

    frames: int
    seconds: float
    energy_j: float

    def above_j(self, idle_power_w: float) -> float:
        """Energy above idle; gross where that is 0."""
        return self.energy_j - idle_power_w * self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Several values of one figure, and an interval of their mean.

    Attributes:
        n: How many.
        n_effective: How many independent ones would tell as much.
        mean: Of them; None without any.
        std: Sample deviation; None with fewer than two.
        low, high: 95 % interval of the mean by Student's t; None with fewer than two.
        correlation: Of neighbours; None with fewer than three, or where all are equal.
        independent: Whether that is within chance; None with fewer than eight.
        reason: Why there is no interval.
    """

    n: int
    n_effective: float
    mean: float | None
    std: float | None
    low: float | None
    high: float | None
    correlation: float | None
    independent: bool | None
    reason: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioSpread:
    """A ratio of sums over windows, joules to frames, and how sure it is.

    Attributes:
        n: Windows.
        n_effective: How many independent ones would tell as much.
        ratio: All energy over all frames; None without windows.
        standard_error: Of that, by linearisation; None with fewer than two windows.
        correlation: Of the residuals of neighbours; None with fewer than three, or where all are 0.
        independent: Whether that is within chance; None with fewer than eight.
        reason: Why there is no standard error.
    """

    n: int
    n_effective: float
    ratio: float | None
    standard_error: float | None
    correlation: float | None
    independent: bool | None
    reason: str | None


def window_length_s(seconds: float, period_s: float) -> float:
    """How long windows of a run should be: a second, and ten meter periods if three of those fit."""
    return max(WINDOW_S, min(METER_PERIODS * period_s, MOST_SHARE * seconds))


def stretches(
    starts_s: Sequence[float], edges_s: Sequence[float], powers_w: Sequence[float], length_s: float
) -> list[Stretch]:
    """Cut a run into windows.

    Args:
        starts_s: Of the frames, rising.
        edges_s: Of the power samples: the first one's start, then every one's end.
        powers_w: Mean power of each sample; taken as constant within it.
        length_s: Least length of a window.
    """
    if not powers_w:
        return []
    starts, edges = np.asarray(starts_s, dtype=float), np.asarray(edges_s, dtype=float)
    energy = np.concatenate([[0.0], np.cumsum(np.diff(edges) * np.asarray(powers_w, dtype=float))])
    starts = starts[(starts >= edges[0]) & (starts <= edges[-1])]
    cuts = _cuts(starts, length_s)
    at_j = np.interp(starts[cuts], edges, energy)
    return [
        Stretch(frames=last - first, seconds=float(starts[last] - starts[first]), energy_j=float(end_j - start_j))
        for first, last, start_j, end_j in zip(cuts, cuts[1:], at_j, at_j[1:], strict=False)
    ]


def _cuts(starts: NDArray[np.float64], length_s: float) -> list[int]:
    """Frames with which windows begin."""
    cuts = [0] if len(starts) else []
    while cuts:
        following = int(np.searchsorted(starts, starts[cuts[-1]] + length_s - 1e-9))
        if following >= len(starts):
            break
        cuts.append(max(following, cuts[-1] + 1))
    return cuts


def spread_of(values: Sequence[float]) -> Spread:
    """Mean, deviation and interval of values in the order in which they came."""
    n = len(values)
    found = np.asarray(values, dtype=float)
    mean = float(found.mean()) if n else None
    if mean is None or n < 2:
        return Spread(
            n=n,
            n_effective=float(n),
            mean=mean,
            std=None,
            low=None,
            high=None,
            correlation=None,
            independent=None,
            reason=_too_few(n),
        )
    std = float(found.std(ddof=1))
    effective, correlation, independent = _neighbours(found - mean)
    half = half_width(std / math.sqrt(effective), effective)
    return Spread(
        n=n,
        n_effective=effective,
        mean=mean,
        std=std,
        low=mean - half,
        high=mean + half,
        correlation=correlation,
        independent=independent,
        reason=None,
    )


def ratio_of(energies_j: Sequence[float], frames: Sequence[int]) -> RatioSpread:
    """All energy over all frames of windows in the order in which they came, with its standard error."""
    n = len(energies_j)
    energy, counts = np.asarray(energies_j, dtype=float), np.asarray(frames, dtype=float)
    ratio = float(energy.sum() / counts.sum()) if n else None
    if ratio is None or n < 2:
        return RatioSpread(
            n=n,
            n_effective=float(n),
            ratio=ratio,
            standard_error=None,
            correlation=None,
            independent=None,
            reason=_too_few(n),
        )
    residuals = energy - ratio * counts
    effective, correlation, independent = _neighbours(residuals)
    deviation = math.sqrt(float(residuals @ residuals) / (n - 1))
    return RatioSpread(
        n=n,
        n_effective=effective,
        ratio=ratio,
        standard_error=deviation / (float(counts.mean()) * math.sqrt(effective)),
        correlation=correlation,
        independent=independent,
        reason=None,
    )


def half_width(standard_error: float, n_effective: float) -> float:
    """Of the 95 % interval by Student's t."""
    return float(stats.t.ppf(0.975, n_effective - 1)) * standard_error


def _too_few(n: int) -> str:
    return f"{'no window' if n == 0 else 'one window'}: an interval needs two or more"


def _neighbours(deviations: NDArray[np.float64]) -> tuple[float, float | None, bool | None]:
    """How many independent values would tell as much; their correlation, and whether that is within chance."""
    n = len(deviations)
    correlation = _correlation(deviations)
    independent = None if correlation is None or n < FEWEST_TO_TELL else abs(correlation) <= CHANCE / math.sqrt(n)
    effective = float(n)
    if independent is False and correlation is not None and correlation > 0:
        effective = max(2.0, n * (1 - correlation) / (1 + correlation))
    return effective, correlation, independent


def _correlation(deviations: NDArray[np.float64]) -> float | None:
    """Autocorrelation at lag 1."""
    square = float(deviations @ deviations)
    if len(deviations) < 3 or square <= 0:
        return None
    return float(deviations[:-1] @ deviations[1:]) / square
