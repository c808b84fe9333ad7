"""Counts, shares and years over many architectures.

Every architecture counts once, with all of its layers, so large networks weigh more than small ones; a layer that
is used in several places is one. Shares of MACs are given both over all and as the mean of the architectures' own
shares, which the dearest do not rule.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, median, quantiles
from typing import Any, TypeVar

from gearshift.profiler.survey.layers import Layer
from gearshift.profiler.survey.row import Row, surveyed
from gearshift.profiler.survey.years import FIRST

Item = TypeVar("Item", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """How many of all are of one kind; the share is None where there are none at all."""

    name: str
    count: int
    share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MacsPart:
    """MACs of one type of operator.

    Attributes:
        name: The type.
        macs: Of one pass of every architecture.
        share: Of the MACs of all.
        mean_share: Mean of its shares in the architectures.
        architectures: How many have any.
    """

    name: str
    macs: int
    share: float
    mean_share: float
    architectures: int


@dataclass(frozen=True, slots=True, kw_only=True)
class YearPart:
    """Sizes of the architectures of one year: median and quartiles."""

    year: int
    architectures: int
    at_least: int
    params: tuple[float, float, float] | None
    macs: tuple[float, float, float] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What the rows come to.

    Attributes:
        architectures: Rows.
        failed: Rows of architectures that could not be built.
        without_macs: Architectures that could be built and not be run.
        kinds: Layers by PyTorch's class.
        kernels: `Conv2d` layers by kernel size.
        strides: The same by stride.
        groups: The same by groups: one, depthwise, or between these.
        bias: Layers with bias, of `Conv2d` and `Linear`.
        powers_of_two: Layers whose input, output or both features are a power of two.
        classes: Layers by their own class.
        macs: MACs by type of operator.
        years: Sizes by year.
        uncounted: Operators that no formula knows, and in how many architectures.
    """

    architectures: int
    failed: int
    without_macs: int
    kinds: tuple[Part, ...]
    kernels: tuple[Part, ...]
    strides: tuple[Part, ...]
    groups: tuple[Part, ...]
    bias: tuple[Part, ...]
    powers_of_two: tuple[Part, ...]
    classes: tuple[Part, ...]
    macs: tuple[MacsPart, ...]
    years: tuple[YearPart, ...]
    uncounted: Mapping[str, int]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return asdict(self)


def summarise(rows: Sequence[Row]) -> Summary:
    """Sum rows up; those of architectures that could not be built only count as such."""
    built = surveyed(rows)
    layers = [layer for row in built for layer in row.layers]
    convolutions = of_kind(layers, "Conv2d")
    return Summary(
        architectures=len(rows),
        failed=len(rows) - len(built),
        without_macs=sum(row.macs is None for row in built),
        kinds=_parts(layers, lambda layer: layer.kind),
        kernels=_parts(convolutions, lambda layer: size_text(layer.kernel)),
        strides=_parts(convolutions, lambda layer: size_text(layer.stride)),
        groups=_parts(convolutions, _grouping),
        bias=tuple(
            _part(f"{kind} with bias", of_kind(layers, kind), lambda layer: layer.bias) for kind in ("Conv2d", "Linear")
        ),
        powers_of_two=tuple(
            _part(f"{kind}, {name}", of_kind(layers, kind), test)
            for kind in ("Conv2d", "Linear")
            for name, test in POWERS_OF_TWO.items()
        ),
        classes=_parts(layers, lambda layer: layer.class_name),
        macs=_macs(built),
        years=tuple(_years(built)),
        uncounted=dict(Counter(operator for row in built for operator in row.uncounted)),
    )


def is_power_of_two(number: int) -> bool:
    """Whether a positive number is one of 1, 2, 4, 8 and so on."""
    return number > 0 and number & (number - 1) == 0


POWERS_OF_TWO: Mapping[str, Callable[[Layer], bool]] = {
    "input features": lambda layer: is_power_of_two(layer.in_features),
    "output features": lambda layer: is_power_of_two(layer.out_features),
    "both": lambda layer: is_power_of_two(layer.in_features) and is_power_of_two(layer.out_features),
}


def of_kind(layers: Iterable[Layer], kind: str) -> list[Layer]:
    """Layers of one kind."""
    return [layer for layer in layers if layer.kind == kind]


def share(layers: Iterable[Layer], test: Callable[[Layer], bool]) -> float | None:
    """The share of layers that pass a test; None of no layers."""
    counted = [(layer.count, test(layer)) for layer in layers]
    whole = sum(count for count, _ in counted)
    return sum(count for count, passes in counted if passes) / whole if whole else None


def size_text(size: Sequence[int]) -> str:
    """A size as one writes it: 3x3."""
    return "x".join(map(str, size))


def _grouping(layer: Layer) -> str:
    if layer.groups == 1:
        return "1 group"
    return "depthwise" if layer.is_depthwise else "several groups"


def _part(name: str, layers: Sequence[Layer], test: Callable[[Layer], bool]) -> Part:
    return Part(name=name, count=sum(layer.count for layer in layers if test(layer)), share=share(layers, test))


def _parts(layers: Iterable[Layer], name: Callable[[Layer], str]) -> tuple[Part, ...]:
    """Layers by name, most frequent first."""
    counts: Counter[str] = Counter()
    for layer in layers:
        counts[name(layer)] += layer.count
    whole = counts.total()
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return tuple(Part(name=name, count=count, share=count / whole) for name, count in ranked)


def _macs(rows: Sequence[Row]) -> tuple[MacsPart, ...]:
    known = [row.macs for row in rows if row.macs is not None and _whole(row.macs)]
    totals: Counter[str] = Counter()
    for macs in known:
        totals.update(macs)
    whole = totals.total()
    return tuple(
        MacsPart(
            name=name,
            macs=total,
            share=total / whole,
            mean_share=fmean(macs.get(name, 0) / _whole(macs) for macs in known),
            architectures=sum(name in macs for macs in known),
        )
        for name, total in totals.most_common()
    )


def _whole(macs: Mapping[str, int]) -> int:
    return sum(macs.values())


def _years(rows: Sequence[Row]) -> Iterable[YearPart]:
    dated: dict[int, list[Row]] = {}
    for row in rows:
        if row.facts is not None and row.facts.year is not None:
            dated.setdefault(row.facts.year, []).append(row)
    for year, those in sorted(dated.items()):
        yield YearPart(
            year=year,
            architectures=len(those),
            at_least=sum(row.facts is not None and row.facts.year_from == FIRST for row in those),
            params=_quartiles([row.params for row in those if row.params is not None]),
            macs=_quartiles([macs for row in those if (macs := row.total_macs) is not None]),
        )


def _quartiles(values: Sequence[int]) -> tuple[float, float, float] | None:
    if not values:
        return None
    if len(values) == 1:
        return (float(values[0]),) * 3
    low, _, high = quantiles(values, n=4, method="inclusive")
    return low, float(median(values)), high
