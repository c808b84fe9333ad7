"""What frames teach about latencies: the device's slowdown, a path's own deviation, and how late is late."""

import math
import random
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gearshift.runtime import Choice, Choices, LatencyLimit
from gearshift.runtime.latency import MOST_CAUTION, LatencyEstimate

CHOICES = Choices(
    paths=tuple(
        Choice(id=name, quality=0.5, latency_s=latency, spread=0.03, net_j=None)
        for name, latency in [("fast", 0.01), ("middle", 0.02), ("slow", 0.04)]
    ),
    idle_power_w=None,
)
FRESH = LatencyEstimate(bias=(0.0, 0.0, 0.0))
P95 = LatencyLimit(seconds=0.02, quantile=0.95)


def after(
    latencies: list[tuple[int, float]], start: LatencyEstimate = FRESH, limit: LatencyLimit | None = None
) -> LatencyEstimate:
    for path, latency in latencies:
        start = start.observe(CHOICES, path, latency, limit)
    return start


def noisy(path: int, factor: float, noise: float, count: int, seed: int = 0) -> list[tuple[int, float]]:
    rng = random.Random(seed)
    costed = CHOICES.paths[path].latency_s
    return [(path, costed * factor * math.exp(rng.gauss(0, noise))) for _ in range(count)]


@given(factor=st.floats(0.2, 5), path=st.integers(0, 2), seed=st.integers(0, 2**32 - 1))
def test_a_slowdown_seen_on_one_path_is_expected_of_all(factor: float, path: int, seed: int) -> None:
    estimate = after(noisy(path, factor, 0.02, 60, seed))
    for index, choice in enumerate(CHOICES.paths):
        assert estimate.expected_s(CHOICES, index) == pytest.approx(choice.latency_s * factor, rel=0.1)


def test_a_paths_own_deviation_is_told_from_the_devices() -> None:
    """Path 1 takes 20 % more than costed, path 0 just what was costed; they alternate."""
    frames = []
    for turn in range(60):
        frames += noisy(0, 1.0, 0.01, 5, turn) + noisy(1, 1.2, 0.01, 5, turn)
    estimate = after(frames)
    ratio = estimate.expected_s(CHOICES, 1) / estimate.expected_s(CHOICES, 0)
    assert ratio == pytest.approx(2 * 1.2, rel=0.05)


def test_a_path_that_was_slow_once_is_not_ruled_out_for_good() -> None:
    slow = after(noisy(1, 1.6, 0.01, 200), after(noisy(0, 1.0, 0.01, 50)))
    slow = after([frame for turn in range(40) for frame in noisy(0, 1, 0.01, 3) + noisy(1, 1.4, 0.01, 3)], slow)
    assert slow.bias[1] > 0.1
    recovered = after(noisy(0, 1.0, 0.01, 3000), slow)
    assert recovered.bias[1] < 0.1 * slow.bias[1]


@pytest.mark.parametrize("noise", [0.01, 0.03, 0.1, 0.2])
def test_the_quantile_covers_the_frames_it_should(noise: float) -> None:
    """On average over many runs, one frame in twenty is later than the 95th percentile."""
    late = []
    for seed in range(60):
        estimate = after(noisy(1, 1.0, noise, 150, seed))
        limit = estimate.quantile_s(CHOICES, 1, 0.95)
        late.append(1 - NormalDist(math.log(0.02), noise).cdf(math.log(limit)))
        assert estimate.quantile_s(CHOICES, 1, 0.5) <= limit <= estimate.quantile_s(CHOICES, 1, 0.99)
    assert sum(late) / len(late) == pytest.approx(0.05, abs=0.015)


def test_before_frames_are_seen_the_costed_spread_counts() -> None:
    relative = FRESH.quantile_s(CHOICES, 1, 0.95) / FRESH.expected_s(CHOICES, 1)
    assert relative == pytest.approx(math.exp(1.645 * math.hypot(0.03, math.sqrt(0.05))), rel=1e-3)
    assert FRESH.quantile_s(CHOICES, 1, None) == 0.02


def test_caution_grows_until_as_few_frames_are_late_as_asked_for() -> None:
    """One frame in five takes twice as long: no normal distribution would say so."""
    rng = random.Random(0)
    estimate, late, run = FRESH, 0, 0
    limit = LatencyLimit(seconds=0.03, quantile=0.95)
    for _ in range(6000):
        path = 1 if estimate.quantile_s(CHOICES, 1, 0.95) <= limit.seconds else 0
        factor = 2.0 if path == 1 and rng.random() < 0.2 else 1.0
        latency = CHOICES.paths[path].latency_s * factor * math.exp(rng.gauss(0, 0.02))
        late += latency > limit.seconds
        run += path == 1
        estimate = estimate.observe(CHOICES, path, latency, limit)
    assert late / 6000 <= 0.055
    assert run > 300


def test_frames_that_were_not_expected_in_time_teach_no_caution() -> None:
    pinned = after(noisy(2, 1.0, 0.01, 200), limit=P95)
    assert pinned.caution == 0.0


@given(latencies=st.lists(st.floats(1e-4, 1), max_size=100))
def test_caution_keeps_within_its_bounds(latencies: list[float]) -> None:
    estimate = after([(0, latency) for latency in latencies], limit=P95)
    assert 0 <= estimate.caution <= MOST_CAUTION
    assert after([(0, 0.01)], estimate, None).caution == 0.0


@pytest.mark.parametrize("latency", [math.nan, math.inf, 0.0, -1.0])
def test_what_is_no_time_is_ignored(latency: float) -> None:
    estimate = after(noisy(1, 1.3, 0.02, 30))
    assert estimate.observe(CHOICES, 1, latency, P95) == estimate
