"""The meter that measures nothing and says why, so that no caller needs `if meter is None`."""

import time

from gearshift.profiler.meters.base import BaseMeter, Clock
from gearshift.profiler.meters.protocol import Precision, Reading


class NullMeter(BaseMeter):
    """Windows over it have a length, no energy, and a reason.

    Args:
        reason: Why nothing is measured.
        clock: Monotonic seconds.
    """

    def __init__(self, reason: str = "no meter was chosen", *, clock: Clock = time.perf_counter) -> None:
        super().__init__(
            name="none",
            source="none",
            boundary="nothing is measured",
            precision=Precision(resolution_s=0.0, relative=0.0),
            clock=clock,
            notes=(reason,),
        )
        self.reason = reason

    def _read(self) -> Reading:
        return Reading(time_s=self._clock(), energy_j=None, reason=self.reason)
