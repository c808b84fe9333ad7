"""Reads a meter on a thread of its own, so that no frame waits for a sensor."""

import threading
from dataclasses import dataclass

from gearshift.profiler.meters import Meter, Reading

LEAST_INTERVAL_S = 0.1
MOST_SAMPLES = 36_000
"""Kept for `take`: at least an hour of them."""


@dataclass(frozen=True, slots=True)
class PowerSample:
    """Mean power between two readings of a meter.

    Attributes:
        number: Of this sample, counted from 1.
        start_s, end_s: Monotonic times of the two readings.
        power_w: Mean power between them.
        energy_j: Energy between them.
    """

    number: int
    start_s: float
    end_s: float
    power_w: float
    energy_j: float


@dataclass(frozen=True, slots=True)
class Tally:
    """Sums over all samples so far: the difference of two is a mean in which no sample is lost.

    Attributes:
        samples: How many.
        energy_j: Of all of them.
        seconds: Of all of them.
    """

    samples: int = 0
    energy_j: float = 0.0
    seconds: float = 0.0

    def power_since(self, before: "Tally") -> float | None:
        """Mean power of the samples added since `before`; None where there is none."""
        seconds = self.seconds - before.seconds
        return (self.energy_j - before.energy_j) / seconds if seconds > 0 else None


class PowerSampler:
    """Turns a meter's readings into samples of power; readings that fail are counted and skipped.

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
        self._newest: PowerSample | None = None
        self._tally = Tally()
        self._before: Reading | None = None
        self._thread: threading.Thread | None = None
        self.missing = 0

    def start(self) -> None:
        """Begin reading; a second call does nothing."""
        with self._lock:
            if self._thread is None:
                self._stop = threading.Event()
                self._thread = threading.Thread(
                    target=self._run, args=(self._stop,), name="gearshift-sampler", daemon=True
                )
                self._thread.start()

    def stop(self) -> None:
        """End reading and wait for the thread."""
        self.end()
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(timeout=5)

    def end(self) -> None:
        """End reading soon, without waiting."""
        self._stop.set()

    @property
    def newest(self) -> PowerSample | None:
        """The last sample."""
        with self._lock:
            return self._newest

    @property
    def tally(self) -> Tally:
        """Sums over all samples so far."""
        with self._lock:
            return self._tally

    def take(self) -> list[PowerSample]:
        """All samples since the last call, at most about an hour of them."""
        with self._lock:
            taken, self._samples = self._samples, []
            return taken

    def sample(self) -> None:
        """Read the meter now; the thread calls this, and so may a test."""
        now = self._meter.read()
        if self._before is None or self._add(self._before, now):
            self._before = now

    def _run(self, stop: threading.Event) -> None:
        # An open window keeps a sampling meter (sampled NVML, RAPL's wrap-around watch) awake meanwhile.
        window = self._meter.window()
        window.open()
        try:
            self._before = None
            while not stop.is_set():
                self.sample()
                stop.wait(self._interval_s)
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
            return energy < 0  # a counter that went backwards is begun anew; a stale one is waited for
        with self._lock:
            tally = self._tally
            number = tally.samples + 1
            self._newest = PowerSample(number, before.time_s, now.time_s, energy / seconds, energy)
            self._tally = Tally(number, tally.energy_j + energy, tally.seconds + seconds)
            self._samples.append(self._newest)
            del self._samples[:-MOST_SAMPLES]
        return True
