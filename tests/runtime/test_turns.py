"""Two paths in turn: the best pair, and every window within its allowance."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gearshift.paths.frontier import concave_hull
from gearshift.runtime.turns import Option, best_turns

OPTIONS = st.lists(
    st.builds(
        Option,
        st.integers(0, 100),
        st.floats(0.1, 0.9),
        st.floats(-2, 2).filter(lambda drain: abs(drain) > 1e-3),
        st.just(1 / 30),
    ),
    min_size=2,
    max_size=8,
    unique_by=lambda option: option.index,
)


def hull_at_zero(options: list[Option]) -> float | None:
    """Quality of the concave hull of quality over drain, at a balanced bucket."""
    hull = concave_hull(options, lambda option: option.quality, lambda option: option.drain_j)
    for low, high in itertools.pairwise(hull):
        if low.drain_j < 0 < high.drain_j:
            share = -low.drain_j / (high.drain_j - low.drain_j)
            return low.quality + share * (high.quality - low.quality)
    return None


@given(options=OPTIONS)
def test_the_best_pair_lies_on_the_concave_hull(options: list[Option]) -> None:
    turns = best_turns(options, dwell_frames=1, window_s=1.0, excess_j=1e9)
    reachable = hull_at_zero(options)
    if reachable is not None:
        assert turns is not None
        assert turns.quality == pytest.approx(reachable, abs=2e-4)
    if turns is not None:
        assert turns.base.drain_j < 0 < turns.high.drain_j
        assert turns.base.quality < turns.quality < turns.high.quality


@given(options=OPTIONS, dwell=st.integers(1, 20), excess=st.floats(0, 5))
def test_stays_are_no_shorter_than_the_dwell_and_windows_exceed_by_no_more_than_allowed(
    options: list[Option], dwell: int, excess: float
) -> None:
    turns = best_turns(options, dwell_frames=dwell, window_s=1.0, excess_j=excess)
    if turns is None:
        return
    on_high = turns.capacity_j / turns.high.drain_j
    on_base = -turns.capacity_j / turns.base.drain_j
    assert on_high >= dwell - 1e-9
    assert on_base >= dwell - 1e-9
    assert (on_high + on_base) / 30 >= 1 - 1e-9
    # Windows of one second over the periodic turns, in steps of a frame.
    high, base = round(on_high), round(on_base)
    drains = ([turns.high.drain_j] * high + [turns.base.drain_j] * base) * (2 + 60 // (high + base))
    worst = max(sum(drains[start : start + 30]) for start in range(high + base))
    assert worst <= excess + 2 * turns.high.drain_j - turns.base.drain_j


def test_a_dwell_longer_than_a_window_leaves_no_turns() -> None:
    base, high = Option(0, 0.6, -0.94, 0.1), Option(1, 0.7, 0.16, 0.1)
    assert best_turns([base, high], dwell_frames=20, window_s=1.0, excess_j=1.2) is None
    assert best_turns([base, high], dwell_frames=1, window_s=1.0, excess_j=1.2) is not None


def test_of_three_paths_on_a_line_the_closest_take_turns() -> None:
    line = [Option(0, 0.5, -2.0, 0.1), Option(1, 0.6, -1.0, 0.1), Option(2, 0.8, 1.0, 0.1)]
    turns = best_turns(line, dwell_frames=1, window_s=1.0, excess_j=1.0)
    assert turns is not None
    assert (turns.base.index, turns.high.index) == (1, 2)


@pytest.mark.parametrize("options", [[], [Option(0, 0.5, -1, 0.1)], [Option(0, 0.5, 1, 0.1)]])
def test_it_takes_two(options: list[Option]) -> None:
    assert best_turns(options, dwell_frames=1, window_s=1.0, excess_j=1.0) is None
