"""`runtime paths`: the table of a bundle's paths, and measuring them anew on this device."""

from contextlib import closing
from dataclasses import dataclass
from typing import Annotated

import torch
import tyro
from rich.table import Table

from gearshift.errors import InputError
from gearshift.files import check_writable
from gearshift.paths.bundle import BUNDLE_FILE, Bundle, read_bundle, update_record
from gearshift.paths.make import remeasure
from gearshift.paths.records import PathRecord
from gearshift.profiler.device import identify
from gearshift.profiler.meters.discover import Kind
from gearshift.runtime.bench.bench import default_bundle
from gearshift.runtime.cli.output import (
    BundleFolder,
    JsonTarget,
    check_targets,
    choose_device,
    choose_meter,
    emit_json,
    show,
    tell,
    tell_if_estimated,
)

COLUMNS = ("ms median", "p95", "iqr", "n", "mJ/frame", "net", "GMAC", "+MB", "vs stock", "vs lossless")


@dataclass(frozen=True, kw_only=True)
class Paths:
    """Show a bundle's paths: what each costs and gives up, and how that was obtained."""

    bundle: BundleFolder = None
    """Folder of the bundle; the one that ships with Gearshift if left out."""
    remeasure: bool = False
    """Measure all costs again on this device and write them into the bundle."""
    rounds: int = 7
    """Measuring windows per path."""
    checkpoint: Annotated[str | None, tyro.conf.arg(metavar="MODEL")] = None
    """Another place of the bundle's weights, where they have moved."""
    meter: Kind = "auto"
    """Where energy is read."""
    measured_only: bool = False
    """Refuse to estimate energy where no meter works."""
    device: str = "cpu"
    """cpu, cuda or cuda:N."""
    json: JsonTarget = None
    """Write the bundle's record as JSON to this file, or to stdout for -."""

    def run(self) -> int:
        """Show or measure it."""
        if self.rounds < 1:
            raise InputError(f"--rounds {self.rounds} must be at least 1")
        check_targets(self.json)
        bundle = read_bundle(self.bundle or default_bundle())
        device = choose_device(self.device)
        if self.remeasure:
            bundle = self._remeasured(bundle, device)
        foreign = bundle.foreign_to(identify(device))
        if foreign is not None:
            tell(f"warning: {foreign}")
        if not emit_json(bundle.record.model_dump(), self.json):
            show(path_table(bundle))
        return 0

    def _remeasured(self, bundle: Bundle, device: torch.device) -> Bundle:
        check_writable(bundle.folder / BUNDLE_FILE)
        factory = bundle.load(self.checkpoint)
        factory.to(device)
        with closing(choose_meter(self.meter, device, not self.measured_only)) as meter:
            tell_if_estimated(meter)
            tell(f"measuring {len(bundle.record.paths)} paths in turn, {self.rounds} windows each")
            return update_record(bundle, remeasure(bundle, factory, meter, device, rounds=self.rounds))


def path_table(bundle: Bundle) -> Table:
    """All paths, dearest first, with savings against the stock and against the exact reference."""
    record = bundle.record
    stock, lossless = record.with_role("stock"), record.with_role("lossless")
    quality = next((path.quality.metric for path in record.paths if path.quality is not None), "quality")
    where = f"{record.input_height}x{record.input_width}"
    judged = "not judged" if record.data is None else f"{record.data.name}, {record.data.images} frames"
    table = Table(title=f"{bundle.folder.name}: {record.family} at {where}, judged on {judged}")
    for heading in ("path", "role"):
        table.add_column(heading, overflow="fold")
    for heading in (quality, *COLUMNS):
        table.add_column(heading, justify="right", overflow="fold")
    for path in record.paths:
        table.add_row(*_row(path, stock, lossless))
    trained = "" if record.checkpoint.trained else " Random weights: quality means nothing."
    table.caption = (
        f"Measured on {bundle.device.describe()}. Energy: {record.meter.source} ({record.meter.boundary}). "
        f"vs: energy per frame against that path (time where energy is not known).{trained}"
    )
    return table


def _row(path: PathRecord, stock: PathRecord, lossless: PathRecord) -> list[str]:
    return [
        path.id,
        ", ".join(path.roles),
        "-" if path.quality is None else f"{path.quality.value * 100:.2f} %",
        f"{path.latency.median_ms:.1f}",
        f"{path.latency.p95_ms:.1f}",
        f"{path.latency.iqr_ms:.1f}",
        str(path.latency.n),
        _millijoules(path.energy.gross_j),
        _millijoules(path.energy.net_j),
        f"{path.macs / 1e9:.2f}",
        f"{path.extra_bytes / 1e6:.2f}",
        _saving(path, stock),
        _saving(path, lossless),
    ]


def _millijoules(energy_j: float | None) -> str:
    return "not measured" if energy_j is None else f"{energy_j * 1e3:.0f}"


def _saving(path: PathRecord, reference: PathRecord) -> str:
    ours, theirs = path.energy.gross_j, reference.energy.gross_j
    if ours is None or not theirs:
        ours, theirs = path.latency.median_ms, reference.latency.median_ms
    return f"{(ours / theirs - 1) * 100:+.0f} %"
