"""The whole page, in one file that needs no network."""

import json
from collections.abc import Iterable
from importlib.resources import files
from typing import Any

from plotly.offline import get_plotlyjs

from gearshift.runtime.report.document import RunDocument, checked
from gearshift.runtime.report.energy.section import energy_section
from gearshift.runtime.report.figures import costs, frontiers
from gearshift.runtime.report.headline import headline, tiles
from gearshift.runtime.report.method import method
from gearshift.runtime.report.names import names
from gearshift.runtime.report.plot import Plot
from gearshift.runtime.report.tables import (
    budget_table,
    comparison_table,
    cost_table,
    other_budgets_table,
    path_table,
)
from gearshift.runtime.report.tags import Child, Html, tag
from gearshift.runtime.report.timeline import timeline
from gearshift.runtime.report.verdict import title

POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
"""Browsers that keep to it load nothing from anywhere."""


def html(document: dict[str, Any]) -> str:
    """Render a bench's document as one page; the same document gives the same bytes.

    Raises:
        InputError: `document` is not what a bench returns.
    """
    run = checked(document, "the document")
    return whole_page(title(run), _sections(run))


def whole_page(name: str, sections: Iterable[Html]) -> str:
    """A page of sections, with its style, and the script that draws its figures."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("title", f"Gearshift · {name}"),
        tag("style", Html(_resource("style.css"))),
    )
    scripts = (tag("script", Html(text)) for text in (get_plotlyjs(), _resource("page.js")))
    body = tag("body", tag("main", *sections), *scripts)
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _sections(run: RunDocument) -> list[Html]:
    called = names(run)
    return [
        headline(run),
        tiles(run),
        section("Budget against achieved", budget_table(run)),
        section("Beside the fixed paths", comparison_table(run, called)),
        tag("div", *map(figure, frontiers(run, called)), class_="pair"),
        figure(timeline(run, called)),
        section("Energy report", energy_section(run, called)),
        section("Paths, and the time on each", path_table(run, called)),
        figure(costs(run), cost_table(run)),
        section("What other budgets would give", other_budgets_table(run, called)),
        section("How it was measured", method(run)),
        tag("footer", f"Gearshift {run.versions.get('gearshift') or ''} · {run.created}"),
    ]


def section(name: str, *children: Child) -> Html:
    """A part of the page under a heading."""
    return tag("section", tag("h2", name), *children)


def figure(plot: Plot, *below: Child) -> Html:
    """A figure with its data beside it, for the script at the page's end to draw."""
    caption = tag("p", plot.caption, class_="note")
    if plot.figure is None:
        return section(plot.title, caption)
    place = tag(
        "div",
        id=plot.id,
        class_="plot",
        style=f"height:{plot.height}px",
        role="img",
        aria_label=f"{plot.title}. {plot.caption}",
    )
    data = tag("script", _json(plot.figure), type_="application/json", id=f"{plot.id}-data")
    return section(plot.title, place, data, caption, *below)


def _json(figure: dict[str, Any]) -> Html:
    """JSON that cannot end the element that it stands in."""
    text = json.dumps(figure, allow_nan=False, separators=(",", ":"))
    return Html(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _resource(name: str) -> str:
    return (files("gearshift.runtime.report") / name).read_text(encoding="utf-8")
