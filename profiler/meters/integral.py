"""Energy from sampled power, by the trapezoid rule, with its gaps kept apart."""


class PowerIntegral:
    """The area under power samples.

    Args:
        max_gap_s: Samples further apart than this leave a gap: its area is `gap_j`, apart from `energy_j`.
    """

    def __init__(self, *, max_gap_s: float) -> None:
        self.energy_j = self.seconds = 0.0
        self.gap_j = self.gap_s = 0.0
        self.samples = 0
        self._max_gap_s = max_gap_s
        self._last: tuple[float, float] | None = None

    def add(self, time_s: float, power_w: float) -> None:
        """Take in one sample; one that is not later than the last is counted but has no area."""
        self.samples += 1
        if self._last is not None:
            since_s = max(0.0, time_s - self._last[0])
            area_j = 0.5 * (power_w + self._last[1]) * since_s
            if since_s > self._max_gap_s:
                self.gap_j += area_j
                self.gap_s += since_s
            else:
                self.energy_j += area_j
                self.seconds += since_s
        self._last = (time_s, power_w)
