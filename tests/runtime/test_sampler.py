"""Power from a meter's readings: none is invented, none is lost, and the thread ends when told."""

import math
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gearshift.profiler.meters import BaseMeter, NullMeter, Precision, Reading
from gearshift.runtime.sampler import LEAST_INTERVAL_S, PowerSampler, Tally


class Scripted(BaseMeter):
    """A meter that gives readings from a list, and then the last one again."""

    def __init__(self, readings: list[Reading], resolution_s: float = 0.0) -> None:
        super().__init__(
            name="scripted",
            source="measured:script",
            boundary="nothing real",
            precision=Precision(resolution_s=resolution_s, relative=0.0),
        )
        self.readings, self.taken = readings, 0

    def _read(self) -> Reading:
        self.taken += 1
        return self.readings[min(self.taken, len(self.readings)) - 1]


def reading(time_s: float, energy_j: float | None, epoch: int = 0, fresh: int | None = None) -> Reading:
    reason = "the sensor is gone" if energy_j is None else None
    return Reading(time_s=time_s, energy_j=energy_j, reason=reason, epoch=epoch, fresh=fresh)


def sampled(*readings: Reading) -> PowerSampler:
    sampler = PowerSampler(Scripted(list(readings)))
    for _ in readings:
        sampler.sample()
    return sampler


def test_power_is_energy_over_time() -> None:
    sampler = sampled(reading(0, 100), reading(1, 110), reading(3, 150))
    assert [(item.power_w, item.energy_j) for item in sampler.take()] == [(10, 10), (20, 40)]
    assert sampler.newest is not None
    assert (sampler.newest.number, sampler.newest.start_s, sampler.newest.end_s) == (2, 1, 3)
    assert sampler.take() == []
    assert sampler.newest.number == 2
    assert sampler.missing == 0


def test_a_missing_reading_makes_no_power_and_breaks_the_chain() -> None:
    sampler = sampled(reading(0, 0), reading(1, None), reading(2, 20), reading(3, 40))
    assert [item.power_w for item in sampler.take()] == [20]
    assert sampler.missing == 2


def test_a_new_epoch_is_never_subtracted_across() -> None:
    sampler = sampled(reading(0, 100), reading(1, 5, epoch=1), reading(2, 15, epoch=1))
    assert [(item.start_s, item.power_w) for item in sampler.take()] == [(1, 10)]
    assert sampler.missing == 1


def test_a_stale_reading_is_waited_for_and_its_time_counted() -> None:
    sampler = sampled(reading(0, 0, fresh=1), reading(1, 0, fresh=1), reading(2, 30, fresh=2))
    assert [(item.start_s, item.end_s, item.power_w) for item in sampler.take()] == [(0, 2, 15)]
    assert sampler.missing == 1


def test_an_estimate_is_never_stale() -> None:
    assert [item.power_w for item in sampled(reading(0, 0), reading(1, 0), reading(2, 4)).take()] == [0, 4]


def test_a_counter_that_goes_backwards_is_begun_anew() -> None:
    sampler = sampled(reading(0, 100), reading(1, 3), reading(2, 13))
    assert [item.power_w for item in sampler.take()] == [10]


def test_two_readings_at_one_moment_make_no_power() -> None:
    assert [item.power_w for item in sampled(reading(1, 0), reading(1, 5), reading(2, 10)).take()] == [10]


@given(
    steps=st.lists(st.tuples(st.floats(0.01, 10), st.floats(0, 100)), min_size=1, max_size=30),
    cut=st.integers(0, 30),
)
def test_the_tally_loses_no_sample(steps: list[tuple[float, float]], cut: int) -> None:
    now, energy, readings = 0.0, 0.0, [reading(0, 0)]
    for seconds, joules in steps:
        now, energy = now + seconds, energy + joules
        readings.append(reading(now, energy))
    sampler = PowerSampler(Scripted(readings))
    before = Tally()
    for number in range(len(readings)):
        sampler.sample()
        if number == cut:
            before = sampler.tally
            sampler.take()
    assert sampler.tally.samples == len(steps)
    left = steps[cut:]
    if left:
        expected = sum(joules for _, joules in left) / sum(seconds for seconds, _ in left)
        assert sampler.tally.power_since(before) == pytest.approx(expected, abs=1e-6)
        assert [item.energy_j for item in sampler.take()] == pytest.approx([joules for _, joules in left], abs=1e-6)
    else:
        assert sampler.tally.power_since(before) is None or cut >= len(readings)


def test_without_a_meter_nothing_is_sampled() -> None:
    sampler = PowerSampler(NullMeter("no sensor here"))
    for _ in range(3):
        sampler.sample()
    assert (sampler.newest, sampler.take(), sampler.tally, sampler.missing) == (None, [], Tally(), 2)
    assert sampler.tally.power_since(Tally()) is None


@pytest.mark.parametrize("resolution_s", [0.0, 1.0])
def test_it_reads_no_faster_than_the_sensor(resolution_s: float) -> None:
    sampler = PowerSampler(Scripted([reading(0, 0)], resolution_s))
    assert sampler._interval_s == max(LEAST_INTERVAL_S, 2 * resolution_s)


def test_the_thread_reads_until_it_is_told_to_end() -> None:
    meter = Scripted([reading(number, 10.0 * number) for number in range(1000)])
    sampler = PowerSampler(meter, 0.0)
    sampler._interval_s = 0.001
    for _ in range(3):
        sampler.start()
    assert sum(thread.name == "gearshift-sampler" for thread in threading.enumerate()) == 1
    wait_until(lambda: sampler.tally.samples >= 3)
    sampler.stop()
    taken = meter.taken
    assert all(thread.name != "gearshift-sampler" for thread in threading.enumerate())
    assert all(math.isclose(item.power_w, 10.0) for item in sampler.take())
    time.sleep(0.01)
    assert meter.taken == taken
    sampler.start()
    wait_until(lambda: meter.taken > taken)
    sampler.stop()
    sampler.stop()


def test_many_may_start_it_at_once() -> None:
    sampler = PowerSampler(Scripted([reading(0, 0)]))
    starters = [threading.Thread(target=sampler.start) for _ in range(20)]
    for starter in starters:
        starter.start()
    for starter in starters:
        starter.join()
    assert sum(thread.name == "gearshift-sampler" for thread in threading.enumerate()) == 1
    sampler.stop()


def wait_until(holds: object) -> None:
    deadline = time.monotonic() + 20
    while not holds() and time.monotonic() < deadline:  # type: ignore[operator]
        time.sleep(0.002)
    assert holds()  # type: ignore[operator]
