"""The schedule: linear warm-up, constant, and a decay that ends near zero."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from gearshift.retrain.recipe import Optimiser
from gearshift.retrain.train import learning_rate


@st.composite
def schedules(draw: st.DrawFn) -> tuple[int, Optimiser]:
    """Steps, and an optimiser whose warm-up and decay fit into them."""
    warmup, constant, decay = draw(st.tuples(st.integers(0, 50), st.integers(0, 50), st.integers(1, 50)))
    rate = draw(st.floats(1e-6, 1))
    optimiser = Optimiser(learning_rate=rate, weight_decay=0, warmup_steps=warmup, decay_steps=decay)
    return warmup + constant + decay, optimiser


def rates(steps: int, optimiser: Optimiser) -> list[float]:
    """Shares of the full rate, over a run."""
    return [learning_rate(step, steps, optimiser) / optimiser.learning_rate for step in range(steps)]


@given(schedule=schedules())
def test_warm_up_is_linear_and_ends_at_the_full_rate(schedule: tuple[int, Optimiser]) -> None:
    steps, optimiser = schedule
    warmup = optimiser.warmup_steps
    for step, rate in enumerate(rates(steps, optimiser)[:warmup]):
        assert abs(rate - (step + 1) / warmup) < 1e-9


@given(schedule=schedules())
def test_between_warm_up_and_decay_the_rate_is_constant(schedule: tuple[int, Optimiser]) -> None:
    steps, optimiser = schedule
    assert set(rates(steps, optimiser)[optimiser.warmup_steps : steps - optimiser.decay_steps]) <= {1.0}


@given(schedule=schedules())
def test_the_decay_falls_from_the_full_rate_to_near_zero(schedule: tuple[int, Optimiser]) -> None:
    steps, optimiser = schedule
    decay = optimiser.decay_steps
    falling = rates(steps, optimiser)[-decay:]
    assert falling[0] == 1.0
    assert all(one > two > 0 for one, two in itertools.pairwise(falling))
    assert falling[-1] <= 1 / decay  # 1 - sqrt(1 - 1/d) <= 1/d
    assert learning_rate(steps, steps, optimiser) == 0.0


@given(schedule=schedules())
def test_the_rate_is_continuous_at_the_joints(schedule: tuple[int, Optimiser]) -> None:
    """No step changes it by more than the slope there: 1/w in the warm-up, sqrt(1/d) at the decay's start."""
    steps, optimiser = schedule
    limit = max(1 / max(optimiser.warmup_steps, 1) if optimiser.warmup_steps else 0, optimiser.decay_steps**-0.5)
    shares = rates(steps, optimiser)
    assert all(abs(one - two) <= limit + 1e-9 for one, two in itertools.pairwise(shares))


@given(schedule=schedules(), more=st.integers(1, 50))
def test_before_the_decay_the_end_does_not_matter(schedule: tuple[int, Optimiser], more: int) -> None:
    steps, optimiser = schedule
    before = steps - optimiser.decay_steps
    assert rates(steps, optimiser)[:before] == rates(steps + more, optimiser)[:before]


def test_by_hand() -> None:
    optimiser = Optimiser(learning_rate=2.0, weight_decay=0, warmup_steps=2, decay_steps=4)
    got = [learning_rate(step, 8, optimiser) for step in range(8)]
    assert got == [1.0, 2.0, 2.0, 2.0, 2.0, 1.0, 2 * (1 - 0.5**0.5), 2 * (1 - 0.75**0.5)]
