"""The costed energies held against the meter: a steady ratio is found whatever the sensor's lag and the
paths' turns.
"""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gearshift.runtime.energy import LARGEST_RATIO, LONGEST_SPAN_S, EnergyEstimate

IDLE_W = 10.0


def served(
    ratio: float,
    frames: list[float],
    *,
    period_s: float = 0.1,
    sensor_s: float = 0.0,
    assumed_s: float | None = None,
    noise: float = 0.0,
    seed: int = 0,
    start: EnergyEstimate | None = None,
) -> tuple[EnergyEstimate, float]:
    """After frames of given net energy that really take `ratio` times as much; also the joules beyond."""
    rng, estimate, total, shown_w = random.Random(seed), start or EnergyEstimate(), 0.0, 0.0
    for net in frames:
        power = IDLE_W + ratio * net / period_s
        weight = 1.0 if not sensor_s else 1 - math.exp(-2 * period_s / sensor_s)
        shown_w = power if not shown_w else shown_w + weight * (power - shown_w)
        estimate = estimate.book(net, period_s, sensor_s if assumed_s is None else assumed_s)
        estimate, beyond = estimate.read(shown_w * math.exp(rng.gauss(0, noise)), IDLE_W, 1.0)
        total += beyond
    return estimate, total


@given(ratio=st.floats(0.2, 5), noise=st.floats(0, 0.05), seed=st.integers(0, 2**32 - 1))
def test_hunger_is_found(ratio: float, noise: float, seed: int) -> None:
    estimate, _ = served(ratio, [3.0] * 200, noise=noise, seed=seed)
    assert estimate.hunger.ratio == pytest.approx(ratio, rel=0.02 + 2 * noise)


@pytest.mark.parametrize("sensor_s", [0.0, 0.3, 1.0])
def test_turns_of_two_paths_do_not_disturb_it(sensor_s: float) -> None:
    frames = [5.0 if number % 10 < 4 else 2.0 for number in range(400)]
    estimate, _ = served(1.2, frames, sensor_s=sensor_s)
    assert estimate.hunger.ratio == pytest.approx(1.2, rel=0.03)


def test_a_lag_that_is_known_is_no_hunger() -> None:
    """After a step from a dear to a cheap path the sensor still shows the dear one for a while."""
    settled, _ = served(1.0, [8.0] * 100, sensor_s=1.0)
    for count in range(1, 40):
        stepped, _ = served(1.0, [2.0] * count, sensor_s=1.0, start=settled)
        assert stepped.hunger.ratio < 1.6
    assert stepped.hunger.ratio == pytest.approx(1.0, rel=0.1)


def test_what_was_spent_beyond_the_expectation_is_told() -> None:
    settled, _ = served(1.0, [3.0] * 100)
    _, beyond = served(1.05, [3.0] * 10, start=settled)
    assert beyond == pytest.approx(0.05 * 3.0 * 10, rel=1e-6)


def test_single_wild_seconds_are_not_believed() -> None:
    settled, _ = served(1.0, [3.0] * 100)
    wild, beyond = served(30.0, [3.0] * 10, start=settled)
    assert wild.hunger.ratio == pytest.approx(1.0, rel=0.02)
    assert beyond == 0.0
    changed, _ = served(3.0, [3.0] * 20, start=settled)
    assert changed.hunger.ratio == pytest.approx(3.0, rel=0.05)


def test_nothing_beyond_all_measure_is_learnt() -> None:
    high, _ = served(1e6, [3.0] * 200)
    low, _ = served(1e-6, [3.0] * 200)
    assert high.hunger.ratio <= LARGEST_RATIO * 1.01
    assert low.hunger.ratio >= 0.99 / LARGEST_RATIO


@pytest.mark.parametrize("power", [math.nan, math.inf, -5.0])
def test_what_is_no_power_is_ignored(power: float) -> None:
    estimate = EnergyEstimate().book(3.0, 0.1, 0.0)
    assert estimate.read(power, IDLE_W, 1.0) == (estimate, 0.0)


def test_a_reading_after_a_long_silence_says_nothing_of_the_frames_meanwhile() -> None:
    estimate = EnergyEstimate()
    for _ in range(int(LONGEST_SPAN_S / 0.1) + 10):
        estimate = estimate.book(3.0, 0.1, 0.0)
    after, beyond = estimate.read(500.0, IDLE_W, 1.0)
    assert after.hunger == estimate.hunger
    assert (after.span_s, beyond) == (0.0, 0.0)


@given(
    frames=st.lists(st.tuples(st.floats(0, 10), st.floats(-0.05, 0.5), st.none() | st.floats(0, 1e4)), max_size=100),
    sensor_s=st.sampled_from([0.0, 0.5]),
)
def test_it_stays_sound_whatever_comes(frames: list[tuple[float, float, float | None]], sensor_s: float) -> None:
    estimate = EnergyEstimate()
    for net, elapsed, power in frames:
        estimate = estimate.book(net, elapsed, sensor_s)
        if power is not None:
            estimate, beyond = estimate.read(power, IDLE_W, 1.0)
            assert math.isfinite(beyond)
        assert all(frame.end_s > estimate.clock_s for frame in estimate.unseen)
        assert 0 < estimate.hunger.ratio < math.inf
