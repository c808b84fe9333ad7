"""What a budget would give at best, from the measured frontier alone: one path, or two neighbours in turn.

A prediction, with the costs as measured and no noise; the controller gets there by feedback.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist

from gearshift.paths.frontier import concave_hull
from gearshift.runtime.budget import Budget
from gearshift.runtime.choices import Choice, Choices


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The best mix for a budget.

    Attributes:
        shares: Path ids with their share of frames.
        quality: Mean of the paths' quality, by share of frames.
        power_w: Mean power; None where energy is not known.
        met: Whether the mix holds the budget; the cheapest path is planned where nothing does.
    """

    shares: tuple[tuple[str, float], ...]
    quality: float
    power_w: float | None
    met: bool


def plan(budget: Budget, choices: Choices, period_s: float | None) -> Plan:
    """The best mix for frames that come every `period_s` (None: one after the other).

    `budget` must hold no share of the stock model's power any more; a mission counts as its mean power. Of
    several energy limits, the one that is tightest for a path holds for its frames.
    """
    timely = _timely(budget, choices)
    if not timely:
        return _single(_fastest(choices), choices, period_s, met=False)
    drains = {path.id: _drain_j(path, budget, choices, period_s) for path in timely}
    hull = concave_hull(timely, lambda path: path.quality, lambda path: drains[path.id])
    within = [path for path in hull if drains[path.id] <= 0]
    above = [path for path in hull if drains[path.id] > 0]
    if not within:
        return _single(hull[0], choices, period_s, met=False)
    low = within[-1]
    if not above or drains[low.id] == 0:
        return _single(low, choices, period_s, met=True)
    high = above[0]
    share = -drains[low.id] / (drains[high.id] - drains[low.id])
    return Plan(
        shares=((high.id, share), (low.id, 1 - share)),
        quality=share * high.quality + (1 - share) * low.quality,
        power_w=_power_w((high, low), share, choices, period_s),
        met=True,
    )


def best_single(budget: Budget, choices: Choices, period_s: float | None) -> Choice:
    """The best path that holds the budget alone; where none does, the one that comes nearest."""
    timely = _timely(budget, choices)
    if not timely:
        return _fastest(choices)
    drains = {path.id: _drain_j(path, budget, choices, period_s) for path in timely}
    holding = [path for path in timely if drains[path.id] <= 0]
    if not holding:
        return min(timely, key=lambda path: (drains[path.id], -path.quality))
    return max(holding, key=lambda path: path.quality)


def latency_at(path: Choice, budget: Budget) -> float:
    """The path's latency at the quantile that the budget asks for; its median without a latency budget."""
    if budget.latency is None or budget.latency.quantile is None:
        return path.latency_s
    return path.latency_s * (1 + NormalDist().inv_cdf(budget.latency.quantile) * path.spread)


def _timely(budget: Budget, choices: Choices) -> list[Choice]:
    limit = math.inf if budget.latency is None else budget.latency.seconds
    return [path for path in choices.paths if latency_at(path, budget) <= limit]


def _fastest(choices: Choices) -> Choice:
    return min(choices.paths, key=lambda path: path.latency_s)


def _drain_j(path: Choice, budget: Budget, choices: Choices, period_s: float | None) -> float:
    """Energy of a frame above what the budget allows it; 0 without an energy limit."""
    period = max(period_s or 0.0, path.latency_s)
    powers = [budget.power_w, budget.mission.power_w if budget.mission is not None else None]
    allowed = [watts * period for watts in powers if watts is not None]
    if budget.energy_j is not None:
        allowed.append(budget.energy_j)
    if not allowed or path.net_j is None or choices.idle_power_w is None:
        return 0.0
    return path.net_j + choices.idle_power_w * period - min(allowed)


def _single(path: Choice, choices: Choices, period_s: float | None, *, met: bool) -> Plan:
    power = _power_w((path, path), 1.0, choices, period_s)
    return Plan(shares=((path.id, 1.0),), quality=path.quality, power_w=power, met=met)


def _power_w(pair: tuple[Choice, Choice], share: float, choices: Choices, period_s: float | None) -> float | None:
    if choices.idle_power_w is None or any(path.net_j is None for path in pair):
        return None
    weights = (share, 1 - share)
    energy = sum(part * (path.net_j or 0.0) for path, part in zip(pair, weights, strict=True))
    seconds = sum(part * max(period_s or 0.0, path.latency_s) for path, part in zip(pair, weights, strict=True))
    return choices.idle_power_w + energy / seconds
