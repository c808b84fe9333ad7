"""Figures of a survey: kernels, groups, features, where the MACs are, sizes by year."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean, median

from gearshift.profiler.survey import Row, Summary
from gearshift.profiler.survey.summary import Part
from gearshift.profiler.survey.years import FIRST
from gearshift.runtime.report.plot import BLUE, FAINT, GREEN, ORANGE, PURPLE, Figure, Plot, axis, layout, plain
from gearshift.runtime.report.words import number, operations, percent

SHOWN_KERNELS = 14
FEWEST_OF_A_YEAR = 5
"""Years with fewer architectures say little of their year."""

TYPE_COLOURS = {"convolution": BLUE, "linear": ORANGE, "attention": GREEN, "matmul": PURPLE}
OTHER_COLOUR = "#9aa5b1"

Value = Callable[[Row], int | None]


def kernels(summary: Summary) -> Plot:
    """Conv2d layers by kernel size."""
    shown = summary.kernels[:SHOWN_KERNELS]
    rest = summary.kernels[SHOWN_KERNELS:]
    left = f" {len(rest)} more sizes have {sum(part.count for part in rest):,} layers together." if rest else ""
    return _bars("kernels", "Kernel sizes of Conv2d layers", shown, f"Logarithmic: layers.{left}", logarithmic=True)


def strides(summary: Summary) -> Plot:
    """Conv2d layers by stride."""
    return _bars("strides", "Strides of Conv2d layers", summary.strides[:8], "Logarithmic: layers.", logarithmic=True)


def groups(summary: Summary) -> Plot:
    """Conv2d layers by groups."""
    caption = "Depthwise: as many groups as input channels."
    return _bars("groups", "Groups of Conv2d layers", summary.groups, caption, logarithmic=False)


def powers_of_two(summary: Summary) -> Plot:
    """How often numbers of features are powers of two, convolutions beside Linear."""
    traces = []
    for kind, colour in (("Conv2d", BLUE), ("Linear", ORANGE)):
        parts = [part for part in summary.powers_of_two if part.name.startswith(f"{kind},") and part.share is not None]
        traces.append(
            {
                "type": "bar",
                "name": kind,
                "x": [part.name.partition(", ")[2] for part in parts],
                "y": [100 * (part.share or 0.0) for part in parts],
                "text": [percent(part.share) for part in parts],
                "hovertext": [f"{part.count:,} layers" for part in parts],
                "hoverinfo": "text",
                "textposition": "outside",
                "cliponaxis": False,
                "marker": {"color": colour},
            }
        )
    figure = {
        "data": traces,
        "layout": layout(barmode="group", xaxis=axis(showgrid=False), yaxis=axis("% of layers", rangemode="tozero")),
    }
    caption = "Share of layers whose numbers of features are powers of two."
    return Plot(id="powers", title="Powers of two in features", caption=caption, figure=figure)


def macs(summary: Summary) -> Plot:
    """Where the MACs are, by type of operator."""
    if not summary.macs:
        return Plot(id="macs", title=_MACS, caption="No architecture could be run.", figure=None)
    rows = (
        ("MACs of all together", [part.share for part in summary.macs]),
        ("mean of the shares", [part.mean_share for part in summary.macs]),
    )
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": plain(part.name),
            "y": [name for name, _ in rows],
            "x": [100 * shares[place] for _, shares in rows],
            "text": [percent(shares[place]) if shares[place] > 0.04 else "" for _, shares in rows],
            "textposition": "inside",
            "insidetextanchor": "middle",
            "textangle": 0,
            "insidetextfont": {"color": "#ffffff"},
            "hovertext": [f"<b>{plain(part.name)}</b><br>{percent(shares[place])}" for _, shares in rows],
            "hoverinfo": "text",
            "marker": {"color": TYPE_COLOURS.get(part.name, OTHER_COLOUR)},
        }
        for place, part in enumerate(summary.macs)
    ]
    figure = {
        "data": traces,
        "layout": layout(
            barmode="stack",
            xaxis=axis("% of MACs", range=[0, 100]),
            yaxis=axis(autorange="reversed", showgrid=False),
            legend={"orientation": "h", "x": 0, "y": -0.4, "yanchor": "top", "traceorder": "normal"},
        ),
    }
    caption = (
        "The dearest architectures rule the first bar; in the second every architecture has the same weight. One pass "
        "of one image at each architecture's default size; attention: both products of fused attention."
    )
    return Plot(id="macs", title=_MACS, caption=caption, figure=figure, height=260)


_MACS = "Where the MACs are"


def macs_by_year(rows: Sequence[Row]) -> Plot:
    """Mean shares of types of operators, year by year."""
    title = "Where the MACs are, by year"
    years = [(year, those) for year, those in _by_year(rows, lambda row: row.total_macs) if len(those) > 1]
    if not years:
        return Plot(id="macs-by-year", title=title, caption=_NO_YEARS, figure=None)
    kinds = list(
        dict.fromkeys([*TYPE_COLOURS, *(kind for _, those in years for row in those for kind in row.macs or ())])
    )
    traces = [
        {
            "type": "bar",
            "name": plain(kind),
            "x": [year for year, _ in years],
            "y": [
                100 * fmean((row.macs or {}).get(kind, 0) / (row.total_macs or 1) for row in those)
                for _, those in years
            ],
            "hovertemplate": f"{plain(kind)}, %{{x}}: %{{y:.1f}} %<extra></extra>",
            "marker": {"color": TYPE_COLOURS.get(kind, OTHER_COLOUR)},
        }
        for kind in kinds
    ]
    figure = {
        "data": traces,
        "layout": layout(barmode="stack", bargap=0.15, xaxis=axis(dtick=1, showgrid=False), yaxis=axis("% of MACs")),
    }
    return Plot(id="macs-by-year", title=title, caption="Mean of the architectures' own shares.", figure=figure)


_NO_YEARS = "No year is known: nothing that the library documents cites a paper."


def sizes_by_year(rows: Sequence[Row]) -> list[Plot]:
    """Parameters and MACs of every architecture over its year."""
    return [
        _by_year_plot(
            "params-by-year", "Parameters by year", "parameters, millions", 1e6, rows, lambda row: row.params
        ),
        _by_year_plot("gmacs-by-year", "MACs by year", "GMAC of one image", 1e9, rows, lambda row: row.total_macs),
    ]


def _by_year_plot(plot_id: str, title: str, unit: str, scale: float, rows: Sequence[Row], value: Value) -> Plot:
    years = _by_year(rows, value)
    if not years:
        return Plot(id=plot_id, title=title, caption=_NO_YEARS, figure=None)
    dated = [(year + _spread(place, len(those)), row) for year, those in years for place, row in enumerate(those)]
    sure = [(x, row) for x, row in dated if row.facts is not None and row.facts.year_from != FIRST]
    early = [(x, row) for x, row in dated if row.facts is not None and row.facts.year_from == FIRST]
    middle = [(year, those) for year, those in years if len(those) >= FEWEST_OF_A_YEAR]
    traces = [
        _cloud("its own paper", sure, value, scale, {"color": BLUE, "size": 5, "opacity": 0.6}),
        _cloud("first paper of its file", early, value, scale, {"color": BLUE, "size": 5, "symbol": "circle-open"}),
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": "median",
            "x": [year for year, _ in middle],
            "y": [median(value(row) or 0 for row in those) / scale for _, those in middle],
            "hovertemplate": "median of %{x}: %{y:.3g}<extra></extra>",
            "line": {"color": ORANGE, "width": 3},
        },
    ]
    figure = {
        "data": [trace for trace in traces if trace["x"]],
        "layout": layout(
            xaxis=axis(dtick=1, showgrid=False),
            yaxis=axis(unit, type="log", dtick=1),
            hovermode="closest",
            legend={"orientation": "h", "x": 0, "y": -0.14, "yanchor": "top"},
        ),
    }
    undated = sum(value(row) is not None for row in rows) - len(dated)
    caption = (
        "One point per architecture. Hollow: its file cites papers of several years, and the first is taken, so it may "
        "be newer. "
        f"Median: years with at least {FEWEST_OF_A_YEAR}. Year not known: {undated}."
    )
    return Plot(id=plot_id, title=title, caption=caption, figure=figure, height=430)


def _cloud(name: str, dated: Sequence[tuple[float, Row]], value: Value, scale: float, marker: Figure) -> Figure:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": [round(x, 3) for x, _ in dated],
        "y": [float(f"{(value(row) or 0) / scale:.4g}") for _, row in dated],
        "hovertext": [_hover(row) for _, row in dated],
        "hoverinfo": "text",
        "marker": marker,
    }


def macs_over_params(rows: Sequence[Row]) -> Plot:
    """Every architecture by size and cost, coloured by where most of its MACs are."""
    known = [row for row in rows if row.params and row.total_macs]
    title = "MACs over parameters"
    if not known:
        return Plot(id="macs-over-params", title=title, caption="No architecture could be run.", figure=None)
    by_type: dict[str, list[Row]] = defaultdict(list)
    for row in known:
        by_type[max(row.macs or {}, key=lambda kind: (row.macs or {})[kind])].append(row)
    traces = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": f"mostly {plain(kind)} ({len(those)})",
            "x": [float(f"{(row.params or 0) / 1e6:.4g}") for row in those],
            "y": [float(f"{(row.total_macs or 0) / 1e9:.4g}") for row in those],
            "hovertext": [_hover(row) for row in those],
            "hoverinfo": "text",
            "marker": {"color": TYPE_COLOURS.get(kind, OTHER_COLOUR), "size": 5, "opacity": 0.6},
        }
        for kind, those in sorted(by_type.items(), key=lambda item: -len(item[1]))
    ]
    figure = {
        "data": traces,
        "layout": layout(
            xaxis=axis("parameters, millions", type="log", dtick=1),
            yaxis=axis("GMAC of one image", type="log", dtick=1),
            hovermode="closest",
            legend={"orientation": "h", "x": 0, "y": -0.16, "yanchor": "top"},
        ),
    }
    caption = "One point per architecture, at its default input size."
    return Plot(id="macs-over-params", title=title, caption=caption, figure=figure, height=430)


def _hover(row: Row) -> str:
    facts, total = row.facts, row.total_macs
    year = "" if facts is None or facts.year is None else f"<br>{facts.year} ({plain(facts.year_from or '')})"
    cost = "" if total is None else f", {operations(total)}"
    return f"<b>{plain(row.name)}</b><br>{number((row.params or 0) / 1e6)} M parameters{cost}{year}"


def _by_year(rows: Iterable[Row], value: Value) -> list[tuple[int, list[Row]]]:
    """Rows whose year and value are known, by year."""
    dated: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        if row.facts is not None and row.facts.year is not None and value(row):
            dated[row.facts.year].append(row)
    return sorted(dated.items())


def _spread(place: int, of: int) -> float:
    """Where in its year a point is drawn: side by side, in no order that says anything."""
    return 0.7 * ((place + 0.5) / of - 0.5)


def _bars(plot_id: str, title: str, parts: Sequence[Part], caption: str, *, logarithmic: bool) -> Plot:
    if not parts:
        return Plot(id=plot_id, title=title, caption="There is no such layer.", figure=None)
    figure = {
        "data": [
            {
                "type": "bar",
                "x": [part.name for part in parts],
                "y": [part.count for part in parts],
                "text": [percent(part.share) for part in parts],
                "hovertext": [f"<b>{part.name}</b><br>{part.count:,} layers, {percent(part.share)}" for part in parts],
                "hoverinfo": "text",
                "textposition": "outside",
                "cliponaxis": False,
                "marker": {"color": BLUE, "line": {"color": FAINT, "width": 1}},
            }
        ],
        "layout": layout(
            xaxis=axis(type="category", showgrid=False),
            yaxis=axis("layers", **({"type": "log", "dtick": 1} if logarithmic else {"rangemode": "tozero"})),
            showlegend=False,
        ),
    }
    return Plot(id=plot_id, title=title, caption=caption, figure=figure, height=340)
