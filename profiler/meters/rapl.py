"""Energy of the processor, from the kernel's RAPL counters (Intel and AMD).

The counters start over about once a minute to once an hour. While windows are open a thread reads them often
enough that at most one such wrap fits between two reads; without a window, a reading after a longer pause
begins a new epoch.

The counters update about every millisecond (Intel SDM, vol. 3B, on RAPL). Their systematic error is taken as
5 %: our assumption, from comparisons with wall meters of Haswell and later.
"""

import time
from collections.abc import Hashable
from pathlib import Path

from gearshift.profiler.meters.base import BaseMeter, Clock
from gearshift.profiler.meters.counter import CounterTrack
from gearshift.profiler.meters.protocol import Precision, Reading
from gearshift.profiler.meters.rapl_domains import (
    Domain,
    ReadText,
    Scan,
    grant_command,
    require_package,
    scan,
)
from gearshift.units import joules_from_microjoules

POWERCAP = Path("/sys/class/powercap")
UPDATE_PERIOD_S = 0.001
RELATIVE_ERROR = 0.05
# The kernel shows µJ, but the registers count in coarser units: 2**-14 J on Intel since Haswell, 2**-16 J
# before and on AMD. The coarser one is stated.
RESOLUTION_J = 2.0**-14
LONGEST_PERIOD_S = 30.0
# Share of the shortest time to two wraps that passes between two reads.
PERIOD_SHARE = 0.45


class RaplMeter(BaseMeter):
    """The energy of all processor packages, and of memory where it is announced.

    `window.parts` gives the domains one by one, and `psys` (the whole platform, which holds the packages)
    beside them.

    Args:
        root: The powercap tree.
        include_dram: Add the memory domains to the energy.
        clock: Monotonic seconds.
        background: Read on a thread while windows are open. Without it call `sample` yourself.
        read_text: Reads one file.

    Raises:
        MeterUnavailableError: There is no package, or it may not be read; the message holds the command to
            run.
    """

    def __init__(
        self,
        root: Path = POWERCAP,
        *,
        include_dram: bool = True,
        clock: Clock = time.perf_counter,
        background: bool = True,
        read_text: ReadText = Path.read_text,
    ) -> None:
        found = scan(root, read_text)
        require_package(root, found)
        self._read_text = read_text
        self._summed = tuple(d for d in found.domains if not d.is_platform and (include_dram or not d.is_memory))
        self._tracks = {
            domain: CounterTrack(units_per_joule=1_000_000, ceiling_w=domain.ceiling_w, span=domain.span_uj)
            for domain in found.domains
        }
        self._missing = 0
        self.period_s = poll_period_s(found.domains)
        super().__init__(
            name="rapl",
            source="measured:rapl",
            boundary=_boundary(self._summed),
            precision=Precision(
                resolution_s=UPDATE_PERIOD_S,
                relative=RELATIVE_ERROR,
                period_s=UPDATE_PERIOD_S,
                resolution_j=RESOLUTION_J,
            ),
            clock=clock,
            period_s=self.period_s if background else None,
            notes=_notes(found, include_dram),
        )
        self.read()

    def sensor_value(self) -> Hashable:
        """The counters that are added up, as they stand."""
        return tuple(self._raw_uj(domain) for domain in self._summed)

    def _read(self) -> Reading:
        raws = {domain: self._raw_uj(domain) for domain in self._tracks}
        now_s = self._clock()
        for domain, raw in raws.items():
            if isinstance(raw, int):
                self._tracks[domain].update(raw, now_s)
        reasons = [raw for domain in self._summed if isinstance(raw := raws[domain], str)]
        self._missing += bool(reasons)
        return self._reading(now_s, "; ".join(reasons) or None, raws)

    def _reading(self, now_s: float, reason: str | None, raws: dict[Domain, int | str]) -> Reading:
        summed = [self._tracks[domain] for domain in self._summed]
        tracks = self._tracks.values()
        return Reading(
            time_s=now_s,
            energy_j=joules_from_microjoules(sum(track.total for track in summed)) if reason is None else None,
            reason=reason,
            epoch=sum(track.epoch for track in tracks),
            break_reason="; ".join(track.break_reason for track in tracks if track.break_reason) or None,
            fresh=sum(track.fresh for track in summed),
            missing=self._missing,
            parts={d.label: t.total_j if isinstance(raws[d], int) else None for d, t in self._tracks.items()},
        )

    def _raw_uj(self, domain: Domain) -> int | str:
        """Read one counter; a failure is returned as its reason."""
        try:
            return int(self._read_text(domain.energy_path))
        except (OSError, ValueError) as error:
            return f"{domain.energy_path} could not be read: {error}"


def poll_period_s(domains: tuple[Domain, ...]) -> float:
    """Choose how often to read: less than half the time in which any counter wraps at its highest power."""
    spans = [joules_from_microjoules(d.span_uj) / d.ceiling_w for d in domains if d.span_uj]
    return min([LONGEST_PERIOD_S, *(PERIOD_SHARE * span for span in spans)])


def _boundary(summed: tuple[Domain, ...]) -> str:
    memory = "" if any(domain.is_memory for domain in summed) else "memory, "
    return (
        f"processor: {' + '.join(domain.label for domain in summed)}, all processes on the machine; "
        f"excluded: {memory}GPUs, disks, fans, power supply"
    )


def _notes(found: Scan, include_dram: bool) -> tuple[str, ...]:
    notes = list(found.notes)
    if not include_dram:
        notes.append("memory is left out as asked (include_dram=False)")
    elif not any(domain.is_memory for domain in found.domains):
        notes.append("this machine announces no dram domain: memory is not included")
    if found.denied:
        notes.append(f"partial: grant the rest with `{grant_command(found.denied)}`")
    return tuple(notes)
