"""What all figures share. They are plotly's own JSON; colours of text and axes come from the page's style."""

from dataclasses import dataclass
from html import escape
from typing import Any

Figure = dict[str, Any]

BLUE, ORANGE, GREEN, PURPLE = "#3b82c4", "#d55e00", "#009e73", "#b5559b"
"""Told apart by the colour-blind, and seen on white and on near-black alike."""

FAINT = "rgba(127, 140, 155, 0.35)"
SHADE = "rgba(127, 140, 155, 0.14)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A figure with what is said beside it.

    Attributes:
        id: Of the element in the page.
        title: Above the figure.
        caption: Below the figure.
        figure: Plotly's data and layout; None where there is nothing to draw (the caption says why).
        height: In pixels.
    """

    id: str
    title: str
    caption: str
    figure: Figure | None
    height: int = 380


def layout(**parts: Any) -> Figure:
    """A layout without a background of its own."""
    return {
        "autosize": True,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif", "size": 12},
        "margin": {"l": 8, "r": 8, "t": 28, "b": 8},
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": FAINT, "activecolor": BLUE},
        "hoverlabel": {
            "bgcolor": "#1f2933",
            "bordercolor": "#1f2933",
            "font": {"color": "#ffffff"},
            "align": "left",
        },
        "legend": {"orientation": "h", "x": 0, "y": -0.22, "yanchor": "top"},
        **parts,
    }


def axis(title: str | None = None, **parts: Any) -> Figure:
    """An axis that makes room for its labels."""
    named = {} if title is None else {"title": {"text": title, "standoff": 8}}
    return {"automargin": True, "gridcolor": FAINT, "zeroline": False, "linecolor": FAINT, **named, **parts}


def plain(text: str) -> str:
    """Text for a label: plotly reads some HTML there."""
    return escape(text, quote=False)


def wrapped(text: str, width: int = 48) -> str:
    """Text for a hover label, broken into lines wherever it is long."""
    return "<br>".join(plain(text[start : start + width]) for start in range(0, len(text), width))
