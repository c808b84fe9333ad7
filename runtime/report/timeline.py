"""The run over time: power with its limit, latency with its limit, and which path ran."""

from collections.abc import Sequence
from itertools import groupby

from gearshift.runtime.bench.windows import sliding_power_w
from gearshift.runtime.report.document import RunDocument
from gearshift.runtime.report.names import Name
from gearshift.runtime.report.plot import BLUE, ORANGE, SHADE, Figure, Plot, axis, layout, plain, wrapped
from gearshift.runtime.report.verdict import is_latency
from gearshift.runtime.report.words import NOT_MEASURED, count, number
from gearshift.runtime.sampler import PowerSample

WINDOW_S = 1.0
LANE = 26
"""Pixels of height that a path takes."""

SPIKY = 12.0
"""From this ratio of the worst frame to the median on, latency is drawn on a logarithmic axis."""


def timeline(document: RunDocument, names: dict[str, Name]) -> Plot:
    """Rows with one time axis; power is left out, with the reason, where none was read."""
    lanes = [path for path in names if path in document.trace.paths]
    plot_id, title = "timeline", "Power, latency and path over time"
    if not document.trace.start_s:
        return Plot(id=plot_id, title=title, caption="Nothing to show: no frame was served.", figure=None)
    powered = bool(_samples(document))
    heights = [170 if powered else 0, 170, LANE * (len(lanes) + 1)]
    figure = {
        "data": [
            *(_power(document) if powered else []),
            *_limits(document, powered),
            *_latency(document, names, lanes),
            *_path_bars(document, names, lanes),
        ],
        "layout": layout(
            barmode="overlay",
            bargap=0.2,
            hovermode="closest",
            shapes=[*_load_shapes(document), *_stretch_lines(document)],
            annotations=_load_texts(document),
            legend={"orientation": "h", "x": 0, "y": -60 / sum(heights), "yanchor": "top"},
            **_axes(document, names, lanes, heights),
        ),
    }
    caption = _caption(document, powered)
    return Plot(id=plot_id, title=title, caption=caption, figure=figure, height=sum(heights) + 150)


def _axes(document: RunDocument, names: dict[str, Name], lanes: Sequence[str], heights: Sequence[int]) -> Figure:
    """One axis of time below rows for power, latency and paths; a row without height has none."""
    spans = _domains(heights)
    power = axis("power, W (est.)" if document.estimated else "power, W", domain=spans[0], rangemode="tozero")
    paths = axis(
        domain=spans[2],
        type="category",
        categoryorder="array",
        categoryarray=[plain(names[path].short) for path in lanes],
        range=[-0.6, len(lanes) - 0.4],
        showgrid=False,
    )
    return {
        "xaxis": axis("seconds", range=[0, document.run.seconds], anchor="y3"),
        **({"yaxis": power} if heights[0] else {}),
        "yaxis2": axis("latency, ms", domain=spans[1], **_latency_scale(document.trace.latency_ms)),
        "yaxis3": paths,
    }


def _domains(heights: Sequence[int]) -> list[list[float]]:
    """Stack rows from the top, with gaps between."""
    gap = 0.05
    shown = [height for height in heights if height]
    room = 1 - gap * (len(shown) - 1)
    spans, top = [], 1.0
    for height in heights:
        bottom = max(top - room * height / sum(heights), 0.0)
        spans.append([bottom, top])
        top = bottom - (gap if height else 0)
    return spans


def _samples(document: RunDocument) -> list[PowerSample]:
    """Power samples; each begins where the one before it ended, the first one as long before as is usual."""
    trace = document.trace
    pairs = [(end, watts) for end, watts in zip(trace.power_end_s, trace.power_w, strict=True) if watts is not None]
    if not pairs:
        return []
    usual = pairs[1][0] - pairs[0][0] if len(pairs) > 1 else 0.1
    starts = [max(pairs[0][0] - usual, 0.0), *(end for end, _ in pairs[:-1])]
    return [
        PowerSample(place, start, end, watts, watts * (end - start))
        for place, (start, (end, watts)) in enumerate(zip(starts, pairs, strict=True))
    ]


def _power(document: RunDocument) -> list[Figure]:
    samples = _samples(document)
    windows = sliding_power_w(samples, WINDOW_S)
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "name": "power, as sampled",
            "x": [sample.end_s for sample in samples],
            "y": [sample.power_w for sample in samples],
            "line": {"color": BLUE, "width": 1, "shape": "vh"},
            "opacity": 0.6,
            "hovertemplate": "%{y:.3g} W, sample until %{x:.2f} s<extra></extra>",
        },
        {
            "type": "scatter",
            "mode": "lines",
            "name": "power, mean of the last 1 s",
            "x": [start + WINDOW_S for start, _ in windows],
            "y": [watts for _, watts in windows],
            "line": {"color": BLUE, "width": 2.5},
            "hovertemplate": "%{y:.3g} W over 1 s until %{x:.2f} s<extra></extra>",
        },
    ]


def _limits(document: RunDocument, powered: bool) -> list[Figure]:
    """Limits as steps: one line on the power's row, one on the latency's."""
    rows: dict[str, tuple[list[float | None], list[float | None]]] = {}
    for stretch in document.run.budgets:
        for limit in stretch.limits:
            row = "y2" if is_latency(limit) else "y"
            if limit.kind in ("power", "mission") and not powered:
                continue
            if is_latency(limit) or limit.kind in ("power", "mission"):
                times, values = rows.setdefault(row, ([], []))
                times.extend((stretch.from_s, stretch.to_s, None))
                values.extend((limit.limit, limit.limit, None))
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "name": "limit",
            "legendgroup": "limit",
            "showlegend": place == 0,
            "x": times,
            "y": values,
            "yaxis": row,
            "line": {"color": ORANGE, "width": 2, "dash": "dash"},
            "hovertemplate": "limit %{y:.4g}<extra></extra>",
        }
        for place, (row, (times, values)) in enumerate(rows.items())
    ]


def _latency(document: RunDocument, names: dict[str, Name], lanes: Sequence[str]) -> list[Figure]:
    trace = document.trace
    traces: list[Figure] = []
    for path in lanes:
        found = [place for place, index in enumerate(trace.path) if trace.paths[index] == path]
        name = names[path]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": plain(name.short),
                "showlegend": False,
                "x": [trace.start_s[place] for place in found],
                "y": [trace.latency_ms[place] for place in found],
                "yaxis": "y2",
                "marker": {"size": 5, "color": name.colour},
                "cliponaxis": False,
                "hovertext": [
                    f"<b>{plain(name.short)}</b>, {number(trace.latency_ms[place])} ms "
                    f"at {trace.start_s[place]:.2f} s<br>{wrapped(path)}"
                    for place in found
                ],
                "hoverinfo": "text",
            }
        )
    return traces


def _latency_scale(latencies: Sequence[float]) -> Figure:
    ranked = sorted(latencies)
    spiky = ranked[0] > 0 and ranked[-1] > SPIKY * ranked[len(ranked) // 2]
    return {"type": "log", "dtick": 1} if spiky else {"rangemode": "tozero"}


def _path_bars(document: RunDocument, names: dict[str, Name], lanes: Sequence[str]) -> list[Figure]:
    """A bar for every stretch of frames on one path."""
    stays = _stays(document)
    traces: list[Figure] = []
    for path in lanes:
        mine = [(start, end, frames) for which, start, end, frames in stays if which == path]
        name = names[path]
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": plain(name.short),
                "showlegend": False,
                "y": [plain(name.short)] * len(mine),
                "base": [start for start, _, _ in mine],
                "x": [end - start for start, end, _ in mine],
                "yaxis": "y3",
                "marker": {"color": name.colour, "line": {"width": 0}},
                "hovertext": [
                    f"<b>{plain(name.short)}</b> for {count(frames, 'frame')}, {start:.2f} s to {end:.2f} s"
                    f"<br>{wrapped(path)}"
                    for start, end, frames in mine
                ],
                "hoverinfo": "text",
            }
        )
    return traces


def _stays(document: RunDocument) -> list[tuple[str, float, float, int]]:
    """Path, begin, end and frames of every stay on one path."""
    trace = document.trace
    groups = [(index, list(places)) for index, places in groupby(range(len(trace.path)), key=lambda i: trace.path[i])]
    starts = [trace.start_s[places[0]] for _, places in groups]
    ends = [*starts[1:], document.run.seconds]
    return [
        (trace.paths[index], start, end, len(places))
        for (index, places), start, end in zip(groups, starts, ends, strict=True)
    ]


def _load_shapes(document: RunDocument) -> list[Figure]:
    return [
        {
            "type": "rect",
            "xref": "x",
            "yref": "paper",
            "x0": load.from_s,
            "x1": min(load.to_s, document.run.seconds),
            "y0": 0,
            "y1": 1,
            "fillcolor": SHADE,
            "line": {"width": 0},
            "layer": "below",
        }
        for load in document.scenario.loads
        if load.from_s < document.run.seconds
    ]


def _load_texts(document: RunDocument) -> list[Figure]:
    return [
        {
            "xref": "x",
            "yref": "paper",
            "x": load.from_s,
            "y": 1,
            "xanchor": "left",
            "yanchor": "bottom",
            "showarrow": False,
            "text": f"{count(load.processes, 'other program')} busy",
        }
        for load in document.scenario.loads
        if load.from_s < document.run.seconds
    ]


def _stretch_lines(document: RunDocument) -> list[Figure]:
    return [
        {
            "type": "line",
            "xref": "x",
            "yref": "paper",
            "x0": stretch.from_s,
            "x1": stretch.from_s,
            "y0": 0,
            "y1": 1,
            "line": {"color": ORANGE, "width": 1, "dash": "dot"},
        }
        for stretch in document.run.budgets[1:]
    ]


def _caption(document: RunDocument, powered: bool) -> str:
    missing = f" Power: {NOT_MEASURED} ({document.run.energy.reason or 'no sample was read'})." if not powered else ""
    loads = " Shaded: other programs compute as well." if document.scenario.loads else ""
    changes = " Dotted upright lines: the budget changes." if len(document.run.budgets) > 1 else ""
    switched = count(document.run.switches, "switch").replace("switchs", "switches")
    return f"{count(document.run.frames, 'frame')}, {switched} of path.{loads}{changes}{missing}"
