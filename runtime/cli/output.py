"""What all commands share: data to a file or stdout, messages to stderr, the meter and device asked for."""

import logging
import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro
from rich.console import Console
from rich.table import Table

from gearshift.errors import InputError, MeterUnavailableError
from gearshift.files import check_writable, to_json, write_text
from gearshift.profiler.meters import Meter, is_estimate, open_meter
from gearshift.profiler.meters.discover import Kind

ERRORS = Console(stderr=True, highlight=False, emoji=False, soft_wrap=True)
WIDTH_WITHOUT_TERMINAL = 160
WARNINGS_OF_A_KIND = 3

JsonTarget = Annotated[str | None, tyro.conf.arg(metavar="FILE|-")]
"""Option: where JSON goes."""
BundleFolder = Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="BUNDLE")]
"""Argument: a bundle, or the one that ships."""
Country = Annotated[str | None, tyro.conf.arg(metavar="ISO3")]
"""Option: whose mean grid intensity emissions are worked out with."""
GramsPerKwh = Annotated[float | None, tyro.conf.arg(metavar="G/KWH")]
"""Option: a grid intensity of one's own."""
GridSource = Annotated[str | None, tyro.conf.arg(metavar="TEXT")]
"""Option: who gives it."""


def tell(message: str) -> None:
    """A message for the person, not part of the data; one line."""
    ERRORS.print(message, style="dim", markup=False)


def check_targets(*targets: str | Path | None) -> None:
    """Refuse files that could not be written, before any long work.

    Raises:
        OutputError: One of them cannot be written.
    """
    for target in targets:
        if target is not None and target != "-":
            check_writable(Path(target))


def emit_json(value: Any, target: str | None) -> bool:
    """Write `value` to a file, or to stdout for `-`; True if stdout is taken by it."""
    if target is None:
        return False
    if target == "-":
        sys.stdout.write(to_json(value))
        return True
    write_text(Path(target), to_json(value))
    return False


def screen() -> Console:
    """Stdout; wide enough for all columns where no terminal says how wide it is."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, WIDTH_WITHOUT_TERMINAL)
    return console


def show(table: Table) -> None:
    """Print a table to stdout."""
    screen().print(table)


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
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InputError(f'device "{name}" is not here: torch finds {torch.cuda.device_count()} CUDA devices')
    return device


def choose_meter(kind: Kind, device: torch.device, allow_estimate: bool) -> Meter:
    """The meter asked for.

    Raises:
        InputError: It does not work here.
    """
    try:
        return open_meter(kind, device=device, allow_estimate=allow_estimate)
    except MeterUnavailableError as error:
        raise InputError(str(error)) from error


def tell_if_estimated(meter: Meter) -> None:
    """Say so where a meter only estimates."""
    if is_estimate(meter.source):
        tell(f"energy is ESTIMATED, not measured ({meter.source}): {'; '.join(meter.notes[:1])}")


@contextmanager
def warnings_told() -> Iterator[None]:
    """Show what the library warns of; with GEARSHIFT_DEBUG set, all that it logs."""
    debug = bool(os.environ.get("GEARSHIFT_DEBUG"))
    logger, handler = logging.getLogger("gearshift"), _Teller()
    level = logger.level
    logger.setLevel(logging.DEBUG if debug else logging.WARNING)
    if not debug:
        handler.addFilter(_FewOfAKind())
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


class _Teller(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        tell(f"{record.levelname.lower()}: {record.getMessage()}")


class _FewOfAKind(logging.Filter):
    """Lets each place speak a few times: a controller at its limit may change its mind at every frame."""

    def __init__(self) -> None:
        super().__init__()
        self._told: Counter[tuple[str, int]] = Counter()

    def filter(self, record: logging.LogRecord) -> bool:
        place = (record.name, record.lineno)
        self._told[place] += 1
        return self._told[place] <= WARNINGS_OF_A_KIND
