"""The energy of several meters together: each device and interval once, what is missing named."""

import functools
from collections.abc import Iterable
from dataclasses import dataclass

from gearshift.profiler.meters.protocol import Measurement

# Which meters see, among other things, what others see: a battery feeds the board, the board's input its chips.
_CHIPS = ("nvml", "amd", "rapl", "cpu-time")
_WITHIN = {
    "battery": ("ina3221", "jtop", *_CHIPS),
    "ina3221": ("jtop", *_CHIPS),
    "jtop": _CHIPS,
    "rapl": ("cpu-time",),
}
# Windows that are opened one after the other, to be over the same work, agree to this share.
_SAME_TIME = 0.95


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
    """Add up windows of one run on one machine; of several machines, add up the totals.

    A meter sees its whole device, whoever works on it. So of two windows of one meter the one that lies
    within the other is not added again, nor is a chip's where the board or the battery was measured meanwhile.
    Windows that overlap only in part cannot be added: the later, or the chip's, is left out and named as missing.
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
            missing.append(_overlap(window, last))
    added = []
    for window in counted:
        wider = (other for other in counted if _kind(window) in _WITHIN.get(_kind(other), ()))
        holder = max(wider, key=functools.partial(_shared_s, window), default=None)
        if holder is None or _shared_s(window, holder) <= 0:
            added.append(window)
        elif _shared_s(window, holder) < _SAME_TIME * window.seconds:
            missing.append(_overlap(window, holder))
    return TotalEnergy(
        energy_j=sum(window.energy_j or 0.0 for window in added) if added else None,
        is_partial=bool(missing),
        missing=tuple(missing),
        is_estimate=any(window.is_estimate for window in added),
    )


def _overlap(window: Measurement, other: Measurement) -> str:
    whose = "" if window.meter == other.meter else f" of {other.meter}"
    return f"{window.meter}: window {window.name!r} overlaps {other.name!r}{whose} in part"


def _shared_s(one: Measurement, other: Measurement) -> float:
    return min(_end_s(one), _end_s(other)) - max(one.start_s, other.start_s)


def _end_s(window: Measurement) -> float:
    return window.start_s + window.seconds


def _kind(window: Measurement) -> str:
    return window.meter.partition(":")[0]
