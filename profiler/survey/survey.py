"""`survey`: rows of all architectures of a library."""

import fnmatch
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gearshift import __version__
from gearshift.errors import InputError
from gearshift.profiler.survey.journal import RowJournal
from gearshift.profiler.survey.libraries import LIBRARIES, Installed
from gearshift.profiler.survey.row import Row
from gearshift.profiler.survey.workers import measure_all

SURVEY_VERSION = 1
"""To be raised when a row of the same architecture would hold something else."""

EVERY = "*"
LIMIT_S = 120.0
"""How long one architecture may take; the slowest takes a few seconds on an idle core."""

log = logging.getLogger(__name__)
Progress = Callable[[int, int, Row | None], None]
"""Told how many of how many rows there are, and the last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """The rows, in the library's order.

    Attributes:
        library: Its name.
        library_version: Its version.
        rows: One per architecture.
        pattern: Which architectures were asked for.
        resumed: How many of them an earlier run had left.
    """

    library: str
    library_version: str
    rows: tuple[Row, ...]
    pattern: str = EVERY
    resumed: int = 0

    @property
    def failed(self) -> tuple[Row, ...]:
        """Rows of architectures that could not be built."""
        return tuple(row for row in self.rows if not row.is_ok)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {
            "library": self.library,
            "library_version": self.library_version,
            "survey_version": SURVEY_VERSION,
            "pattern": self.pattern,
            "rows": [row.to_dict() for row in self.rows],
        }


def survey(
    library: str | Installed = "timm",
    *,
    pattern: str = EVERY,
    journal: Path | None = None,
    fresh: bool = False,
    workers: int | None = None,
    limit_s: float = LIMIT_S,
    progress: Progress = lambda done, of, row: None,
) -> Survey:
    """Survey the architectures of a library.

    Args:
        library: One of `LIBRARIES`.
        pattern: Which architectures, as file names are matched: `vit_*`.
        journal: File that rows are kept in as they finish. What it holds of the same versions is taken from
            there, failures excepted: those are tried again.
        fresh: Begin anew, whatever the journal holds.
        workers: Processes; one for every core that this process may use if left out.
        limit_s: How long one architecture may take.
        progress: Told of every row.

    Raises:
        InputError: No such library, it is not installed, or nothing in it has such a name.
        OutputError: The journal cannot be read or written.
    """
    installed = _known(library)
    version = installed.version
    opened = installed.open()
    names = [name for name in opened.names() if fnmatch.fnmatchcase(name, pattern)]
    if not names:
        raise InputError(
            f'no architecture of {installed.name} {version} matches "{pattern}"; write, for example, *net*'
        )
    kept = RowJournal(
        journal, f"gearshift {__version__}, survey {SURVEY_VERSION}, {installed.name} {version}", fresh=fresh
    )
    left = [name for name in names if name not in kept.rows or not kept.rows[name].is_ok]
    resumed = len(names) - len(left)
    if resumed:
        log.info("resuming a survey: %d rows known", resumed)
    progress(resumed, len(names), None)
    _measure(installed, left, kept, workers, limit_s, lambda row, done: progress(resumed + done, len(names), row))
    return Survey(
        library=installed.name,
        library_version=version,
        rows=tuple(kept.rows[name] for name in names),
        pattern=pattern,
        resumed=resumed,
    )


def _measure(
    installed: Installed,
    names: Sequence[str],
    kept: RowJournal,
    workers: int | None,
    limit_s: float,
    told: Callable[[Row, int], None],
) -> None:
    done = 0

    def ended(row: Row) -> None:
        nonlocal done
        kept.add(row)
        done += 1
        told(row, done)

    if names:
        measure_all(installed, names, ended, workers=workers or usable_cores(), limit_s=limit_s)


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _known(library: str | Installed) -> Installed:
    if isinstance(library, Installed):
        return library
    if library not in LIBRARIES:
        raise InputError(f'no library "{library}" can be surveyed; known: {", ".join(LIBRARIES)}')
    return LIBRARIES[library]
