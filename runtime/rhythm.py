"""When frames come: at a camera's rate, or each as soon as the one before is done?

It decides what a cheaper path saves. At a camera's rate a faster path leaves more time without work; without
one it only brings the next frame sooner.
"""

import math
from dataclasses import dataclass

MEMORY = 0.1
"""Weight of the newest frame."""
WAITED_SHARE = 0.02
"""Frames are taken to come at a rate of their own if this share of the time is spent waiting for them."""
CLEARLY_WAITED_SHARE = 0.1
LONGEST_PAUSE = 3.0
"""A pause counts as at most so many periods: it says little about the rate."""
LEAST_OVERLAP = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Rhythm:
    """What the times between frames have taught.

    Attributes:
        period_s: From the start of a frame to the start of the next; None before the second frame.
        waiting: Share of that time spent waiting for the next frame.
        overlap: Period over latency where frames are not waited for; below 1 where calls overlap.
        last_latency_s: How long the last frame took.
        last_expected_s: How long it was expected to take.
    """

    period_s: float | None = None
    waiting: float = 0.0
    overlap: float = 1.0
    last_latency_s: float | None = None
    last_expected_s: float = 0.0

    @classmethod
    def start(cls, period_s: float | None) -> "Rhythm":
        """Nothing seen yet; `period_s` is the camera's where it is known."""
        return cls(period_s=period_s, waiting=0.0 if period_s is None else 0.5)

    @property
    def camera_period_s(self) -> float | None:
        """Time between frames that come at a rate of their own; None where each follows the one before."""
        return self.period_s if self.waiting >= WAITED_SHARE else None

    def period_with(self, latency_s: float) -> float:
        """Time from frame to frame if each took `latency_s`."""
        camera = self.camera_period_s
        return latency_s * self.overlap if camera is None else max(camera, latency_s)

    def elapsed_s(self, period_s: float | None, latency_s: float) -> float:
        """Time from the end of the last frame to the end of this one.

        Negative where calls overlap and end in another order than they began; in the sum nothing is lost.
        """
        if period_s is None or self.last_latency_s is None or not _is_time(period_s):
            return latency_s
        return period_s + latency_s - self.last_latency_s

    def observe(self, period_s: float | None, latency_s: float, expected_s: float) -> "Rhythm":
        """Learn from a frame.

        Args:
            period_s: From the start of the frame before to the start of this one; ignored where it is none.
            latency_s: How long this frame took.
            expected_s: How long it was expected to take.
        """
        period, waiting, overlap, last = self.period_s, self.waiting, self.overlap, self.last_latency_s
        if period_s is not None and last is not None and _is_time(period_s):
            waited = max(0.0, 1 - last / period_s) if period_s > 0 else 0.0
            if self._tells(waited):
                known = period_s if period is None else min(period_s, LONGEST_PAUSE * period)
                period = known if period is None else period + MEMORY * (known - period)
                waiting = waited if self.period_s is None else waiting + MEMORY * (waited - waiting)
            if waiting < WAITED_SHARE:
                overlap += MEMORY * (min(1.0, max(LEAST_OVERLAP, period_s / last)) - overlap)
        return Rhythm(
            period_s=period,
            waiting=waiting,
            overlap=overlap,
            last_latency_s=latency_s,
            last_expected_s=expected_s,
        )

    def _tells(self, waited: float) -> bool:
        """Whether the last frame's period says anything: not if its path was too slow to keep up."""
        camera = self.camera_period_s
        return camera is None or self.last_expected_s <= camera or waited > CLEARLY_WAITED_SHARE


def _is_time(seconds: float) -> bool:
    return math.isfinite(seconds) and seconds >= 0
