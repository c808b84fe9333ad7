"""Energy of an NVIDIA board.

Chosen by a trial reading, not by the library's start: boards exist on which NVML starts, lists one device and
answers nothing (Jetson). Best first:

    measured:nvml-energy-counter   the board's own counter (Volta and newer)
    measured:nvml-power-average    one-second mean power, sampled every 0.1 s and integrated by the trapezoid
    rule measured:nvml-power-instant    the same over power that the board calls instantaneous (about 25 ms)
    measured:nvml-power-usage      the same over the older reading, taken for a one-second mean: so from
    Ampere on

While windows are open a thread samples: it counts the counter's steps and checks the counter against sampled
power (they were seen to differ by 74 % on an idle board). The systematic error is taken as 5 %, NVIDIA's own
figure for older boards; on A100 and H100 the sensor sees a quarter of the time ("Part-time Power
Measurements", SC'24).
"""

import contextlib
import time
from types import ModuleType
from typing import Any

from gearshift.errors import MeterUnavailableError
from gearshift.profiler.meters.base import BaseMeter, Clock
from gearshift.profiler.meters.counter import CounterTrack
from gearshift.profiler.meters.integral import PowerIntegral
from gearshift.profiler.meters.nvml_device import UPDATE_PERIOD_S, NvmlDevice, PowerSensor
from gearshift.profiler.meters.protocol import Precision, Reading

RELATIVE_ERROR = 0.05
MAX_GAP_S = 1.0


class NvmlMeter(BaseMeter):
    """The energy of one board, all processes on it included.

    Args:
        index: Board in the order of `nvidia-smi`, or its UUID (see `visible_board` for the one that CUDA
            uses).
        binding: The `pynvml` module or one that behaves like it; None imports it.
        clock: Monotonic seconds.
        background: Sample on a thread while windows are open. Without it call `sample` yourself.

    Raises:
        MeterUnavailableError: The library, the driver, the board or every one of its sensors is missing.
    """

    def __init__(
        self,
        index: int | str = 0,
        *,
        binding: ModuleType | Any | None = None,
        clock: Clock = time.perf_counter,
        background: bool = True,
    ) -> None:
        self.board = NvmlDevice(index, binding)
        try:
            self._has_counter, self._sensor = self._try_sensors()
        except MeterUnavailableError:
            self.board.close()
            raise
        self._counter = CounterTrack(units_per_joule=1000, ceiling_w=self.board.ceiling_w)
        self._power = PowerIntegral(max_gap_s=MAX_GAP_S)
        self._missing = 0
        super().__init__(
            name=f"nvml:{self.board.index}",
            source=f"measured:nvml-{'energy-counter' if self._has_counter else self._sensor_label}",
            boundary=_boundary(self.board),
            precision=self._precision(),
            clock=clock,
            period_s=UPDATE_PERIOD_S if background else None,
            notes=_notes(self.board),
        )
        self.read()

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
            raw = self.board.energy_mj()
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
            has_counter = self.board.energy_mj() > 0 or sensor is None
        except MeterUnavailableError as error:
            failures.insert(0, str(error))
            has_counter = False
        if not has_counter and sensor is None:
            raise MeterUnavailableError(
                f"NVML lists {self.board.name} (index {self.board.index}) but its sensors do not answer: "
                f"{'; '.join(failures)}. Use another meter, or a latency budget, which needs none."
            )
        return has_counter, sensor

    @property
    def _sensor_label(self) -> str:
        return self._sensor.label if self._sensor is not None else "energy-counter"

    def _precision(self) -> Precision:
        if self._has_counter or self._sensor is None:
            return Precision(resolution_s=UPDATE_PERIOD_S, relative=RELATIVE_ERROR)
        return Precision(resolution_s=self._sensor.averaging_s, relative=RELATIVE_ERROR, what="sensor averaging")

    def _give_back(self) -> None:
        self.board.close()


def _boundary(board: NvmlDevice) -> str:
    text = (
        f"GPU board only: {board.name} (index {board.index}, {board.uuid}) with its memory, all processes on "
        "it; host excluded (CPU, DRAM, power supply, fans of the case, other boards)"
    )
    return text + "; the board is split into MIG slices, all of them included" if board.is_partitioned else text


def _notes(board: NvmlDevice) -> tuple[str, ...]:
    if hasattr(board.binding, "__path__"):
        return ("the retired package `pynvml` hides nvidia-ml-py: pip uninstall pynvml; pip install nvidia-ml-py",)
    return ()
