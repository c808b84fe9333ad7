"""Budgets: what may be spent, read from text such as `60W`, `p95:33ms`, `250mJ` or `40Wh/3h`.

Units are case-sensitive, as in SI: mW is a thousandth of a watt, MW a million watts. A blank between number
and unit is allowed.
"""

import math
import re
from dataclasses import dataclass, replace

from gearshift.errors import BudgetError
from gearshift.units import JOULES_PER_WATT_HOUR

EXAMPLES = "60W, 33ms, p95:33ms, 30fps, 250mJ, 40Wh/3h, 60%"
DEFAULT_QUANTILE = 0.95

_POWER = {"mW": 1e-3, "W": 1.0, "kW": 1e3}
_TIME = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_ENERGY = {"mJ": 1e-3, "J": 1.0, "kJ": 1e3, "mWh": 3.6, "Wh": JOULES_PER_WATT_HOUR, "kWh": 3.6e6}
_RATE = {"fps": 1.0, "Hz": 1.0}
_LARGEST_POWER_W = 1e5

_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[+-]?(?:nan|inf|infinity))\s*(\S*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mission:
    """Energy for a stretch of time, planned anew from what is left of both."""

    energy_j: float
    duration_s: float

    @property
    def power_w(self) -> float:
        """Mean power over the whole mission."""
        return self.energy_j / self.duration_s


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyLimit:
    """A frame, in to result out, takes at most `seconds` with probability `quantile` (None: on average)."""

    seconds: float
    quantile: float | None = DEFAULT_QUANTILE


@dataclass(frozen=True, slots=True, init=False)
class Budget:
    """Every limit that must hold; None where there is none.

    Made from texts, `Budget(power="15 W", latency="33 ms")`, or read from one, `Budget.parse("60W")`. Budgets
    combine with `&`; of two limits of one kind the tighter holds.

    Attributes:
        power_w: Mean power, over windows of one second.
        power_share: Mean power as a share of the stock model's own on the same stream.
        energy_j: Mean energy per frame.
        latency: Limit on the time of single frames.
        mission: Energy over a stretch of time.
    """

    power_w: float | None
    power_share: float | None
    energy_j: float | None
    latency: LatencyLimit | None
    mission: Mission | None

    def __init__(
        self,
        *,
        power: str | None = None,
        energy: str | None = None,
        latency: str | None = None,
        mission: str | None = None,
    ) -> None:
        parts = {"power": power, "energy": energy, "latency": latency, "mission": mission}
        budget = _empty()
        for kind, text in parts.items():
            if text is not None:
                parsed = _parse_one(text)
                if kind not in _kinds(parsed):
                    raise BudgetError(f'{kind}="{text}" is a budget of another kind ({", ".join(_kinds(parsed))})')
                budget = budget & parsed
        for name in ("power_w", "power_share", "energy_j", "latency", "mission"):
            object.__setattr__(self, name, getattr(budget, name))

    @classmethod
    def parse(cls, *texts: str) -> "Budget":
        """Read one or several budgets, all of which must hold.

        Raises:
            BudgetError: Not a positive, finite number with a known unit; one line with examples.
        """
        budget = _empty()
        for text in texts:
            budget = budget & _parse_one(text)
        return budget

    def __and__(self, other: "Budget") -> "Budget":
        """Both budgets at once."""
        return _make(
            power_w=_least(self.power_w, other.power_w),
            power_share=_least(self.power_share, other.power_share),
            energy_j=_least(self.energy_j, other.energy_j),
            latency=_tighter(self.latency, other.latency),
            mission=_leaner(self.mission, other.mission),
        )

    def with_stock_power(self, stock_power_w: float | None) -> "Budget":
        """Turn a share of the stock model's power into watts.

        Raises:
            BudgetError: The stock model's power is not known.
        """
        if self.power_share is None:
            return self
        if stock_power_w is None:
            raise BudgetError(
                f"a budget of {self.power_share:.0%} needs the stock model's power, which no meter here "
                "gives; see `runtime devices`, or give a latency budget"
            )
        watts = _least(self.power_w, self.power_share * stock_power_w)
        return _make(power_w=watts, energy_j=self.energy_j, latency=self.latency, mission=self.mission)

    @property
    def needs_energy(self) -> bool:
        """Whether holding it takes knowledge of energy."""
        return any(part is not None for part in (self.power_w, self.power_share, self.energy_j, self.mission))

    def __str__(self) -> str:
        parts = []
        if self.power_w is not None:
            parts.append(f"{self.power_w:.4g} W")
        if self.power_share is not None:
            parts.append(f"{self.power_share * 100:.4g} % of stock")
        if self.energy_j is not None:
            parts.append(f"{self.energy_j * 1e3:.4g} mJ/frame")
        if self.latency is not None:
            quantile = self.latency.quantile
            which = "mean" if quantile is None else f"p{quantile * 100:.4g}"
            parts.append(f"{which} {self.latency.seconds * 1e3:.4g} ms")
        if self.mission is not None:
            hours = self.mission.duration_s / 3600
            parts.append(f"{self.mission.energy_j / JOULES_PER_WATT_HOUR:.4g} Wh over {hours:.4g} h")
        return " and ".join(parts) or "no limit"


def _parse_one(text: str) -> Budget:
    if not isinstance(text, str):
        raise BudgetError(f"a budget is a text with a unit, not {text!r}; write, for example, {EXAMPLES}")
    stripped = text.strip()
    if stripped.startswith("max="):  # "max=60W" says the same as "60W"
        stripped = stripped.removeprefix("max=").strip()
    if not stripped:
        raise BudgetError(f'an empty budget "{text}"; write, for example, {EXAMPLES}')
    if stripped.endswith("%"):
        return _share(stripped)
    stripped = stripped.removesuffix("/frame").rstrip()  # "250mJ/frame" says the same as "250mJ"
    if "/" in stripped:
        return _mission(stripped)
    quantile, quantity = _quantile(stripped)
    number, unit = _split(stripped, quantity)
    if unit in _TIME:
        chance = DEFAULT_QUANTILE if quantile is None else quantile
        seconds = _scaled(stripped, number, _TIME[unit])
        return _make(latency=LatencyLimit(seconds=seconds, quantile=chance if chance < 1 else None))
    if unit not in {**_POWER, **_ENERGY, **_RATE}:
        raise BudgetError(f'"{text}" has {_unit_problem(unit)}; write, for example, {EXAMPLES}')
    if quantile is not None:
        raise BudgetError(f'"{text}": only a time can have a percentile or a mean; write, for example, "p95:33ms"')
    return _power_energy_or_rate(stripped, number, unit)


def _power_energy_or_rate(text: str, number: float, unit: str) -> Budget:
    if unit in _POWER:
        return _make(power_w=_plausible_power(text, number * _POWER[unit]))
    if unit in _RATE:
        return _make(latency=LatencyLimit(seconds=_scaled(text, 1 / number, 1 / _RATE[unit]), quantile=None))
    if unit.endswith("Wh"):
        raise BudgetError(f'"{text}" is energy without a time to spend it in; write, for example, "{text}/3h"')
    return _make(energy_j=_scaled(text, number, _ENERGY[unit]))


def _share(text: str) -> Budget:
    number, unit = _split(text, text[:-1].strip())
    if unit:
        raise BudgetError(f'"{text}" is not a percentage; write, for example, {EXAMPLES}')
    return _make(power_share=_scaled(text, number, 0.01))


def _mission(text: str) -> Budget:
    energy_text, _, time_text = text.partition("/")
    energy, energy_unit = _split(text, energy_text.strip())
    duration, time_unit = _split(text, time_text.strip())
    if energy_unit not in _ENERGY or time_unit not in _TIME:
        raise BudgetError(f'"{text}" is not energy over time such as "40Wh/3h"; write, for example, {EXAMPLES}')
    mission = Mission(
        energy_j=_scaled(text, energy, _ENERGY[energy_unit]),
        duration_s=_scaled(text, duration, _TIME[time_unit]),
    )
    _plausible_power(text, mission.power_w)
    return _make(mission=mission)


def _quantile(text: str) -> tuple[float | None, str]:
    """Split `p95:33ms` and `mean:33ms`; the mean is given back as 1."""
    prefix, colon, rest = text.partition(":")
    if not colon:
        return None, text
    if prefix == "mean":
        return 1.0, rest.strip()
    match = re.fullmatch(r"p(\d{1,2}(?:\.\d+)?)", prefix)
    if match is None or not 0 < float(match[1]) < 100:
        raise BudgetError(f'"{text}": "{prefix}" is no percentile; write p50 to p99.9, or mean, as in "p95:33ms"')
    return float(match[1]) / 100, rest.strip()


def _split(text: str, quantity: str) -> tuple[float, str]:
    match = _QUANTITY.fullmatch(quantity)
    if match is None:
        raise BudgetError(f'"{text}" is not a number with a unit; write, for example, {EXAMPLES}')
    return _positive(text, match[1]), match[2]


def _positive(text: str, number: str) -> float:
    try:
        value = float(number)
    except ValueError:
        raise BudgetError(f'"{text}" is not a number with a unit; write, for example, {EXAMPLES}') from None
    if not math.isfinite(value) or value <= 0:
        raise BudgetError(f'"{text}" must be a positive, finite number; write, for example, {EXAMPLES}')
    return value


def _scaled(text: str, number: float, factor: float) -> float:
    value = number * factor
    if not math.isfinite(value) or value <= 0:
        raise BudgetError(f'"{text}" is out of range; write, for example, {EXAMPLES}')
    return value


def _plausible_power(text: str, watts: float) -> float:
    if watts <= 0:
        raise BudgetError(f'"{text}" is out of range; write, for example, {EXAMPLES}')
    if watts > _LARGEST_POWER_W:
        raise BudgetError(f'"{text}" is {watts:.3g} W, more than any such device draws; did you mean mW?')
    return watts


def _unit_problem(unit: str) -> str:
    if not unit:
        return "no unit"
    if unit == "MW":
        return 'the unit "MW" (megawatts); did you mean mW?'
    known = [*_POWER, *_ENERGY, *_TIME, *_RATE]
    near = next((name for name in known if name.lower() == unit.lower()), None)
    hint = f'; did you mean "{near}"?' if near else ""
    return f'an unknown unit "{unit}"{hint}'


def _kinds(budget: Budget) -> list[str]:
    present = {
        "power": budget.power_w is not None or budget.power_share is not None,
        "energy": budget.energy_j is not None,
        "latency": budget.latency is not None,
        "mission": budget.mission is not None,
    }
    return [kind for kind, here in present.items() if here]


def _make(
    *,
    power_w: float | None = None,
    power_share: float | None = None,
    energy_j: float | None = None,
    latency: LatencyLimit | None = None,
    mission: Mission | None = None,
) -> Budget:
    budget = object.__new__(Budget)
    for name, value in (
        ("power_w", power_w),
        ("power_share", power_share),
        ("energy_j", energy_j),
        ("latency", latency),
        ("mission", mission),
    ):
        object.__setattr__(budget, name, value)
    return budget


def _empty() -> Budget:
    return _make()


def _least(one: float | None, other: float | None) -> float | None:
    given = [value for value in (one, other) if value is not None]
    return min(given, default=None)


def _tighter(one: LatencyLimit | None, other: LatencyLimit | None) -> LatencyLimit | None:
    """The shorter limit, at the stricter of both quantiles: that satisfies both."""
    if one is None or other is None:
        return one or other
    quantiles = [limit.quantile for limit in (one, other) if limit.quantile is not None]
    return replace(one, seconds=min(one.seconds, other.seconds), quantile=max(quantiles, default=None))


def _leaner(one: Mission | None, other: Mission | None) -> Mission | None:
    if one is None or other is None:
        return one or other
    return min(one, other, key=lambda mission: (mission.power_w, mission.energy_j))
