"""Power over sliding windows, against sums over a fine grid."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gearshift.runtime.bench.windows import sliding_power_w
from gearshift.runtime.sampler import PowerSample


def samples_of(spans: list[tuple[float, float]], start_s: float = 0.0) -> list[PowerSample]:
    """Samples from pairs of (seconds, watts), one after the other."""
    samples = []
    for number, (seconds, watts) in enumerate(spans):
        samples.append(PowerSample(number, start_s, start_s + seconds, watts, watts * seconds))
        start_s += seconds
    return samples


def energy_j(samples: list[PowerSample], start_s: float, end_s: float) -> float:
    """By the definition: each sample's power over the time that it shares with the window."""
    return sum(sample.power_w * max(0.0, min(end_s, sample.end_s) - max(start_s, sample.start_s)) for sample in samples)


spans = st.lists(st.tuples(st.floats(0.05, 0.7), st.floats(0.0, 500.0)), max_size=20)


@given(spans=spans, start_s=st.floats(0.0, 5.0), window_s=st.sampled_from([0.3, 1.0]))
def test_windows_begin_with_samples_and_lie_within_them(
    spans: list[tuple[float, float]], start_s: float, window_s: float
) -> None:
    samples = samples_of(spans, start_s)
    windows = sliding_power_w(samples, window_s)

    whole = [sample.start_s for sample in samples if sample.start_s + window_s <= samples[-1].end_s + 1e-9]
    assert [start for start, _ in windows] == pytest.approx(whole)
    for start, watts in windows:
        assert watts * window_s == pytest.approx(energy_j(samples, start, start + window_s), abs=1e-6)


@given(spans=spans)
def test_no_window_exceeds_the_highest_sample(spans: list[tuple[float, float]]) -> None:
    windows = [watts for _, watts in sliding_power_w(samples_of(spans), 1.0)]
    if windows:
        assert max(windows) <= max(watts for _, watts in spans) + 1e-6
        assert min(windows) >= min(watts for _, watts in spans) - 1e-6


def test_by_hand() -> None:
    # 0.5 s at 10 W, then 1 s at 30 W: the first second holds 5 + 15 J, the one from 0.5 s on 30 J.
    windows = sliding_power_w(samples_of([(0.5, 10.0), (1.0, 30.0)]), 1.0)
    assert windows == [(0.0, pytest.approx(20.0)), (0.5, pytest.approx(30.0))]


def test_too_little_for_a_window_gives_none() -> None:
    assert sliding_power_w([], 1.0) == []
    assert sliding_power_w(samples_of([(0.5, 10.0)]), 1.0) == []


def test_a_gap_is_bridged_at_the_level_of_the_sample_after_it() -> None:
    before, after = PowerSample(0, 0.0, 0.4, 10.0, 4.0), PowerSample(1, 0.6, 1.0, 20.0, 8.0)
    assert sliding_power_w([before, after], 1.0) == [(0.0, pytest.approx(0.4 * 10 + 0.6 * 20))]
