"""What each path costs here: latency and energy per frame, measured in turn so that all share the machine's noise."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from gearshift.profiler import Timing, count
from gearshift.profiler.meters import Meter


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameEnergy:
    """Energy of one frame while frames follow each other without a pause.

    Attributes:
        gross_j: Median over windows of (window energy / frames); None where nothing was measured.
        net_j: `gross_j` less idle power x time; None where either is unknown.
        spread_j: Interquartile range of the windows' gross energy per frame.
        power_w: Mean power over the windows.
        windows: How many windows were measured.
        source: `measured:...` or `estimated:...`.
        reason: Why `gross_j` is None.
    """

    gross_j: float | None
    net_j: float | None
    spread_j: float | None
    power_w: float | None
    windows: int
    source: str
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Measured latency and energy of a path at one input shape, with its operations and its extra memory."""

    latency: Timing
    energy: FrameEnergy
    macs: int
    extra_bytes: int


@dataclass(slots=True)
class _Samples:
    first_call_ms: float
    latencies_ms: list[float]
    windows: list["_Window"]


@dataclass(frozen=True, slots=True)
class _Window:
    frames: int
    seconds: float
    energy_j: float | None
    reason: str | None


def measure_costs(
    paths: Mapping[str, nn.Module],
    frame: Tensor,
    meter: Meter,
    idle_power_w: float | None,
    *,
    rounds: int = 5,
    window_s: float = 0.3,
    synchronise: Callable[[], None] | None = None,
    progress: Callable[[], None] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, tuple[Timing, FrameEnergy]]:
    """Measure every path on one frame, one window of each path per round.

    Args:
        paths: Modules to run, by id.
        frame: `(1, 3, H, W)`.
        meter: Where the energy is read; each window is one of its windows.
        idle_power_w: For net energy; None where it is not known.
        rounds: Windows per path.
        window_s: Least length of a window; a meter's resolution, if longer, is used instead.
        synchronise: Waits for the device.
        progress: Called after each window.
        clock: Seconds that never jump.
    """
    wait = synchronise or (lambda: None)
    window_s = max(window_s, 3 * meter.precision.resolution_s)
    with torch.inference_mode():
        samples = {name: _warm(path, frame, wait, clock) for name, path in paths.items()}
        names = list(paths)
        for round_number in range(rounds):
            shift = round_number % len(names)
            for name in names[shift:] + names[:shift]:
                _measure_window(paths[name], frame, meter, window_s, samples[name], wait, clock)
                if progress is not None:
                    progress()
    return {name: _summarise(item, meter.source, idle_power_w) for name, item in samples.items()}


def count_macs(path: nn.Module, frame: Tensor) -> int:
    """Multiply-accumulates of one frame, counted by running it once."""
    with torch.inference_mode():
        return count(path, (frame,)).macs


def _warm(path: nn.Module, frame: Tensor, wait: Callable[[], None], clock: Callable[[], float]) -> _Samples:
    wait()
    start = clock()
    path(frame)
    wait()
    first_ms = (clock() - start) * 1e3
    path(frame)
    return _Samples(first_call_ms=first_ms, latencies_ms=[], windows=[])


def _measure_window(
    path: nn.Module,
    frame: Tensor,
    meter: Meter,
    window_s: float,
    samples: _Samples,
    wait: Callable[[], None],
    clock: Callable[[], float],
) -> None:
    wait()
    frames = 0
    with meter.window() as window:
        begin = last = clock()
        while not frames or last - begin < window_s:
            path(frame)
            wait()
            now = clock()
            samples.latencies_ms.append((now - last) * 1e3)
            last = now
            frames += 1
    seconds = window.seconds if window.seconds is not None else last - begin
    samples.windows.append(_Window(frames, seconds, window.energy_j, window.reason))


def _summarise(samples: _Samples, source: str, idle_power_w: float | None) -> tuple[Timing, FrameEnergy]:
    latency = Timing.of(
        samples.latencies_ms, first_call_ms=samples.first_call_ms, source="measured:perf-counter, in turn"
    )
    measured = [window for window in samples.windows if window.energy_j is not None]
    if not measured:
        reason = next((window.reason for window in samples.windows if window.reason), "no window was measured")
        energy = FrameEnergy(
            gross_j=None, net_j=None, spread_j=None, power_w=None, windows=0, source=source, reason=reason
        )
        return latency, energy
    per_frame = [(window.energy_j or 0.0) / window.frames for window in measured]
    seconds = [window.seconds / window.frames for window in measured]
    low, gross, high = (float(value) for value in np.percentile(per_frame, [25, 50, 75]))
    net = None if idle_power_w is None else gross - idle_power_w * float(np.median(seconds))
    power = sum(window.energy_j or 0.0 for window in measured) / sum(window.seconds for window in measured)
    return latency, FrameEnergy(
        gross_j=gross, net_j=net, spread_j=high - low, power_w=power, windows=len(measured), source=source
    )
