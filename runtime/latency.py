"""How long each path takes now, on average and at most: learnt from every frame."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import NormalDist

from gearshift.runtime.budget import LatencyLimit
from gearshift.runtime.choices import Choices
from gearshift.runtime.estimate import LogRatio

SPREAD_FRAMES = 20
"""Frames after which the spread of latencies is taken from what is seen, not from when paths were costed."""
BIAS_MEMORY = 0.03
"""Weight of the newest frame in a path's own correction: small, for what all share is to be learnt first."""
BIAS_KEPT = 0.999
"""What a frame leaves of every path's own correction: what one once did must not rule it out for good."""
LARGEST_BIAS = 0.5
CAUTION_STEP = 0.05
MOST_CAUTION = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyEstimate:
    """What frames have taught about latencies; all in logarithms of observed over costed.

    Attributes:
        bias: Each path's own correction, on top of the slowdown.
        slowdown: Of all paths together.
        frames: Seen so far.
        caution: Added to the quantile. Latencies are not normal: it grows with every frame that comes late
            although it was expected in time, and shrinks with every other, so that in the long run just the
            share of frames comes late that the budget allows, whatever their distribution.
    """

    bias: tuple[float, ...]
    slowdown: LogRatio = field(default_factory=LogRatio)
    frames: int = 0
    caution: float = 0.0

    def expected_s(self, choices: Choices, index: int) -> float:
        """What a path is expected to take."""
        return choices.paths[index].latency_s * math.exp(self.slowdown.mean + self.bias[index])

    def quantile_s(self, choices: Choices, index: int, quantile: float | None) -> float:
        """What a path takes at most with probability `quantile`; its mean where that is None."""
        expected = self.expected_s(choices, index)
        if quantile is None:
            return expected
        spread_squared = choices.paths[index].spread ** 2 if self.frames < SPREAD_FRAMES else self.slowdown.noise
        deviation = math.sqrt(self.slowdown.variance + spread_squared)
        return expected * math.exp(_normal_quantile(quantile) * deviation + self.caution)

    def observe(self, choices: Choices, index: int, latency_s: float, limit: LatencyLimit | None) -> "LatencyEstimate":
        """Learn from a frame; a time that is none is ignored.

        Args:
            choices: The paths.
            index: The path that ran it.
            latency_s: How long it took.
            limit: On latency, if there is one.
        """
        if not (math.isfinite(latency_s) and latency_s > 0):
            return self
        bias = self.bias[index]
        observed = math.log(latency_s / choices.paths[index].latency_s)
        slowdown = self.slowdown.observe(observed - bias)
        if slowdown.far == 0:
            bias += BIAS_MEMORY * (observed - bias - slowdown.mean)
        return LatencyEstimate(
            bias=_with(self.bias, index, max(-LARGEST_BIAS, min(LARGEST_BIAS, bias))),
            slowdown=slowdown,
            frames=self.frames + 1,
            caution=self._caution_after(choices, index, latency_s, limit),
        )

    def _caution_after(self, choices: Choices, index: int, latency_s: float, limit: LatencyLimit | None) -> float:
        """Adaptive conformal inference (Gibbs and Candes, NeurIPS 2021), in the logarithm of latency."""
        if limit is None or limit.quantile is None:
            return 0.0
        if self.quantile_s(choices, index, limit.quantile) > limit.seconds:
            return self.caution  # it was not expected in time: for want of a faster path, or because it was pinned
        late = 1.0 if latency_s > limit.seconds else 0.0
        caution = self.caution + CAUTION_STEP * (late - (1 - limit.quantile))
        return max(0.0, min(MOST_CAUTION, caution))


def _with(biases: Sequence[float], index: int, bias: float) -> tuple[float, ...]:
    """All biases a little forgotten, one of them replaced."""
    kept = [BIAS_KEPT * value for value in biases]
    kept[index] = bias
    return tuple(kept)


_NORMAL = NormalDist()
_QUANTILES: dict[float, float] = {}


def _normal_quantile(quantile: float) -> float:
    """Standard normal quantile, remembered: `NormalDist.inv_cdf` takes microseconds at every frame."""
    if quantile not in _QUANTILES:
        _QUANTILES[quantile] = _NORMAL.inv_cdf(quantile)
    return _QUANTILES[quantile]
