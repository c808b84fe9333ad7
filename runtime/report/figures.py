"""Quality over what it costs, and where the cost goes."""

import math
from collections.abc import Callable, Sequence

from gearshift.paths.frontier import concave_hull
from gearshift.runtime.report.compare import Column, columns
from gearshift.runtime.report.document import Cost, Path, Run, RunDocument, TypeCost
from gearshift.runtime.report.names import Name
from gearshift.runtime.report.plot import (
    BLUE,
    FAINT,
    GREEN,
    ORANGE,
    PURPLE,
    Figure,
    Plot,
    axis,
    layout,
    plain,
    wrapped,
)
from gearshift.runtime.report.words import NOT_MEASURED, number, operations, percent, quantity, scale, trimmed

MANY = 12
"""With more paths than this only stock and lossless are labelled; the others say who they are on hover."""

WIDE = 8.0
"""From this ratio of the dearest to the cheapest on, costs are drawn on a logarithmic axis."""

Value = Callable[[Path], float | None]
_MARKS = {"stock": ("square", PURPLE), "lossless": ("diamond", GREEN), "frontier": ("circle", BLUE)}


def frontiers(document: RunDocument, names: dict[str, Name]) -> list[Plot]:
    """Quality over energy and over latency."""
    net = [path for path in document.frontier if path.energy.net_j is not None]
    estimate = " (estimated)" if document.estimated else ""
    energy = _frontier(
        document,
        names,
        Plot(id="frontier-energy", title=f"Quality over energy{estimate}", caption="", figure=None),
        f"net energy per frame{estimate}",
        "J",
        (lambda path: path.energy.net_j) if net else (lambda path: path.energy.gross_j),
        (lambda run: run.energy.net_j_per_frame) if net else (lambda run: run.energy.gross_j_per_frame),
    )
    latency = _frontier(
        document,
        names,
        Plot(id="frontier-latency", title="Quality over latency", caption="", figure=None),
        "median latency",
        "ms",
        lambda path: path.latency.median_ms,
        lambda run: run.latency_ms.p50,
    )
    return [energy, latency]


def _frontier(
    document: RunDocument,
    names: dict[str, Name],
    plot: Plot,
    cost_name: str,
    unit: str,
    cost: Value,
    achieved: Callable[[Run], float | None],
) -> Plot:
    known = [path for path in document.frontier if cost(path) is not None and _quality(path) is not None]
    if not known:
        return Plot(id=plot.id, title=plot.title, caption=_why_nothing(document), figure=None)
    costs = [found for path in known if (found := cost(path)) is not None]
    shown = [found for run in _runs(document) if (found := achieved(run)) is not None]
    factor, unit = scale(unit, costs + shown)
    logarithmic = min(costs + shown) > 0 and max(costs + shown) > WIDE * min(costs + shown)
    x_axis = axis(f"{cost_name}, {unit}", type="log" if logarithmic else "linear")
    if logarithmic:
        x_axis |= _ticks(min(costs + shown) * factor, max(costs + shown) * factor)
    else:
        x_axis["rangemode"] = "tozero"
    data = [
        _hull_line(known, lambda path: (cost(path) or 0.0) * factor),
        *(_group(role, known, names, lambda path: (cost(path) or 0.0) * factor, unit) for role in _MARKS),
        *_achieved(document, achieved, factor, unit),
    ]
    figure = {
        "data": [trace for trace in data if trace["x"]],
        "layout": layout(xaxis=x_axis, yaxis=axis(_quality_title(known)), hovermode="closest"),
    }
    return Plot(id=plot.id, title=plot.title, caption=_caption(known), figure=figure, height=430)


def _ticks(low: float, high: float) -> Figure:
    """Ticks of a logarithmic axis at 1, 2 and 5 times the powers of ten; with many decades at the powers."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if len(decades) < 5 else (1,)
    values = [step * 10.0**decade for decade in decades for step in steps]
    return {"tickmode": "array", "tickvals": values, "ticktext": [trimmed(value) for value in values]}


def _runs(document: RunDocument) -> list[Run]:
    return [document.run, *document.baselines.values()]


def _quality(path: Path) -> float | None:
    return None if path.quality is None else path.quality.value


def _quality_title(known: Sequence[Path]) -> str:
    metrics = {path.quality.metric for path in known if path.quality is not None}
    return "quality: " + " / ".join(
        "agreement with stock" if name == "agreement" else plain(name) for name in sorted(metrics)
    )


def _why_nothing(document: RunDocument) -> str:
    if all(_quality(path) is None for path in document.frontier):
        return "Not measured: the bundle holds no quality (random weights, or built without frames)."
    reasons = sorted({path.energy.reason for path in document.frontier if path.energy.reason})
    return f"Not measured: {'; '.join(reasons) or 'no reason given'}."


def _caption(known: Sequence[Path]) -> str:
    images = {path.quality.images for path in known if path.quality is not None and path.quality.images}
    judged = f" on {max(images)} pictures of the bundle" if images else ""
    return (
        f"Filled: every path alone, frames without a pause, quality as judged{judged}. "
        "Star and hollow: as run on this stream, judged on its own pictures, so compare their heights with "
        "each other. "
        "Dotted: what changing between two paths reaches."
    )


def _hull_line(known: Sequence[Path], cost: Callable[[Path], float]) -> Figure:
    hull = concave_hull(known, lambda path: _quality(path) or 0.0, cost)
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "two paths in turn",
        "x": [cost(path) for path in hull],
        "y": [_quality(path) for path in hull],
        "line": {"color": BLUE, "width": 1.5, "dash": "dot"},
        "hoverinfo": "skip",
    }


def _group(
    role: str, known: Sequence[Path], names: dict[str, Name], cost: Callable[[Path], float], unit: str
) -> Figure:
    symbol, colour = _MARKS[role]
    paths = [path for path in known if _role(path) == role]
    labelled = role != "frontier" or len(known) <= MANY
    return {
        "type": "scatter",
        "mode": "markers+text" if labelled else "markers",
        "name": "paths" if role == "frontier" else role,
        "x": [cost(path) for path in paths],
        "y": [_quality(path) for path in paths],
        "text": [plain(names[path.path].short) for path in paths],
        "textposition": "bottom center" if role == "stock" else "top center",
        "hovertext": [_hover(path, names[path.path], cost(path), unit) for path in paths],
        "hoverinfo": "text",
        "marker": {"symbol": symbol, "size": 11, "color": colour},
        "cliponaxis": False,
    }


def _role(path: Path) -> str:
    return next((role for role in ("stock", "lossless") if role in path.roles), "frontier")


def _hover(path: Path, name: Name, cost: float, unit: str) -> str:
    latency, energy, quality = path.latency, path.energy, _quality(path)
    iqr = "" if latency.iqr_ms is None else f", IQR {number(latency.iqr_ms)} ms"
    of = "" if latency.n is None else f", n = {latency.n}"
    lines = [
        f"<b>{plain(name.short)}</b>",
        wrapped(name.id),
        f"quality {NOT_MEASURED if quality is None else number(quality)}",
        f"latency {number(latency.median_ms)} ms{iqr}{of}",
        f"energy {quantity(energy.gross_j, 'J')} gross, {quantity(energy.net_j, 'J')} net",
        operations(path.macs),
    ]
    return "<br>".join(lines)


def _achieved(document: RunDocument, achieved: Callable[[Run], float | None], factor: float, unit: str) -> list[Figure]:
    """The runs on the stream; where two are one run, the first stands for both."""
    marks = {
        "this run": ("star", ORANGE),
        "stock": ("square-open", PURPLE),
        "lossless": ("diamond-open", GREEN),
    }
    traces: list[Figure] = []
    seen: set[str | None] = set()
    for column in columns(document):
        cost, quality = achieved(column.run), column.run.quality.value
        if cost is None or quality is None or column.path in seen:
            continue
        seen.add(column.path)
        symbol, colour = marks.get(column.name, ("circle-open", BLUE))
        ours = column.name == "this run"
        traces.append(
            {
                "type": "scatter",
                "mode": "markers+text" if ours else "markers",
                "name": plain(column.name if ours else f"{column.name}, this stream"),
                "x": [cost * factor],
                "y": [quality],
                "text": [plain(column.name)],
                "textposition": "bottom center",
                "hovertext": [_stream_hover(column, quality, f"{number(cost * factor)} {unit}")],
                "hoverinfo": "text",
                "marker": {
                    "symbol": symbol,
                    "size": 15 if ours else 11,
                    "color": colour,
                    "line": {"width": 1 if ours else 2, "color": colour},
                },
                "cliponaxis": False,
            }
        )
    return traces


def _stream_hover(column: Column, quality: float, cost: str) -> str:
    ran = wrapped(column.path or "changing paths")
    return f"<b>{plain(column.name)}</b>, on this stream<br>{ran}<br>quality {number(quality)}<br>{cost}"


SHOWN_TYPES = 7
_TYPE_COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#9aa5b1")
_ON_DARK = frozenset({"#0072b2", "#d55e00"})
OTHER = "all other"


def costs(document: RunDocument) -> Plot:
    """Time and operations by operator type, stock beside lossless, in per cent of the stock path's."""
    plot_id, title = "costs", "Where the cost goes"
    known = document.where_cost_goes
    if not known:
        return Plot(id=plot_id, title=title, caption="Not measured: the run was not profiled.", figure=None)
    base = known.get("stock", next(iter(known.values())))
    kinds = cost_types(known)
    figure = {
        "data": [_stack(kind, place, known, base) for place, kind in enumerate(kinds)],
        "layout": layout(
            barmode="stack",
            bargap=0.25,
            uniformtext={"minsize": 10, "mode": "hide"},
            xaxis=axis("% of the stock path's total", rangemode="tozero"),
            yaxis=axis(autorange="reversed", showgrid=False),
            legend={"orientation": "h", "x": 0, "y": -0.25, "yanchor": "top", "traceorder": "normal"},
        ),
    }
    return Plot(id=plot_id, title=title, caption=_cost_caption(known), figure=figure, height=360)


def cost_types(known: dict[str, Cost]) -> list[str]:
    """Operator types by their largest share of time (else of operations); the small ones as one."""
    shares: dict[str, float] = {}
    for cost in known.values():
        for row in cost.by_type:
            share = row.time_share if row.time_share is not None else row.macs_share or 0.0
            shares[row.name] = max(shares.get(row.name, 0.0), share)
    ranked = sorted(shares, key=lambda name: -shares[name])
    return [*ranked[:SHOWN_TYPES], *([OTHER] if len(ranked) > SHOWN_TYPES else [])]


def rows_of(kind: str, kinds: Sequence[str], cost: Cost) -> list[TypeCost]:
    """The rows of a cost that stand behind a type that is shown."""
    return [row for row in cost.by_type if row.name == kind or (kind == OTHER and row.name not in kinds)]


def total(values: Sequence[float | None]) -> float | None:
    """Sum of what is known; None where nothing is."""
    given = [value for value in values if value is not None]
    return sum(given) if given else None


def _stack(kind: str, place: int, known: dict[str, Cost], base: Cost) -> Figure:
    colour = _TYPE_COLOURS[-1] if kind == OTHER else _TYPE_COLOURS[place]
    kinds = cost_types(known)
    bars: list[tuple[str, float, str, str]] = []
    whole_ms = total([row.time_ms for row in base.by_type])
    for role, cost in known.items():
        found = rows_of(kind, kinds, cost)
        time_ms, share = total([row.time_ms for row in found]), total([row.time_share for row in found])
        if time_ms is not None and whole_ms:
            bars.append((f"{role}, time", 100 * time_ms / whole_ms, percent(share), f"{number(time_ms)} ms"))
    for role, cost in known.items():
        found = rows_of(kind, kinds, cost)
        macs, share = sum(row.macs for row in found), total([row.macs_share for row in found])
        bars.append((f"{role}, MACs", 100 * macs / max(base.macs, 1), percent(share), operations(macs)))
    return {
        "type": "bar",
        "orientation": "h",
        "name": plain(kind),
        "y": [plain(name) for name, *_ in bars],
        "x": [part for _, part, *_ in bars],
        "text": [share if part > 9 else "" for _, part, share, _ in bars],
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "constraintext": "none",
        "insidetextfont": {"color": "#ffffff" if colour in _ON_DARK else "#111111", "size": 11},
        "hovertext": [
            f"<b>{plain(kind)}</b><br>{plain(name)}: {amount}<br>{share} of this path"
            for name, _, share, amount in bars
        ],
        "hoverinfo": "text",
        "marker": {"color": colour, "line": {"color": FAINT, "width": 1}},
    }


def _cost_caption(known: dict[str, Cost]) -> str:
    totals = [f"{role} {quantity(cost.wall_ms, 'ms')} and {operations(cost.macs)}" for role, cost in known.items()]
    ratios = [f"{number(cost.overhead_ratio)}" for cost in known.values() if cost.overhead_ratio is not None]
    slowed = (
        f" While it was profiled a frame took {' and '.join(ratios)} times as long; "
        "shown are the shares, scaled to the time without profiler."
        if ratios
        else ""
    )
    return f"A frame in all: {', '.join(totals)}. Figures in the bars are shares of their own path.{slowed}"
