"""The energy report as a part of the page."""

from gearshift.runtime.report.document import RunDocument
from gearshift.runtime.report.energy.footprint import NO_GRID
from gearshift.runtime.report.energy.older import energy_report_of
from gearshift.runtime.report.energy.rows import Cell, lines_of, meter_rows, missing_reasons
from gearshift.runtime.report.names import Name
from gearshift.runtime.report.tables import Row, column_heads, matrix, note, shown
from gearshift.runtime.report.tags import Html, join, tag


def energy_section(document: RunDocument, names: dict[str, Name]) -> Html:
    """Every figure of the report, and how it was obtained."""
    report = energy_report_of(document)
    rows = [
        Row(name=line.name, cells=tuple(map(cell_html, line.cells)), divides=line.divides) for line in lines_of(report)
    ]
    terms = [*meter_rows(report), *(("Missing", reason) for reason in missing_reasons(report))]
    return join(
        tag("p", "Energy ESTIMATED, not measured", class_="callout warn") if report.meter.estimated else None,
        matrix(column_heads(document, names), rows),
        note(
            "Gross: all that the meter sees; net: above idle. 95 %: interval of the figure, from how windows of the "
            "run differ; it says nothing of the sensor's own error, which stands beside it. "
            "Before → after: read just before a run began and just after it ended."
        ),
        tag("dl", *(part for name, text in terms for part in (tag("dt", name), tag("dd", text))), class_="below"),
    )


def cell_html(cell: Cell) -> Html:
    """A figure with its small print."""
    unnamed = cell.text == NO_GRID
    figure = tag("span", cell.text, class_="missing", title=cell.reason) if unnamed else shown(cell.text, cell.reason)
    return join(figure, *(tag("span", text, class_="sub small") for text in cell.below.splitlines()))
