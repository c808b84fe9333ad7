"""Which paths are worth keeping: the Pareto set, and the concave hull that time-sharing between two paths reaches."""

from collections.abc import Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def pareto(
    items: Sequence[Item], quality: Callable[[Item], float], *costs: Callable[[Item], float]
) -> list[Item]:
    """Items that no other beats: at least as good in quality and in every cost, and better in one.

    Of exact equals the first is kept. Sorted by descending quality, then ascending first cost.
    """

    def beats(one: Item, other: Item) -> bool:
        no_worse = quality(one) >= quality(other) and all(cost(one) <= cost(other) for cost in costs)
        better = quality(one) > quality(other) or any(cost(one) < cost(other) for cost in costs)
        return no_worse and better

    kept: list[Item] = []
    for index, item in enumerate(items):
        equal_before = any(
            quality(other) == quality(item) and all(cost(other) == cost(item) for cost in costs)
            for other in items[:index]
        )
        if not equal_before and not any(beats(other, item) for other in items):
            kept.append(item)
    return sorted(kept, key=lambda item: (-quality(item), costs[0](item)))


def concave_hull(
    items: Sequence[Item], quality: Callable[[Item], float], cost: Callable[[Item], float]
) -> list[Item]:
    """The Pareto items on the upper concave hull of quality over cost, by ascending cost.

    Mixing two neighbours in time reaches every point between them; an item below the hull is never the best use
    of a mean budget.
    """
    hull: list[Item] = []
    for item in sorted(pareto(items, quality, cost), key=cost):
        while len(hull) >= 2 and _is_below(hull[-2], hull[-1], item, quality, cost):
            hull.pop()
        hull.append(item)
    return hull


def _is_below(
    left: Item, middle: Item, right: Item, quality: Callable[[Item], float], cost: Callable[[Item], float]
) -> bool:
    """Whether `middle` lies on or under the chord from `left` to `right`."""
    rise = (quality(right) - quality(left)) * (cost(middle) - cost(left))
    return (quality(middle) - quality(left)) * (cost(right) - cost(left)) <= rise


def spread_out(items: Sequence[Item], cost: Callable[[Item], float], limit: int) -> list[Item]:
    """At most `limit` of the items, the ends kept, the others as even as possible in the logarithm of cost.

    `items` come sorted by ascending or descending cost; the closest neighbours thin out first.
    """
    kept = list(items)
    while len(kept) > max(limit, 2):
        gaps = [cost(kept[i + 1]) / cost(kept[i - 1]) for i in range(1, len(kept) - 1)]
        closest = min(range(len(gaps)), key=lambda i: max(gaps[i], 1 / gaps[i]))
        kept.pop(closest + 1)
    return kept
