"""What frames cost now: the costs as measured when the paths were made, held against the meter.

A meter speaks seldom and late: its reading is a mean over a stretch that began before the last path was
chosen, and an averaging sensor lags on top. So readings are gathered over about a second, and compared with
what such a sensor should have shown, had the frames cost what they are expected to.
"""

import math
from dataclasses import dataclass, replace

from gearshift.runtime.estimate import LogRatio

LONGEST_SPAN_S = 30.0
"""A reading after a longer silence says nothing about the frames meanwhile."""
LARGEST_RATIO = 20.0
"""Nothing is taken for more than so many times, or less than the same part of, what was expected."""
FIRST_GUESS = LogRatio(variance=0.01, noise=0.0025)


@dataclass(frozen=True, slots=True)
class _Shown:
    """How a sensor that averages over some time shows the energy of a frame: evenly over just that time."""

    power_w: float
    start_s: float
    end_s: float

    def joules(self, start_s: float, end_s: float) -> float:
        """What is shown of it between two moments."""
        return self.power_w * max(0.0, min(end_s, self.end_s) - max(start_s, self.start_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyEstimate:
    """What the meter has taught. Net energy is that above idle power.

    Attributes:
        hunger: Net energy of a frame, metered over expected.
        clock_s: Time since the first frame.
        unseen: Frames that an averaging sensor has yet to show in full.
        span_s, span_net_j: Since the last reading: time, and net energy that the sensor should have shown.
        matched_s, matched_net_j: The same for the readings since hunger was last updated.
        metered_net_j: What the meter says of these.
        doubtful_j: Joules beyond the expectation by a single far observation: spent if the next one agrees.
    """

    hunger: LogRatio = FIRST_GUESS
    clock_s: float = 0.0
    unseen: tuple[_Shown, ...] = ()
    span_s: float = 0.0
    span_net_j: float = 0.0
    matched_s: float = 0.0
    matched_net_j: float = 0.0
    metered_net_j: float = 0.0
    doubtful_j: float = 0.0

    def book(self, net_j: float, elapsed_s: float, sensor_s: float) -> "EnergyEstimate":
        """Note a frame.

        Args:
            net_j: Net energy that its path took when it was costed.
            elapsed_s: Time since the frame before was noted.
            sensor_s: Over which the sensor averages.
        """
        before, now = self.clock_s, self.clock_s + max(0.0, elapsed_s)
        frames, shown_j = self.unseen, net_j
        if sensor_s > 0:
            middle = (before + now) / 2
            frames = (*frames, _Shown(net_j / sensor_s, middle, middle + sensor_s))
            shown_j = sum(frame.joules(before, now) for frame in frames)
            frames = tuple(frame for frame in frames if frame.end_s > now)
        return replace(
            self,
            clock_s=now,
            unseen=frames,
            span_s=self.span_s + elapsed_s,
            span_net_j=self.span_net_j + shown_j,
        )

    def read(self, power_w: float, idle_w: float, window_s: float) -> tuple["EnergyEstimate", float]:
        """Take in a power reading, if it is one; also return the joules that were spent beyond those
        expected.

        Args:
            power_w: Mean power since the last reading.
            idle_w: Idle power.
            window_s: Time after which hunger is updated.
        """
        if not (math.isfinite(power_w) and power_w >= 0):
            return self, 0.0
        span_s, span_net_j = self.span_s, self.span_net_j
        fresh = replace(self, span_s=0.0, span_net_j=0.0)
        if not 0 < span_s <= LONGEST_SPAN_S:
            return fresh, 0.0
        matched = replace(
            fresh,
            matched_s=self.matched_s + span_s,
            matched_net_j=self.matched_net_j + span_net_j,
            metered_net_j=self.metered_net_j + (power_w - idle_w) * span_s,
        )
        return matched._update() if matched.matched_s >= window_s - 1e-9 else (matched, 0.0)

    def _update(self) -> tuple["EnergyEstimate", float]:
        """Update hunger; what may be an outlier is booked when a second one confirms it."""
        begun = replace(self, matched_s=0.0, matched_net_j=0.0, metered_net_j=0.0, doubtful_j=0.0)
        if self.matched_net_j <= 0:
            return begun, 0.0
        ratio = self.metered_net_j / self.matched_net_j
        hunger = self.hunger.observe(math.log(min(max(ratio, 1 / LARGEST_RATIO), LARGEST_RATIO)))
        beyond = self.metered_net_j - self.hunger.ratio * self.matched_net_j
        if hunger.far == 0:
            return replace(begun, hunger=hunger), beyond
        if hunger.far == self.hunger.far:
            return replace(begun, hunger=hunger), self.doubtful_j + beyond
        return replace(begun, hunger=hunger, doubtful_j=beyond), 0.0
