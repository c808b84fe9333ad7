"""Timing, with a clock and a device that tests drive."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gearshift.errors import InputError
from gearshift.profiler import Timing, measure_in_turn, measure_latency, measure_throughput, ratio_of_medians


class Machine:
    """A clock, a device whose work is only done when waited for, and the order in which they were used."""

    def __init__(self, work_s=(), sync_s=0.0):
        self.now_s = 100.0
        self.queued_s = 0.0
        self.work_s = iter(work_s)
        self.sync_s = sync_s
        self.log = []

    def clock(self):
        self.log.append("clock")
        return self.now_s

    def synchronise(self):
        self.log.append("sync")
        self.now_s += self.queued_s + self.sync_s
        self.queued_s = 0.0

    def run(self):
        self.log.append("run")
        self.queued_s += next(self.work_s, 0.005)

    def seams(self):
        return {"synchronise": self.synchronise, "clock": self.clock}


def test_the_device_is_waited_for_before_and_after():
    machine = Machine()
    timing = measure_latency(machine.run, warmup=0, repeats=1, **machine.seams())

    assert machine.log == ["sync", "clock", "run", "sync", "clock"]
    assert timing.median_ms == pytest.approx(5)


def test_warm_up_is_thrown_away_and_the_first_call_kept():
    machine = Machine(work_s=[0.2, 0.2])
    timing = measure_latency(machine.run, warmup=2, repeats=20, **machine.seams())

    assert timing.first_call_ms == pytest.approx(200)
    assert timing.samples_ms == pytest.approx([5] * 20)
    assert (timing.n, timing.min_ms, timing.p95_ms, timing.iqr_ms) == pytest.approx((20, 5, 5, 0))


def test_without_warm_up_the_first_call_is_measured_too():
    machine = Machine(work_s=[0.2])
    timing = measure_latency(machine.run, warmup=0, repeats=3, **machine.seams())

    assert timing.first_call_ms == timing.samples_ms[0] == pytest.approx(200)


def test_throughput_waits_at_the_ends_only_and_latency_around_every_call():
    machine = Machine(work_s=[0.001] * 300, sync_s=0.001)
    throughput = measure_throughput(machine.run, warmup=0, repeats=100, **machine.seams())
    assert machine.log.count("sync") == 2
    assert throughput.per_second == pytest.approx(100 / (100 * 0.001 + 0.001))
    assert "both ends only" in throughput.source

    machine.log.clear()
    timing = measure_latency(machine.run, warmup=0, repeats=100, **machine.seams())
    assert machine.log.count("sync") == 200
    assert "before and after every call" in timing.source


def test_measuring_goes_on_for_the_time_asked():
    machine = Machine()
    timing = measure_latency(machine.run, warmup=0, repeats=2, min_seconds=0.098, **machine.seams())

    assert timing.n == 20


def test_candidates_are_measured_in_turn_and_share_the_noise():
    machine = Machine()
    order = []

    def candidate(name, work_s):
        def run():
            order.append(name)
            slowdown = 3 if len(order) > 12 else 1  # another process takes the machine half way
            machine.queued_s += work_s * slowdown

        return run

    timings = measure_in_turn(
        {"stock": candidate("stock", 0.010), "folded": candidate("folded", 0.004)},
        10,
        warmup=1,
        **machine.seams(),
    )

    assert order[:8] == ["stock", "folded", "stock", "folded", "folded", "stock", "stock", "folded"]
    ratio = ratio_of_medians(timings["folded"], timings["stock"])
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((0.4, 0.4, 0.4))
    assert ratio.rounds == timings["stock"].n == 10
    assert timings["stock"].iqr_ms > 0
    assert "2 candidates in turn" in timings["stock"].source


def test_every_candidate_is_warmed_for_its_own_shape():
    """A library that tunes itself for 50 ms whenever a path meets a shape for the first time."""
    machine, tuned = Machine(), []

    def candidate(path, side):
        def run():
            if (path, side) not in tuned:
                tuned.append((path, side))
                machine.queued_s += 0.050
            machine.queued_s += 0.002

        return run

    pairs = [(path, side) for path in ("stock", "folded") for side in (32, 48, 64)]
    timings = measure_in_turn(
        {f"{path}@{side}": candidate(path, side) for path, side in pairs}, 5, warmup=1, **machine.seams()
    )

    assert sorted(tuned) == sorted(pairs)
    assert all(timing.p95_ms == pytest.approx(2) for timing in timings.values())
    assert all(timing.first_call_ms == pytest.approx(52) for timing in timings.values())


def test_only_rounds_that_belong_together_are_compared():
    one, two = (Timing.of([1.0] * n, first_call_ms=1.0, source="measured:test") for n in (1, 2))
    with pytest.raises(InputError, match="measure both with measure_in_turn"):
        ratio_of_medians(one, two)


@given(st.lists(st.floats(0.01, 1e4), min_size=1, max_size=50))
def test_a_summary_lies_within_its_samples(samples):
    timing = Timing.of(samples, first_call_ms=samples[0], source="measured:test")

    assert min(samples) == timing.min_ms <= timing.median_ms * (1 + 1e-9)
    assert timing.median_ms <= timing.p95_ms * (1 + 1e-9) <= max(samples) * (1 + 1e-6)
    assert timing.iqr_ms >= 0
    assert set(timing.to_dict()) == {
        "median_ms", "p95_ms", "min_ms", "iqr_ms", "n", "first_call_ms", "source",
    }  # fmt: skip


def test_durations_survive_a_wall_clock_that_jumps(monkeypatch):
    monkeypatch.setattr(time, "time", lambda: -3600.0)
    timing = measure_latency(lambda: sum(range(1000)), warmup=0, repeats=3)

    assert 0 < timing.min_ms < 1000


@pytest.mark.parametrize("wrong", [{"repeats": 0}, {"warmup": -1}])
def test_senseless_repeats_are_refused(wrong):
    with pytest.raises(InputError, match="use repeats >= 1 and warmup >= 0"):
        measure_latency(lambda: None, **wrong)
    with pytest.raises(InputError, match="use repeats >= 1 and warmup >= 0"):
        measure_throughput(lambda: None, **wrong)


def test_an_empty_summary_is_refused():
    with pytest.raises(InputError, match="measure at least 1"):
        Timing.of([], first_call_ms=0.0, source="measured:test")
