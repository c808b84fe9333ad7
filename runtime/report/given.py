"""What is asked of a document after the run: its energy report alone, and emissions by a grid intensity."""

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


def energy_report(document: dict[str, Any]) -> dict[str, Any]:
    """The energy report of a document, ready for JSON; of an older document, as far as that goes.

    Raises:
        InputError: `document` is not what a bench returns.
    """
    return energy_report_of(checked(document, "the document")).model_dump(mode="json")
