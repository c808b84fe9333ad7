"""`runtime devices`: what is found here, and why the rest is unavailable."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import torch
import tyro
from rich.table import Table

from gearshift.errors import InputError, MeterUnavailableError
from gearshift.profiler.device import DeviceIdentity, identify
from gearshift.profiler.device_store import DeviceStore
from gearshift.profiler.meters import (
    METERS,
    BaseMeter,
    IdlePower,
    KeptIdle,
    Meter,
    MeterStatus,
    ObservedPeriod,
    Seams,
    discover,
    keep_idle,
    measure_quiet_idle,
    observe_period,
)
from gearshift.profiler.meters.kept_idle import kept_idle_of
from gearshift.runtime.cli.output import JsonTarget, check_targets, emit_json, show, tell
from gearshift.units import format_quantity

PERIOD_SECONDS = 5.0
Found = dict[torch.device, DeviceIdentity]


@dataclass(frozen=True, kw_only=True)
class Devices:
    """List meters and accelerators; on request watch the meters and measure idle power."""

    idle: Annotated[float | None, tyro.conf.arg(metavar="SECONDS")] = None
    """Measure the idle power that each meter sees for this long, and keep it with the device."""

    check: bool = False
    """Watch for up to 5 s how often each meter's sensor really delivers."""

    json: JsonTarget = None
    """Write JSON to this file, or to stdout for -."""

    def run(self) -> int:
        """List them."""
        check_targets(self.json)
        if self.idle is not None and not 0 < self.idle < float("inf"):
            raise InputError(f"--idle takes a time above 0 s, got {self.idle!r}")
        places, store, devices = Seams(), DeviceStore(), _devices()
        watched = _watch(devices, places) if self.check else {}
        if self.idle is not None:
            _measure_idle(devices, places, store, self.idle)
        meters = [_Row(status, _kept(status, devices, store), watched.get(status.name)) for status in discover(places)]
        document = {
            "devices": [identity.to_dict() for identity in devices.values()],
            "meters": [row.to_dict() for row in meters],
        }
        if not emit_json(document, self.json):
            show(_device_table(devices))
            show(_meter_table(meters))
        return 0


@dataclass(frozen=True, slots=True)
class _Row:
    """A meter, the idle power kept for it, and the period that was just seen."""

    status: MeterStatus
    idle: KeptIdle | None
    watched: ObservedPeriod | None

    def to_dict(self) -> dict[str, Any]:
        idle = None if self.idle is None else {**asdict(self.idle), "age_s": self.idle.age_s()}
        return {
            **asdict(self.status),
            "idle": idle,
            "observed": None if self.watched is None else asdict(self.watched),
        }


def _devices() -> Found:
    found = [torch.device("cpu"), *(torch.device("cuda", index) for index in range(torch.cuda.device_count()))]
    return {device: identify(device) for device in found}


def _sensors(devices: Found, seams: Seams) -> Iterator[tuple[DeviceIdentity, Meter]]:
    """Open every meter with a sensor, for each device that it serves; those chosen by name count as the machine's."""
    for device, identity in devices.items():
        for entry in METERS.values():
            if not entry.is_estimate and device.type in (entry.serves or ("cpu",)):
                try:
                    meter = entry.open(device, seams)
                except MeterUnavailableError:  # the list says why
                    continue
                with closing(meter):
                    yield identity, meter


def _watch(devices: Found, seams: Seams) -> dict[str, ObservedPeriod]:
    watched: dict[str, ObservedPeriod] = {}
    for _, meter in _sensors(devices, seams):
        if isinstance(meter, BaseMeter) and meter.name not in watched:
            tell(f"watching {meter.name}")
            watched[meter.name] = observe_period(meter, PERIOD_SECONDS)
    return watched


def _measure_idle(devices: Found, seams: Seams, store: DeviceStore, seconds: float) -> None:
    """Measure once for each meter, and keep the figure with every device that the meter serves."""
    measured: dict[str, IdlePower] = {}
    for identity, meter in _sensors(devices, seams):
        if meter.name not in measured:
            tell(f"measuring idle power with {meter.name} for {seconds:g} s")
            measured[meter.name] = measure_quiet_idle(meter, seconds, root=seams.root)
        problem = keep_idle(measured[meter.name], meter, identity, store)
        if problem is not None:
            tell(f"idle power of {meter.name} is not kept: {problem}")
    if not measured:
        tell("no meter here has a sensor: there is no idle power to measure")


def _kept(status: MeterStatus, devices: Found, store: DeviceStore) -> KeptIdle | None:
    if status.source is None:
        return None
    found = (kept_idle_of(status.name, status.source, identity, store) for identity in devices.values())
    return next((kept for kept in found if kept is not None), None)


def _device_table(devices: Found) -> Table:
    table = Table("device", "what it is", title="Devices")
    for identity in devices.values():
        table.add_row(identity.kind, identity.describe())
    return table


def _meter_table(rows: list[_Row]) -> Table:
    table = Table("meter", "works", "source", "what it measures, or why it is unavailable", "period", "step", "idle")
    table.title = "Meters"
    for row in rows:
        status = row.status
        what = (status.measures if status.available else status.reason) or ""
        table.add_row(
            status.name,
            "yes" if status.available else "no",
            status.source or "-",
            "\n".join([what, *status.notes]),
            _period(row),
            "-" if status.resolution_j is None else format_quantity(status.resolution_j * 1e3, "mJ"),
            _idle(row.idle),
        )
    return table


def _period(row: _Row) -> str:
    """The period as specified, the shortest window where that is longer, and what was seen."""
    status = row.status
    lines = ["-" if status.period_s is None else f"{status.period_s * 1e3:.3g} ms"]
    if status.resolution_s is not None and status.resolution_s > (status.period_s or 0.0):
        lines.append(f"resolves {status.resolution_s * 1e3:.3g} ms")
    if row.watched is not None:
        seen_s = row.watched.period_s
        lines.append(f"seen {seen_s * 1e3:.3g} ms" if seen_s is not None else f"not seen: {row.watched.reason}")
    return "\n".join(lines)


def _idle(kept: KeptIdle | None) -> str:
    return "-" if kept is None else f"{format_quantity(kept.power_w, 'W')}\n{_age(kept.age_s())}"


def _age(seconds: float) -> str:
    for unit, length_s in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= length_s:
            return f"{seconds / length_s:.0f} {unit} old"
    return "just now"
