"""`runtime survey`: operator statistics over every architecture of a model library."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from gearshift.errors import InputError, OutputError
from gearshift.files import to_json, write_text
from gearshift.paths.make import versions
from gearshift.profiler.counter import CONVENTION
from gearshift.profiler.survey import Row, Survey, architectures_csv, compare, layers_csv, summarise, survey
from gearshift.profiler.survey.survey import Progress as ProgressOfRows
from gearshift.runtime.cli.output import ERRORS, JsonTarget, check_targets, emit_json, screen, tell
from gearshift.runtime.report.survey import survey_html, survey_terminal

NAME = "runtime survey"
SCHEMA = 1
JOURNAL = ".rows.jsonl"
TOLD_EVERY = 200
"""Rows, where no terminal shows a bar."""


@dataclass(frozen=True, kw_only=True)
class SurveyCommand:
    """Survey the architectures of a library: layers, kernel sizes, features, MACs by type of operator, years.

    Nothing is downloaded and nothing computed. Rows are kept as they finish, beside the first file that is written;
    when the command is given again it goes on from there, and tries again what failed.
    """

    library: Literal["timm", "transformers"] = "timm"
    """Whose architectures."""
    filter: Annotated[str, tyro.conf.arg(metavar="GLOB")] = "*"
    """Which of them, such as "vit_*"."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder for all of it: JSON, two CSV files (architectures, layers) and the page."""
    json: JsonTarget = None
    """Write everything as JSON to this file, or to stdout for -."""
    csv: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Write a CSV file with a line per architecture."""
    html: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Write a self-contained page with plots."""
    workers: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Processes; one per core if left out."""
    fresh: bool = False
    """Begin anew, whatever rows an earlier run has left."""

    def run(self) -> int:
        """Survey it; architectures that fail are reported, and are no fault."""
        if self.workers is not None and self.workers < 1:
            raise InputError(f"--workers {self.workers} must be at least 1")
        self._check_targets()
        try:
            with _bar() as progress:
                found = survey(
                    self.library,
                    pattern=self.filter,
                    journal=self._journal(),
                    fresh=self.fresh,
                    workers=self.workers,
                    progress=progress,
                )
        except KeyboardInterrupt:
            if self._journal() is not None:
                tell("the survey goes on where it was when the command is given again")
            raise
        if found.resumed:
            tell(f"{found.resumed:,} of {len(found.rows):,} rows were there already; --fresh takes them anew")
        return self._report(found)

    def _report(self, found: Survey) -> int:
        created = datetime.now(UTC).isoformat(timespec="seconds")
        document = _document(found, created)
        if not emit_json(document, self.json):
            survey_terminal(found, screen())
        for target, text in self._files(found, document, created):
            write_text(target, text)
            tell(f"wrote {target}")
        return 0

    def _files(self, found: Survey, document: dict[str, Any], created: str) -> Iterator[tuple[Path, str]]:
        """What is written besides --json, and where."""
        if self.out is not None:
            yield self.out / f"{self.library}.json", to_json(document)
            yield self.out / f"{self.library}-layers.csv", layers_csv(found.rows)
        for target in self._targets(self.csv, ".csv"):
            yield target, architectures_csv(found.rows)
        for target in self._targets(self.html, ".html"):
            yield target, survey_html(found, created)

    def _targets(self, given: Path | None, suffix: str) -> list[Path]:
        inside = None if self.out is None else self.out / f"{self.library}{suffix}"
        return [target for target in (given, inside) if target is not None]

    def _check_targets(self) -> None:
        if self.out is not None and self.out.exists() and not self.out.is_dir():
            raise OutputError(f"cannot write into {self.out}: it is a file; give the name of a folder")
        check_targets(self.json, self.csv, self.html, self._journal())

    def _journal(self) -> Path | None:
        """Beside the first file that is written; None where there is none."""
        if self.out is not None:
            return self.out / f"{self.library}{JOURNAL}"
        json = None if self.json in (None, "-") else Path(str(self.json))
        first = next((target for target in (json, self.csv, self.html) if target is not None), None)
        return None if first is None else first.with_name(f"{first.stem}{JOURNAL}")


def _document(found: Survey, created: str) -> dict[str, Any]:
    return {
        "report": NAME,
        "schema_version": SCHEMA,
        "created": created,
        "versions": versions(),
        "convention": CONVENTION,
        "summary": summarise(found.rows).to_dict(),
        "published": [one.to_dict() for one in compare(found)],
        **found.to_dict(),
    }


@contextmanager
def _bar() -> Iterator[ProgressOfRows]:
    """A bar on a terminal; elsewhere a line now and then."""
    columns = (
        TextColumn("surveying"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=ERRORS, transient=True, disable=not ERRORS.is_terminal) as bar:
        task = bar.add_task("")

        def told(done: int, of: int, row: Row | None) -> None:
            bar.update(task, completed=done, total=of, description="" if row is None else row.name)
            if row is not None and not row.is_ok:
                tell(f"{row.name} failed: {row.reason}")
            elif not ERRORS.is_terminal and row is not None and done % TOLD_EVERY == 0:
                tell(f"{done:,} of {of:,}")

        yield told
