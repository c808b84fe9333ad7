"""The Pareto set and its hull, against brute force."""

from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gearshift.paths.frontier import concave_hull, pareto, spread_out


@dataclass(frozen=True)
class Item:
    """Names tell equals apart."""

    name: str
    quality: float
    energy: float
    latency: float = 1.0


def quality(item: Item) -> float:
    return item.quality


def energy(item: Item) -> float:
    return item.energy


def latency(item: Item) -> float:
    return item.latency


# Small integers, so that ties and equals occur.
levels = st.integers(1, 6).map(float)
lists = st.lists(st.tuples(levels, levels, levels), max_size=14).map(
    lambda drawn: [Item(str(number), *values) for number, values in enumerate(drawn)]
)
anything = st.floats(0.01, 100)
free_lists = st.lists(st.tuples(anything, anything, anything), max_size=30).map(
    lambda drawn: [Item(str(number), *values) for number, values in enumerate(drawn)]
)


def values(item: Item, costs: int) -> tuple[float, ...]:
    return (-item.quality, item.energy, item.latency)[: 1 + costs]


def beaten(item: Item, items: list[Item], costs: int) -> bool:
    """By the definition: another is no worse in anything and better in something, or an equal came first."""
    ours = values(item, costs)
    for other in items:
        theirs = values(other, costs)
        if theirs != ours and all(a <= b for a, b in zip(theirs, ours, strict=True)):
            return True
        if theirs == ours and items.index(other) < items.index(item):
            return True
    return False


@given(lists | free_lists, st.sampled_from([1, 2]))
def test_the_pareto_set_is_what_nothing_beats(items: list[Item], costs: int) -> None:
    kept = pareto(items, quality, *(energy, latency)[:costs])
    assert set(kept) == {item for item in items if not beaten(item, items, costs)}
    assert len(kept) == len(set(kept))
    assert [values(item, costs) for item in kept] == sorted(values(item, costs) for item in kept)


@given(lists)
def test_along_a_frontier_of_one_cost_quality_falls_with_cost(items: list[Item]) -> None:
    for better, cheaper in pairwise(pareto(items, quality, energy)):
        assert better.quality > cheaper.quality
        assert better.energy > cheaper.energy


@given(lists)
def test_taking_the_frontier_again_changes_nothing(items: list[Item]) -> None:
    kept = pareto(items, quality, energy, latency)
    assert pareto(kept, quality, energy, latency) == kept


def best_mixture(items: list[Item], mean_cost: float) -> float:
    """The best mean quality of at most two items in turn whose mean cost is within `mean_cost`."""
    best = float("-inf")
    for one in items:
        for other in items:
            low, high = sorted((one, other), key=energy)
            if low.energy > mean_cost:
                continue
            share = 1.0 if high.energy <= mean_cost else (mean_cost - low.energy) / (high.energy - low.energy)
            best = max(best, low.quality + share * (high.quality - low.quality), low.quality)
    return best


@given(lists | free_lists, st.floats(0.01, 120))
def test_the_hull_serves_every_mean_budget_as_well_as_all_items_do(items: list[Item], budget: float) -> None:
    hull = concave_hull(items, quality, energy)
    assert best_mixture(hull, budget) == pytest.approx(best_mixture(items, budget))


@given(lists)
def test_the_hull_is_concave_and_within_the_frontier(items: list[Item]) -> None:
    hull = concave_hull(items, quality, energy)
    assert set(hull) <= set(pareto(items, quality, energy))
    slopes = [(b.quality - a.quality) / (b.energy - a.energy) for a, b in pairwise(hull)]
    assert all(slope > 0 for slope in slopes)
    assert slopes == sorted(slopes, reverse=True)


@given(lists)
def test_no_item_of_the_hull_can_be_spared(items: list[Item]) -> None:
    hull = concave_hull(items, quality, energy)
    for item in hull:
        others = [other for other in hull if other != item]
        assert best_mixture(others, item.energy) < item.quality


def test_an_item_on_the_chord_is_no_corner() -> None:
    left, middle, right = Item("left", 1.0, 1.0), Item("middle", 2.0, 2.0), Item("right", 3.0, 3.0)
    assert concave_hull([middle, right, left], quality, energy) == [left, right]


def test_nothing_and_one() -> None:
    one = Item("one", 0.5, 2.0)
    assert pareto([], quality, energy) == concave_hull([], quality, energy) == spread_out([], energy, 3) == []
    assert pareto([one], quality, energy) == concave_hull([one], quality, energy) == [one]


def test_a_dominated_path_is_dropped() -> None:
    """B089: B is worse and dearer than A; 1.5 J buys C, 2.1 J buys A."""
    a, b, c = Item("A", 0.80, 2.0), Item("B", 0.78, 2.2), Item("C", 0.75, 1.0)
    kept = pareto([a, b, c], quality, energy)
    assert kept == [a, c]

    def best(budget: float) -> Item:
        return max((item for item in kept if item.energy <= budget), key=quality)

    assert best(1.5) == c
    assert best(2.1) == a


positive_costs = st.lists(st.floats(0.1, 100), min_size=0, max_size=20, unique=True)


@given(positive_costs, st.integers(0, 25), st.booleans())
def test_thinning_keeps_order_ends_and_number(costs: list[float], limit: int, descending: bool) -> None:
    items = sorted(costs, reverse=descending)
    kept = spread_out(items, float, limit)
    assert len(kept) == min(len(items), max(limit, 2))
    assert [item for item in items if item in kept] == kept
    if items:
        assert (kept[0], kept[-1]) == (items[0], items[-1])


def test_the_closest_neighbours_thin_out_first() -> None:
    assert spread_out([1.0, 2.0, 2.1, 4.0, 8.0], float, 4) == [1.0, 2.0, 4.0, 8.0]
    assert spread_out([8.0, 4.0, 3.9, 2.0, 1.0], float, 4) == [8.0, 4.0, 2.0, 1.0]


@pytest.mark.parametrize("count", [4000])
def test_thousands_of_items_are_sorted_out_at_once(count: int) -> None:
    """The search predicts this many combinations at a time."""
    items = [Item(str(i), (i * 7919 % count) / count, 1 + (i * 104729 % count) / count) for i in range(count)]
    kept = pareto(items, quality, energy)
    assert kept[0].quality == max(item.quality for item in items)
    assert kept[-1].energy == min(item.energy for item in items)
