"""`profile`: the counts of `gearshift.profiler.counter`, joined call by call with measured time.

Two things are measured, in turn: the module as it is (`wall_ms`), and the module under the recorder, which
times each operator call by itself (`profiled_ms`). Recording slows a model down, most of all one of many
small operators, so times by the clock only say how the work divides: they are scaled to sum to the wall
time. Times of a GPU's kernels are the device's own and stay as they are; what the wall time holds beyond
them, the device waiting for its next launch, is `gap_ms` and no operator's. A `Profile` is a snapshot;
reading it changes nothing.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain
from statistics import median
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from gearshift.errors import InputError
from gearshift.profiler.calls import Call
from gearshift.profiler.counter import Count, eager, summarise
from gearshift.profiler.inputs import Arguments, copied, positional
from gearshift.profiler.launches import Launches, measure_launches
from gearshift.profiler.peaks import Peaks
from gearshift.profiler.preserve import as_found
from gearshift.profiler.recorder import CallRecorder
from gearshift.profiler.roofline import Roofline, roofline_of
from gearshift.profiler.rows import Row, module_rows, operator_rows, type_rows
from gearshift.profiler.run import is_compiled, run_recorded
from gearshift.profiler.stopwatch import ClockStopwatch, KernelStopwatch, Stopwatch
from gearshift.profiler.timing import Clock, Synchronise, Timing, timed_ms
from gearshift.profiler.zeros import zeroed_channels

# Beyond these the times say more of what else ran than of the module.
LARGEST_SPREAD = 0.25
LEAST_OVERHEAD = 0.9
LARGEST_OWN_SHARE = 1.1

StopwatchFactory = Callable[[], AbstractContextManager[Stopwatch]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Cost and time of one forward pass.

    Attributes:
        count: The counts.
        times_ms: Time of each of `count.calls`; they and `gap_ms` sum to `wall_ms`.
        timing: The module un-profiled.
        own_ms: Sum of the calls' own times as measured, before scaling.
        gap_ms: Wall time in which a GPU ran no kernel of ours; 0 where calls are timed by the clock.
        profiled_ms: Median time of the module while being recorded.
        device: Where it ran.
        dtype: Type of the first floating-point parameter or input.
        threads: Threads that PyTorch used within an operator on the CPU.
        source: How the times were obtained.
        launches: Kernels, the gaps between them, and the same work as one graph; None on a CPU.
    """

    count: Count
    times_ms: tuple[float, ...]
    timing: Timing
    own_ms: float
    gap_ms: float
    profiled_ms: float
    device: str
    dtype: str
    threads: int
    source: str
    launches: Launches | None = None

    @property
    def time_ms(self) -> float:
        """Median time of one un-profiled call."""
        return self.timing.median_ms

    @property
    def wall_ms(self) -> float:
        """The same, under the name that sets it apart from `profiled_ms`."""
        return self.timing.median_ms

    @property
    def overhead_ratio(self) -> float:
        """How many times longer a call takes while being recorded."""
        return self.profiled_ms / self.wall_ms

    @property
    def own_share(self) -> float:
        """The calls' own times as measured over the un-profiled wall time: near 1 when little else takes time."""
        return self.own_ms / self.wall_ms

    @property
    def warnings(self) -> tuple[str, ...]:
        """What makes the times doubtful: signs that other work ran on the device meanwhile."""
        return tuple(_doubts(self))

    @property
    def macs(self) -> int:
        """Multiply-accumulates of the whole batch."""
        return self.count.macs

    @property
    def flops(self) -> int:
        """Floating-point operations, `2 * macs`."""
        return self.count.flops

    @property
    def params(self) -> int:
        """Parameters; shared ones count once."""
        return self.count.params

    def table(self) -> tuple[Row, ...]:
        """Return one row per operator type, slowest first."""
        return type_rows(self.count.calls, self.times_ms)

    def operators(self) -> tuple[Row, ...]:
        """Return one row per operator, slowest first."""
        return operator_rows(self.count.calls, self.times_ms)

    def modules(self, depth: int = 2) -> tuple[Row, ...]:
        """Return one row per module down to `depth` names, parents first, children included."""
        return module_rows(self.count.calls, self.count.module_params, depth, self.times_ms)

    def uncounted(self) -> tuple[Row, ...]:
        """Return one row per operator that no rule knows: how much time is spent in what `macs` lacks."""
        return tuple(row for row in self.operators() if row.name in self.count.uncounted)

    def roofline(self, peaks: Peaks) -> Roofline:
        """Hold every type of work against the peaks of the device that this was measured on."""
        return roofline_of(self.count.calls, self.times_ms, peaks)

    def to_dict(self, depth: int = 2) -> dict[str, Any]:
        """Return plain values, ready for strict JSON; modules down to `depth`."""
        return {
            **self.count.to_dict(depth),
            "device": self.device,
            "dtype": self.dtype,
            "threads": self.threads,
            "source": self.source,
            "warnings": list(self.warnings),
            "wall_ms": self.wall_ms,
            "profiled_ms": self.profiled_ms,
            "overhead_ratio": self.overhead_ratio,
            "own_ms": self.own_ms,
            "own_share": self.own_share,
            "gap_ms": self.gap_ms,
            "launches": None if self.launches is None else self.launches.to_dict(),
            "timing": self.timing.to_dict(),
            "by_type": [row.to_dict() for row in self.table()],
            "by_operator": [row.to_dict() for row in self.operators()],
            "by_module": [row.to_dict() for row in self.modules(depth)],
            "uncounted_time": [row.to_dict() for row in self.uncounted()],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recording:
    """One profiled run."""

    calls: Sequence[Call]
    seconds: Sequence[float]
    elapsed_ms: float
    method: str
    is_device_time: bool


def profile(
    module: nn.Module,
    args: Arguments = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    repeats: int = 5,
    warmup: int = 2,
    max_seconds: float | None = None,
    clock: Clock = time.perf_counter,
    synchronise: Synchronise | None = None,
    stopwatch: StopwatchFactory | None = None,
) -> Profile:
    """Count and time one forward pass of `module(*args, **kwargs)`, in evaluation mode and without gradients.

    The module is left exactly as found. Of a compiled module the wall time is the compiled one's, and the
    counts and shares are those of the eager module inside it.

    Args:
        module: What to run.
        args: Positional inputs; a single tensor stands for itself.
        kwargs: Inputs by name.
        repeats: Measured runs, un-profiled and profiled each.
        warmup: Un-profiled runs to throw away first.
        max_seconds: Begin no further pair of runs after this long, warm-up included; one is measured at least.
        clock: Seconds that never jump.
        synchronise: Waits until the device has finished; by default PyTorch's own for the module's device.
        stopwatch: Makes what times single calls; by default the clock on CPU and kernel times on CUDA.

    Raises:
        InputError: The inputs are on the meta device, which computes nothing, or `repeats` is not positive.
        ModelError: Parameters are not initialised yet.
    """
    inner = eager(module)
    args, kwargs = positional(args), dict(kwargs or {})
    device = _device(inner, args, kwargs)
    _check(device, repeats, warmup, max_seconds)
    synchronise = synchronise or _synchroniser(device)
    factories = [stopwatch] if stopwatch else _stopwatches(device, clock, synchronise)
    wall_ms: list[float] = []
    recordings: list[_Recording] = []
    started_s = 0.0 if max_seconds is None else clock()
    with as_found(module):  # once around all runs, so that what a module caches on its first run stays cached
        wall_ms += [_run(module, args, kwargs, synchronise, clock) for _ in range(warmup)]
        for done in range(repeats):
            if max_seconds is not None and done > 0 and clock() - started_s >= max_seconds:
                break
            wall_ms.append(_run(module, args, kwargs, synchronise, clock))
            recordings.append(_record(inner, args, kwargs, synchronise, clock, factories))
        launches = _launches(module, args, kwargs, device, median(wall_ms[warmup:]), synchronise, clock)
    timing = Timing.of(
        wall_ms[warmup:], first_call_ms=wall_ms[0], source=f"measured:wall-clock on {device}, not profiled"
    )
    return _joined(
        summarise(recordings[-1].calls, inner, args, kwargs, zeroed_channels(inner)),
        recordings,
        timing,
        device=device,
        dtype=_dtype(inner, args, kwargs),
        compiled=is_compiled(module),
        launches=launches,
    )


def _launches(
    module: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    device: torch.device,
    wall_ms: float,
    synchronise: Synchronise | None,
    clock: Clock,
) -> Launches | None:
    if device.type != "cuda" or synchronise is None:
        return None
    inputs, named = copied((tuple(args), dict(kwargs)))
    return measure_launches(lambda: module(*inputs, **named), device, wall_ms, synchronise=synchronise, clock=clock)


def _run(
    module: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    synchronise: Synchronise | None,
    clock: Clock,
) -> float:
    args, kwargs = copied((tuple(args), dict(kwargs)))
    return timed_ms(lambda: module(*args, **kwargs), synchronise, clock)


def _record(
    module: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    synchronise: Synchronise | None,
    clock: Clock,
    factories: Sequence[StopwatchFactory],
) -> _Recording:
    """Record one run, with the first stopwatch that yields times."""
    for factory in factories:
        with factory() as stopwatch:
            recorder = CallRecorder(module, stopwatch)
            elapsed_ms = run_recorded(module, args, kwargs, recorder, synchronise=synchronise, clock=clock)
        seconds = stopwatch.seconds()
        if seconds is not None:
            return _Recording(
                calls=recorder.calls,
                seconds=seconds,
                elapsed_ms=elapsed_ms,
                method=stopwatch.method,
                is_device_time=stopwatch.is_device_time,
            )
    raise InputError("the stopwatch yielded no times of operator calls; leave stopwatch out to use the clock")


def _joined(
    count: Count,
    recordings: Sequence[_Recording],
    timing: Timing,
    *,
    device: torch.device,
    dtype: str,
    compiled: bool,
    launches: Launches | None,
) -> Profile:
    """Take each call's median time; by the clock, scale all to sum to the wall time."""
    operators = [call.operator for call in count.calls]
    alike = [item for item in recordings if [call.operator for call in item.calls] == operators]
    own_ms = [median(times) * 1e3 for times in zip(*(item.seconds for item in alike), strict=True)]
    kernels_only = alike[-1].is_device_time and sum(own_ms) <= timing.median_ms
    scale = 1.0 if kernels_only else timing.median_ms / sum(own_ms) if any(own_ms) else 0.0
    scaled = "the rest of wall_ms is gap_ms" if kernels_only else f"scaled by {scale:.3g} to sum to wall_ms"
    caveat = "; wall time is the compiled module's, shares are the eager module's" if compiled else ""
    return Profile(
        count=count,
        times_ms=tuple(time_ms * scale for time_ms in own_ms),
        timing=timing,
        own_ms=sum(own_ms),
        gap_ms=timing.median_ms - sum(own_ms) if kernels_only else 0.0,
        profiled_ms=median(item.elapsed_ms for item in alike),
        device=str(device),
        dtype=dtype,
        threads=torch.get_num_threads(),
        source=(
            f"wall_ms {timing.source}, median of {timing.n}; calls: {alike[-1].method}, "
            f"median of {len(alike)} profiled runs, {scaled}{caveat}"
        ),
        launches=launches,
    )


def _doubts(found: Profile) -> Iterator[str]:
    timing = found.timing
    if timing.iqr_ms > LARGEST_SPREAD * timing.median_ms:
        yield f"passes differ by {timing.iqr_ms / timing.median_ms:.0%} of their median (interquartile range)"
    if found.overhead_ratio < LEAST_OVERHEAD:
        yield f"passes ran {1 / found.overhead_ratio:.2f} x as fast while being profiled as alone"
    if found.own_share > LARGEST_OWN_SHARE:
        yield f"operators' own times sum to {found.own_share:.0%} of the passes without profiler"


def _stopwatches(device: torch.device, clock: Clock, synchronise: Synchronise | None) -> Sequence[StopwatchFactory]:
    by_clock: StopwatchFactory = lambda: ClockStopwatch(clock, synchronise)  # noqa: E731
    return [KernelStopwatch, by_clock] if device.type == "cuda" else [by_clock]


def _synchroniser(device: torch.device) -> Synchronise | None:
    return None if device.type == "cpu" else lambda: torch.accelerator.synchronize(device)


def _check(device: torch.device, repeats: int, warmup: int, max_seconds: float | None) -> None:
    if not (isinstance(repeats, int) and isinstance(warmup, int) and repeats >= 1 and warmup >= 0):
        raise InputError(f"got repeats={repeats} and warmup={warmup}; use repeats >= 1 and warmup >= 0, whole numbers")
    if max_seconds is not None and not max_seconds > 0:
        raise InputError(f"got max_seconds={max_seconds}; use a time above 0, or None for no limit")
    if device.type == "meta":
        raise InputError("the meta device computes nothing that could be timed; use count, or a real device")


def _device(module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.device:
    return next((tensor.device for tensor in _tensors(module, args, kwargs)), torch.device("cpu"))


def _dtype(module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    tensors = _tensors(module, args, kwargs)
    found = next((tensor.dtype for tensor in tensors if tensor.is_floating_point()), torch.get_default_dtype())
    return str(found).removeprefix("torch.")


def _tensors(module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[torch.Tensor]:
    given = (leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor))
    return chain(module.parameters(), module.buffers(), given)
