"""The energy of several meters together: each meter and interval once, what is missing named."""

from collections.abc import Iterable
from dataclasses import dataclass

from gearshift.profiler.meters.protocol import Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalEnergy:
    """A sum over meters.

    Attributes:
        energy_j: Joules of what was measured, or None where nothing was.
        is_partial: Whether something is missing from the sum.
        missing: What is missing and why.
        is_estimate: Whether any addend is an estimate.
    """

    energy_j: float | None
    is_partial: bool
    missing: tuple[str, ...]
    is_estimate: bool


def total_energy(measurements: Iterable[Measurement]) -> TotalEnergy:
    """Add up windows of one run on one machine.

    A meter sees its whole device, whoever works on it. So of two windows of one meter the one that lies
    within the other is not added again. Windows of one meter that overlap only in part cannot be added: the
    later is left out and named as missing.
    """
    counted: list[Measurement] = []
    missing: list[str] = []
    for window in sorted(measurements, key=lambda window: (window.meter, window.start_s, -window.seconds)):
        if window.energy_j is None:
            missing.append(f"{window.meter}: {window.reason}")
            continue
        last = next((earlier for earlier in reversed(counted) if earlier.meter == window.meter), None)
        if last is None or window.start_s >= _end_s(last):
            counted.append(window)
        elif _end_s(window) > _end_s(last):
            missing.append(f"{window.meter}: window {window.name!r} overlaps {last.name!r} in part")
    energies = [window.energy_j for window in counted if window.energy_j is not None]
    return TotalEnergy(
        energy_j=sum(energies) if energies else None,
        is_partial=bool(missing),
        missing=tuple(missing),
        is_estimate=any(window.is_estimate for window in counted),
    )


def _end_s(window: Measurement) -> float:
    return window.start_s + window.seconds
