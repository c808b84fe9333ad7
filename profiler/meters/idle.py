"""Idle power, and what is left of a window's energy without it.

Gross energy is the headline, since idle hardware is paid for too; net energy compares paths. Net is never
given alone.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from gearshift.errors import InputError
from gearshift.profiler.meters.protocol import Meter


@runtime_checkable
class DeclaresIdle(Protocol):
    """A meter whose idle power is part of its formula."""

    @property
    def idle_w(self) -> float:
        """Idle power in watts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdlePower:
    """Power without our work.

    Attributes:
        power_w: Watts, or None.
        seconds: How long was measured; 0 for a constant.
        uncertainty_w: Half-width, or None.
        source: How it was obtained.
        how: The circumstances, for the report.
        reason: Why `power_w` is None; None otherwise.
        warnings: What makes it doubtful.
    """

    power_w: float | None
    seconds: float
    uncertainty_w: float | None
    source: str
    how: str
    reason: str | None = None
    warnings: tuple[str, ...] = ()


def measure_idle(meter: Meter, seconds: float, *, sleep: Callable[[float], None] = time.sleep) -> IdlePower:
    """Measure power while this process does nothing; what other processes do is in it.

    Run it before the work, on a device that has cooled down and computes nothing else. A meter whose formula
    has an idle power gives that constant at once.

    Args:
        meter: The meter.
        seconds: How long to wait.
        sleep: Waits that long.
    """
    if not seconds > 0:
        raise InputError(f"idle power is measured over a time above 0 s, got {seconds!r}")
    if isinstance(meter, DeclaresIdle):
        return IdlePower(
            power_w=meter.idle_w,
            seconds=0.0,
            uncertainty_w=meter.precision.relative * meter.idle_w,
            source=meter.source,
            how="constant of the estimate",
        )
    with meter.window() as window:
        sleep(seconds)
    found = window.measurement
    if found is None or found.power_w is None:
        reason = window.reason or "the window has no length"
        return IdlePower(
            power_w=None,
            seconds=window.seconds or 0.0,
            uncertainty_w=None,
            source=meter.source,
            how=f"asked for {seconds:g} s without work",
            reason=reason,
        )
    return IdlePower(
        power_w=found.power_w,
        seconds=found.seconds,
        uncertainty_w=None if found.uncertainty_j is None else found.uncertainty_j / found.seconds,
        source=found.source,
        how=f"{found.seconds:.3g} s without work of this process",
        warnings=found.warnings,
    )


def net_energy_j(energy_j: float | None, seconds: float | None, idle: IdlePower | None) -> float | None:
    """Subtract idle power: `net = gross - idle x time`; None where either is unknown.

    A small negative value means that the device idled more deeply than when its idle power was measured; it
    is not hidden.
    """
    if energy_j is None or seconds is None or idle is None or idle.power_w is None:
        return None
    return energy_j - idle.power_w * seconds
