"""The best mix for a budget, against every pair of paths in every proportion that matters."""

import itertools
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gearshift.runtime.budget import Budget
from gearshift.runtime.choices import Choice, Choices
from gearshift.runtime.plan import Plan, best_single, latency_at, plan

IDLE_W = 10.0
PERIOD_S = 0.1


def choice(name: str, quality: float, latency_s: float, net_j: float | None, spread: float = 0.1) -> Choice:
    return Choice(id=name, quality=quality, latency_s=latency_s, spread=spread, net_j=net_j)


def choices_of(*paths: Choice, idle_w: float | None = IDLE_W) -> Choices:
    return Choices(paths=tuple(sorted(paths, key=lambda path: path.latency_s)), idle_power_w=idle_w)


@st.composite
def frontiers(draw: st.DrawFn) -> Choices:
    """One to six paths; some slower than the camera, some worse and dearer than others."""
    rows = draw(
        st.lists(
            st.tuples(st.floats(0.1, 0.99), st.floats(0.005, 0.3), st.floats(0.0, 10.0), st.floats(0.01, 0.5)),
            min_size=1,
            max_size=6,
        )
    )
    return choices_of(*(choice(f"p{number}", *row) for number, row in enumerate(rows)))


periods = st.sampled_from([None, 0.02, PERIOD_S, 1.0])
powers = st.floats(1.0, 200.0)
latencies = st.none() | st.tuples(st.sampled_from(["p50", "p95", "mean"]), st.floats(5.0, 400.0))


def budget_of(watts: float | None, latency: tuple[str, float] | None) -> Budget:
    texts = [] if watts is None else [f"{watts!r}W"]
    return Budget.parse(*texts, *([] if latency is None else [f"{latency[0]}:{latency[1]!r}ms"]))


def period_of(path: Choice, period_s: float | None) -> float:
    return max(period_s or 0.0, path.latency_s)


def power_of(mix: list[tuple[Choice, float]], period_s: float | None) -> float:
    """Energy of the frames and of the idling, over their time."""
    energy = sum(share * (path.net_j or 0.0) for path, share in mix)
    return IDLE_W + energy / sum(share * period_of(path, period_s) for path, share in mix)


def mix_of(found: Plan, choices: Choices) -> list[tuple[Choice, float]]:
    return [(choices.paths[choices.index(name)], share) for name, share in found.shares]


def best_by_pairs(choices: Choices, watts: float, period_s: float | None, timely: list[Choice]) -> float | None:
    """Best quality of any mix of two paths of mean power `watts` at most: the optimum lies at a corner."""
    found = []
    for one, other in itertools.product(timely, repeat=2):
        drains = [(path.net_j or 0.0) - (watts - IDLE_W) * period_of(path, period_s) for path in (one, other)]
        if drains[0] <= 0:
            found.append(one.quality)
        if drains[0] < 0 < drains[1]:
            share = drains[0] / (drains[0] - drains[1])  # of `other`, so that the mean drain is 0
            found.append(one.quality * (1 - share) + other.quality * share)
    return max(found, default=None)


@given(frontiers(), powers, periods, latencies)
def test_a_plan_is_as_good_as_any_mix_of_two_paths(
    choices: Choices, watts: float, period_s: float | None, latency: tuple[str, float] | None
) -> None:
    budget = budget_of(watts, latency)
    limit = budget.latency.seconds if budget.latency else float("inf")
    timely = [path for path in choices.paths if latency_at(path, budget) <= limit]
    best = best_by_pairs(choices, watts, period_s, timely)
    found = plan(budget, choices, period_s)

    assert found.met == (best is not None)
    if best is not None:
        assert found.quality == pytest.approx(best)
        assert all(latency_at(path, budget) <= limit for path, _ in mix_of(found, choices))
        assert found.power_w is not None
        assert found.power_w <= watts * (1 + 1e-9)


@given(frontiers(), st.none() | powers, periods, latencies)
def test_a_plan_says_what_its_mix_gives(
    choices: Choices, watts: float | None, period_s: float | None, latency: tuple[str, float] | None
) -> None:
    found = plan(budget_of(watts, latency), choices, period_s)
    mix = mix_of(found, choices)

    assert 1 <= len(mix) <= 2
    assert all(share > 0 for _, share in mix)
    assert sum(share for _, share in mix) == pytest.approx(1)
    assert found.quality == pytest.approx(sum(share * path.quality for path, share in mix))
    assert found.power_w == pytest.approx(power_of(mix, period_s))


@given(frontiers(), periods, powers, powers)
def test_more_power_never_gives_less(choices: Choices, period_s: float | None, one: float, other: float) -> None:
    low, high = sorted((one, other))
    less, more = (plan(Budget.parse(f"{watts!r}W"), choices, period_s) for watts in (low, high))
    assert more.met >= less.met
    if less.met:
        assert more.quality >= less.quality - 1e-9


@given(frontiers(), periods, powers, latencies)
def test_the_best_single_path_is_no_better_than_the_plan(
    choices: Choices, period_s: float | None, watts: float, latency: tuple[str, float] | None
) -> None:
    budget = budget_of(watts, latency)
    alone, found = best_single(budget, choices, period_s), plan(budget, choices, period_s)
    if found.met:
        assert alone.quality <= found.quality + 1e-9
        assert power_of([(alone, 1.0)], period_s) <= watts * (1 + 1e-9)
    else:  # both take the path that comes nearest; rounding may tell two of them apart
        nearest = choices.paths[choices.index(found.shares[0][0])]
        over, least = ((path.net_j or 0.0) - (watts - IDLE_W) * period_of(path, period_s) for path in (alone, nearest))
        assert over == pytest.approx(least)


CHEAP = choice("cheap", 0.5, 0.02, 1.0)
MIDDLE = choice("middle", 0.7, 0.04, 3.0)
DEAR = choice("dear", 0.8, 0.06, 7.0)
THREE = choices_of(CHEAP, MIDDLE, DEAR)


@pytest.mark.parametrize(
    ("budget", "shares", "quality", "power_w", "met"),
    [
        # 10 W idle + 7 J / 0.1 s: the dear path alone draws 80 W.
        ("80W", {"dear": 1.0}, 0.8, 80.0, True),
        ("100W", {"dear": 1.0}, 0.8, 80.0, True),
        # (60 - 40) / (80 - 40) of the frames on the dear path.
        ("60W", {"dear": 0.5, "middle": 0.5}, 0.75, 60.0, True),
        ("40W", {"middle": 1.0}, 0.7, 40.0, True),
        ("25W", {"middle": 0.25, "cheap": 0.75}, 0.55, 25.0, True),
        ("20W", {"cheap": 1.0}, 0.5, 20.0, True),
        # Nothing holds 15 W: the cheapest path, and it is said.
        ("15W", {"cheap": 1.0}, 0.5, 20.0, False),
        # Joules per frame count the idling between frames: 7 J + 10 W x 0.1 s.
        ("8J", {"dear": 1.0}, 0.8, 80.0, True),
        ("6J", {"dear": 0.5, "middle": 0.5}, 0.75, 60.0, True),
        # 12 Wh in 12 min are 60 W.
        ("12Wh/12min", {"dear": 0.5, "middle": 0.5}, 0.75, 60.0, True),
        # p95 of the middle path: 40 ms x (1 + 1.645 x 0.1) = 46.6 ms.
        ("47ms", {"middle": 1.0}, 0.7, 40.0, True),
        ("46ms", {"cheap": 1.0}, 0.5, 20.0, True),
        ("mean:40ms", {"middle": 1.0}, 0.7, 40.0, True),
        ("10ms", {"cheap": 1.0}, 0.5, 20.0, False),
    ],
)
def test_plans_by_hand(budget: str, shares: dict[str, float], quality: float, power_w: float, met: bool) -> None:
    found = plan(Budget.parse(budget), THREE, PERIOD_S)
    assert dict(found.shares) == pytest.approx(shares)
    assert (found.quality, found.power_w, found.met) == (pytest.approx(quality), pytest.approx(power_w), met)


def test_budgets_of_several_kinds_hold_together() -> None:
    found = plan(Budget.parse("60W", "47ms"), THREE, PERIOD_S)
    assert dict(found.shares) == {"middle": 1.0}


def test_a_path_under_the_hull_is_not_planned() -> None:
    lame = choice("lame", 0.55, 0.03, 4.0)
    for watts in range(20, 90, 5):
        found = plan(Budget.parse(f"{watts}W"), choices_of(CHEAP, lame, DEAR), PERIOD_S)
        assert "lame" not in dict(found.shares)


def test_without_a_camera_the_period_is_the_path_s_own() -> None:
    # 10 W + 3 J / 0.04 s = 85 W; 10 W + 1 J / 0.02 s = 60 W.
    assert plan(Budget.parse("85W"), choices_of(CHEAP, MIDDLE), None).power_w == pytest.approx(85)
    assert plan(Budget.parse("60W"), choices_of(CHEAP, MIDDLE), None).power_w == pytest.approx(60)


def test_without_energy_figures_latency_alone_decides() -> None:
    blind = choices_of(choice("slow", 0.9, 0.05, None), choice("fast", 0.6, 0.01, None), idle_w=None)
    found = plan(Budget.parse("20ms"), blind, PERIOD_S)
    assert (dict(found.shares), found.power_w, found.met) == ({"fast": 1.0}, None, True)


def test_where_no_single_path_holds_the_nearest_is_taken() -> None:
    assert best_single(Budget.parse("15W"), THREE, PERIOD_S).id == "cheap"
    assert best_single(Budget.parse("1ms"), THREE, PERIOD_S).id == "cheap"
    assert best_single(Budget.parse("60W"), THREE, PERIOD_S).id == "middle"
    assert best_single(Budget(), THREE, PERIOD_S).id == "dear"


def test_latency_is_read_at_the_quantile_asked_for() -> None:
    assert latency_at(DEAR, Budget()) == 0.06
    assert latency_at(DEAR, Budget.parse("mean:1s")) == 0.06
    expected = 0.06 * (1 + 0.1 * NormalDist().inv_cdf(0.99))
    assert latency_at(DEAR, Budget.parse("p99:1s")) == pytest.approx(expected)
