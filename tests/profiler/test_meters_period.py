"""How often a sensor delivers, seen under a clock that moves only while somebody waits."""

from collections.abc import Callable, Hashable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.errors import InputError, MeterUnavailableError
from gearshift.profiler.meters import (
    BaseMeter,
    CpuTimeEstimate,
    Ina3221Meter,
    Precision,
    RaplMeter,
    Reading,
    observe_period,
)
from gearshift.profiler.meters.cpu_info import CpuInfo


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.waits = 0

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now_s += seconds
        self.waits += 1


class Ticking(BaseMeter):
    """A sensor that changes every `true_s`."""

    def __init__(
        self, clock: Clock, true_s: float, specified_s: float | None = 0.1, what: str = "counter update"
    ) -> None:
        super().__init__(
            name="ticking",
            source="measured:ticking",
            boundary="a tick",
            precision=Precision(resolution_s=specified_s or 0.0, relative=0.05, period_s=specified_s, what=what),
            clock=clock,
        )
        self.fake, self.true_s, self.fails = clock, true_s, False

    def sensor_value(self) -> Hashable:
        if self.fails:
            raise MeterUnavailableError("the sensor does not answer")
        return int(self.fake() / self.true_s)

    def _read(self) -> Reading:
        return Reading(time_s=self.fake(), energy_j=float(int(self.fake() / self.true_s)), fresh=0)


class TestObserving:
    @settings(deadline=None, max_examples=50)
    @given(ratio=st.floats(0.2, 10.0))
    def test_the_period_is_found_to_a_twentieth_of_the_specified_one(self, ratio: float) -> None:
        clock = Clock()
        found = observe_period(Ticking(clock, true_s=0.1 * ratio), 60.0, clock=clock, sleep=clock.sleep)
        assert found.period_s == pytest.approx(0.1 * ratio, abs=0.1 / 20 + 1e-9)
        assert found.specified_s == 0.1
        assert found.changes == 21

    def test_a_period_that_is_not_specified_is_found_too(self) -> None:
        clock = Clock()
        found = observe_period(Ticking(clock, 0.002, specified_s=None), 1.0, clock=clock, sleep=clock.sleep)
        assert found.period_s == pytest.approx(0.002, abs=1e-4)

    def test_it_ends_in_time(self) -> None:
        clock = Clock()
        found = observe_period(Ticking(clock, true_s=0.4), 1.0, clock=clock, sleep=clock.sleep)
        assert clock.now_s == pytest.approx(1.0, abs=0.01)
        assert found.changes == 2
        assert found.period_s == pytest.approx(0.4, abs=0.006)

    def test_a_sensor_that_moves_too_rarely_is_not_guessed(self) -> None:
        clock = Clock()
        found = observe_period(Ticking(clock, true_s=0.7), 1.0, clock=clock, sleep=clock.sleep)
        assert (found.period_s, found.changes) == (None, 1)
        assert (found.reason or "").startswith("changed 1 time(s) within 1 s")

    def test_a_sensor_that_does_not_answer_says_why(self) -> None:
        clock = Clock()
        meter = Ticking(clock, true_s=0.1)
        meter.fails = True
        found = observe_period(meter, 1.0, clock=clock, sleep=clock.sleep)
        assert (found.period_s, found.reason) == (None, "the sensor does not answer")

    def test_an_estimate_has_no_sensor(self) -> None:
        clock, cpu = Clock(), CpuInfo(model="Chip 8", sockets=1, threads=4, usable_threads=4, is_virtual=False)
        found = observe_period(CpuTimeEstimate(cpu=cpu), 1.0, clock=clock, sleep=clock.sleep)
        assert (found.period_s, found.reason) == (None, "cpu-time has no sensor to watch")

    @pytest.mark.parametrize("seconds", [0.0, -1.0])
    def test_no_time_is_refused(self, seconds: float) -> None:
        with pytest.raises(InputError, match="above 0 s"):
            observe_period(Ticking(Clock(), true_s=0.1), seconds)


class TestAdopting:
    def test_windows_are_judged_by_what_was_seen(self) -> None:
        clock = Clock()
        meter = Ticking(clock, true_s=0.5)
        observe_period(meter, 60.0, clock=clock, sleep=clock.sleep)
        with meter.window() as w:
            clock.now_s += 0.3
        assert w.period_s == pytest.approx(0.5, abs=0.006)
        assert w.warnings[0].startswith("shorter than counter update: 0.3 s < 0.5")

    @pytest.mark.parametrize(("true_s", "resolution_s"), [(0.2, 1.0), (2.0, 2.0)])
    def test_a_mean_never_resolves_more_than_its_length(self, true_s: float, resolution_s: float) -> None:
        clock = Clock()
        meter = Ticking(clock, true_s, specified_s=1.0, what="sensor averaging")
        observe_period(meter, 100.0, clock=clock, sleep=clock.sleep)
        assert meter.precision.resolution_s == pytest.approx(resolution_s, abs=0.06)

    def test_what_was_not_seen_changes_nothing(self) -> None:
        clock = Clock()
        meter = Ticking(clock, true_s=100.0)
        before = meter.precision
        observe_period(meter, 1.0, clock=clock, sleep=clock.sleep)
        assert meter.precision == before


class TestRealSensors:
    def test_rapl(self, tmp_path: Path) -> None:
        zone = tmp_path / "intel-rapl:0"
        zone.mkdir()
        for file, value in (("name", "package-0"), ("energy_uj", "1"), ("max_energy_range_uj", "262143328850")):
            (zone / file).write_text(value)
        found = self.observe(RaplMeter(tmp_path, background=False), zone / "energy_uj", every_s=0.004)
        assert found == pytest.approx(0.004, abs=2e-4)

    def test_a_rail(self, tmp_path: Path) -> None:
        folder = tmp_path / "sys/bus/i2c/drivers/ina3221/1-0040/hwmon/hwmon0"
        folder.mkdir(parents=True)
        for file, value in (("in1_label", "VDD_IN"), ("in1_input", "5000"), ("curr1_input", "1")):
            (folder / file).write_text(value)
        found = self.observe(Ina3221Meter(tmp_path, background=False), folder / "curr1_input", every_s=0.2)
        assert found == pytest.approx(0.2, abs=0.003)

    def observe(self, meter: BaseMeter, file: Path, every_s: float) -> float | None:
        """Watch a meter whose file grows every so often."""
        clock = Clock()
        sleep: Callable[[float], None] = lambda seconds: self._wait(clock, seconds, file, every_s)  # noqa: E731
        return observe_period(meter, 30.0, clock=clock, sleep=sleep).period_s

    def _wait(self, clock: Clock, seconds: float, file: Path, every_s: float) -> None:
        clock.sleep(seconds)
        file.write_text(str(1000 + int(clock.now_s / every_s)))
