"""The same document as tables for the terminal, short enough for one screen."""

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gearshift.runtime.report.compare import (
    columns,
    gross_j,
    metric,
    missing,
    net_j,
    saved,
    saved_text,
)
from gearshift.runtime.report.document import Run, RunDocument, checked
from gearshift.runtime.report.energy.model import EnergyFigure, EnergyReport
from gearshift.runtime.report.energy.older import energy_report_of
from gearshift.runtime.report.energy.rows import interval_text
from gearshift.runtime.report.figures import cost_types, rows_of, total
from gearshift.runtime.report.headline import energy_note, shortfall_note
from gearshift.runtime.report.names import Name, names
from gearshift.runtime.report.tables import mix_text
from gearshift.runtime.report.verdict import (
    Verdict,
    achieved,
    in_violation,
    margin,
    of_limit,
    of_run,
    title,
    when,
    worst,
)
from gearshift.runtime.report.words import (
    NOT_MEASURED,
    count,
    number,
    percent,
    quantity,
    scale,
    sentence,
    shortened,
)

MOST_LIMITS, MOST_PATHS, MOST_TYPES, MOST_BUDGETS = 6, 5, 4, 5
"""Rows of the tables that are shown; the page shows all."""

WIDEST_ID = 60
_STYLES = {
    Verdict.NO_LIMIT: "dim",
    Verdict.HELD: "bold green",
    Verdict.ON_AVERAGE: "bold yellow",
    Verdict.UNKNOWN: "bold yellow",
    Verdict.BROKEN: "bold red",
}


def terminal(document: dict[str, Any], console: Console) -> None:
    """Print a bench's document.

    Raises:
        InputError: `document` is not what a bench returns.
    """
    run = checked(document, "the document")
    called = names(run)
    for text in _head(run):
        console.print(text, overflow="fold", soft_wrap=False)
    for table in (
        _budgets(run),
        _comparison(run),
        _paths(run, called),
        _costs(run),
        _other_budgets(run, called),
    ):
        console.print(table)
    for text in [*_energy(energy_report_of(run)), _method(run)]:
        console.print(text, overflow="fold")


def _head(run: RunDocument) -> list[Text]:
    lines = [_text(title(run), style=_STYLES[of_run(run)])]
    name, text = energy_note(run)
    brief = text.split(". ")[0].rstrip(".")
    lines.append(Text.assemble((f"{name}: ", "yellow" if run.estimated else "bold"), _text(brief)))
    lines.append(_text(sentence(run.binds.text)))
    if not run.model.trained:
        lines.append(Text("Untrained weights: quality figures say nothing.", style="yellow"))
    if shortfall := shortfall_note(run):
        lines.append(_text(shortened(f"Controller: {shortfall}", 105), style="yellow"))
    return lines


def _table(*head: str, left: int = 1) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="dim")
    for place, name in enumerate(head):
        table.add_column(_text(name), justify="left" if place < left else "right", overflow="fold")
    return table


def _add(table: Table, *cells: str | Text) -> None:
    table.add_row(*(cell if isinstance(cell, Text) else _text(cell) for cell in cells))


def _text(text: str, style: str = "") -> Text:
    """Text that is shown as it is: no markup, no control characters."""
    return Text("".join(char if char.isprintable() else "\ufffd" for char in text), style=style)


def _budgets(run: RunDocument) -> Table:
    table = _table("budget", "limit", "achieved", "margin", "worst", "above", "", left=1)
    rows = [(stretch, limit) for stretch in run.run.budgets for limit in stretch.limits]
    several = len(run.run.budgets) > 1
    for stretch, limit in rows[:MOST_LIMITS]:
        place = f"{when(stretch)}, " if several else ""
        verdict = of_limit(limit)
        _add(
            table,
            f"{place}{limit.kind}",
            quantity(limit.limit, limit.unit, exact=True),
            quantity(achieved(limit), limit.unit),
            margin(limit),
            quantity(worst(limit), limit.unit),
            percent(in_violation(limit)),
            Text(verdict.words, style=_STYLES[verdict]),
        )
    _rest(table, len(rows) - MOST_LIMITS)
    return table


def _comparison(run: RunDocument) -> Table:
    shown = columns(run)
    small = max((abs(found) for one in shown if (found := gross_j(one.run)) is not None), default=1.0) < 1
    unit, scale = ("mJ", 1e3) if small else ("J", 1.0)
    table = _table(
        "",
        metric(run),
        f"gross {unit}",
        f"net {unit}",
        "vs stock",
        "vs lossless",
        "W",
        "p50/p95/p99 ms",
        "fps",
        "drop",
    )
    bases = [run.baselines.get(name) for name in ("stock", "lossless")]
    for column in shown:
        one, latency = column.run, column.run.latency_ms
        _add(
            table,
            _text(column.name, style="bold" if column.path is None else ""),
            _figure(one.quality.value),
            _figure(gross_j(one), scale),
            _figure(net_j(one), scale),
            *(_against(one, base) for base in bases),
            _figure(one.energy.power_w),
            "/".join(_figure(value) for value in (latency.p50, latency.p95, latency.p99)),
            _figure(one.fps),
            str(one.dropped),
        )
    if missing(run):
        table.caption = _text(f"n/m: {NOT_MEASURED}: {'; '.join(missing(run))}")
        table.caption_justify = "left"
    return table


def _energy(report: EnergyReport) -> list[Text]:
    """Gross and net energy of a frame with their intervals, and emissions where they were asked for."""
    figures = (("gross", report.run.gross_j_per_frame), ("net", report.run.net_j_per_frame))
    known = [(name, figure) for name, figure in figures if figure.value_j is not None]
    lines = []
    if known:
        factor, unit = scale("J", [figure.value_j for _, figure in known])
        told = ", ".join(f"{name} {_with_interval(figure, factor)}" for name, figure in known)
        lines.append(_text(f"energy per frame in {unit}: {told}", style="dim"))
    footprint, grid = report.run.co2e, report.grid
    if footprint is not None and grid is not None:
        estimated = ", estimated" if footprint.estimated else ""
        place = "" if grid.country is None else f" {grid.country}"
        lines.append(
            _text(
                f"CO2e per 1000 frames {quantity(footprint.g_per_1000_frames, 'g')}{estimated}, "
                f"at {number(grid.g_per_kwh)} g/kWh ({grid.source}{place})",
                style="dim",
            )
        )
    return lines


def _with_interval(figure: EnergyFigure, factor: float) -> str:
    interval = interval_text(figure, factor) or f"no interval, {figure.spread_reason}"
    return f"{number((figure.value_j or 0.0) * factor)} ({interval})"


def _against(run: Run, base: Run | None) -> str:
    if base is None or run is base:
        return "–"
    share = saved(gross_j(run), gross_j(base))
    return "n/m" if share is None else saved_text(share)


def _figure(value: float | None, scale: float = 1.0) -> str:
    return "n/m" if value is None else number(value * scale)


def _paths(run: RunDocument, called: dict[str, Name]) -> Table:
    table = _table("path", "", "of frames", "of time", "median", left=2)
    for use in run.run.paths[:MOST_PATHS]:
        name = called[use.path]
        _add(
            table,
            name.short,
            "" if name.short == name.id else shortened(name.id, WIDEST_ID),
            percent(use.share_of_frames),
            percent(use.share_of_time),
            quantity(use.median_ms, "ms"),
        )
    _rest(table, len(run.run.paths) - MOST_PATHS)
    return table


def _costs(run: RunDocument) -> Table:
    known = run.where_cost_goes
    table = _table("where the cost goes", *(f"{role} {what}" for role in known for what in ("time", "MACs")))
    kinds = cost_types(known)
    for kind in kinds[:MOST_TYPES]:
        found = [rows_of(kind, kinds, cost) for cost in known.values()]
        shares = [(total([r.time_share for r in rows]), total([r.macs_share for r in rows])) for rows in found]
        _add(table, kind, *(percent(share) for pair in shares for share in pair))
    return table


def _other_budgets(run: RunDocument, called: dict[str, Name]) -> Table:
    table = _table("other budgets, predicted", "quality", "power", "paths", "", left=1)
    rows = run.other_budgets[:: max(1, -(-len(run.other_budgets) // MOST_BUDGETS))]
    for row in rows:
        _add(
            table,
            row.budget,
            NOT_MEASURED if row.quality is None else number(row.quality),
            quantity(row.power_w, "W"),
            mix_text(row.paths, called),
            Text("within reach", style="green") if row.met else Text("out of reach", style="red"),
        )
    return table


def _method(run: RunDocument) -> Text:
    shape = "×".join(map(str, run.input_shape))
    parts = [
        str(run.device.get("name") or "unknown device"),
        count(run.threads, "thread"),
        f"torch {run.versions.get('torch') or 'unknown'}",
        f"input {shape}",
        f"{count(run.run.frames, 'frame')} in {number(run.run.seconds)} s, {run.frames_from}",
        f"energy {run.energy_source}",
    ]
    return _text(", ".join(parts), style="dim")


def _rest(table: Table, left_out: int) -> None:
    if left_out > 0:
        _add(table, Text(f"… {left_out} more in the page", style="dim"))
