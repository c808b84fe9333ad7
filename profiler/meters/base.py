"""What meters share: windows, a lock, an optional sampling thread, and an end."""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from typing import Self

from gearshift.profiler.meters.poller import Poller
from gearshift.profiler.meters.protocol import Precision, Reading
from gearshift.profiler.meters.window import Window, WindowBook

Clock = Callable[[], float]


class BaseMeter(ABC):
    """A meter that supplies `_read`; everything else is here.

    Args:
        name: Short name.
        source: Label of how the figures are obtained.
        boundary: What is included and excluded.
        precision: How fine the readings are.
        clock: Monotonic seconds; never the wall clock, which may jump.
        period_s: Call `sample` this often on a daemon thread while windows are open; None for no thread.
        notes: What a reader of the figures should know.
    """

    def __init__(
        self,
        *,
        name: str,
        source: str,
        boundary: str,
        precision: Precision,
        clock: Clock = time.perf_counter,
        period_s: float | None = None,
        notes: tuple[str, ...] = (),
    ) -> None:
        self.name, self.source, self.boundary = name, source, boundary
        self.precision, self.notes = precision, notes
        self._clock = clock
        self._lock = threading.Lock()
        self._closed = False
        self._poller = None if period_s is None else Poller(self.sample, period_s, f"gearshift-{name}")
        self._book = WindowBook(self, self._hold, self._release)

    @abstractmethod
    def _read(self) -> Reading:
        """Read the sensor and the clock; called with the lock held. Never raises because a sensor failed."""

    def read(self) -> Reading:
        """Take the time and the cumulative energy, as one pair."""
        with self._lock:
            if self._closed:
                return Reading(time_s=self._clock(), energy_j=None, reason=f"meter {self.name} was closed")
            return self._read()

    def sample(self) -> None:
        """Take note of the sensor now; the sampling thread calls this, and so may a test."""
        self.read()

    def sensor_value(self) -> Hashable | None:
        """What the sensor shows just now, undigested, for whoever watches it change; None without a sensor.

        Raises:
            MeterUnavailableError: It does not answer.
        """
        return None

    def window(self, name: str | None = None, *, restart: bool = False) -> Window:
        """Make a window: `with meter.window() as w: ...`, or `open()` and `close()` it by hand.

        Args:
            name: Unique among the open windows of this meter; None for a window that never collides.
            restart: Drop an open window of the same name instead of refusing.
        """
        return self._book.make(name, restart)

    def close(self) -> None:
        """End the sampling thread and give the sensor back; closing twice is fine."""
        if self._poller is not None:
            self._poller.close()
        with self._lock:
            if not self._closed:
                self._closed = True
                self._give_back()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _give_back(self) -> None:
        """Release handles; nothing by default."""
        return

    def _hold(self) -> None:
        if self._poller is not None:
            self._poller.hold()

    def _release(self) -> None:
        if self._poller is not None:
            self._poller.release()
