"""Energy of each type of work, by replaying its calls under a real meter.

One pass of a model is far shorter than a meter's period. So each type's recorded calls are made over and over
for at least ten periods, and so is the whole model; idle power is subtracted and what is left is divided by
the number of passes. Model and types take turns, round by round. `explained` says what share of the model's
own net energy the types add up to: replayed calls find their operands in other caches than they did in the
model, and on a GPU the gaps between kernels are different, so it is not 1, and how far it is off says how far
the rows may be trusted.

An estimate is no meter: it would hand out energy in proportion to processor time, which is known already.
Then every figure is None, with the reason.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import nn

from gearshift.errors import InputError
from gearshift.profiler.counter import eager
from gearshift.profiler.cuda_graph import as_graph
from gearshift.profiler.device import synchronise
from gearshift.profiler.inputs import Arguments, copied, positional
from gearshift.profiler.macs import OperatorType
from gearshift.profiler.meters import IdlePower, Measurement, Meter, is_estimate, measure_idle, net_energy_j
from gearshift.profiler.preserve import as_found
from gearshift.profiler.replay import RecordedPass
from gearshift.profiler.timing import Synchronise

PERIODS = 10
"""A window lasts at least so many periods of the meter."""
LEAST_WINDOW_S = 1.0
ROUNDS = 3
WHOLE = "(whole model)"


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeEnergy:
    """Energy of one type of work in one forward pass.

    Attributes:
        name: The operator type, or "(whole model)".
        calls: Operator calls in one pass.
        net_j: Energy above idle, J a pass, median over the rounds; None where not measured.
        gross_j: Energy with idle power, J a pass.
        spread_j: Largest minus smallest net energy of the rounds.
        ms: Time of one pass in the loop.
        passes: Passes in all windows together.
        readings: Fewest fresh readings of the meter in any window; None where the meter does not say.
        reason: Why there is no energy; None otherwise.
    """

    name: str
    calls: int
    net_j: float | None
    gross_j: float | None
    spread_j: float | None
    ms: float | None
    passes: int
    readings: int | None
    reason: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorEnergy:
    """Where a model's energy goes.

    Attributes:
        rows: One per operator type, dearest first; empty where nothing was measured.
        whole: The model itself; None where nothing was measured.
        idle_power_w: What was subtracted, or None.
        source: How energy was obtained.
        boundary: What the energy includes and excludes.
        rounds: Windows of each.
        window_s: Length of a window.
        method: How it was measured, in a sentence.
        reason: Why nothing was measured; None otherwise.
        notes: What a reader should know.
    """

    rows: tuple[TypeEnergy, ...]
    whole: TypeEnergy | None
    idle_power_w: float | None
    source: str
    boundary: str
    rounds: int
    window_s: float
    method: str
    reason: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def explained(self) -> float | None:
        """Net energy of all types over that of the whole model; None unless every one was measured."""
        parts = [row.net_j for row in self.rows]
        whole = None if self.whole is None else self.whole.net_j
        if whole is None or whole <= 0 or any(part is None for part in parts):
            return None
        return sum(part for part in parts if part is not None) / whole

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {
            "source": self.source,
            "boundary": self.boundary,
            "method": self.method,
            "reason": self.reason,
            "idle_power_w": self.idle_power_w,
            "rounds": self.rounds,
            "window_s": self.window_s,
            "explained": self.explained,
            "whole": None if self.whole is None else self.whole.to_dict(),
            "by_type": [row.to_dict() for row in self.rows],
            "notes": list(self.notes),
        }


def measure_operator_energy(
    module: nn.Module,
    args: Arguments = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    meter: Meter,
    idle: IdlePower | None = None,
    rounds: int = ROUNDS,
    least_window_s: float = LEAST_WINDOW_S,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> OperatorEnergy:
    """Measure the energy of every type of work in one forward pass, and of the whole pass.

    On CUDA each loop replays a captured graph where that is possible, so that the gaps between launches do
    not count as work. The module is left exactly as found.

    Args:
        module: What to run.
        args: Positional inputs; a single tensor stands for itself.
        kwargs: Inputs by name.
        meter: What reads the energy of the module's device.
        idle: Idle power, if known already; else it is measured first, for one window.
        rounds: Windows of each.
        least_window_s: A window lasts at least this long, and at least ten periods of the meter.
        clock: Seconds that never jump.
        sleep: Waits that long.

    Raises:
        InputError: `rounds` is not positive, or the module makes no operator call.
    """
    if rounds < 1:
        raise InputError(f"got rounds={rounds}; use at least 1")
    window_s = max(least_window_s, PERIODS * meter.precision.resolution_s)
    nothing = partial(_nothing, meter=meter, rounds=rounds, window_s=window_s)
    if is_estimate(meter.source):
        return nothing(f"{meter.source} is an estimate from processor time: it cannot tell types of work apart")
    if (reading := meter.read()).energy_j is None:
        return nothing(reading.reason or "the meter gives no energy")
    idle = measure_idle(meter, window_s, sleep=sleep) if idle is None else idle
    if idle.power_w is None:
        return nothing(f"idle power is unknown ({idle.reason}), so none can be subtracted")
    inner = eager(module)
    inputs, named = copied((positional(args), dict(kwargs or {})))
    recorded = RecordedPass(inner, inputs, named)
    with as_found(inner):
        loops = _Loops(inner, inputs, named, recorded, window_s, clock)
        windows: dict[str, list[_Window]] = {}
        for _ in range(rounds):
            for name, window in loops.measure_each(meter):
                windows.setdefault(name, []).append(window)
    rows = [_row(name, _calls(recorded, name), found, idle) for name, found in windows.items() if name != WHOLE]
    return OperatorEnergy(
        rows=tuple(sorted(rows, key=lambda row: -(row.net_j or 0.0))),
        whole=_row(WHOLE, len(recorded.calls), windows[WHOLE], idle),
        idle_power_w=idle.power_w,
        source=meter.source,
        boundary=meter.boundary,
        rounds=rounds,
        window_s=window_s,
        method=(
            f"recorded calls of one pass replayed by type for at least {window_s:.3g} s "
            f"({PERIODS} periods of the meter or more), {rounds} rounds in turn with the whole model, "
            f"idle {idle.power_w:.4g} W subtracted, median over rounds"
        ),
        notes=tuple(dict.fromkeys(loops.notes)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    """One loop under the meter."""

    passes: int
    found: Measurement


class _Loops:
    """What is run over and over: the model, and each type of its calls."""

    def __init__(
        self,
        module: nn.Module,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        recorded: RecordedPass,
        window_s: float,
        clock: Callable[[], float],
    ) -> None:
        self.notes: list[str] = []
        self._model = partial(module, *args, **kwargs)
        self._recorded, self._window_s, self._clock = recorded, window_s, clock
        device = next((t.device for t in (*module.parameters(), *args) if isinstance(t, torch.Tensor)), None)
        self._device = device or torch.device("cpu")
        self._wait: Synchronise = partial(synchronise, self._device)

    def measure_each(self, meter: Meter) -> Iterator[tuple[str, _Window]]:
        """Measure the model and then every type, each over one window; operands live no longer than it."""
        yield WHOLE, self._measure(meter, WHOLE, self._model)
        for operator_type in self._recorded.operator_types:
            yield str(operator_type), self._measure(meter, str(operator_type), self._recorded.replay(operator_type))

    def _measure(self, meter: Meter, name: str, run: Callable[[], object]) -> _Window:
        run = self._fast(name, run)
        run()
        at_once = self._passes_within(run, self._window_s / 20)
        self._wait()
        passes = 0
        with meter.window() as window:
            started_s = self._clock()
            while self._clock() - started_s < self._window_s:
                for _ in range(at_once):
                    run()
                self._wait()
                passes += at_once
        if window.measurement is None:
            raise InputError(f"meter {meter.name} lost its window; measure again")
        return _Window(passes=passes, found=window.measurement)

    def _passes_within(self, run: Callable[[], object], seconds: float) -> int:
        """How many passes take about so long, so that waiting for the device is rare."""
        self._wait()
        started_s = self._clock()
        run()
        self._wait()
        return max(1, min(10_000, math.floor(seconds / max(self._clock() - started_s, 1e-9))))

    def _fast(self, name: str, run: Callable[[], object]) -> Callable[[], object]:
        if self._device.type != "cuda":
            return run
        graph, reason = as_graph(run, self._device)
        if graph is None:
            self.notes.append(f"{name}: replayed call by call, with launch gaps ({reason})")
            return run
        return graph


def _row(name: str, calls: int, windows: Sequence[_Window], idle: IdlePower) -> TypeEnergy:
    passes = sum(window.passes for window in windows)
    failed = next((window.found.reason for window in windows if window.found.energy_j is None), None)
    ms = 1e3 * median(window.found.seconds / window.passes for window in windows)
    readings = [window.found.samples for window in windows if window.found.samples is not None]
    gross = [window.found.energy_j / window.passes for window in windows if window.found.energy_j is not None]
    nets = [_net_j(window, idle) for window in windows]
    net = [value for value in nets if value is not None]
    measured = failed is None and len(net) == len(windows)
    return TypeEnergy(
        name=name,
        calls=calls,
        net_j=median(net) if measured else None,
        gross_j=median(gross) if measured else None,
        spread_j=max(net) - min(net) if measured else None,
        ms=ms,
        passes=passes,
        readings=min(readings, default=None),
        reason=None if measured else failed or "no net energy",
    )


def _net_j(window: _Window, idle: IdlePower) -> float | None:
    net = net_energy_j(window.found.energy_j, window.found.seconds, idle)
    return None if net is None else net / window.passes


def _calls(recorded: RecordedPass, name: str) -> int:
    return sum(call.operator_type is OperatorType(name) for call in recorded.calls)


def _nothing(reason: str, *, meter: Meter, rounds: int, window_s: float) -> OperatorEnergy:
    return OperatorEnergy(
        rows=(),
        whole=None,
        idle_power_w=None,
        source=meter.source,
        boundary=meter.boundary,
        rounds=rounds,
        window_s=window_s,
        method="not measured",
        reason=reason,
    )
