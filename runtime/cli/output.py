"""What all commands share: JSON to a file or to stdout, messages and progress to stderr, the meter and device asked for."""

import sys
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from gearshift.errors import InputError, MeterUnavailableError
from gearshift.files import to_json, write_text
from gearshift.profiler.meters import Meter, open_meter
from gearshift.profiler.meters.discover import Kind

ERRORS = Console(stderr=True, highlight=False)


def tell(message: str) -> None:
    """A message for the person, not part of the data."""
    ERRORS.print(message, style="dim", markup=False)


def emit_json(value: Any, target: str | None) -> bool:
    """Write `value` to a file, or to stdout for `-`; True if stdout is taken by it."""
    if target is None:
        return False
    if target == "-":
        sys.stdout.write(to_json(value))
        return True
    write_text(Path(target), to_json(value))
    return False


def show(table: Table) -> None:
    """Print a table to stdout; wide enough for all columns where no terminal says how wide it is."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, 160)
    console.print(table)


def choose_device(name: str) -> torch.device:
    """The device asked for.

    Raises:
        InputError: torch does not know it, or it is not here.
    """
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InputError(f'"{name}" is no device; write cpu, cuda or cuda:1') from error
    if device.type not in ("cpu", "cuda"):
        raise InputError(f'device "{name}" is not supported; write cpu, cuda or cuda:1')
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InputError(f'device "{name}" is not available: torch finds no CUDA device here; write cpu')
    return device


def choose_meter(kind: Kind, device: torch.device, allow_estimate: bool) -> Meter:
    """The meter asked for; a message says when it only estimates.

    Raises:
        InputError: It does not work here.
    """
    try:
        meter = open_meter(kind, device=device, allow_estimate=allow_estimate)
    except MeterUnavailableError as error:
        raise InputError(str(error)) from error
    if meter.source.startswith("estimated:"):
        tell(f"energy is ESTIMATED, not measured ({meter.source}): {'; '.join(meter.notes[:1])}")
    return meter
