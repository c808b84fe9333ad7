"""A survey as a page."""

from collections.abc import Sequence
from statistics import median

from gearshift.profiler.survey import Row, Summary, Survey, compare, summarise
from gearshift.profiler.survey.published import Compared
from gearshift.profiler.survey.row import surveyed
from gearshift.profiler.survey.summary import Part, YearPart
from gearshift.runtime.report.page import figure, section, whole_page
from gearshift.runtime.report.survey.figures import (
    groups,
    kernels,
    macs,
    macs_by_year,
    macs_over_params,
    powers_of_two,
    sizes_by_year,
    strides,
)
from gearshift.runtime.report.tables import Head, matrix, note
from gearshift.runtime.report.tables import Row as Line
from gearshift.runtime.report.tags import Html, join, tag
from gearshift.runtime.report.words import NOT_MEASURED, count, number, operations, percent

SHOWN_CLASSES = 14

METHOD = (
    "Every architecture is built on the meta device, so nothing is computed and nothing downloaded. Layers are "
    "instances of PyTorch's classes, subclasses included, and a module that is used in several places is one. MACs are "
    "those of one pass of one image at the default input size, counted operator by operator (flops = 2 x MACs). Years "
    "are those of papers that the library's own documentation cites."
)


def survey_html(found: Survey, created: str) -> str:
    """Render a survey as one page; the same survey gives the same bytes.

    Args:
        found: The survey.
        created: When it was made, for the footer.
    """
    summary, rows, published = summarise(found.rows), surveyed(found.rows), compare(found)
    return whole_page(
        f"survey of {found.library} {found.library_version}",
        [
            _headline(found, summary),
            _tiles(rows, summary),
            *([_published(published)] if published else []),
            figure(macs(summary)),
            tag("div", figure(macs_by_year(rows)), figure(macs_over_params(rows)), class_="pair"),
            tag("div", *map(figure, sizes_by_year(rows)), class_="pair"),
            section("Sizes by year", _years(summary.years)),
            figure(kernels(summary)),
            tag("div", figure(strides(summary)), figure(groups(summary)), class_="pair"),
            tag("div", figure(powers_of_two(summary)), section("Bias", _parts(summary.bias)), class_="pair"),
            tag(
                "div",
                section("Layers by PyTorch's class", _parts(summary.kinds)),
                section("Layers by their own class", _parts(summary.classes[:SHOWN_CLASSES])),
                class_="pair",
            ),
            section("What could not be surveyed", _failures(found)),
            section("How it was counted", tag("p", METHOD, class_="note")),
            tag("footer", f"{found.library} {found.library_version} · {created}"),
        ],
    )


def _headline(found: Survey, summary: Summary) -> Html:
    kinds = {part.name: part.count for part in summary.kinds}
    noun = "architecture" if summary.architectures == 1 else "architectures"
    missing = [
        f"{count(summary.failed, 'architecture')} could not be built" if summary.failed else "",
        f"{count(summary.without_macs, 'architecture')} could not be run, so their MACs are not known"
        if summary.without_macs
        else "",
    ]
    return tag(
        "header",
        tag("p", f"Gearshift · survey · {found.library} {found.library_version}", class_="eyebrow"),
        tag(
            "h1",
            f"{summary.architectures:,} {noun}: {kinds.get('Conv2d', 0):,} Conv2d and "
            f"{kinds.get('Linear', 0):,} Linear layers",
        ),
        *(tag("p", f"{text}.", class_="callout warn") for text in missing if text),
        class_=f"headline {'fair' if any(missing) else 'good'}",
    )


def _tiles(rows: Sequence[Row], summary: Summary) -> Html:
    params = [row.params for row in rows if row.params is not None]
    known = [total for row in rows if (total := row.total_macs) is not None]
    usual = [part for part in summary.kernels if part.name in ("1x1", "3x3")]
    bias = {part.name: part for part in summary.bias}
    total = sum(part.count for part in summary.kernels)
    first = summary.macs[0] if summary.macs else None
    return tag(
        "div",
        _tile("Conv2d with a 1x1 or 3x3 kernel", _share(sum(part.count for part in usual), total), f"of {total:,}"),
        _tile("Linear with a bias", percent(bias["Linear with bias"].share), "of all Linear layers"),
        _tile(
            "Parameters, median",
            f"{number(median(params) / 1e6)} M" if params else NOT_MEASURED,
            _range(params, 1e6, "M"),
        ),
        _tile("MACs, median", operations(int(median(known))) if known else NOT_MEASURED, _range(known, 1e9, "G")),
        *(
            [_tile(f"MACs in {first.name}", percent(first.share), f"mean share {percent(first.mean_share)}")]
            if first
            else []
        ),
        class_="tiles",
    )


def _share(part: int, whole: int) -> str:
    return percent(part / whole) if whole else NOT_MEASURED


def _range(values: Sequence[int], scale: float, unit: str) -> str:
    return f"{number(min(values) / scale)} to {number(max(values) / scale)} {unit}" if values else ""


def _tile(name: str, value: str, below: str) -> Html:
    return tag(
        "div",
        tag("span", name, class_="name"),
        tag("span", value, class_="value"),
        tag("span", below, class_="note"),
        class_="tile",
    )


def _published(figures: Sequence[Compared]) -> Html:
    ways = list(dict.fromkeys(way for one in figures for way in one.other_ways))
    heads = [
        Head(name="Published", below="2023"),
        Head(name="Ours", below="every architecture once", ours=True),
        *(Head(name=way) for way in ways),
    ]
    lines = [
        Line(
            name=one.name,
            cells=(
                exactly(one.published),
                exactly(one.ours),
                *(
                    exactly(one.other_ways[way]) if way in one.other_ways else tag("span", "–", class_="faint")
                    for way in ways
                ),
            ),
        )
        for one in figures
    ]
    return section(
        "Published figures (2023) beside ours",
        matrix(heads, lines),
        note("What the differences come from:"),
        tag("dl", *(tag(kind, text) for one in figures for kind, text in (("dt", one.name), ("dd", one.why)))),
    )


def exactly(share: float | None) -> Html:
    """A share to a hundredth of a per cent, as the published ones are given."""
    return tag("span", NOT_MEASURED if share is None else f"{100 * share:.2f} %")


def _parts(parts: Sequence[Part]) -> Html:
    heads = [Head(name="layers"), Head(name="share")]
    return matrix(
        heads,
        [
            Line(name=part.name, cells=(tag("span", f"{part.count:,}"), tag("span", percent(part.share))))
            for part in parts
        ],
    )


def _years(years: Sequence[YearPart]) -> Html:
    if not years:
        return note("No year is known: nothing that the library documents cites a paper.")
    heads = [
        Head(name="architectures"),
        Head(name="of these by the first paper of their file"),
        Head(name="parameters, M", below="median (quartiles)"),
        Head(name="GMAC", below="median (quartiles)"),
    ]
    lines = [
        Line(
            name=str(part.year),
            cells=(
                tag("span", str(part.architectures)),
                tag("span", str(part.at_least)),
                _quartiles(part.params, 1e6),
                _quartiles(part.macs, 1e9),
            ),
        )
        for part in years
    ]
    return join(matrix(heads, lines), note("The first paper of a file may be older than the architecture."))


def _quartiles(values: tuple[float, float, float] | None, scale: float) -> Html:
    if values is None:
        return tag("span", NOT_MEASURED, class_="missing")
    low, middle, high = (number(value / scale) for value in values)
    return tag("span", f"{middle} ({low} to {high})")


def _failures(found: Survey) -> Html:
    built = [row for row in found.rows if row.is_ok and row.macs is None]
    if not found.failed and not built:
        return tag("p", "Nothing: every architecture was built and run.", class_="note")
    return tag(
        "dl",
        *(
            tag(kind, text)
            for what, row, reason in [
                *(("not built", row, row.reason) for row in found.failed),
                *(("no MACs", row, row.macs_reason) for row in built),
            ]
            for kind, text in (("dt", f"{row.name} ({what})"), ("dd", reason or ""))
        ),
    )
