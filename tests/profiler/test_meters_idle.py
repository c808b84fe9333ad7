"""Idle power, and gross and net energy."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.errors import InputError
from gearshift.profiler.meters import (
    BaseMeter,
    CpuTimeEstimate,
    IdlePower,
    NullMeter,
    Precision,
    Reading,
    measure_idle,
    net_energy_j,
)
from gearshift.profiler.meters.cpu_info import CpuInfo
from gearshift.units import (
    joules_from_millijoules,
    kilowatt_hours,
    watts_from_microwatts,
    watts_from_milliwatts,
)
from tests.support import Clock


class IdleBoard(BaseMeter):
    def __init__(self, clock: Clock, power_w: float) -> None:
        super().__init__(
            name="idle",
            source="measured:idle",
            boundary="a board",
            precision=Precision(resolution_s=0.1, relative=0.05),
            clock=clock,
        )
        self.power_w = power_w

    def _read(self) -> Reading:
        return Reading(time_s=self._clock(), energy_j=self.power_w * self._clock())


@settings(deadline=None)
@given(power_w=st.floats(0.1, 1000.0), seconds=st.floats(0.5, 600.0))
def test_idle_power_is_the_mean_over_the_wait(power_w: float, seconds: float) -> None:
    clock = Clock()
    idle = measure_idle(IdleBoard(clock, power_w), seconds, sleep=clock.sleep)
    assert idle.power_w == pytest.approx(power_w)
    assert idle.seconds == pytest.approx(seconds)
    assert idle.uncertainty_w is not None
    assert (idle.source, idle.reason, idle.warnings) == ("measured:idle", None, ())


def test_a_wait_shorter_than_the_sensor_is_flagged() -> None:
    clock = Clock()
    assert measure_idle(IdleBoard(clock, 20.0), 0.05, sleep=clock.sleep).warnings[0].startswith("shorter than")


def test_the_estimate_gives_its_own_constant_at_once() -> None:
    cpu = CpuInfo(model="x", sockets=1, threads=2, usable_threads=2, is_virtual=True)
    idle = measure_idle(CpuTimeEstimate(cpu=cpu, table={}), 10.0, sleep=lambda _: pytest.fail("it waited"))
    assert idle.power_w == pytest.approx(0.1 * 2 * 4.0)
    assert (idle.source, idle.how) == ("estimated:cpu-time", "constant of the estimate")


def test_without_a_meter_idle_power_is_none_with_the_reason() -> None:
    clock = Clock()
    idle = measure_idle(NullMeter("no sensor", clock=clock), 1.0, sleep=clock.sleep)
    assert (idle.power_w, idle.uncertainty_w, idle.reason) == (None, None, "no sensor")


def test_a_wait_without_length_is_none() -> None:
    idle = measure_idle(IdleBoard(Clock(), 20.0), 1.0, sleep=lambda _: None)
    assert (idle.power_w, idle.reason) == (None, "the window has no length")


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan")])
def test_a_wait_has_a_length(seconds: float) -> None:
    with pytest.raises(InputError, match="above 0 s"):
        measure_idle(NullMeter(), seconds)


def idle_of(power_w: float | None) -> IdlePower:
    return IdlePower(power_w=power_w, seconds=10.0, uncertainty_w=None, source="s", how="h")


def test_net_is_gross_less_idle() -> None:
    # 10 s at 60 W with 20 W idle: gross 600 J, net 400 J; over 100 frames 6 and 4 J each
    net_j = net_energy_j(600.0, 10.0, idle_of(20.0))
    assert net_j == 400.0
    assert (600.0 / 100, net_j / 100) == (6.0, 4.0)


@pytest.mark.parametrize(
    ("energy_j", "seconds", "idle"),
    [
        (None, 10.0, idle_of(20.0)),
        (600.0, None, idle_of(20.0)),
        (600.0, 10.0, None),
        (600.0, 10.0, idle_of(None)),
    ],
)
def test_net_is_none_where_a_part_is_unknown(
    energy_j: float | None, seconds: float | None, idle: IdlePower | None
) -> None:
    assert net_energy_j(energy_j, seconds, idle) is None


def test_net_below_zero_is_not_hidden() -> None:
    assert net_energy_j(190.0, 10.0, idle_of(20.0)) == -10.0


def test_units_at_the_edge() -> None:
    assert joules_from_millijoules(123_456) == 123.456
    assert watts_from_milliwatts(61_500) == 61.5
    assert watts_from_microwatts(15_000_000) == 15.0
    assert kilowatt_hours(250e-3 * 4000) == pytest.approx(2.7778e-4, rel=1e-4)
    assert kilowatt_hours(3.6e6) == 1.0
