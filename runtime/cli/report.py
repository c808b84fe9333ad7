"""`runtime report`: the HTML report of a recorded run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from gearshift.files import check_writable, write_text
from gearshift.runtime.cli.output import tell
from gearshift.runtime.report import html, read_run


@dataclass(frozen=True, kw_only=True)
class Report:
    """Draw the report of a run that `runtime bench --json RUN.json` recorded."""

    run_file: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN.json")]
    """The recorded run."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """HTML file to write; beside the run if left out."""

    def run(self) -> int:
        """Write it."""
        document = read_run(self.run_file)
        target = self.out or self.run_file.with_suffix(".html")
        check_writable(target)
        write_text(target, html(document))
        tell(f"wrote {target}")
        return 0
