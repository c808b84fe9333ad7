"""`runtime report`: the HTML report of a recorded run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from gearshift.files import write_text
from gearshift.runtime.cli.output import tell
from gearshift.runtime.report import html, read_run


@dataclass(frozen=True, kw_only=True)
class Report:
    """Draw the report of a run that `runtime bench --json RUN.json` recorded."""

    run_file: Annotated[Path, tyro.conf.Positional]
    """The recorded run."""
    out: Path | None = None
    """HTML file to write; beside the run if left out."""

    def run(self) -> int:
        """Write it."""
        target = self.out or self.run_file.with_suffix(".html")
        write_text(target, html(read_run(self.run_file)))
        tell(f"wrote {target}")
        return 0
