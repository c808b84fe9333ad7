"""Counters that start over, go back or jump: exact sums, or a break that says why."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.profiler.meters.counter import SLACK_S, CounterTrack

SPAN_UJ = 262_143_328_850
CEILING_W = 1000.0


def rapl_track(span: int = SPAN_UJ) -> CounterTrack:
    return CounterTrack(units_per_joule=1_000_000, ceiling_w=CEILING_W, span=span)


def nvml_track() -> CounterTrack:
    return CounterTrack(units_per_joule=1000, ceiling_w=1200.0)


def test_a_wrap_adds_the_range() -> None:
    track = rapl_track()
    track.update(262_143_000_000, 0.0)
    track.update(500_000, 1.0)
    assert track.total_j == 0.82885
    assert track.epoch == 0


@settings(deadline=None)
@given(
    start=st.integers(0, SPAN_UJ - 1),
    steps=st.lists(st.tuples(st.floats(0.001, 200.0), st.floats(0.0, 1.0)), min_size=1, max_size=30),
)
def test_any_number_of_wraps_is_exact(start: int, steps: list[tuple[float, float]]) -> None:
    """Each step is a pause shorter than the safe time, at any power up to the ceiling."""
    track = rapl_track()
    now_s, true = 0.0, start
    track.update(start, now_s)
    for pause_s, share in steps:
        now_s += pause_s
        true += int(share * CEILING_W * 1e6 * pause_s)
        track.update(true % SPAN_UJ, now_s)
    assert track.total == true - start
    assert track.epoch == 0


@settings(deadline=None)
@given(pauses_s=st.lists(st.floats(0.0, 100.0), min_size=2, max_size=10))
def test_totals_never_fall(pauses_s: list[float]) -> None:
    track, totals, now_s = rapl_track(), [], 0.0
    for number, pause_s in enumerate(pauses_s):
        now_s += pause_s
        track.update(number * 97_000_000_000 % SPAN_UJ, now_s)
        totals.append(track.total)
    assert all(earlier <= later for earlier, later in itertools.pairwise(totals))


def test_three_wraps_between_two_reads_are_not_guessed() -> None:
    track = rapl_track()
    assert track.safe_s == pytest.approx(262.14, abs=0.01)
    track.update(0, 0.0)
    track.update(5_000_000, 800.0)
    assert track.total == 0
    assert track.epoch == 1
    assert track.break_reason is not None
    assert track.break_reason.startswith("not_watched")
    track.update(8_000_000, 801.0)
    assert track.total_j == 3.0


def test_an_overslept_counter_is_not_trusted_where_it_was() -> None:
    track = rapl_track()
    track.update(7, 0.0)
    track.update(7, 800.0)
    assert track.epoch == 1


@settings(deadline=None)
@given(before=st.integers(1, 10**12), back=st.integers(1, 10**12))
def test_a_counter_without_a_range_that_goes_back_was_reset(before: int, back: int) -> None:
    track = nvml_track()
    track.update(before, 0.0)
    track.update(max(0, before - back), 1.0)
    assert track.total == 0
    assert track.epoch == 1
    assert track.break_reason is not None
    assert track.break_reason.startswith("counter_reset")


def test_a_reset_of_a_wrapping_counter_shows_by_its_size() -> None:
    track = rapl_track()
    track.update(1_000_000, 0.0)
    track.update(0, 10.0)  # as a wrap it would be 262 kJ within 10 s
    assert track.total == 0
    assert track.break_reason is not None
    assert track.break_reason.startswith("implausible")


def test_a_reading_beyond_its_own_range_is_a_break() -> None:
    track = rapl_track(span=1_000_000)
    track.update(9_000_000, 0.0)
    track.update(1, 0.0005)
    assert track.epoch == 1


@pytest.mark.parametrize(("excess", "is_broken"), [(0.99, False), (1.01, True)])
def test_no_power_above_the_ceiling_is_believed(excess: float, is_broken: bool) -> None:
    track = nvml_track()
    track.update(0, 0.0)
    track.update(int(excess * 1200.0 * (2.0 + SLACK_S) * 1000), 2.0)
    assert (track.epoch == 1) == is_broken


def test_one_period_delivered_at_once_is_believed() -> None:
    track = nvml_track()
    track.update(0, 0.0)
    track.update(70_000, 1e-6)  # 700 W over 0.1 s, seen between two reads a microsecond apart
    assert track.total_j == 70.0


def test_only_changes_are_fresh() -> None:
    track = nvml_track()
    for time_s, raw in enumerate([5, 5, 6, 6, 6, 9]):
        track.update(raw, float(time_s))
    assert (track.fresh, track.total) == (2, 4)
