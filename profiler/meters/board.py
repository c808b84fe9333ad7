"""Energy of one accelerator board, whatever library tells it.

Chosen by a trial reading, not by the library's start: boards exist on which a library starts, lists one device
and answers nothing (Jetson). A counter comes first; else power is sampled and integrated, the best defined kind
first, and the source names which.

While windows are open a thread samples: it counts the counter's steps and checks the counter against sampled
power (they were seen to differ by 74 % on an idle board).
"""

import contextlib
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Protocol

from gearshift.errors import MeterUnavailableError
from gearshift.profiler.meters.base import BaseMeter, Clock
from gearshift.profiler.meters.counter import CounterTrack
from gearshift.profiler.meters.integral import PowerIntegral
from gearshift.profiler.meters.protocol import Precision, Reading

RELATIVE_ERROR = 0.05
MAX_GAP_S = 1.0
# The counters and power sensors of the boards surveyed update about every 100 ms.
UPDATE_PERIOD_S = 0.1
# A board whose limit is unknown is not believed above this; the largest boards draw about 1.2 kW.
UNKNOWN_LIMIT_W = 3000.0
# Spikes beyond the enforced limit last microseconds, sensors average over milliseconds.
PLAUSIBLE_FACTOR = 3.0


@dataclass(frozen=True, slots=True)
class PowerSensor:
    """A way to read power: its label, over how long it averages, and the call that gives watts."""

    label: str
    averaging_s: float
    read_w: Callable[[], float]


class Board(Protocol):
    """A board, open until `close`; whatever its library raises is MeterUnavailableError."""

    library: str
    index: int
    name: str
    units_per_joule: float

    @property
    def ceiling_w(self) -> float:
        """Readings above this many watts are nonsense."""

    def read_counter(self) -> int:
        """Read the energy counter, in its own units."""

    def power_sensors(self) -> tuple[PowerSensor, ...]:
        """List the ways to read power, the best defined first."""

    def compute_processes(self) -> tuple[int, ...]:
        """Ids of the processes that compute on the board."""

    def close(self) -> None:
        """Give the library back."""


class BoardMeter(BaseMeter):
    """The energy of one board, all processes on it included.

    Args:
        board: The board; closed with the meter, or when it turns out to answer nothing.
        kind: First word of the meter's name and source.
        boundary: What is included and excluded.
        notes: What a reader of the figures should know.
        clock: Monotonic seconds.
        background: Sample on a thread while windows are open. Without it call `sample` yourself.

    Raises:
        MeterUnavailableError: None of the board's sensors answers.
    """

    board: Board

    def __init__(
        self,
        board: Board,
        *,
        kind: str,
        boundary: str,
        notes: tuple[str, ...] = (),
        clock: Clock = time.perf_counter,
        background: bool = True,
    ) -> None:
        self.board = board
        try:
            self._has_counter, self._sensor = self._try_sensors()
        except MeterUnavailableError:
            board.close()
            raise
        self._counter = CounterTrack(units_per_joule=board.units_per_joule, ceiling_w=board.ceiling_w)
        self._power = PowerIntegral(max_gap_s=MAX_GAP_S)
        self._missing = 0
        super().__init__(
            name=f"{kind}:{board.index}",
            source=f"measured:{kind}-{'energy-counter' if self._has_counter else self._sensor_label}",
            boundary=boundary,
            precision=self._precision(),
            clock=clock,
            period_s=UPDATE_PERIOD_S if background else None,
            notes=notes,
        )
        self.read()

    def sensor_value(self) -> Hashable:
        """The counter as it stands, or power where there is no counter."""
        return self.board.read_counter() if self._has_counter or self._sensor is None else self._sensor.read_w()

    def compute_processes(self) -> tuple[int, ...]:
        """Ids of the processes that compute on the board just now."""
        return self.board.compute_processes()

    def sample(self) -> None:
        """Read what the windows are made of, and with a counter also the power to check it against."""
        self.read()
        if self._has_counter and self._sensor is not None:
            self._check(self._sensor)

    def _check(self, sensor: PowerSensor) -> None:
        """Sample power beside the counter, off the lock so that no window waits for it."""
        with contextlib.suppress(MeterUnavailableError):
            power_w = sensor.read_w()
            with self._lock:
                self._power.add(self._clock(), power_w)

    def _read(self) -> Reading:
        return self._read_counter() if self._sensor is None or self._has_counter else self._read_power(self._sensor)

    def _read_counter(self) -> Reading:
        reason = None
        try:
            raw = self.board.read_counter()
            now_s = self._clock()
            self._counter.update(raw, now_s)
        except MeterUnavailableError as error:
            reason, now_s = str(error), self._clock()
            self._missing += 1
        return Reading(
            time_s=now_s,
            energy_j=self._counter.total_j if reason is None else None,
            reason=reason,
            epoch=self._counter.epoch,
            break_reason=self._counter.break_reason,
            fresh=self._counter.fresh,
            missing=self._missing,
            check_j=self._power.energy_j if self._sensor is not None else None,
            check_s=self._power.seconds,
        )

    def _read_power(self, sensor: PowerSensor) -> Reading:
        now_s, reason = self._take_power(sensor)
        return Reading(
            time_s=now_s,
            energy_j=self._power.energy_j + self._power.gap_j if reason is None else None,
            reason=reason,
            fresh=self._power.samples,
            missing=self._missing,
            gap_s=self._power.gap_s,
        )

    def _take_power(self, sensor: PowerSensor) -> tuple[float, str | None]:
        """Add one sample; a failure is counted and its reason returned."""
        try:
            power_w = sensor.read_w()
        except MeterUnavailableError as error:
            self._missing += 1
            return self._clock(), str(error)
        now_s = self._clock()
        self._power.add(now_s, power_w)
        return now_s, None

    def _try_sensors(self) -> tuple[bool, PowerSensor | None]:
        """Take one trial reading of each kind.

        A counter that stands at zero is not trusted where power can be read.
        """
        failures = []
        sensor = None
        for candidate in self.board.power_sensors():
            try:
                candidate.read_w()
            except MeterUnavailableError as error:
                failures.append(str(error))
            else:
                sensor = candidate
                break
        try:
            has_counter = self.board.read_counter() > 0 or sensor is None
        except MeterUnavailableError as error:
            failures.insert(0, str(error))
            has_counter = False
        if not has_counter and sensor is None:
            raise MeterUnavailableError(
                f"{self.board.library} lists {self.board.name} (index {self.board.index}) but its sensors do not "
                f"answer: {'; '.join(failures)}. Use another meter, or a latency budget, which needs none."
            )
        return has_counter, sensor

    @property
    def _sensor_label(self) -> str:
        return self._sensor.label if self._sensor is not None else "energy-counter"

    def _precision(self) -> Precision:
        if self._has_counter or self._sensor is None:
            return Precision(
                resolution_s=UPDATE_PERIOD_S,
                relative=RELATIVE_ERROR,
                period_s=UPDATE_PERIOD_S,
                resolution_j=1 / self.board.units_per_joule,
            )
        return Precision(
            resolution_s=self._sensor.averaging_s,
            relative=RELATIVE_ERROR,
            what="sensor averaging",
            period_s=UPDATE_PERIOD_S,
        )

    def _give_back(self) -> None:
        self.board.close()
