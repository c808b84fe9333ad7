"""Two reports side by side, as a page."""

from collections.abc import Sequence
from typing import Any

from gearshift.runtime.report.against.comparable import Trait
from gearshift.runtime.report.against.data import RUN, Compared, Comparison, Interval
from gearshift.runtime.report.against.ratios import Ratio
from gearshift.runtime.report.energy.footprint import NO_GRID, WHY_NO_GRID
from gearshift.runtime.report.energy.rows import lines_of
from gearshift.runtime.report.energy.section import cell_html
from gearshift.runtime.report.page import figure, section, whole_page
from gearshift.runtime.report.plot import BLUE, FAINT, ORANGE, Plot, axis, layout, plain
from gearshift.runtime.report.tables import Head, Row, matrix, note, shown
from gearshift.runtime.report.tags import Child, Html, join, tag
from gearshift.runtime.report.words import NOT_MEASURED, number, percent, quantity, scale, sentence, shortened

LONGEST_NAME = 40
CONDITION_LINES = ("Temperature", "Clock", "Memory clock", "Power limit", "Held down")


def compare_html(found: Comparison) -> str:
    """Render a comparison as one page; the same comparison gives the same bytes."""
    a, b = (shortened(name, LONGEST_NAME) for name in found.names)
    runs = list(dict.fromkeys(one.run for one in found.figures))
    return whole_page(
        f"{a} against {b}",
        [
            _headline(found),
            figure(_ratios(found)),
            *(section(_title(run), _figures(found, run)) for run in runs),
            section("What was compared", _traits(found)),
            section("Both together", _together(found)),
            tag("footer", f"A: {found.names[0]} · B: {found.names[1]}"),
        ],
    )


def _headline(found: Comparison) -> Html:
    gross = next(one for one in found.figures if one.run == RUN)
    return tag(
        "header",
        tag("p", f"Gearshift · A: {found.names[0]} · B: {found.names[1]}", class_="eyebrow"),
        tag("h1", _told(gross)),
        *(
            tag("p", tag("strong", "Not comparable: "), sentence(text), class_="callout warn")
            for text in found.warnings
        ),
        *(tag("p", tag("strong", "Note: "), sentence(text), class_="callout plain") for text in found.notes),
        class_=f"headline {'fair' if found.warnings else 'neutral'}",
    )


def _told(gross: Compared) -> str:
    """The comparison in one line: what B takes of what A takes."""
    ratio = gross.ratio
    if ratio.value is None:
        return f"Energy per frame: no ratio ({ratio.reason})"
    change = percent(abs(ratio.value - 1))
    if ratio.low is None or ratio.high is None:
        return f"B takes {change} {'less' if ratio.value < 1 else 'more'} energy per frame than A; no interval"
    if ratio.low <= 1 <= ratio.high:
        return f"B and A do not differ in energy per frame beyond the spread (B / A {_ratio_text(ratio)})"
    return f"B takes {change} {'less' if ratio.value < 1 else 'more'} energy per frame than A"


def _title(run: str) -> str:
    return "The runs under budgets" if run == RUN else f"The fixed path: {run}"


def _figures(found: Comparison, run: str) -> Html:
    rows = [
        Row(name=_name(one), cells=(*_values(one), _ratio(one.ratio)), divides=place == 0)
        for place, one in enumerate(one for one in found.figures if one.run == run)
    ]
    heads = [Head(name="A", below=_path(found, 0, run)), Head(name="B", below=_path(found, 1, run))]
    heads.append(Head(name="B / A", below="95 % interval", ours=True))
    return join(matrix(heads, rows), note(_note(found, run)))


def _path(found: Comparison, place: int, run: str) -> str:
    """The budget, or which path was fixed: the best single path of two budgets need not be one."""
    report = found.reports[place]
    return report.setting.budget if run == RUN else report.baselines[run].path or ""


def _name(one: Compared) -> str:
    _, unit = scale(one.unit, [one.a, one.b])
    return f"{one.name}{f', {unit}' if unit else ''}"


def _values(one: Compared) -> tuple[Html, Html]:
    factor, _ = scale(one.unit, [one.a, one.b])
    first = _figure(one.a, one.a_missing, one.a_interval, factor)
    return first, _figure(one.b, one.b_missing, one.b_interval, factor)


def _figure(found: float | None, missing: str, interval: Interval | None, factor: float) -> Html:
    if found is None:
        why = WHY_NO_GRID if missing == NO_GRID else "not measured; the report itself says why"
        return tag("span", missing, class_="missing", title=why)
    bounds = None if interval is None else f"{number(interval[0] * factor)} to {number(interval[1] * factor)}"
    return join(
        shown(str(found) if isinstance(found, int) else number(found * factor)),
        None if bounds is None else tag("span", bounds, class_="sub small"),
    )


def _ratio(ratio: Ratio) -> Html:
    if ratio.value is None:
        return tag("span", "–", class_="faint", title=ratio.reason)
    bounds = None
    if ratio.low is not None and ratio.high is not None:
        bounds = tag("span", f"{number(ratio.low)} to {number(ratio.high)}", class_="sub small")
    return join(tag("span", number(ratio.value), title=ratio.how or ratio.reason), bounds)


def _ratio_text(ratio: Ratio) -> str:
    if ratio.value is None or ratio.low is None or ratio.high is None:
        return NOT_MEASURED
    return f"{number(ratio.value)}, 95 %: {number(ratio.low)} to {number(ratio.high)}"


def _note(found: Comparison, run: str) -> str:
    ways: dict[str, list[str]] = {}
    for one in found.figures:
        if one.run == run and one.ratio.how:
            ways.setdefault(one.ratio.how, []).append(one.name)
    how = "; ".join(f"{', '.join(names)}: {way}" for way, names in ways.items())
    text = f"Intervals of B / A: {how}." if how else "No ratio has an interval: the runs hold no spread."
    errors = "An interval says nothing of the sensors' own errors, which cancel only on one meter."
    return f"Small print: 95 % intervals. {text} {errors}"


def _ratios(found: Comparison) -> Plot:
    """Ratios of the runs under budgets, with their intervals, on a logarithmic axis."""
    known = [one for one in found.figures if one.run == RUN and one.ratio.value is not None and one.ratio.value > 0]
    if not known:
        return Plot(id="ratios", title="B over A", caption="No figure has a ratio.", figure=None)
    known = known[::-1]  # the first on top
    traces = [
        _points([one for one in known if one.ratio.low is not None], "with 95 % interval", BLUE),
        _points([one for one in known if one.ratio.low is None], "no interval", ORANGE),
    ]
    bounds = [bound for one in known for bound in (one.ratio.value, one.ratio.low, one.ratio.high) if bound]
    data = {
        "data": [trace for trace in traces if trace["x"]],
        "layout": layout(
            xaxis=axis("B / A", **_ticks(min(*bounds, 0.9), max(*bounds, 1.1))),
            yaxis=axis(type="category", categoryorder="array", categoryarray=[plain(one.name) for one in known]),
            shapes=[
                {
                    "type": "line",
                    "xref": "x",
                    "yref": "paper",
                    "x0": 1,
                    "x1": 1,
                    "y0": 0,
                    "y1": 1,
                    "line": {"color": FAINT, "width": 2},
                    "layer": "below",
                }
            ],
            hovermode="closest",
        ),
    }
    caption = "Left of 1, B's figure is the smaller one. Figures without an interval may differ by chance alone."
    return Plot(id="ratios", title="B over A", caption=caption, figure=data, height=110 + 28 * len(known))


def _ticks(low: float, high: float) -> dict[str, Any]:
    steps = [step * 10.0**decade for decade in range(-6, 7) for step in (1, 1.5, 2, 3, 5, 7)]
    values = [step for step in steps if 0.9 * low <= step <= 1.1 * high]
    return {"type": "log", "tickmode": "array", "tickvals": values, "ticktext": [f"{step:g}" for step in values]}


def _points(figures: Sequence[Compared], name: str, colour: str) -> dict[str, Any]:
    ratios = [one.ratio for one in figures]
    trace: dict[str, Any] = {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": [ratio.value for ratio in ratios],
        "y": [plain(one.name) for one in figures],
        "marker": {"size": 10, "color": colour, "symbol": "circle" if name.startswith("with") else "circle-open"},
        "hovertext": [f"<b>{plain(one.name)}</b><br>{plain(_hover(one))}" for one in figures],
        "hoverinfo": "text",
        "cliponaxis": False,
    }
    if ratios and ratios[0].low is not None:
        trace["error_x"] = {
            "type": "data",
            "symmetric": False,
            "array": [max(0.0, (ratio.high or 0.0) - (ratio.value or 0.0)) for ratio in ratios],
            "arrayminus": [max(0.0, (ratio.value or 0.0) - (ratio.low or 0.0)) for ratio in ratios],
            "color": colour,
        }
    return trace


def _hover(one: Compared) -> str:
    values = f"{quantity(one.a, one.unit)} against {quantity(one.b, one.unit)}"
    ratio = one.ratio
    tail = _ratio_text(ratio) if ratio.low is not None else number(ratio.value or 0.0)
    return f"{values}: {tail}"


def _traits(found: Comparison) -> Html:
    rows = [Row(name=trait.name, cells=(_trait(trait.a), _trait(trait.b), _differs(trait))) for trait in found.traits]
    return join(matrix([Head(name="A"), Head(name="B"), Head(name="")], [*rows, *_conditions(found)]))


def _trait(text: str) -> Html:
    return tag("span", text or NOT_MEASURED, class_="trait" if text else "missing")


def _differs(trait: Trait) -> Child:
    if not trait.differs:
        return tag("span", "same", class_="faint")
    return tag("span", "differs", class_="badge fair" if trait.matters else "badge neutral", title=trait.matters)


def _conditions(found: Comparison) -> list[Row]:
    """Temperature, clocks and limits of the runs under budgets."""
    pair = [lines_of(report) for report in found.reports]
    lines = [[line for line in one if line.name.startswith(CONDITION_LINES)] for one in pair]
    return [
        Row(
            name=first.name,
            cells=(cell_html(first.cells[0]), cell_html(second.cells[0]), ""),
            divides=place == 0,
        )
        for place, (first, second) in enumerate(zip(*lines, strict=True))
    ]


def _together(found: Comparison) -> Html:
    both = found.together
    estimated = " (estimated)" if both.is_estimate and both.energy_j is not None else ""
    return tag("p", f"{quantity(both.energy_j, 'J')}{estimated}: {both.note}.")
