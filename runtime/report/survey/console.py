"""A survey as tables for the terminal."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from gearshift.profiler.survey import Summary, Survey, compare, summarise
from gearshift.profiler.survey.published import Compared
from gearshift.profiler.survey.row import surveyed
from gearshift.profiler.survey.summary import Part
from gearshift.profiler.survey.years import FIRST
from gearshift.runtime.report.words import NOT_MEASURED, number, percent

SHOWN = 12
"""Lines of a table; the page and the data hold all."""


BY_FIRST = "of these by the first paper of their file"


def survey_terminal(found: Survey, console: Console) -> None:
    """Print a survey."""
    summary = summarise(found.rows)
    name = f"{found.library} {found.library_version}"
    console.print(_overview(found, summary, name))
    for title, parts in (
        ("Layers by PyTorch's class", summary.kinds),
        ("Conv2d by kernel", summary.kernels),
        ("Conv2d by stride", summary.strides),
        ("Conv2d by groups", summary.groups),
        ("Bias", summary.bias),
        ("Powers of two", summary.powers_of_two),
        ("Layers by their own class", summary.classes),
    ):
        console.print(_parts(title, parts))
    console.print(_macs(summary))
    if summary.years:
        console.print(_years(summary))
    if published := compare(found):
        _print_published(published, console)
    if missing := _missing(found):
        console.print(missing)


def _overview(found: Survey, summary: Summary, name: str) -> Table:
    dated = [row.facts for row in surveyed(found.rows) if row.facts is not None and row.facts.year is not None]
    table = Table("", "count", title=f"Survey of {name}")
    table.columns[1].justify = "right"
    table.add_row("architectures", f"{summary.architectures:,}")
    table.add_row("not built", f"{summary.failed:,}")
    table.add_row("built, without MACs", f"{summary.without_macs:,}")
    table.add_row("with a known year", f"{len(dated):,}")
    table.add_row(f"{BY_FIRST}, which may be older", f"{sum(facts.year_from == FIRST for facts in dated):,}")
    if summary.uncounted:
        table.add_row("operators without a formula", ", ".join(sorted(summary.uncounted)))
    return table


def _parts(title: str, parts: Sequence[Part]) -> Table:
    table = _table(title, "", "layers", "share")
    for part in parts[:SHOWN]:
        table.add_row(part.name, f"{part.count:,}", percent(part.share))
    if len(parts) > SHOWN:
        table.add_row(f"and {len(parts) - SHOWN} more", f"{sum(part.count for part in parts[SHOWN:]):,}", "")
    return table


def _macs(summary: Summary) -> Table:
    table = _table("MACs by type of operator", "", "GMAC of all", "share of all", "mean share", "architectures")
    for part in summary.macs:
        table.add_row(
            part.name,
            f"{part.macs / 1e9:,.0f}",
            percent(part.share),
            percent(part.mean_share),
            f"{part.architectures:,}",
        )
    return table


def _years(summary: Summary) -> Table:
    table = _table("Sizes by year (medians)", "", "architectures", BY_FIRST, "M parameters", "GMAC")
    for part in summary.years:
        table.add_row(
            str(part.year),
            f"{part.architectures:,}",
            f"{part.at_least:,}",
            _median(part.params, 1e6),
            _median(part.macs, 1e9),
        )
    return table


def _median(quartiles: tuple[float, float, float] | None, scale: float) -> str:
    return NOT_MEASURED if quartiles is None else number(quartiles[1] / scale)


def _print_published(figures: Sequence[Compared], console: Console) -> None:
    ways = list(dict.fromkeys(way for one in figures for way in one.other_ways))
    table = _table("Published figures (2023) beside ours", "", "published", "ours", *ways)
    for one in figures:
        others = (_exactly(one.other_ways[way]) if way in one.other_ways else "–" for way in ways)
        table.add_row(one.name, _exactly(one.published), _exactly(one.ours), *others)
    console.print(table)
    for one in figures:
        console.print(f"{one.name}: {one.why}", markup=False)


def _exactly(share: float | None) -> str:
    return NOT_MEASURED if share is None else f"{100 * share:.2f} %"


def _missing(found: Survey) -> Table | None:
    rows = [row for row in found.rows if not row.is_ok or row.macs is None]
    if not rows:
        return None
    table = Table("architecture", "what is missing", "why", title="What could not be surveyed")
    for row in rows:
        table.add_row(row.name, "all" if not row.is_ok else "MACs", row.reason or row.macs_reason or "")
    return table


def _table(title: str, *headings: str) -> Table:
    table = Table(title=title)
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="right" if place else "left")
    return table
