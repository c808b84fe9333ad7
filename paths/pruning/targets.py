"""From a share of the cost, such as `macs:60%`, to the percentage of channels that has to go for it."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Self

from torch import nn

from gearshift.errors import PathRefusedError, SpecError

Cost = Callable[[nn.Module], float]
"""What a model costs: counted operations, a measured time, a measured energy."""

COSTS = ("macs", "latency", "energy")
MOST_PERCENT = 95


@dataclass(frozen=True, slots=True)
class Target:
    """At most `percent` of what the base path costs: `macs:60%`, `latency:60%`, `energy:60%`."""

    cost: str
    percent: int

    @classmethod
    def read(cls, text: str) -> Self:
        """Read a target.

        Raises:
            SpecError: It is none.
        """
        match = re.fullmatch(r"(\w+):([0-9]{1,3})%", text)
        if not match or match[1] not in COSTS or not 1 <= int(match[2]) <= 99:
            raise SpecError(
                f'"{text}" is no target; write one of {", ".join(COSTS)}, a colon and 1% to 99%: "macs:60%"'
            )
        return cls(match[1], int(match[2]))

    @staticmethod
    def is_one(text: str) -> bool:
        """Whether a text means to be a target: it has a colon."""
        return ":" in text

    def __str__(self) -> str:
        return f"{self.cost}:{self.percent}%"


def ratio_for(target: Target, base: nn.Module, pruned: Callable[[int], nn.Module], costs: Mapping[str, Cost]) -> int:
    """The least percentage of channels whose removal brings a path to the target, by bisection over whole percents.

    Operations never grow with the percentage. Times and energies may, a little: then the answer is one that meets the
    target as measured, next to one that does not.

    Args:
        target: What to reach.
        base: The path that it is a share of.
        pruned: Builds that path pruned by so many percent; refusal of a percentage that removes nothing is expected.
        costs: How each cost is told.

    Raises:
        PathRefusedError: Not even the most that can be pruned is enough.
        SpecError: Nothing here tells this cost.
    """
    if target.cost not in costs:
        raise SpecError(f'"{target}" cannot be resolved: nothing here measures {target.cost}; use {", ".join(costs)}')
    cost = costs[target.cost]
    whole = cost(base)

    def share(percent: int) -> float:
        try:
            return cost(pruned(percent)) / whole
        except PathRefusedError:  # so little that rounding leaves every layer as it is
            return 1.0

    if (least := share(MOST_PERCENT)) * 100 > target.percent:
        raise PathRefusedError(
            f"prune={target} cannot be reached: without {MOST_PERCENT}% of its channels it still costs {least:.0%}; "
            f"ask for {min(99, int(least * 100) + 1)}% or more"
        )
    misses, meets = 0, MOST_PERCENT
    while meets - misses > 1:
        middle = (misses + meets) // 2
        if share(middle) * 100 <= target.percent:
            meets = middle
        else:
            misses = middle
    return meets
