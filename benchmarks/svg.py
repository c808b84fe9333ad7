"""A scatter plot as SVG text, for figures that are committed: no fonts, scripts or libraries needed to show it."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 860, 520
LEFT, RIGHT, TOP, BOTTOM = 70, 170, 46, 56
FONT = 'font-family="sans-serif"'
COLOURS = ("#111111", "#777777", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c564b", "#b00020")
"""Told apart by readers with colour-blindness, as far as ten colours can be."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """Points of one kind, in the order in which a line joins them."""

    name: str
    points: Sequence[tuple[float, float]]
    joined: bool = True


def scatter(series: Sequence[Series], *, title: str, x: str, y: str) -> str:
    """Draw all series into one pair of axes, with a legend on the right."""
    xs = [point[0] for item in series for point in item.points]
    ys = [point[1] for item in series for point in item.points]
    across, up = _Axis(xs, LEFT, WIDTH - RIGHT), _Axis(ys, HEIGHT - BOTTOM, TOP)
    middle = (TOP + HEIGHT - BOTTOM) / 2
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-size="13" {FONT}>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="24" font-size="15">{escape(title)}</text>',
        *_grid(across, up),
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 14}" text-anchor="middle">{escape(x)}</text>',
        f'<text transform="translate(18 {middle}) rotate(-90)" text-anchor="middle">{escape(y)}</text>',
    ]
    for number, item in enumerate(series):
        parts += _drawn(item, COLOURS[number % len(COLOURS)], across, up, TOP + 12 + 20 * number)
    return "\n".join([*parts, "</svg>"]) + "\n"


class _Axis:
    """From values to places, with round ticks."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        low, high = min(values), max(values)
        self._step = _round_step((high - low) / 6 or 1.0)
        self._low = math.floor(low / self._step) * self._step
        self._high = math.ceil(high / self._step) * self._step or self._step
        self._start, self._end = start, end

    def place(self, value: float) -> float:
        share = (value - self._low) / (self._high - self._low or 1.0)
        return round(self._start + share * (self._end - self._start), 1)

    def ticks(self) -> list[float]:
        count = round((self._high - self._low) / self._step)
        return [round(self._low + number * self._step, 6) for number in range(count + 1)]


def _round_step(rough: float) -> float:
    scale = 10 ** math.floor(math.log10(rough))
    return float(next(factor for factor in (1, 2, 5, 10) if factor * scale >= rough) * scale)


def _grid(across: _Axis, up: _Axis) -> Iterator[str]:
    for tick in across.ticks():
        at = across.place(tick)
        yield f'<line x1="{at}" x2="{at}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" stroke="#e4e4e4"/>'
        yield f'<text x="{at}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{tick:g}</text>'
    for tick in up.ticks():
        at = up.place(tick)
        yield f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at}" y2="{at}" stroke="#e4e4e4"/>'
        yield f'<text x="{LEFT - 8}" y="{at + 4}" text-anchor="end">{tick:g}</text>'


def _drawn(item: Series, colour: str, across: _Axis, up: _Axis, legend_y: float) -> Iterator[str]:
    places = [(across.place(x), up.place(y)) for x, y in item.points]
    if item.joined and len(places) > 1:
        joined = " ".join(f"{x},{y}" for x, y in places)
        yield f'<polyline points="{joined}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
    for x, y in places:
        yield f'<circle cx="{x}" cy="{y}" r="4" fill="{colour}"/>'
    yield f'<circle cx="{WIDTH - RIGHT + 18}" cy="{legend_y}" r="4" fill="{colour}"/>'
    yield f'<text x="{WIDTH - RIGHT + 30}" y="{legend_y + 4}">{escape(item.name)}</text>'
