"""Times of single operator calls, taken while they are being recorded.

`ClockStopwatch` reads a clock around each call and suits devices that finish a call before they return (CPU),
or any device if it is made to wait each time. `KernelStopwatch` asks PyTorch's profiler for the device time
of the kernels that each call launched, and so leaves the device's queue undisturbed.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, Self

import torch
from torch.autograd import DeviceType  # type: ignore[attr-defined]  # public, but not listed

_SPAN = "gearshift.call."


class Stopwatch(Protocol):
    """Is told when each call begins and ends; `seconds` has one entry per call afterwards, or is None."""

    @property
    def method(self) -> str:
        """Say how the times are obtained."""

    @property
    def is_device_time(self) -> bool:
        """Whether the times are the device's alone, without the host's between its kernels."""

    def begin(self) -> None:
        """Note that the next call is about to run."""

    def end(self) -> None:
        """Note that it has returned."""

    def seconds(self) -> Sequence[float] | None:
        """Return each call's own time, or None where the device gave none."""


class ClockStopwatch:
    """Reads `clock` around each call, waiting for the device by `synchronise` at both ends if given."""

    is_device_time = False

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        synchronise: Callable[[], None] | None = None,
    ) -> None:
        self._clock = clock
        self._synchronise = synchronise
        self._started_s = 0.0
        self._seconds: list[float] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        return None

    @property
    def method(self) -> str:
        """Say how the times are obtained."""
        waited = "" if self._synchronise is None else ", device synchronised around each"
        return f"own time of each operator call by the clock{waited}"

    def begin(self) -> None:
        """Wait, then start."""
        if self._synchronise is not None:
            self._synchronise()
        self._started_s = self._clock()

    def end(self) -> None:
        """Wait, then stop."""
        if self._synchronise is not None:
            self._synchronise()
        self._seconds.append(self._clock() - self._started_s)

    def seconds(self) -> Sequence[float]:
        """Return each call's time between `begin` and `end`."""
        return self._seconds


class KernelStopwatch:
    """Marks each call as a span in PyTorch's profiler and reads the device time of the kernels below it."""

    is_device_time = True

    def __init__(self) -> None:
        self._profiler: Any = torch.profiler.profile()
        self._calls = 0
        self._span: Any = None

    def __enter__(self) -> Self:
        self._profiler.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._profiler.__exit__(*exception)

    @property
    def method(self) -> str:
        """Say how the times are obtained."""
        return "device time of the kernels that each operator call launched, by torch.profiler"

    def begin(self) -> None:
        """Open the call's span."""
        self._span = torch.profiler.record_function(f"{_SPAN}{self._calls}")
        self._span.__enter__()
        self._calls += 1

    def end(self) -> None:
        """Close the call's span."""
        self._span.__exit__(None, None, None)

    def seconds(self) -> Sequence[float] | None:
        """Return each call's kernel time, or None where the profiler saw no kernel at all."""
        return kernel_seconds(self._profiler.events() or (), self._calls)


def kernel_seconds(events: Iterable[Any], calls: int) -> Sequence[float] | None:
    """Read the device time of each call's span from profiler events.

    Releases of PyTorch name the field `device_time_total` or `cuda_time_total` (µs). An empty device profile
    is "unavailable" and not 0 ms.
    """
    seconds = [0.0] * calls
    for event in events:
        if event.name.startswith(_SPAN) and getattr(event, "device_type", DeviceType.CPU) == DeviceType.CPU:
            time_us = getattr(event, "device_time_total", getattr(event, "cuda_time_total", None))
            seconds[int(event.name.removeprefix(_SPAN))] += (time_us or 0.0) / 1e6
    return seconds if any(seconds) else None
