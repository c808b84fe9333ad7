"""Reads a meter on a thread of its own, so that no frame waits for a sensor."""

import logging
import threading
from dataclasses import dataclass

from gearshift.profiler.meters import Meter, Reading

log = logging.getLogger(__name__)

LEAST_INTERVAL_S = 0.1


@dataclass(frozen=True, slots=True)
class PowerSample:
    """Mean power between two readings of a meter."""

    number: int
    start_s: float
    end_s: float
    power_w: float
    energy_j: float


class PowerSampler:
    """Keeps the newest mean power of a meter; readings that fail are counted and skipped.

    Args:
        meter: What to read.
        interval_s: Between readings; at least twice the meter's resolution is taken.
    """

    def __init__(self, meter: Meter, interval_s: float = LEAST_INTERVAL_S) -> None:
        self._meter = meter
        self._interval_s = max(interval_s, 2 * meter.precision.resolution_s)
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._samples: list[PowerSample] = []
        self._last: PowerSample | None = None
        self._count = 0
        self._thread: threading.Thread | None = None
        self.missing = 0

    def start(self) -> None:
        """Begin reading; a second call does nothing."""
        if self._thread is None:
            self._stop.clear()
            self._thread = threading.Thread(target=self._run, name="gearshift-sampler", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End reading and wait for the thread."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=5)
            self._thread = None

    @property
    def newest(self) -> PowerSample | None:
        """The last sample; its `number` tells whether it is a new one."""
        with self._lock:
            return self._samples[-1] if self._samples else self._last

    def take(self) -> list[PowerSample]:
        """All samples since the last call, at most about an hour of them."""
        with self._lock:
            taken, self._samples = self._samples, []
            self._last = taken[-1] if taken else self._last
            return taken

    def _run(self) -> None:
        # An open window keeps a sampling meter (sampled NVML, RAPL's wrap-around watch) awake while we read it.
        window = self._meter.window()
        window.open()
        try:
            before = self._meter.read()
            while not self._stop.wait(self._interval_s):
                now = self._meter.read()
                if self._add(before, now):
                    before = now
        finally:
            window.cancel()

    def _add(self, before: Reading, now: Reading) -> bool:
        """Add the power between two readings; True if `now` is the next to subtract from."""
        if now.energy_j is None or before.energy_j is None or now.epoch != before.epoch:
            self.missing += 1
            return True
        seconds, energy = now.time_s - before.time_s, now.energy_j - before.energy_j
        stale = now.fresh is not None and now.fresh == before.fresh
        if stale or seconds <= 0 or energy < 0:
            self.missing += 1
            return False
        with self._lock:
            self._count += 1
            self._samples.append(PowerSample(self._count, before.time_s, now.time_s, energy / seconds, energy))
            del self._samples[:-36_000]
        return True
