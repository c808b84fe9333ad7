"""Rows on disk as they finish, one JSON object a line, so that an interrupted survey can go on."""

import json
import logging
from pathlib import Path

from gearshift.errors import OutputError
from gearshift.profiler.survey.row import Row, row_from

log = logging.getLogger(__name__)


class RowJournal:
    """Rows by name.

    Args:
        file: Where to; None keeps them in memory only.
        made_by: What rows depend on (versions); others are passed over.
        fresh: Begin anew, whatever the file holds.

    Raises:
        OutputError: The file cannot be read or written.
    """

    def __init__(self, file: Path | None, made_by: str, *, fresh: bool = False) -> None:
        self._file = file
        self._made_by = made_by
        self._rows: dict[str, Row] = {}
        if file is None:
            return
        try:
            if fresh:
                file.unlink(missing_ok=True)
            file.parent.mkdir(parents=True, exist_ok=True)
            if file.exists():
                self._load(file)
        except OSError as error:
            raise OutputError(f"cannot use {file}: {error.strerror}; choose a folder that you may write to") from error

    @property
    def rows(self) -> dict[str, Row]:
        """What is known, by name; the last row of a name counts."""
        return dict(self._rows)

    def add(self, row: Row) -> None:
        """Remember a row, on disk before this returns.

        Raises:
            OutputError: The disk is full or the file has become unwritable.
        """
        self._rows[row.name] = row
        if self._file is None:
            return
        line = json.dumps({"made_by": self._made_by, **row.to_dict()}, allow_nan=False)
        try:
            with self._file.open("a", encoding="utf-8") as stream:
                stream.write(f"{line}\n")
        except OSError as error:
            raise OutputError(f"cannot write {self._file}: {error.strerror}; make room for it and run again") from error

    def _load(self, file: Path) -> None:
        text = file.read_text(encoding="utf-8", errors="replace")
        for line in text.splitlines():
            try:
                values = json.loads(line)
                if values.pop("made_by") == self._made_by:
                    row = row_from(values)
                    self._rows[row.name] = row
            except (ValueError, TypeError, KeyError, AttributeError):  # the line that a kill cut short
                log.info("passing over an unreadable line of %s", file)
        if text and not text.endswith("\n"):  # what is added next needs a line of its own
            with file.open("a", encoding="utf-8") as stream:
                stream.write("\n")
