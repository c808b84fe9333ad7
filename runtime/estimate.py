"""A scalar Kalman filter in the logarithm: how much slower, or hungrier, is the device than when measured?

A ratio's logarithm walks at random; each observation is the logarithm of observed over expected. As in ALERT
(Wan et al., USENIX ATC 2020) the noise is learnt from the innovations. Ours differs in two ways: the
logarithm keeps the ratio positive and makes a halving and a doubling equal steps, and a jump is followed at
once when two observations in a row lie far out on the same side, while a single outlier moves nothing but the
noise.
"""

import math
from dataclasses import dataclass

PROCESS_VARIANCE = 3e-5
"""Variance that the log-ratio gains per observation: about half a per cent a frame."""
OUTLIER_SIGMAS = 3.0
NOISE_MEMORY = 0.05
"""Weight of the newest innovation in the running estimate of the observations' variance."""
LEAST_NOISE = 1e-5


@dataclass(frozen=True, slots=True)
class LogRatio:
    """Estimate of log(observed / expected).

    Attributes:
        mean: Of the log-ratio.
        variance: Of that mean.
        noise: Variance of single observations about the mean.
        far: Sign of the last observation if it lay far out, else 0.
    """

    mean: float = 0.0
    variance: float = 0.05
    noise: float = 0.01
    far: int = 0

    @property
    def ratio(self) -> float:
        """The ratio that the mean stands for."""
        return math.exp(self.mean)

    @property
    def deviation(self) -> float:
        """Standard deviation of the next observation's logarithm."""
        return math.sqrt(self.variance + self.noise)

    def observe(self, log_ratio: float) -> "LogRatio":
        """Take in one observation; anything not finite is ignored."""
        if not math.isfinite(log_ratio):
            return self
        variance = self.variance + PROCESS_VARIANCE
        total = variance + self.noise
        innovation = log_ratio - self.mean
        limit = OUTLIER_SIGMAS**2 * total
        if innovation * innovation <= limit:
            gain = variance / total
            noise = self._noise_with(innovation * innovation - variance)
            return LogRatio(self.mean + gain * innovation, (1 - gain) * variance, noise)
        side = 1 if innovation > 0 else -1
        if side == self.far:  # a second one on the same side: the device has changed
            return LogRatio(log_ratio, self.noise, self.noise, side)
        # As if it lay on the limit: noise that has grown is learnt, one wild value does not count for more.
        return LogRatio(self.mean, variance, self._noise_with(limit - variance), side)

    def _noise_with(self, seen: float) -> float:
        return (1 - NOISE_MEMORY) * self.noise + NOISE_MEMORY * max(seen, LEAST_NOISE)
