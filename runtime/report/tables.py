"""The page's tables."""

from collections.abc import Sequence
from dataclasses import dataclass

from gearshift.runtime.report.compare import columns, measures, missing
from gearshift.runtime.report.document import Limit, Mix, Path, PathUse, Predicted, RunDocument
from gearshift.runtime.report.figures import cost_types, rows_of, total
from gearshift.runtime.report.headline import badge
from gearshift.runtime.report.names import LONGEST_ID, Name
from gearshift.runtime.report.tags import Child, Html, join, tag
from gearshift.runtime.report.verdict import (
    achieved,
    in_violation,
    is_latency,
    margin,
    of_limit,
    reasons,
    when,
    worst,
)
from gearshift.runtime.report.words import (
    NOT_MEASURED,
    number,
    operations,
    percent,
    quantity,
    shortened,
    size,
)

Names = dict[str, Name]


def budget_table(document: RunDocument) -> Html:
    """Budget against achieved, every limit of every stretch."""
    stretches = document.run.budgets
    limits = [limit for stretch in stretches for limit in stretch.limits]
    if not limits:
        return note("No limit was set.")
    several = len(stretches) > 1
    head = ["Limit on", "Limit", "Achieved", "Margin", "Worst", "Above the limit", ""]
    rows = [
        [*([when(stretch)] if several else []), *_limit_row(limit)] for stretch in stretches for limit in stretch.limits
    ]
    missing = "".join(f" Not measured: {reason}." for reason in reasons(limits))
    return join(
        _table([*(["When"] if several else []), *head], rows, cards=True),
        note(
            "Worst: the longest frame, or the highest mean over 1 s. Windows of 1 s begin with every power "
            f"sample, so they overlap.{missing}"
        ),
    )


def _limit_row(limit: Limit) -> list[Child]:
    mean = f" (mean {number(limit.mean)})" if limit.achieved is not None and limit.mean is not None else ""
    share = in_violation(limit)
    of_what = "frames" if is_latency(limit) else "windows"
    return [
        limit.kind,
        quantity(limit.limit, limit.unit, exact=True),
        shown(quantity(achieved(limit), limit.unit) + mean, limit.reason),
        margin(limit),
        shown(quantity(worst(limit), limit.unit), limit.reason),
        shown(NOT_MEASURED if share is None else f"{percent(share)} of {of_what}", limit.reason),
        badge(of_limit(limit)),
    ]


def comparison_table(document: RunDocument, names: Names) -> Html:
    """This run beside the fixed paths, a column each."""
    head = column_heads(document, names)
    rows = [Row(name=row.name, cells=tuple(map(shown, row.texts)), divides=row.divides) for row in measures(document)]
    return join(matrix(head, rows), note(_comparison_note(document)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The head of a column: its name, what is said below that and on hover, and whether it stands out."""

    name: str
    below: str = ""
    hover: str | None = None
    ours: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of a matrix; `divides` draws a rule above it."""

    name: str
    cells: tuple[Child, ...]
    divides: bool = False


def column_heads(document: RunDocument, names: Names) -> list[Head]:
    """This run, then the fixed paths."""
    return [
        Head(
            name=column.name,
            below=_ran(column.path, names),
            hover=column.path or "as the controller chose",
            ours=column.path is None,
        )
        for column in columns(document)
    ]


def matrix(heads: Sequence[Head], rows: Sequence[Row]) -> Html:
    """Figures by name, a column for each thing that is compared."""
    head = [
        tag(
            "th",
            tag("span", one.name),
            tag("br"),
            tag("span", one.below, class_="sub", title=one.hover),
            scope="col",
            class_="ours" if one.ours else None,
        )
        for one in heads
    ]
    body = [
        tag(
            "tr",
            tag("th", row.name, scope="row"),
            *(
                tag("td", cell, class_="num ours" if one.ours else "num")
                for one, cell in zip(heads, row.cells, strict=True)
            ),
            class_="first" if row.divides else None,
        )
        for row in rows
    ]
    table = tag("table", tag("thead", tag("tr", tag("th", ""), *head)), tag("tbody", *body), class_="matrix")
    return tag("div", table, class_="wide", tabindex="0")


def _ran(path: str | None, names: Names) -> str:
    return "changing paths" if path is None else shortened(names[path].short, LONGEST_ID)


def _comparison_note(document: RunDocument) -> str:
    lines = [
        "Gross: all that the meter sees, idle draw included, hence by frame rate; net: above idle. "
        "±: the meter's own uncertainty, which all runs share."
    ]
    lines.append(_fixed_runs(document))
    if missing(document):
        lines.append(f"Not measured: {'; '.join(missing(document))}.")
    return " ".join(lines)


def _fixed_runs(document: RunDocument) -> str:
    """How long the fixed paths ran, and whether under the same budgets."""
    if not document.baselines:
        return "No comparison runs were made."
    fixed = document.baselines.values()
    seconds = max(run.seconds for run in fixed)
    alike = all(len(run.budgets) == len(document.run.budgets) for run in fixed)
    budgets = "" if alike else ", not all under the same budgets"
    ours = number(document.run.seconds)
    return f"The fixed paths ran for up to {number(seconds)} s each{budgets}, this run for {ours} s."


def path_table(document: RunDocument, names: Names) -> Html:
    """Every path: who it is, what it costs alone, and what this run used it for."""
    used = {use.path: use for use in document.run.paths}
    known = {path.path: path for path in document.frontier}
    head = [
        "Path",
        "Quality",
        "Median latency",
        "Net energy",
        "Operations",
        "Extra memory",
        "Of frames",
        "Of time",
    ]
    order = sorted(names, key=lambda path: (-(used[path].frames if path in used else 0), list(names).index(path)))
    rows = [_path_row(names[path], known.get(path), used.get(path)) for path in order]
    return join(
        _table(head, rows, cards=True),
        note(
            "P1, P2, ... are paths from the fastest to the slowest; all share the stock model's weights, and "
            "extra memory is what a path needs beside them. IQR: interquartile range. "
            "Of time: of all computing time."
        ),
    )


def _path_row(name: Name, path: Path | None, use: PathUse | None) -> list[Child]:
    who = join(
        tag("span", "", class_="swatch", style=f"background:{name.colour}"),
        tag("strong", name.short),
        None if name.short == name.id else tag("code", *_breakable(name.id), class_="id"),
    )
    if path is None:
        alone: list[Child] = [shown(NOT_MEASURED)] * 5
    else:
        latency = path.latency
        spread = "" if latency.iqr_ms is None else f" (IQR {number(latency.iqr_ms, 2)})"
        quality = None if path.quality is None else path.quality.value
        alone = [
            shown(NOT_MEASURED if quality is None else number(quality), "the bundle holds no quality"),
            f"{number(latency.median_ms)} ms{spread}",
            shown(quantity(path.energy.net_j, "J"), path.energy.reason),
            operations(path.macs),
            size(path.extra_bytes),
        ]
    return [who, *alone, _bar(use.share_of_frames if use else 0.0), _bar(use.share_of_time if use else 0.0)]


def _breakable(path_id: str) -> list[Child]:
    """An id that breaks between its parts, if it must."""
    first, *others = path_id.split("+")
    return [first, *(part for other in others for part in (tag("wbr"), f"+{other}"))]


def _bar(share: float) -> Html:
    if share == 0:
        return tag("span", "–", class_="faint")
    width = f"width:{100 * share:.2f}%"
    return tag("span", tag("span", "", class_="fill", style=width), tag("span", percent(share)), class_="bar")


def cost_table(document: RunDocument) -> Html:
    """Share of time and of operations by operator type."""
    known = document.where_cost_goes
    if not known:
        return Html("")
    kinds = cost_types(known)
    head = ["Operators", *(f"{role}, {what}" for role in known for what in ("time", "MACs"))]
    rows: list[list[Child]] = []
    for kind in kinds:
        row: list[Child] = [kind]
        for cost in known.values():
            found = rows_of(kind, kinds, cost)
            row.append(shown(percent(total([one.time_share for one in found]))))
            row.append(shown(percent(total([one.macs_share for one in found]))))
        rows.append(row)
    return _table(head, rows)


def other_budgets_table(document: RunDocument, names: Names) -> Html:
    """What other budgets would give."""
    if not document.other_budgets:
        return note("Nothing was predicted.")
    head = ["Budget", "Limit", "Quality", "Power", "Paths, by share of frames", ""]
    rows = [_predicted_row(row, names) for row in document.other_budgets]
    return join(
        _table(head, rows, cards=True),
        note(
            "Predicted from the measured frontier, without noise: these budgets were not run. "
            "Where no path holds a budget, the cheapest one is shown."
        ),
    )


def _predicted_row(row: Predicted, names: Names) -> list[Child]:
    limits = [
        quantity(row.power_limit_w, "W", exact=True) if row.power_limit_w is not None else None,
        quantity(row.latency_limit_ms, "ms", exact=True) if row.latency_limit_ms is not None else None,
    ]
    return [
        row.budget,
        ", ".join(limit for limit in limits if limit) or "–",
        shown(NOT_MEASURED if row.quality is None else number(row.quality)),
        shown(quantity(row.power_w, "W")),
        _mix(row.paths, names),
        tag("span", "✓ within reach", class_="badge good")
        if row.met
        else tag("span", "✗ out of reach", class_="badge bad"),
    ]


def mix_text(paths: Sequence[Mix], names: Names) -> str:
    """A mix in words: 45 % P2, 55 % P1."""
    parts = sorted(paths, key=lambda mix: -mix.share_of_frames)
    if len(parts) == 1:
        return names[parts[0].path].short
    return ", ".join(f"{percent(round(mix.share_of_frames, 3))} {names[mix.path].short}" for mix in parts)


def _mix(paths: Sequence[Mix], names: Names) -> Html:
    return tag("span", mix_text(paths, names), title=" | ".join(mix.path for mix in paths))


def shown(text: str, reason: str | None = None) -> Html:
    """A figure; one that is missing says why on hover."""
    if text != NOT_MEASURED:
        return tag("span", text)
    return tag("span", text, class_="missing", title=reason)


def note(text: str) -> Html:
    """A remark below a table."""
    return tag("p", text, class_="note")


def _table(head: Sequence[str], rows: Sequence[Sequence[Child]], *, cards: bool = False) -> Html:
    """A table; where the page is narrow, rows become cards, or else the table gets tighter."""
    body = [
        tag(
            "tr",
            *(
                tag("td", cell, data_label=name or None, class_="first-cell" if place == 0 else "num")
                for place, (name, cell) in enumerate(zip(head, row, strict=True))
            ),
        )
        for row in rows
    ]
    table = tag(
        "table",
        tag("thead", tag("tr", *(tag("th", name, scope="col") for name in head))),
        tag("tbody", *body),
        class_="cards" if cards else "tight",
    )
    return tag("div", table, class_="wide", tabindex="0")
