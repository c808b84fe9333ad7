"""Which paths are worth keeping: the Pareto set, and the concave hull that time-sharing of two reaches."""

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def pareto(items: Sequence[Item], quality: Callable[[Item], float], *costs: Callable[[Item], float]) -> list[Item]:
    """Keep the items that no other beats: at least as good in quality and in every cost, and better in one.

    Of exact equals the first is kept. Sorted by descending quality, then ascending costs.
    """
    scored = [(tuple(cost(item) for cost in costs), -quality(item), item) for item in items]
    kept: list[tuple[tuple[float, ...], float, Item]] = []
    # In this order nothing that comes later beats what came before: one pass against what is kept will do.
    for found in sorted(scored, key=lambda score: (score[1], score[0])):
        if not any(_no_dearer(before[0], found[0]) for before in kept):
            kept.append(found)
    return [item for _, _, item in kept]


def _no_dearer(costs: Sequence[float], others: Sequence[float]) -> bool:
    return all(ours <= theirs for ours, theirs in zip(costs, others, strict=True))


def concave_hull(items: Sequence[Item], quality: Callable[[Item], float], cost: Callable[[Item], float]) -> list[Item]:
    """Keep the Pareto items on the upper concave hull of quality over cost, by ascending cost.

    Mixing two neighbours in time reaches every point between them; an item below the hull is never the best
    use of a mean budget.
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


def spread_out(
    items: Sequence[Item], cost: Callable[[Item], float], limit: int, always: Sequence[Item] = ()
) -> list[Item]:
    """Thin out to `limit` items, the ends and `always` kept, the others even in the logarithm of cost.

    `items` come sorted by ascending or descending cost, which is positive; of the closest neighbours one goes
    first. The ends and `always` stay even where `limit` is less.
    """
    kept = list(items)
    while len(kept) > limit:
        inner = [index for index in range(1, len(kept) - 1) if kept[index] not in always]
        if not inner:
            break
        gaps = {index: abs(math.log(cost(kept[index + 1]) / cost(kept[index - 1]))) for index in inner}
        kept.pop(min(inner, key=gaps.__getitem__))
    return kept
