"""`runtime profile`: where a model's operations and time go."""

from dataclasses import dataclass
from typing import Annotated, Any

import torch
import tyro
from rich.table import Table

from gearshift.errors import InputError
from gearshift.paths.build import PathFactory
from gearshift.paths.models import load_model
from gearshift.paths.spec import PathSpec
from gearshift.profiler import count, profile
from gearshift.runtime.cli.output import JsonTarget, check_targets, choose_device, emit_json, show, tell
from gearshift.units import format_quantity

COUNTED = ("name", "calls", "GMAC", "share", "MB moved")
TIMED = ("ms", "share of time")


@dataclass(frozen=True, kw_only=True)
class ProfileCommand:
    """Profile a model, or one of its paths."""

    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """hf:NAME_OR_DIR or config:NAME."""
    size: Annotated[str, tyro.conf.arg(metavar="HxW")] = "512x512"
    """Height x width of the input."""
    batch: int = 1
    """Frames at once."""
    path: Annotated[str, tyro.conf.arg(metavar="PATH_ID")] = "stock"
    """Which path through the model, such as lossless+skip=2.1."""
    depth: int = 3
    """Levels of modules to list."""
    repeats: int = 5
    """Timed passes."""
    counts_only: bool = False
    """Count on the meta device: no computation, no time."""
    device: str = "cpu"
    """cpu, cuda or cuda:N."""
    json: JsonTarget = None
    """Write JSON to this file, or to stdout for -."""

    def run(self) -> int:
        """Profile it."""
        height, width = parse_size(self.size)
        if self.batch < 1 or self.repeats < 1:
            raise InputError(f"--batch {self.batch} and --repeats {self.repeats} must both be at least 1")
        if self.depth < 0:
            raise InputError(f"--depth {self.depth} must be at least 0")
        check_targets(self.json)
        device = choose_device(self.device)
        spec = PathSpec.parse(self.path)
        factory = PathFactory(load_model(self.model).module)
        factory.to(device)
        path = factory.build(spec)
        factory.family.check_input(factory.stock, height, width)
        # Without a change of input size, show the model's own module names.
        module = factory.stock if not spec.transforms else path if spec.get("size") else path.inner
        frames = torch.zeros(self.batch, 3, height, width, device=device)
        if self.counts_only:
            tell("counting on the meta device: no time is measured")
            counted = count(module, (frames,), on_meta=True)
            return self._show(counted, counted.to_dict(self.depth), timed=False)
        profiled = profile(module, (frames,), repeats=self.repeats)
        return self._show(profiled, profiled.to_dict(self.depth), timed=True)

    def _show(self, found: Any, document: dict[str, Any], *, timed: bool) -> int:
        document = {"model": self.model, "path": self.path, **document}
        if emit_json(document, self.json):
            return 0
        for title, rows in (("By operator type", found.table()), ("By module", found.modules(self.depth))):
            table = Table(title=f"{title}: {self.model}, path {self.path}, {self.batch}x3x{self.size}")
            headings = COUNTED + TIMED if timed else COUNTED
            for heading in headings:
                table.add_column(heading, justify="left" if heading == "name" else "right")
            for row in rows:
                table.add_row(*_cells(row.to_dict())[: len(headings)])
            show(table)
        return 0


def parse_size(text: str) -> tuple[int, int]:
    """Read `HxW`, or one number for a square.

    Raises:
        InputError: It is neither.
    """
    parts = text.split("x")
    if len(parts) not in (1, 2) or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise InputError(f'--size "{text}" is not height x width; write, for example, 512x512')
    return int(parts[0]), int(parts[-1])


def _cells(values: dict[str, Any]) -> list[str]:
    return [
        str(values["name"] or "(whole)"),
        str(values["calls"]),
        f"{values['macs'] / 1e9:.3f}",
        f"{values['macs_share'] * 100:.1f} %",
        f"{(values['bytes_read'] + values['bytes_written']) / 1e6:.1f}",
        format_quantity(values["time_ms"], "ms", 4),
        format_quantity(None if values["time_share"] is None else values["time_share"] * 100, "%"),
    ]
