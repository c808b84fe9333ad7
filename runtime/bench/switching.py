"""What a change of path costs: two paths alternating at every frame, against each of them without a change.

Frame by frame no meter here resolves energy, and in a run changes come when the load changes, so that their cost
cannot be told from its. Hence a measurement apart. In each round three windows follow each other in rotating
order, frames without a pause: path A alone, path B alone, and A and B in turn. A change costs, gross and per frame,

    alternating - (A alone + B alone) / 2

since each frame of the alternation follows a change. The rounds give the interval, by Student's t; one that
holds 0 is reported, but its middle is not called a value. What is missed is what only a long stay would bring,
such as a path whose weights have left the cache: the alternation keeps both warm.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

import torch
from torch import Tensor

from gearshift.profiler.meters import Meter
from gearshift.runtime.report.energy.model import SwitchEnergy, Switches, SwitchTime
from gearshift.runtime.report.energy.spread import METER_PERIODS, Spread, spread_of

LONGEST_WINDOW_S = 2.0
"""A meter of which ten periods take longer is not waited for."""
NEVER = "the path never changed"

Call = Callable[[Tensor], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchCost:
    """What one change costs; each spread is over the rounds.

    Attributes:
        energy_j: Gross, or None.
        energy_reason: Why there is none.
        time_ms: Likewise; None where nothing was measured.
        time_reason: Why there is none.
        source: How energy was obtained.
        method: In words.
    """

    energy_j: Spread | None
    energy_reason: str | None
    time_ms: Spread | None
    time_reason: str | None
    source: str
    method: str

    @classmethod
    def unknown(cls, reason: str, source: str) -> "SwitchCost":
        """Nothing was measured."""
        return cls(energy_j=None, energy_reason=reason, time_ms=None, time_reason=reason, source=source, method="none")

    def of_run(self, count: int) -> Switches:
        """As the energy report tells it, of a run with so many changes."""
        why_j = self.energy_reason or _unresolved(self.energy_j)
        why_ms = self.time_reason or _unresolved(self.time_ms)
        value_j = None if self.energy_j is None or why_j else self.energy_j.mean
        return Switches(
            count=count,
            energy=SwitchEnergy(
                value_j=value_j,
                reason=why_j,
                ci95_low_j=self.energy_j.low if self.energy_j else None,
                ci95_high_j=self.energy_j.high if self.energy_j else None,
                n=self.energy_j.n if self.energy_j else 0,
                all_switches_j=None if value_j is None else count * value_j,
                source=self.source,
                method=self.method,
            ),
            time=SwitchTime(
                value_ms=None if self.time_ms is None or why_ms else self.time_ms.mean,
                reason=why_ms,
                ci95_low_ms=self.time_ms.low if self.time_ms else None,
                ci95_high_ms=self.time_ms.high if self.time_ms else None,
                n=self.time_ms.n if self.time_ms else 0,
                method=self.method,
            ),
        )


@dataclass(frozen=True, slots=True)
class _Window:
    energy_j: float | None
    reason: str | None
    seconds: float
    frames: int


def measure_switch(
    pair: tuple[Call, Call],
    names: tuple[str, str],
    frame: Tensor,
    meter: Meter,
    *,
    rounds: int,
    window_s: float,
    synchronise: Callable[[], None] = lambda: None,
    clock: Callable[[], float] = time.perf_counter,
) -> SwitchCost:
    """Measure a change between two paths.

    Args:
        pair: The paths.
        names: Their ids.
        frame: `(1, 3, H, W)`.
        meter: Where energy is read.
        rounds: Windows of each kind.
        window_s: Least length of a window; ten of the meter's periods, if longer, are used instead.
        synchronise: Waits for the device.
        clock: Seconds that never jump.
    """
    resolution_s = meter.precision.resolution_s
    too_coarse = METER_PERIODS * resolution_s > LONGEST_WINDOW_S
    window_s = window_s if too_coarse else max(window_s, METER_PERIODS * resolution_s)
    arms: list[Sequence[Call]] = [pair[:1], pair[1:], pair]
    joules: list[float] = []
    milliseconds: list[float] = []
    reason = None
    if too_coarse:
        reason = (
            f"the meter gives a fresh reading every {resolution_s:g} s; "
            f"a window of {LONGEST_WINDOW_S:g} s does not resolve what a change costs"
        )
    with torch.inference_mode():
        for path in (*pair, *pair):
            path(frame)
        for number in range(rounds):
            found = _round(arms, number, frame, meter, window_s, synchronise, clock)
            per_frame_ms = [window.seconds / window.frames * 1e3 for window in found]
            milliseconds.append(_beyond(per_frame_ms))
            failed = next((window.reason for window in found if window.reason), None)
            reason = reason or failed
            joules.append(_beyond([(window.energy_j or 0.0) / window.frames for window in found]))
    return SwitchCost(
        energy_j=None if reason else spread_of(joules),
        energy_reason=reason,
        time_ms=spread_of(milliseconds),
        time_reason=None,
        source=meter.source,
        method=(
            f"{names[0]} and {names[1]} alternating at every frame, less the mean of both alone: frames without a "
            f"pause, {rounds} rounds of three windows of at least {window_s:g} s, gross"
        ),
    )


def _round(
    arms: Sequence[Sequence[Call]],
    number: int,
    frame: Tensor,
    meter: Meter,
    window_s: float,
    synchronise: Callable[[], None],
    clock: Callable[[], float],
) -> list[_Window]:
    """One window of each kind, another one first in each round; returned in the order of `arms`."""
    order = [(place + number) % len(arms) for place in range(len(arms))]
    found = {place: _window(arms[place], frame, meter, window_s, synchronise, clock) for place in order}
    return [found[place] for place in range(len(arms))]


def _window(
    paths: Sequence[Call],
    frame: Tensor,
    meter: Meter,
    window_s: float,
    synchronise: Callable[[], None],
    clock: Callable[[], float],
) -> _Window:
    """Run the paths in turn until the window is long enough, all of them equally often."""
    turn = cycle(paths)
    frames = 0
    synchronise()
    with meter.window() as window:
        begin = now = clock()
        while not frames or now - begin < window_s:
            for path in islice(turn, len(paths)):
                path(frame)
                synchronise()
            frames += len(paths)
            now = clock()
    return _Window(window.energy_j, window.reason, now - begin, frames)


def _beyond(per_frame: Sequence[float]) -> float:
    first, second, alternating = per_frame
    return alternating - (first + second) / 2


def _unresolved(spread: Spread | None) -> str | None:
    """Why the middle of an interval is no value."""
    if spread is None:
        return "not measured"
    if spread.low is None or spread.high is None:
        return spread.reason
    return "not resolved: the 95 % interval holds 0" if spread.low <= 0 <= spread.high else None
