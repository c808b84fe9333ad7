"""Budgets: what each text means, how budgets combine, and that every refusal is one line that says what to
write.
"""

import math
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gearshift.errors import BudgetError
from gearshift.runtime import Budget, LatencyLimit, Mission

WATTS = {"mW": 1e-3, "W": 1.0, "kW": 1e3}
JOULES = {"mJ": 1e-3, "J": 1.0, "kJ": 1e3}
WATT_HOURS = {"mWh": 3.6, "Wh": 3600.0, "kWh": 3.6e6}
SECONDS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
NUMBERS = st.floats(1e-3, 90, allow_subnormal=False)
BLANKS = st.sampled_from(["", " ", "  "])


def unit_of(table: dict[str, float]) -> st.SearchStrategy[str]:
    return st.sampled_from(sorted(table))


@st.composite
def budgets(draw: st.DrawFn) -> Budget:
    """Any budget that texts can say, of up to four parts."""
    parts = []
    if draw(st.booleans()):
        parts.append(f"{draw(NUMBERS)} {draw(unit_of(WATTS))}")
    if draw(st.booleans()):
        parts.append(f"{draw(NUMBERS)} %")
    if draw(st.booleans()):
        parts.append(f"{draw(NUMBERS)} {draw(unit_of(JOULES))}")
    if draw(st.booleans()):
        parts.append(f"{draw(st.sampled_from(['', 'mean:', 'p50:', 'p99.9:']))}{draw(NUMBERS)}ms")
    if draw(st.booleans()):
        parts.append(f"{draw(NUMBERS)}Wh/{draw(NUMBERS)}h")
    return Budget.parse(*parts)


@pytest.mark.parametrize("text", ["60W", "60 W", "0.06kW", "60000 mW", " 60W ", "6e1W", "+60W", "max=60W"])
def test_the_same_power_in_many_spellings(text: str) -> None:
    assert Budget.parse(text).power_w == pytest.approx(60.0)
    assert Budget.parse(text).needs_energy


@pytest.mark.parametrize("text", ["250mJ", "0.25 J", "250 mJ/frame", "0.00025kJ"])
def test_energy_per_frame(text: str) -> None:
    assert Budget.parse(text).energy_j == pytest.approx(0.25)


@pytest.mark.parametrize("text", ["16.7ms", "0.0167 s", "p95:16.7ms", "16700us", "p95: 16.7 ms"])
def test_a_time_is_a_95th_percentile(text: str) -> None:
    limit = Budget.parse(text).latency
    assert limit == LatencyLimit(seconds=pytest.approx(0.0167), quantile=0.95)
    assert not Budget.parse(text).needs_energy


@pytest.mark.parametrize("text", ["30fps", "30 Hz", "mean:33.333333333ms"])
def test_a_rate_is_a_mean_time(text: str) -> None:
    assert Budget.parse(text).latency == LatencyLimit(seconds=pytest.approx(1 / 30), quantile=None)


@pytest.mark.parametrize("text", ["40Wh/3h", "40 Wh / 3 h", "144kJ/180min", "0.04kWh/10800s"])
def test_a_mission(text: str) -> None:
    mission = Budget.parse(text).mission
    assert mission == Mission(energy_j=pytest.approx(144_000), duration_s=pytest.approx(10_800))
    assert mission.power_w == pytest.approx(40 / 3)


def test_a_share_of_the_stock_models_power() -> None:
    budget = Budget.parse("60 %")
    assert budget.power_share == pytest.approx(0.6)
    assert budget.with_stock_power(100.0) == Budget.parse("60W")
    assert (budget & Budget.parse("50W")).with_stock_power(100.0) == Budget.parse("50W")
    with pytest.raises(BudgetError, match="needs the stock model's power, which no meter here gives"):
        budget.with_stock_power(None)
    assert Budget.parse("33ms").with_stock_power(None) == Budget.parse("33ms")


@given(number=NUMBERS, unit=unit_of(WATTS), blank=BLANKS)
def test_power_reads_back(number: float, unit: str, blank: str) -> None:
    assert Budget.parse(f"{number}{blank}{unit}").power_w == pytest.approx(number * WATTS[unit])


@given(number=NUMBERS, unit=unit_of(JOULES), blank=BLANKS)
def test_energy_reads_back(number: float, unit: str, blank: str) -> None:
    assert Budget.parse(f"{number}{blank}{unit}").energy_j == pytest.approx(number * JOULES[unit])


@given(number=NUMBERS, unit=unit_of(SECONDS), percentile=st.integers(1, 99))
def test_time_reads_back(number: float, unit: str, percentile: int) -> None:
    limit = Budget.parse(f"p{percentile}:{number}{unit}").latency
    assert limit is not None
    assert limit.seconds == pytest.approx(number * SECONDS[unit])
    assert limit.quantile == pytest.approx(percentile / 100)


@given(energy=NUMBERS, unit=unit_of({**JOULES, **WATT_HOURS}), time=NUMBERS, time_unit=unit_of(SECONDS))
def test_a_mission_reads_back(energy: float, unit: str, time: float, time_unit: str) -> None:
    joules, seconds = energy * {**JOULES, **WATT_HOURS}[unit], time * SECONDS[time_unit]
    text = f"{energy}{unit}/{time}{time_unit}"
    if joules / seconds > 1e5:
        with pytest.raises(BudgetError, match="more than any such device draws"):
            Budget.parse(text)
    else:
        assert Budget.parse(text).mission == Mission(energy_j=pytest.approx(joules), duration_s=pytest.approx(seconds))


@given(one=budgets(), other=budgets(), third=budgets())
def test_budgets_combine_in_any_order(one: Budget, other: Budget, third: Budget) -> None:
    assert one & other == other & one
    assert (one & other) & third == one & (other & third)
    assert one & one == one
    assert one & Budget() == one


@given(one=budgets(), other=budgets())
def test_of_two_limits_the_tighter_holds(one: Budget, other: Budget) -> None:
    both = one & other
    for name in ("power_w", "power_share", "energy_j"):
        given_ = [value for value in (getattr(one, name), getattr(other, name)) if value is not None]
        assert getattr(both, name) == min(given_, default=None)
    limits = [budget.latency for budget in (one, other) if budget.latency is not None]
    if limits:
        assert both.latency is not None
        assert both.latency.seconds == min(limit.seconds for limit in limits)
        assert (both.latency.quantile or 0) == max(limit.quantile or 0 for limit in limits)
    powers = [budget.mission.power_w for budget in (one, other) if budget.mission is not None]
    assert (both.mission.power_w if both.mission else None) == min(powers, default=None)
    assert both.needs_energy == (one.needs_energy or other.needs_energy)


@given(budget=budgets())
def test_a_budget_is_a_value(budget: Budget) -> None:
    assert hash(budget) == hash(budget & Budget())
    text = str(budget)
    assert "\n" not in text
    assert (text == "no limit") == (budget == Budget())
    with pytest.raises(AttributeError):
        budget.power_w = 1.0  # type: ignore[misc]


def test_several_texts_and_keywords_say_the_same() -> None:
    parsed = Budget.parse("15 W", "33ms", "250mJ", "40Wh/3h")
    assert Budget(power="15 W", latency="33 ms", energy="250 mJ", mission="40Wh/3h") == parsed
    assert Budget.parse() == Budget()
    assert Budget(power="60%") == Budget.parse("60%")
    assert Budget(latency="30fps") == Budget.parse("30fps")
    assert Budget.parse("60W", "40W", "50W") == Budget.parse("40W")
    assert str(parsed) == "15 W and 250 mJ/frame and p95 33 ms and 40 Wh over 3 h"
    assert str(Budget.parse("60%", "30fps")) == "60 % of stock and mean 33.33 ms"


REFUSED = {
    "-5W": "positive, finite",
    "0W": "positive, finite",
    "NaN W": "positive, finite",
    "inf W": "positive, finite",
    "-inf ms": "positive, finite",
    "1e999W": "positive, finite",
    "1e-999W": "positive, finite",
    "1e-323mW": "out of range",
    "1e308h": "out of range",
    "1e-323fps": "out of range",
    "1e306kJ": "out of range",
    "60": "no unit",
    "60Wh": 'write, for example, "60Wh/3h"',
    "60 W/h": "not a number with a unit",
    "60W/3h": "not energy over time",
    "40Wh/": "not a number with a unit",
    "40Wh/-3h": "positive, finite",
    "40Wh/0h": "positive, finite",
    "40Wh/3km": "not energy over time",
    "40Wh/3h/2": "not energy over time",
    "40MWh/3h": "not energy over time",
    "40kWh/1s": "more than any such device draws",
    "60MW": "did you mean mW?",
    "60w": 'did you mean "W"?',
    "33MS": 'did you mean "ms"?',
    "60 w att": "not a number with a unit",
    "": "empty",
    "  ": "empty",
    "max=": "empty",
    "W": "not a number with a unit",
    "60%%": "not a percentage",
    "60W%": "not a percentage",
    "%": "not a number with a unit",
    "0%": "positive, finite",
    "6_0%": "not a percentage",
    "6_0W": "unknown unit",
    "p95:60W": "only a time",
    "mean:30fps": "only a time",
    "p95:250mJ": "only a time",
    "p100:33ms": "no percentile",
    "p0:33ms": "no percentile",
    "median:33ms": "no percentile",
    "p95:": "not a number with a unit",
    "200kW": "more than any such device draws",
    "60 watts": 'unknown unit "watts"',
    "60W and 33ms": "not a number with a unit",
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_no_budget_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(BudgetError) as refusal:
        Budget.parse(text)
    message = str(refusal.value)
    assert REFUSED[text] in message
    assert text.strip() in message
    assert "\n" not in message


@pytest.mark.parametrize("value", [60, 60.0, None, ("60W",)])
def test_what_is_no_text_is_refused(value: Any) -> None:
    with pytest.raises(BudgetError, match="a text with a unit, not"):
        Budget.parse(value)


@pytest.mark.parametrize(
    "keywords",
    [{"power": "33ms"}, {"latency": "60W"}, {"energy": "60W"}, {"mission": "60%"}, {"power": "250mJ"}],
)
def test_a_keyword_takes_its_own_kind(keywords: dict[str, str]) -> None:
    with pytest.raises(BudgetError, match="budget of another kind"):
        Budget(**keywords)  # type: ignore[arg-type]


@given(text=st.text(max_size=12))
@example("1e5W")
@example("²W")
@example("١W")
def test_any_text_is_a_budget_or_refused_as_one(text: str) -> None:
    try:
        budget = Budget.parse(text)
    except BudgetError:
        return
    found = [budget.power_w, budget.power_share, budget.energy_j]
    found += [budget.latency.seconds] if budget.latency else []
    found += [budget.mission.power_w] if budget.mission else []
    assert any(value is not None for value in found)
    assert all(value is None or (math.isfinite(value) and value > 0) for value in found)
