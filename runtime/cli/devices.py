"""`runtime devices`: what is found here, and why the rest is unavailable."""

from dataclasses import asdict, dataclass

import torch
from rich.table import Table

from gearshift.profiler.device import DeviceIdentity, identify
from gearshift.profiler.meters import MeterStatus, discover
from gearshift.runtime.cli.output import JsonTarget, check_targets, emit_json, show


@dataclass(frozen=True, kw_only=True)
class Devices:
    """List meters and accelerators."""

    json: JsonTarget = None
    """Write JSON to this file, or to stdout for -."""

    def run(self) -> int:
        """List them."""
        check_targets(self.json)
        devices = [identify(torch.device("cpu"))]
        devices += [identify(torch.device("cuda", index)) for index in range(torch.cuda.device_count())]
        meters = discover()
        document = {
            "devices": [device.to_dict() for device in devices],
            "meters": [asdict(status) for status in meters],
        }
        if not emit_json(document, self.json):
            show(_device_table(devices))
            show(_meter_table(meters))
        return 0


def _device_table(devices: list[DeviceIdentity]) -> Table:
    table = Table("device", "what it is", title="Devices")
    for device in devices:
        table.add_row(device.kind, device.describe())
    return table


def _meter_table(meters: list[MeterStatus]) -> Table:
    table = Table("meter", "works", "source", "what it measures, or why it is unavailable", "period")
    table.title = "Meters"
    for status in meters:
        what = (status.measures if status.available else status.reason) or ""
        works = "yes" if status.available else "no"
        period = "-" if status.period_s is None else f"{status.period_s * 1e3:.3g} ms"
        table.add_row(status.name, works, status.source or "-", "\n".join([what, *status.notes]), period)
    return table
