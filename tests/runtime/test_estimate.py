"""The filter for ratios: it follows what changes, and is not moved by what does not."""

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gearshift.runtime.estimate import LogRatio

RATIOS = st.floats(0.1, 10)
NOISES = st.floats(0, 0.2)
SEEDS = st.integers(0, 2**32 - 1)


def observed(ratio: float, noise: float, count: int, seed: int, start: LogRatio | None = None) -> LogRatio:
    """The filter after `count` noisy observations of a ratio."""
    rng, estimate = random.Random(seed), start or LogRatio()
    for _ in range(count):
        estimate = estimate.observe(math.log(ratio) + rng.gauss(0, noise))
    return estimate


@given(ratio=RATIOS, noise=NOISES, seed=SEEDS)
def test_it_finds_the_ratio(ratio: float, noise: float, seed: int) -> None:
    assert observed(ratio, noise, 60, seed).mean == pytest.approx(math.log(ratio), abs=0.01 + 1.5 * noise)


@given(noise=st.floats(0.01, 0.2), seed=SEEDS)
def test_it_learns_the_noise(noise: float, seed: int) -> None:
    assert math.sqrt(observed(1.0, noise, 300, seed).noise) == pytest.approx(noise, rel=0.6)


@pytest.mark.parametrize("quiet", [0.001, 0.02])
def test_noise_that_grows_is_learnt_although_most_of_it_looks_like_outliers(quiet: float) -> None:
    estimate = observed(1.0, 0.2, 200, 1, observed(1.0, quiet, 200, 0))
    assert math.sqrt(estimate.noise) == pytest.approx(0.2, rel=0.5)
    assert abs(estimate.mean) < 0.25


@given(before=RATIOS, factor=st.sampled_from([0.25, 0.5, 1.6, 2.0, 4.0]), noise=st.floats(0, 0.05), seed=SEEDS)
def test_a_jump_is_followed_within_three_observations(before: float, factor: float, noise: float, seed: int) -> None:
    settled = observed(before, noise, 100, seed)
    after = observed(before * factor, noise, 3, seed + 1, settled)
    assert after.mean == pytest.approx(math.log(before * factor), abs=0.01 + 4 * noise)


@given(ratio=RATIOS, wild=st.floats(-1e6, 1e6), noise=NOISES, seed=SEEDS)
def test_a_single_outlier_moves_the_mean_by_no_more_than_its_noise(
    ratio: float, wild: float, noise: float, seed: int
) -> None:
    settled = replace(observed(ratio, noise, 50, seed), far=0)
    assert abs(settled.observe(wild).mean - settled.mean) <= 3 * settled.deviation
    assert settled.observe(wild).noise <= 2 * (settled.noise + settled.variance)


def test_outliers_on_alternating_sides_are_no_jump() -> None:
    settled = observed(1.0, 0.01, 50, 0)
    for wild in (3.0, -3.0, 3.0, -3.0):
        settled = settled.observe(wild)
        assert abs(settled.mean) < 0.05


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_ignored(value: float) -> None:
    estimate = observed(1.3, 0.02, 10, 0)
    assert estimate.observe(value) == estimate


@given(values=st.lists(st.floats(-1e3, 1e3), max_size=200))
def test_it_stays_sound_whatever_is_observed(values: list[float]) -> None:
    estimate = LogRatio()
    for value in values:
        estimate = estimate.observe(value)
        assert math.isfinite(estimate.mean)
        assert 0 < estimate.variance < math.inf
        assert 0 < estimate.noise < math.inf
    low, high = min([0.0, *values]), max([0.0, *values])
    assert low - 1e-9 <= estimate.mean <= high + 1e-9


@given(shift=st.floats(-2, 2), seed=SEEDS)
def test_faster_and_slower_are_treated_alike(shift: float, seed: int) -> None:
    up = observed(math.exp(shift), 0.0, 20, seed)
    down = observed(math.exp(-shift), 0.0, 20, seed)
    assert up.mean == pytest.approx(-down.mean)
    assert up.ratio * down.ratio == pytest.approx(1.0)
