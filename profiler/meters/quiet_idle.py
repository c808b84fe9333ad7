"""Whether others work on the device while its idle power is measured."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, runtime_checkable

from gearshift.profiler.meters import sysfs
from gearshift.profiler.meters.idle import IdlePower, measure_idle
from gearshift.profiler.meters.protocol import Meter

# Above this share of all processors the machine is not idle: a desktop at rest stays below 3 %.
BUSY_SHARE = 0.1


@runtime_checkable
class NamesProcesses(Protocol):
    """A meter that can say which processes use its device."""

    def compute_processes(self) -> tuple[int, ...]:
        """Ids of the processes that compute on the device just now."""


def measure_quiet_idle(
    meter: Meter, seconds: float, *, root: Path = Path("/"), sleep: Callable[[float], None] = time.sleep
) -> IdlePower:
    """Measure idle power, or say why it would not be that: somebody computes on the board, or the machine is busy.

    Args:
        meter: The meter.
        seconds: How long to wait.
        root: Where `proc` lies.
        sleep: Waits that long.
    """
    if isinstance(meter, NamesProcesses):
        others = [process for process in meter.compute_processes() if process != os.getpid()]
        if others:
            return _refused(meter, f"processes compute on the board: {', '.join(map(str, others))}: end them first")
        return measure_idle(meter, seconds, sleep=sleep)
    before = _ticks(root)
    found = measure_idle(meter, seconds, sleep=sleep)
    busy = _busy_share(before, _ticks(root))
    if busy is not None and busy > BUSY_SHARE:
        return _refused(meter, f"the machine was busy: {busy:.0%} of its processors' time; let it come to rest first")
    return found


def _refused(meter: Meter, reason: str) -> IdlePower:
    return IdlePower(power_w=None, seconds=0.0, uncertainty_w=None, source=meter.source, how="refused", reason=reason)


def _ticks(root: Path) -> tuple[int, int] | None:
    """Busy and all ticks of all processors since boot."""
    fields = sysfs.text(root / "proc/stat").partition("\n")[0].split()
    if len(fields) < 6 or fields[0] != "cpu" or not all(field.isdecimal() for field in fields[1:9]):
        return None
    ticks = [int(field) for field in fields[1:9]]  # guest time is part of user time
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def _busy_share(before: tuple[int, int] | None, after: tuple[int, int] | None) -> float | None:
    if before is None or after is None or after[1] <= before[1]:
        return None
    return (after[0] - before[0]) / (after[1] - before[1])
