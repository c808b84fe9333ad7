"""The decision, as a pure function: (state, reading, budget, choices) to (state, path).

It optimises; it does not step. Each path has an expected latency, energy and quality. Online it is learnt how
much slower (`latency`) and hungrier (`energy`) the device is now, and when frames come (`rhythm`). A path is
timely if it meets the latency limit with the asked-for probability. Among timely paths quality is maximised
subject to the energy allowance: by one path, or by two in turn (`turns`), of which a token bucket of joules
decides which one runs now. What was overspent is paid back, and a minimum dwell keeps the output from
flickering.

Nothing here reads a clock, a device or a global: the same arguments give the same decision.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from gearshift.runtime.budget import Budget
from gearshift.runtime.choices import Choices
from gearshift.runtime.energy import EnergyEstimate
from gearshift.runtime.estimate import LogRatio
from gearshift.runtime.latency import LatencyEstimate
from gearshift.runtime.rhythm import Rhythm
from gearshift.runtime.turns import Option, Turns, best_turns, turns_of

PAYBACK_WINDOWS = 4.0
"""What was overspent is saved again over so many windows."""
WORTHWHILE = 1e-4
"""Quality that two paths in turn must gain over the best single one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How the controller behaves.

    Attributes:
        dwell_frames: Frames that a path runs at least before a dearer one may replace it.
        window_s: Over which a mean budget must hold.
        margin: Part of an energy allowance that lies within its error. A single path may exceed it by so much,
            debts included.
        headroom: Part of an energy allowance that is held back while two paths take turns: a real meter and
            real frames scatter, and without it the mean of a short run lands above the budget as often as below.
        excess: Part of the allowance by which the active path may exceed it before it is left, and single
            windows while two paths take turns. The mean keeps the budget: what is overspent is paid back.
        hysteresis: A dearer path than the active one must clear the latency limit by this share.
        sensor_s: Over which the power sensor averages.
    """

    dwell_frames: int = 2
    window_s: float = 1.0
    margin: float = 0.01
    headroom: float = 0.025
    excess: float = 0.02
    hysteresis: float = 0.03
    sensor_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameReading:
    """What is known after a frame.

    Attributes:
        path: Index of the path that ran it.
        latency_s: How long it took.
        period_s: From the start of the frame before to the start of this one; None for the first.
        power_w: Mean power since the power reading before, where a fresh one arrived; else None. Power, not
            energy: the meter's span and the frames' need not begin and end together.
    """

    path: int
    latency_s: float
    period_s: float | None = None
    power_w: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """All that the controller remembers; make the first one with `State.start(choices)`.

    Attributes:
        active: Index of the path to run next.
        frames_on_active: Frames it has run since it was chosen.
        latency, rhythm, energy: What frames and meter have taught.
        bucket_j: Joules saved (or, negative, overspent) against the allowance.
        owed_j: Joules by which the meter showed more than was expected, not yet taken out of the bucket: they
            are taken bit by bit, since a part of them is the meter's noise.
        pair: The two paths that take turns, the saving one first; None while a single path runs.
        spent_j, elapsed_s: Since the mission began.
        budget: The budget that the bucket belongs to; another one empties it.
    """

    active: int
    frames_on_active: int = 0
    latency: LatencyEstimate
    rhythm: Rhythm
    energy: EnergyEstimate = field(default_factory=EnergyEstimate)
    bucket_j: float = 0.0
    owed_j: float = 0.0
    pair: tuple[int, int] | None = None
    spent_j: float = 0.0
    elapsed_s: float = 0.0
    budget: Budget | None = None

    @classmethod
    def start(cls, choices: Choices, period_s: float | None = None) -> "State":
        """Nothing known yet but, perhaps, the time between frames; the best path is active."""
        best = max(range(len(choices.paths)), key=lambda index: choices.paths[index].quality)
        return cls(
            active=best,
            latency=LatencyEstimate(bias=(0.0,) * len(choices.paths)),
            rhythm=Rhythm.start(period_s),
        )

    @property
    def slowdown(self) -> LogRatio:
        """How much slower the device is than when paths were costed."""
        return self.latency.slowdown

    @property
    def hunger(self) -> LogRatio:
        """How much more energy above idle a frame takes than when paths were costed."""
        return self.energy.hunger


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to do next.

    Attributes:
        state: To be passed to the next call.
        path: Index of the path for the next frame (equal to `state.active`).
        met: Whether, as far as is known, some path meets the budget.
        shortfall: Where `met` is False, what the cheapest path would need; else an empty text.
    """

    state: State
    path: int
    met: bool
    shortfall: str = ""


def decide(
    state: State, reading: FrameReading | None, budget: Budget, choices: Choices, settings: Settings
) -> Decision:
    """Learn from the last frame and choose the path for the next one.

    Args:
        state: As returned by the call before.
        reading: The last frame; None when only the budget has changed.
        budget: With its power share already turned into watts.
        choices: What there is to choose from; the same at every call of one state.
        settings: How to behave.
    """
    if budget is not state.budget and budget != state.budget:
        state = _with_budget(state, budget)
    if reading is not None:
        state = _learn(state, reading, choices, settings)
    return _choose(state, choices, settings)


def expected_latency_s(state: State, choices: Choices, index: int) -> float:
    """What a path is expected to take now."""
    return state.latency.expected_s(choices, index)


def latency_quantile_s(state: State, choices: Choices, index: int, quantile: float | None) -> float:
    """What a path takes at most with probability `quantile`; its mean where that is None."""
    return state.latency.quantile_s(choices, index, quantile)


def _with_budget(state: State, budget: Budget) -> State:
    """Begin anew what belongs to a budget; a mission that is in the new one as well goes on."""
    goes_on = state.budget is not None and budget.mission == state.budget.mission
    return replace(
        state,
        budget=budget,
        bucket_j=0.0,
        owed_j=0.0,
        pair=None,
        spent_j=state.spent_j if goes_on else 0.0,
        elapsed_s=state.elapsed_s if goes_on else 0.0,
    )


# What was learnt from the last frame ------------------------------------------------------------------------


def _learn(state: State, reading: FrameReading, choices: Choices, settings: Settings) -> State:
    index, limit = reading.path, _limits(state).latency
    expected = state.latency.expected_s(choices, index)
    sound = math.isfinite(reading.latency_s) and reading.latency_s > 0
    latency_s = reading.latency_s if sound else expected
    elapsed = state.rhythm.elapsed_s(reading.period_s, latency_s)
    learnt = replace(
        state,
        frames_on_active=state.frames_on_active + (index == state.active),
        latency=state.latency.observe(choices, index, reading.latency_s, limit),
        rhythm=state.rhythm.observe(reading.period_s, latency_s, expected),
        elapsed_s=state.elapsed_s + elapsed,
    )
    return _book(learnt, reading, elapsed, choices, settings)


def _book(state: State, reading: FrameReading, elapsed_s: float, choices: Choices, settings: Settings) -> State:
    """Put the frame's allowance into the bucket and take its energy out, as corrected by the meter."""
    path, idle_w = choices.paths[reading.path], choices.idle_power_w
    if path.net_j is None or idle_w is None:
        return state
    spent, beyond = path.net_j * state.hunger.ratio + idle_w * elapsed_s, 0.0
    energy = state.energy.book(path.net_j, elapsed_s, settings.sensor_s)
    if reading.power_w is not None:
        energy, beyond = energy.read(reading.power_w, idle_w, settings.window_s)
    owed = state.owed_j + beyond
    paid = -owed * math.expm1(-max(0.0, elapsed_s) / (PAYBACK_WINDOWS * settings.window_s))
    state = replace(state, energy=energy, spent_j=state.spent_j + spent + beyond, owed_j=owed - paid)
    allowance = _allowance(state)
    if allowance is None or reading.period_s is None:  # the first frame: part of a period only
        return state
    kept = 1.0 if state.pair is None else 1 - settings.headroom
    period = state.rhythm.period_with(state.latency.expected_s(choices, reading.path))
    deepest = -allowance.joules(period) / period * settings.window_s  # older debts are forgiven
    bucket = state.bucket_j + kept * allowance.joules(elapsed_s) - spent - paid
    return replace(state, bucket_j=max(deepest, bucket))


@dataclass(frozen=True, slots=True)
class _Allowance:
    """What may be spent: so much power, and so much energy a frame."""

    power_w: float
    energy_j: float

    def joules(self, period_s: float) -> float:
        """For one frame in `period_s`."""
        return self.energy_j if self.power_w == math.inf else min(self.power_w * period_s, self.energy_j)


def _allowance(state: State) -> _Allowance | None:
    """The tightest of all energy limits; None without one."""
    budget = _limits(state)
    power_w, energy_j = budget.power_w, budget.energy_j
    if budget.mission is not None:
        power_w = min(math.inf if power_w is None else power_w, _mission_power_w(state))
    if power_w is None and energy_j is None:
        return None
    return _Allowance(math.inf if power_w is None else power_w, math.inf if energy_j is None else energy_j)


def _mission_power_w(state: State) -> float:
    """What is left of a mission's energy over what is left of its time; the plain mean once its time is over.

    One more second at the mean is planned on both sides, so that the last moments divide nothing by nothing.
    """
    mission = _limits(state).mission
    if mission is None:
        return math.inf
    seconds = max(0.0, mission.duration_s - state.elapsed_s) + 1.0
    joules = mission.energy_j - state.spent_j + mission.power_w
    return max(0.0, joules) / seconds if seconds > 1.0 else mission.power_w


def _limits(state: State) -> Budget:
    return state.budget if state.budget is not None else Budget()


# What to run next -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Cost:
    """What a frame of one path is expected to take, and to be allowed."""

    needed_j: float
    allowed_j: float
    period_s: float

    @property
    def overshoot(self) -> float:
        """Needed over allowed; in the order of power where nothing is allowed any more."""
        return self.needed_j / max(self.allowed_j, 1e-12 * self.period_s)


@dataclass(frozen=True, slots=True)
class _Pick:
    """The path for the next frame, and what follows for the bucket."""

    path: int
    bucket_j: float
    turns: Turns | None = None
    shortfall: str = ""


def _choose(state: State, choices: Choices, settings: Settings) -> Decision:
    timely = _timely(state, choices, settings)
    candidates = timely or [_fastest(state, choices)]
    pick = _pick(state, candidates, choices, settings)
    shortfall = pick.shortfall if timely else _latency_shortfall(state, choices)
    path = _settled(state, pick, candidates, settings)
    chosen = replace(
        state,
        active=path,
        frames_on_active=state.frames_on_active if path == state.active else 0,
        bucket_j=pick.bucket_j,
        pair=None if pick.turns is None else (pick.turns.base.index, pick.turns.high.index),
    )
    return Decision(state=chosen, path=path, met=not shortfall, shortfall=shortfall)


def _timely(state: State, choices: Choices, settings: Settings) -> Sequence[int]:
    """The paths that meet the latency limit."""
    limit = _limits(state).latency
    everything = range(len(choices.paths))
    if limit is None:
        return everything
    stricter = limit.seconds * (1 - settings.hysteresis)
    return [
        index
        for index in everything
        if state.latency.quantile_s(choices, index, limit.quantile)
        <= (stricter if index > state.active else limit.seconds)
    ]


def _fastest(state: State, choices: Choices) -> int:
    return min(range(len(choices.paths)), key=lambda index: state.latency.expected_s(choices, index))


def _pick(state: State, candidates: Sequence[int], choices: Choices, settings: Settings) -> _Pick:
    """Of the candidates, the best that the allowance permits: one, or two in turn."""
    allowance = _allowance(state)
    if allowance is None:
        return _Pick(max(candidates, key=lambda index: choices.paths[index].quality), 0.0)
    debt_w = max(0.0, -state.bucket_j) / (PAYBACK_WINDOWS * settings.window_s)
    costs = {index: _cost(state, choices, index, allowance) for index in candidates}
    drains = {index: cost.needed_j - cost.allowed_j + debt_w * cost.period_s for index, cost in costs.items()}
    within = [
        index for index, cost in costs.items() if drains[index] <= _tolerance(state, index, settings) * cost.allowed_j
    ]
    best = max(within, key=lambda index: (choices.paths[index].quality, -drains[index]), default=None)
    options = _options(costs, drains, choices, settings)
    begun = _begun_turns(state, options, settings)
    if begun is not None:
        return _in_turn(state, begun)
    turns = _best_turns(options, costs, settings)
    if turns is not None and (best is None or turns.quality > choices.paths[best].quality + WORTHWHILE):
        return _in_turn(state, turns)
    bucket = min(state.bucket_j, 0.0)
    if best is not None:
        return _Pick(best, bucket)
    # Unable to hold the allowance, the path is run that exceeds it least.
    least = min(costs, key=lambda index: costs[index].overshoot)
    return _Pick(least, bucket, shortfall=_energy_shortfall(state, costs[least], settings))


def _tolerance(state: State, index: int, settings: Settings) -> float:
    """By how much a path may exceed the allowance, debts included: the more, the less would change."""
    if state.pair is not None:
        return 0.0
    return settings.excess if index == state.active else settings.margin


def _cost(state: State, choices: Choices, index: int, allowance: _Allowance) -> _Cost:
    period = state.rhythm.period_with(state.latency.expected_s(choices, index))
    net = choices.paths[index].net_j or 0.0
    needed = net * state.hunger.ratio + (choices.idle_power_w or 0.0) * period
    return _Cost(needed, allowance.joules(period), period)


def _options(
    costs: dict[int, _Cost], drains: dict[int, float], choices: Choices, settings: Settings
) -> dict[int, Option]:
    """What paths would do to the bucket while they take turns, the headroom held back."""
    return {
        index: Option(
            index, choices.paths[index].quality, drains[index] + settings.headroom * cost.allowed_j, cost.period_s
        )
        for index, cost in costs.items()
    }


def _begun_turns(state: State, options: dict[int, Option], settings: Settings) -> Turns | None:
    """The turn that has begun, unless it is over or no longer makes sense.

    It is over when the base has filled the bucket: only then is what the last stay on the high path spent saved
    again, and another pair or path may follow without a window that exceeds the budget.
    """
    base, high = (options.get(index) for index in state.pair or (-1, -1))
    if base is None or high is None or not base.drain_j < 0 < high.drain_j:
        return None
    turns = turns_of(base, high, dwell_frames=settings.dwell_frames, window_s=settings.window_s)
    filled = state.active == base.index and state.bucket_j >= turns.capacity_j
    return None if filled or state.bucket_j < -turns.capacity_j else turns


def _best_turns(options: dict[int, Option], costs: dict[int, _Cost], settings: Settings) -> Turns | None:
    """The best pair of which no window exceeds the allowance by more than the settings' share."""
    allowed_w = min(cost.allowed_j / cost.period_s for cost in costs.values())
    return best_turns(
        list(options.values()),
        dwell_frames=settings.dwell_frames,
        window_s=settings.window_s,
        excess_j=settings.excess * allowed_w * settings.window_s,
    )


def _in_turn(state: State, turns: Turns) -> _Pick:
    """The high path from when the bucket holds a stay of it until it is empty, the base otherwise."""
    bucket = min(state.bucket_j, turns.capacity_j)
    staying = state.active == turns.high.index and bucket > turns.high.drain_j
    high = staying or bucket >= turns.capacity_j
    return _Pick(turns.high.index if high else turns.base.index, bucket, turns)


def _settled(state: State, pick: _Pick, candidates: Sequence[int], settings: Settings) -> int:
    """The path picked, or the active one where it has not run long enough to be replaced by a dearer one."""
    if pick.path <= state.active or state.frames_on_active >= settings.dwell_frames or pick.shortfall:
        return pick.path
    return state.active if state.active in candidates else pick.path


def _latency_shortfall(state: State, choices: Choices) -> str:
    limit = _limits(state).latency
    if limit is None:
        return ""
    least = min(state.latency.quantile_s(choices, index, limit.quantile) for index in range(len(choices.paths)))
    return f"no path meets {limit.seconds * 1e3:.4g} ms; the fastest needs {least * 1e3:.3g} ms"


def _energy_shortfall(state: State, cost: _Cost, settings: Settings) -> str:
    """What the cheapest path needs; empty where it is only debts that it cannot pay, or within the margin."""
    if cost.needed_j <= (1 + settings.margin) * cost.allowed_j:
        return ""
    return (
        f"no path meets {_limits(state)}; the cheapest needs {cost.needed_j / cost.period_s:.3g} W or "
        f"{cost.needed_j * 1e3:.3g} mJ/frame ({cost.allowed_j / cost.period_s:.3g} W are allowed)"
    )
