"""`runtime report`: the HTML report of a recorded run, its energy report as data, or two runs side by side."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from gearshift.errors import InputError
from gearshift.files import write_text
from gearshift.runtime.carbon import chosen_intensity
from gearshift.runtime.cli.output import (
    Country,
    GramsPerKwh,
    GridSource,
    JsonTarget,
    check_targets,
    emit_json,
    tell,
)
from gearshift.runtime.report import compare_html, comparison, energy_report, html, read_run, with_emissions


@dataclass(frozen=True, kw_only=True)
class Report:
    """Draw the report of a run that `runtime bench --json RUN.json` recorded, or compare two of them."""

    run_file: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN.json")]
    """The recorded run."""
    against: Annotated[Path | None, tyro.conf.arg(metavar="OTHER.json")] = None
    """Another run: both side by side, with the ratio other / first of every figure."""
    out: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """HTML file to write; beside the run if left out."""
    country: Country = None
    """Report CO2e at this country's mean grid intensity, such as FRA; from codecarbon's data, no network."""
    grid_intensity: GramsPerKwh = None
    """Report CO2e at this grid intensity, in g/kWh."""
    grid_source: GridSource = None
    """Who says so."""
    json: JsonTarget = None
    """Also write the energy report, or the differences of two, as JSON to this file, or to stdout for -."""

    def run(self) -> int:
        """Write it."""
        grid = chosen_intensity(self.country, self.grid_intensity, self.grid_source)
        document = with_emissions(read_run(self.run_file), grid)
        if self.against is None:
            return self._write(self.run_file.stem, energy_report(document), html(document))
        other = with_emissions(read_run(self.against), grid)
        found = comparison(document, other, names=(str(self.run_file), str(self.against)))
        return self._write(f"{self.run_file.stem}-against-{self.against.stem}", found.to_dict(), compare_html(found))

    def _write(self, stem: str, data: dict[str, Any], page: str) -> int:
        target = self.out or self.run_file.with_name(f"{stem}.html")
        self._spare_inputs(target, self.json)
        check_targets(target, self.json)
        write_text(target, page)
        emit_json(data, self.json)
        tell(f"wrote {target}")
        return 0

    def _spare_inputs(self, *targets: str | Path | None) -> None:
        """Refuse to write over a run that is read."""
        read = {file.absolute() for file in (self.run_file, self.against) if file is not None}
        for target in targets:
            if target not in (None, "-") and Path(target).absolute() in read:
                raise InputError(f"{target} is a run that is read; give the name of another file to write")
