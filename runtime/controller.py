"""The decision, as a pure function: (state, reading, budget, choices) to (state, path).

It optimises; it does not step. Each path has an expected latency, energy and quality. Online, two Kalman filters
track how much slower and how much hungrier the device is now. A path is admissible if it meets the latency limit
with the asked-for probability. Among admissible paths quality is maximised subject to the energy allowance: on the
concave hull of quality over energy drain the best use of a mean budget is one path, or two neighbours in turn. A
token bucket of joules decides which of the two runs now, and a minimum dwell keeps the output from flickering.

Nothing here reads a clock, a device or a global: the same arguments give the same decision.
"""

import math
from dataclasses import dataclass, field, replace
from statistics import NormalDist

from gearshift.paths.frontier import concave_hull
from gearshift.runtime.budget import Budget
from gearshift.runtime.choices import Choices
from gearshift.runtime.estimate import LogRatio

SPREAD_FRAMES = 20
"""Frames after which the spread of latencies is taken from what is seen rather than from when paths were costed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How the controller behaves.

    Attributes:
        dwell_frames: Frames that a path runs at least before a dearer one may replace it.
        window_s: Over which a mean budget must hold.
        margin: Part of an energy allowance held back against the meter's and the model's error.
        hysteresis: A dearer path than the active one must clear the latency limit by this share.
        bias_memory: Weight of the newest frame in a path's own correction.
    """

    dwell_frames: int = 3
    window_s: float = 1.0
    margin: float = 0.01
    hysteresis: float = 0.03
    bias_memory: float = 0.1


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
        slowdown: Of all paths together.
        frames: Seen so far.
        observed_spread: Deviation of single frames' log-latency; 0 (then the paths' own, measured when costed, are
            used) until `SPREAD_FRAMES` have been seen.
        bias: Each path's own log-correction on top.
        hunger: Of net energy.
        period_s: Running mean of the time between frames; None before the second frame.
        idle_share: Running mean of the share of a period spent waiting for the next frame.
        bucket_j: Joules saved (or, negative, overspent) against the allowance.
        reserve_w: Part of the allowance withheld while two paths take turns, so that no window that begins on
            the cheap one and ends on the dear one exceeds the budget.
        expected_net_j: Net energy expected of the frames since the last power reading, hunger left out.
        expected_spent_j, expected_s: Energy booked for those frames, and their time.
        spent_j, elapsed_s: Since the start, for missions.
        budget: The budget that the bucket belongs to; another one empties it.
    """

    active: int
    frames_on_active: int = 0
    slowdown: LogRatio = field(default_factory=LogRatio)
    frames: int = 0
    observed_spread: float = 0.0
    bias: tuple[float, ...]
    hunger: LogRatio = field(default_factory=LogRatio)
    period_s: float | None = None
    idle_share: float = 0.0
    bucket_j: float = 0.0
    reserve_w: float = 0.0
    expected_net_j: float = 0.0
    expected_spent_j: float = 0.0
    expected_s: float = 0.0
    spent_j: float = 0.0
    elapsed_s: float = 0.0
    budget: Budget | None = None

    @classmethod
    def start(cls, choices: Choices, period_s: float | None = None) -> "State":
        """Nothing known yet but, perhaps, the time between frames; the best path is active."""
        best = max(range(len(choices.paths)), key=lambda index: choices.paths[index].quality)
        idle_share = 0.0 if period_s is None else 0.5
        return cls(active=best, bias=(0.0,) * len(choices.paths), period_s=period_s, idle_share=idle_share)


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
    if budget != state.budget:
        state = replace(state, budget=budget, bucket_j=0.0)
    if reading is not None:
        state = _learn(state, reading, choices, settings)
        state = _book(state, reading, budget, choices, settings)
    return _choose(state, budget, choices, settings)


def expected_latency_s(state: State, choices: Choices, index: int) -> float:
    """What a path is expected to take now."""
    return choices.paths[index].latency_s * math.exp(state.slowdown.mean + state.bias[index])


def latency_quantile_s(state: State, choices: Choices, index: int, quantile: float | None) -> float:
    """What a path takes at most with probability `quantile`; its mean where that is None."""
    expected = expected_latency_s(state, choices, index)
    if quantile is None:
        return expected
    deviation = math.hypot(math.sqrt(state.slowdown.variance), state.observed_spread or choices.paths[index].spread)
    return expected * math.exp(_normal_quantile(quantile) * deviation)


def _learn(state: State, reading: FrameReading, choices: Choices, settings: Settings) -> State:
    """Update slowdown, the path's own correction, hunger and the rhythm of frames."""
    index = reading.path
    slowdown, bias = state.slowdown, state.bias
    if math.isfinite(reading.latency_s) and reading.latency_s > 0:
        observed = math.log(reading.latency_s / choices.paths[index].latency_s)
        slowdown = slowdown.observe(observed - bias[index])
        if slowdown.far == 0:
            own = bias[index] + settings.bias_memory * (observed - bias[index] - slowdown.mean)
            bias = (*bias[:index], max(-0.5, min(0.5, own)), *bias[index + 1 :])
    hunger = state.hunger
    idle = choices.idle_power_w
    if reading.power_w is not None and idle is not None and state.expected_net_j > 0:
        above_idle, expected = reading.power_w - idle, state.expected_net_j / state.expected_s
        if above_idle > 0:
            hunger = hunger.observe(math.log(above_idle / expected))
    period, idle_share = state.period_s, state.idle_share
    if reading.period_s is not None and reading.period_s > 0:
        waiting = max(0.0, 1 - reading.latency_s / reading.period_s)
        period = reading.period_s if period is None else 0.9 * period + 0.1 * reading.period_s
        idle_share = 0.9 * idle_share + 0.1 * waiting
    return replace(
        state,
        slowdown=slowdown,
        frames=state.frames + 1,
        observed_spread=math.sqrt(slowdown.noise) if state.frames >= SPREAD_FRAMES else 0.0,
        bias=bias,
        hunger=hunger,
        period_s=period,
        idle_share=idle_share,
    )


def _book(state: State, reading: FrameReading, budget: Budget, choices: Choices, settings: Settings) -> State:
    """Put the frame's allowance into the bucket and take its energy out, corrected when the meter has spoken."""
    elapsed = reading.period_s if reading.period_s is not None else reading.latency_s
    state = replace(state, elapsed_s=state.elapsed_s + elapsed, frames_on_active=state.frames_on_active + 1)
    net = choices.paths[reading.path].net_j
    if net is None or choices.idle_power_w is None:
        return state
    correction = 0.0
    if reading.power_w is not None and state.expected_s > 0:
        correction = reading.power_w * state.expected_s - state.expected_spent_j
        state = replace(state, expected_net_j=0.0, expected_spent_j=0.0, expected_s=0.0)
    spent = net * state.hunger.ratio + choices.idle_power_w * elapsed
    allowance = _allowance_j(state, budget, elapsed, settings)
    bucket = 0.0
    if allowance is not None:
        deepest = allowance / max(elapsed, 1e-9) * settings.window_s  # older debts are forgiven
        bucket = state.bucket_j + allowance - state.reserve_w * elapsed - spent - correction
        bucket = max(-deepest, bucket)
    return replace(
        state,
        bucket_j=bucket,
        expected_net_j=state.expected_net_j + net,
        expected_spent_j=state.expected_spent_j + spent,
        expected_s=state.expected_s + elapsed,
        spent_j=state.spent_j + spent + correction,
    )


def _allowance_j(state: State, budget: Budget, elapsed_s: float, settings: Settings) -> float | None:
    """Energy that a frame of `elapsed_s` may use under the tightest of all energy limits; None without one."""
    allowed = []
    if budget.power_w is not None:
        allowed.append(budget.power_w * elapsed_s)
    if budget.energy_j is not None:
        allowed.append(budget.energy_j)
    if budget.mission is not None:
        allowed.append(_mission_power_w(state, budget) * elapsed_s)
    return (1 - settings.margin) * min(allowed) if allowed else None


def _mission_power_w(state: State, budget: Budget) -> float:
    """What is left of a mission's energy over what is left of its time; the plain mean once its time is over."""
    mission = budget.mission
    if mission is None:
        return math.inf
    time_left = mission.duration_s - state.elapsed_s
    if time_left <= 0:
        return mission.power_w
    return max(0.0, mission.energy_j - state.spent_j) / time_left


def _choose(state: State, budget: Budget, choices: Choices, settings: Settings) -> Decision:
    everything = range(len(choices.paths))
    admissible = [index for index in everything if _meets_latency(state, budget, choices, index, settings)]
    late = not admissible
    if late:
        admissible = [min(everything, key=lambda index: expected_latency_s(state, choices, index))]
    drains = {index: _drain_j(state, budget, choices, index, settings) for index in admissible}
    within = [index for index in admissible if drains[index] <= 0]
    cheap = min(admissible, key=lambda index: drains[index])
    # Unable to hold the energy limit, the least hungry path is run; otherwise the best of what is affordable.
    if within:
        path, bucket, reserve = _mix(state, drains, choices, settings)
        state = replace(state, bucket_j=bucket, reserve_w=reserve)
    else:
        path = cheap
        state = replace(state, bucket_j=min(state.bucket_j, 0.0), reserve_w=0.0)
    shortfall = ""
    if late:
        shortfall = _latency_shortfall(state, budget, choices)
    elif not within:
        shortfall = _energy_shortfall(state, budget, choices, cheap, settings)
    frames = state.frames_on_active if path == state.active else 0
    return Decision(
        state=replace(state, active=path, frames_on_active=frames), path=path, met=not shortfall, shortfall=shortfall
    )


def _meets_latency(
    state: State, budget: Budget, choices: Choices, index: int, settings: Settings
) -> bool:
    if budget.latency is None:
        return True
    limit = budget.latency.seconds
    if choices.paths[index].latency_s > choices.paths[state.active].latency_s:
        limit *= 1 - settings.hysteresis
    return latency_quantile_s(state, choices, index, budget.latency.quantile) <= limit


def _drain_j(state: State, budget: Budget, choices: Choices, index: int, settings: Settings) -> float:
    """Energy that a frame of this path would take from the bucket; 0 without an energy limit."""
    period = _period_with(state, choices, index)
    allowance = _allowance_j(state, budget, period, settings)
    if allowance is None:
        return 0.0
    net = choices.paths[index].net_j or 0.0
    return net * state.hunger.ratio + (choices.idle_power_w or 0.0) * period - allowance


def _period_with(state: State, choices: Choices, index: int) -> float:
    """Time from frame to frame if this path ran.

    Where frames are waited for, their rhythm stays unless the path is too slow for it; where they follow each other
    without a pause, the rhythm is the path's own.
    """
    latency = expected_latency_s(state, choices, index)
    if state.period_s is None or state.idle_share < 0.02:
        return latency
    return max(state.period_s, latency)


def _mix(
    state: State, drains: dict[int, float], choices: Choices, settings: Settings
) -> tuple[int, float, float]:
    """The path to run, the bucket (never fuller than one stay on the dear path needs), and the reserve in watts.

    On the hull of quality over drain: the last point that saves, or, when enough is saved for a stay of
    `dwell_frames`, the next one.
    """

    def quality(index: int) -> float:
        return choices.paths[index].quality

    def drain(index: int) -> float:
        return drains[index]

    hull = concave_hull(sorted(drains), quality, drain)
    low = max((index for index in drains if drains[index] <= 0), key=lambda index: (quality(index), -drains[index]))
    above = [index for index in hull if drains[index] > 0]
    if not above:
        return low, min(state.bucket_j, 0.0), 0.0
    base, high = max((index for index in hull if drains[index] <= 0), key=quality), min(above, key=drain)
    price = drains[high] * settings.dwell_frames
    reserve = price / settings.window_s
    bucket = min(state.bucket_j, price)
    settled = state.frames_on_active >= settings.dwell_frames
    saving = -drains[base] > reserve * _period_with(state, choices, base)
    if not saving:  # the base saves too little to pay for stays on the dear path and for the reserve
        return low, min(bucket, 0.0), 0.0
    if state.active == high:
        return (high if bucket > drains[high] or not settled else base), bucket, reserve
    if bucket >= price and (settled or state.active != base):
        return high, bucket, reserve
    return base, bucket, reserve


def _latency_shortfall(state: State, budget: Budget, choices: Choices) -> str:
    limit = budget.latency
    if limit is None:
        return ""
    least = min(latency_quantile_s(state, choices, index, limit.quantile) for index in range(len(choices.paths)))
    return f"no path meets {limit.seconds * 1e3:.4g} ms; the fastest needs {least * 1e3:.3g} ms"


def _energy_shortfall(
    state: State, budget: Budget, choices: Choices, index: int, settings: Settings
) -> str:
    period = _period_with(state, choices, index)
    needed = (choices.paths[index].net_j or 0.0) * state.hunger.ratio + (choices.idle_power_w or 0.0) * period
    allowed = _allowance_j(state, budget, period, settings) or 0.0
    return (
        f"no path meets {budget}; the cheapest needs {needed / period:.3g} W or {needed * 1e3:.3g} mJ/frame "
        f"({allowed / period:.3g} W are allowed)"
    )


_NORMAL = NormalDist()
_QUANTILES: dict[float, float] = {}


def _normal_quantile(quantile: float) -> float:
    """Standard normal quantile, remembered: `NormalDist.inv_cdf` takes microseconds at every frame."""
    if quantile not in _QUANTILES:
        _QUANTILES[quantile] = _NORMAL.inv_cdf(quantile)
    return _QUANTILES[quantile]
