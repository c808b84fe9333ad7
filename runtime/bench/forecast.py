"""What budgets would give, predicted from the measured frontier; nothing here runs."""

from typing import Any

from gearshift.runtime.budget import Budget
from gearshift.runtime.choices import Choices
from gearshift.runtime.plan import latency_at, plan

POWER_SHARES = (1.0, 0.8, 0.6, 0.5, 0.4, 0.3, 0.2)
LATENCY_STEPS = 5
LATENCY_MARGIN = 1.3
"""The limits go from this times the fastest path's latency to this times the slowest one's."""


def binds(budget: Budget, choices: Choices, period_s: float) -> dict[str, Any]:
    """Whether the budget keeps the best path from running all the time, and what that path would need."""
    best = max(choices.paths, key=lambda path: path.quality)
    free = plan(budget, choices, period_s)
    alone = free.met and free.quality >= best.quality
    power = choices.power_w(choices.index(best.id), period_s)
    needs = f"{latency_at(best, budget) * 1e3:.3g} ms" + ("" if power is None else f" and {power:.3g} W")
    verb = "does not bind" if alone else "binds"
    return {"binds": not alone, "text": f"the budget {verb}: the best path ({best.id}) needs about {needs}"}


def other_budgets(choices: Choices, period_s: float, stock_w: float | None) -> list[dict[str, Any]]:
    """Shares of the stock model's power, where that is known, and latency limits between the paths' own."""
    rows = []
    if stock_w is not None and choices.know_energy:
        for share in POWER_SHARES:
            budget = Budget.parse(f"{share * stock_w:.9g} W")
            rows.append(_predicted(f"{share:.0%} of stock", budget, choices, period_s))
    fastest, slowest = (choices.paths[end].latency_s for end in (0, -1))
    for step in range(LATENCY_STEPS):
        limit_ms = 1e3 * LATENCY_MARGIN * fastest * (slowest / fastest) ** (step / (LATENCY_STEPS - 1))
        budget = Budget.parse(f"{limit_ms:.9g} ms")
        rows.append(_predicted(f"p95 {limit_ms:.3g} ms", budget, choices, period_s))
    return rows


def _predicted(name: str, budget: Budget, choices: Choices, period_s: float) -> dict[str, Any]:
    found = plan(budget, choices, period_s)
    return {
        "budget": name,
        "power_limit_w": budget.power_w,
        "latency_limit_ms": budget.latency.seconds * 1e3 if budget.latency is not None else None,
        "met": found.met,
        "quality": found.quality,
        "power_w": found.power_w,
        "paths": [{"path": path, "share_of_frames": share} for path, share in found.shares],
        "source": "predicted from the measured frontier",
    }
