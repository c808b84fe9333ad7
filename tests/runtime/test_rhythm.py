"""When frames come: a camera's rate is told from frames that follow one another, and neither is forgotten."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gearshift.runtime.rhythm import Rhythm


def camera(
    period_s: float, latencies: list[float], start: Rhythm | None = None, expected: list[float] | None = None
) -> Rhythm:
    """A camera whose newest frame waits until it is fetched."""
    rhythm, now, due, last = start or Rhythm(), 0.0, 0.0, None
    for number, latency in enumerate(latencies):
        begin = max(now, due)
        due = (math.floor(begin / period_s + 1e-9) + 1) * period_s
        rhythm = rhythm.observe(
            None if last is None else begin - last, latency, expected[number] if expected else latency
        )
        last, now = begin, begin + latency
    return rhythm


def unpaced(latencies: list[float], start: Rhythm | None = None, gap_s: float = 0.0) -> Rhythm:
    rhythm, last = start or Rhythm(), None
    for latency in latencies:
        rhythm = rhythm.observe(None if last is None else last + gap_s, latency, latency)
        last = latency
    return rhythm


@given(fps=st.floats(1, 120), load=st.floats(0.05, 0.9))
def test_a_cameras_rate_is_found(fps: float, load: float) -> None:
    rhythm = camera(1 / fps, [load / fps] * 40)
    assert rhythm.camera_period_s == pytest.approx(1 / fps, rel=1e-3)
    assert rhythm.period_with(0.5 / fps) == pytest.approx(1 / fps, rel=1e-3)
    assert rhythm.period_with(3 / fps) == 3 / fps


@given(latency=st.floats(1e-3, 2))
def test_frames_without_a_pause_have_no_rate_of_their_own(latency: float) -> None:
    rhythm = unpaced([latency] * 20)
    assert rhythm.camera_period_s is None
    assert rhythm.period_with(latency / 3) == pytest.approx(latency / 3)
    assert rhythm.period_with(latency * 3) == pytest.approx(latency * 3)


def test_nothing_is_known_before_the_second_frame() -> None:
    assert Rhythm.start(None).camera_period_s is None
    assert Rhythm.start(None).period_with(0.02) == 0.02
    assert Rhythm.start(0.1).camera_period_s == 0.1
    assert Rhythm.start(0.1).period_with(0.02) == 0.1


def test_a_path_too_slow_for_the_camera_does_not_make_it_forgotten() -> None:
    rhythm = camera(0.033, [0.02] * 40)
    rhythm = unpaced([0.05] * 200, rhythm)  # with a path of 50 ms, frames follow one another
    assert rhythm.camera_period_s == pytest.approx(0.033, rel=0.02)


def test_a_camera_is_found_again_after_frames_without_a_pause() -> None:
    rhythm = camera(0.1, [0.02] * 60, unpaced([0.02] * 100))
    assert rhythm.camera_period_s == pytest.approx(0.1, rel=0.05)


def test_a_camera_that_stops_pacing_is_noticed() -> None:
    assert unpaced([0.02] * 60, camera(0.1, [0.02] * 60)).camera_period_s is None


@pytest.mark.parametrize("after", [0.02, 0.25])
def test_a_new_rate_is_followed(after: float) -> None:
    assert camera(after, [0.01] * 60, camera(0.1, [0.01] * 60)).camera_period_s == pytest.approx(after, rel=0.05)


def test_a_slower_camera_is_noticed_by_a_path_that_was_too_slow_before() -> None:
    rhythm = camera(0.2, [0.05] * 60, unpaced([0.05] * 10, camera(0.033, [0.02] * 40)))
    assert rhythm.camera_period_s == pytest.approx(0.2, rel=0.05)


def test_a_path_just_fast_enough_keeps_the_rate_despite_its_noise() -> None:
    rng = random.Random(0)
    latencies = [0.03 * math.exp(rng.gauss(0, 0.08)) for _ in range(500)]
    rhythm = camera(0.033, latencies, expected=[0.03] * 500)
    assert rhythm.camera_period_s == pytest.approx(0.033, rel=0.05)


def test_a_pause_is_no_rate() -> None:
    rhythm = camera(0.033, [0.01] * 60)
    paused = rhythm.observe(600.0, 0.01, 0.01)
    assert paused.camera_period_s is not None
    assert paused.camera_period_s < 0.05


def test_calls_that_overlap_take_less_time_each() -> None:
    """Two threads, 40 ms a call each: a frame every 20 ms."""
    rhythm = unpaced([0.04] * 60, gap_s=-0.02)
    assert rhythm.period_with(0.04) == pytest.approx(0.02, rel=0.05)
    assert rhythm.period_with(0.08) == pytest.approx(0.04, rel=0.05)


@given(frames=st.lists(st.tuples(st.floats(0, 1), st.floats(1e-3, 1)), min_size=1, max_size=50))
def test_no_time_is_lost_between_frames(frames: list[tuple[float, float]]) -> None:
    """The sum of what elapsed is the time from the first start to the last end."""
    rhythm, total = Rhythm(), 0.0
    for number, (period, latency) in enumerate(frames):
        given_ = None if number == 0 else period
        total += rhythm.elapsed_s(given_, latency)
        rhythm = rhythm.observe(given_, latency, latency)
    assert total == pytest.approx(sum(period for period, _ in frames[1:]) + frames[-1][1])


@pytest.mark.parametrize("period", [math.nan, math.inf, -1.0])
def test_what_is_no_period_is_ignored(period: float) -> None:
    rhythm = camera(0.033, [0.01] * 10)
    assert rhythm.observe(period, 0.01, 0.01) == rhythm.observe(None, 0.01, 0.01)
    assert rhythm.elapsed_s(period, 0.01) == 0.01
