"""A bench's document with the emissions that a grid intensity makes of its energy."""

from typing import Any

from gearshift.runtime.carbon import GridIntensity
from gearshift.runtime.report.document import checked
from gearshift.runtime.report.energy.footprint import with_grid
from gearshift.runtime.report.energy.older import energy_report_of


def with_emissions(document: dict[str, Any], grid: GridIntensity | None) -> dict[str, Any]:
    """The document with emissions; an older one also gets an energy report. None leaves it as it is.

    Raises:
        InputError: `document` is not what a bench returns.
    """
    if grid is None:
        return document
    report = with_grid(energy_report_of(checked(document, "the document")), grid)
    return {**document, "energy_report": report.model_dump(mode="json")}
