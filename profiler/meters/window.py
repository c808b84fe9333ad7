"""A measuring window: opened, closed, and then read.

    with meter.window("decoder") as w:
        ...
    w.energy_j, w.seconds, w.source, w.uncertainty_j     # None with w.reason where not measured

Windows nest and overlap, in any order and from any thread; each takes its own pair of readings. Names are
unique among the windows open on one meter; a window without a name never collides.

On an accelerator, work is queued: synchronise the device before a window opens and before it closes
(`gearshift.profiler.device.synchronise`), or the energy is of other work than the time.
"""

import threading
from collections.abc import Callable, Mapping
from typing import Self

from gearshift.errors import WindowError
from gearshift.profiler.meters.measure import measure
from gearshift.profiler.meters.protocol import Measurement, Meter, Reading


class Window:
    """One measuring window; a context manager, or `open()` and `close()` where windows overlap.

    Until it is closed every figure is None and `reason` says so. An exception in the body passes through, and
    the figures up to it are kept.
    """

    def __init__(self, book: "WindowBook", name: str, restart: bool) -> None:
        self.name = name
        self._book = book
        self._restart = restart
        self._start: Reading | None = None
        self._measurement: Measurement | None = None

    def open(self) -> Self:
        """Begin.

        Raises:
            WindowError: It was opened before, or another window of this name is open.
        """
        if self._start is not None:
            raise WindowError(f"window {self.name!r} was opened before: make a new one with meter.window()")
        self._start = self._book.add(self, self._restart)
        return self

    def close(self) -> Measurement:
        """End, and return what was found.

        Raises:
            WindowError: It is not open.
        """
        if self._start is None:
            raise WindowError(f"window {self.name!r} was never opened: use `with meter.window() as w`, or open() it")
        end = self._book.take(self)
        self._measurement = measure(self._start, end, name=self.name, meter=self._book.meter)
        return self._measurement

    def cancel(self) -> None:
        """Drop an open window and free its name; a window that is not open stays as it is."""
        self._book.drop(self)

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *exception: object) -> None:
        if self._book.has(self):
            self.close()

    @property
    def measurement(self) -> Measurement | None:
        """All figures as one frozen value; None until closed."""
        return self._measurement

    @property
    def energy_j(self) -> float | None:
        """Gross energy in joules."""
        return None if self._measurement is None else self._measurement.energy_j

    @property
    def seconds(self) -> float | None:
        """Length in seconds."""
        return None if self._measurement is None else self._measurement.seconds

    @property
    def power_w(self) -> float | None:
        """Mean power in watts; None for a window without length."""
        return None if self._measurement is None else self._measurement.power_w

    @property
    def uncertainty_j(self) -> float | None:
        """Half-width of the energy in joules."""
        return None if self._measurement is None else self._measurement.uncertainty_j

    @property
    def samples(self) -> int | None:
        """Fresh sensor readings from opening to closing."""
        return None if self._measurement is None else self._measurement.samples

    @property
    def missing(self) -> int | None:
        """Readings that failed or were rejected meanwhile."""
        return None if self._measurement is None else self._measurement.missing

    @property
    def period_s(self) -> float | None:
        """Time between the sensor's fresh readings, as specified or observed; None where continuous."""
        return self._book.meter.precision.period_s

    @property
    def resolution_s(self) -> float:
        """The shortest window that the meter resolves."""
        return self._book.meter.precision.resolution_s

    @property
    def resolution_j(self) -> float | None:
        """The smallest step of energy that the sensor tells; None where unknown."""
        return self._book.meter.precision.resolution_j

    @property
    def source(self) -> str:
        """How the energy is obtained."""
        return self._book.meter.source

    @property
    def reason(self) -> str | None:
        """Why there is no energy."""
        if self._measurement is not None:
            return self._measurement.reason
        state = "still open" if self._book.has(self) else "not open"
        return f"window {self.name!r} is {state}: figures exist once it has closed"

    @property
    def warnings(self) -> tuple[str, ...]:
        """What makes the energy doubtful."""
        return self._measurement.warnings if self._measurement else ()

    @property
    def parts(self) -> Mapping[str, float | None]:
        """Joules by domain."""
        return self._measurement.parts if self._measurement else {}


class WindowBook:
    """The windows that are open on one meter, by name.

    Args:
        meter: The meter that is read.
        on_open: Called before a window's opening reading (keeps the sampling thread running).
        on_close: Called after a window's closing reading.
    """

    def __init__(self, meter: Meter, on_open: Callable[[], None], on_close: Callable[[], None]) -> None:
        self.meter = meter
        self._on_open, self._on_close = on_open, on_close
        self._lock = threading.Lock()
        self._open: dict[str, Window] = {}
        self._made = 0

    def make(self, name: str | None, restart: bool) -> Window:
        """Make a window, not yet open; without a name it gets a number."""
        with self._lock:
            self._made += 1
            return Window(self, name if name is not None else f"window-{self._made}", restart)

    def add(self, window: Window, restart: bool) -> Reading:
        """Enter a window under its name and take its opening reading."""
        with self._lock:
            previous = self._open.get(window.name)
            if previous is not None and not restart:
                raise WindowError(
                    f"a window named {window.name!r} is already open on meter {self.meter.name}: close() or "
                    "cancel() it, choose another name, or drop it with "
                    f"meter.window({window.name!r}, restart=True)"
                )
            self._open[window.name] = window
        if previous is None:
            self._on_open()
        return self.meter.read()

    def take(self, window: Window) -> Reading:
        """Strike an open window out and take its closing reading."""
        if not self._strike(window):
            raise WindowError(
                f"window {window.name!r} is not open on meter {self.meter.name} (closed, cancelled or "
                "restarted before): open a new one with meter.window()"
            )
        try:
            return self.meter.read()
        finally:
            self._on_close()

    def drop(self, window: Window) -> None:
        """Strike a window out without reading."""
        if self._strike(window):
            self._on_close()

    def has(self, window: Window) -> bool:
        """Tell whether this very window is open."""
        with self._lock:
            return self._open.get(window.name) is window

    def _strike(self, window: Window) -> bool:
        with self._lock:
            if self._open.get(window.name) is not window:
                return False
            del self._open[window.name]
            return True
