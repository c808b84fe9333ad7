"""`runtime devices`: what is found here, and why the rest is unavailable."""

from dataclasses import asdict, dataclass

import torch
from rich.table import Table

from gearshift.profiler.device import identify
from gearshift.profiler.meters import discover
from gearshift.runtime.cli.output import emit_json, show


@dataclass(frozen=True, kw_only=True)
class Devices:
    """List meters and accelerators."""

    json: str | None = None
    """Write JSON to this file, or to stdout for -."""

    def run(self) -> int:
        """List them."""
        devices = [identify(torch.device("cpu"))]
        devices += [identify(torch.device("cuda", index)) for index in range(torch.cuda.device_count())]
        meters = discover()
        document = {
            "devices": [device.to_dict() for device in devices],
            "meters": [asdict(status) for status in meters],
        }
        if emit_json(document, self.json):
            return 0
        table = Table("device", "what it is", title="Devices")
        for device in devices:
            table.add_row(device.kind, device.describe())
        show(table)
        table = Table("meter", "works", "source", "what it measures, or why it is unavailable", "period", title="Meters")
        for status in meters:
            period = "-" if status.period_s is None else f"{status.period_s * 1e3:.3g} ms"
            why = status.measures if status.available else status.reason
            notes = "".join(f"\n{note}" for note in status.notes)
            table.add_row(
                status.name, "yes" if status.available else "no", status.source or "-", f"{why}{notes}", period
            )
        show(table)
        return 0
