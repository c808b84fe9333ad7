"""Published figures over timm (2023) beside ours, and what each difference comes from.

Which release was counted then, and whether a network counts once, or once for each of its sets of weights, is not
on record. So every figure is given over all architectures and in the other ways that the rows allow, and beside it
stands what earlier releases of timm give with these rules.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from typing import Any

from gearshift.profiler.survey.layers import Layer
from gearshift.profiler.survey.row import Row, surveyed
from gearshift.profiler.survey.summary import POWERS_OF_TWO, of_kind, share
from gearshift.profiler.survey.survey import EVERY, Survey

Test = Callable[[Layer], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A published figure beside ours; shares are None where there is no such layer.

    Attributes:
        name: What it is a share of.
        published: The figure of 2023.
        ours: Every architecture once.
        other_ways: The same share over other sets of layers or with other weights.
        why: What the difference comes from.
    """

    name: str
    published: float
    ours: float | None
    other_ways: Mapping[str, float | None]
    why: str

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Figure:
    name: str
    published: float
    kind: str
    test: Test
    why: str


def _is_usual_kernel(layer: Layer) -> bool:
    return layer.kernel in ((1, 1), (3, 3))


FIGURES = (
    _Figure(
        name="Conv2d layers with a 1x1 or 3x3 kernel",
        published=0.9271,
        kind="Conv2d",
        test=_is_usual_kernel,
        why=(
            "Release: the share falls as networks with depthwise 5x5 and 7x7 kernels are added. Over all "
            "architectures it is 94.4 % in timm 0.6.13, 93.8 % in 0.9.2, 93.5 % in 0.9.12 (end of 2023) and 92.0 % in "
            "1.0.31; over those of 0.9.12 that have weights it is 92.7 %, as published. Layers: four in five "
            "of the other kernels stand in grouped layers; without these the share is 98 %."
        ),
    ),
    _Figure(
        name="Linear layers with a bias",
        published=0.9153,
        kind="Linear",
        test=lambda layer: layer.bias,
        why=(
            "Release: newer transformers leave the bias out more often. Over all architectures the share is 94.0 % in "
            "timm 0.6.13, 92.0 % in 0.9.2, 92.5 % in 0.9.12 and 90.2 % in 1.0.31, so the published figure lies between "
            "the releases of 2023 and this one; with a network counted once per set of weights 0.9.2 gives 91.4 %."
        ),
    ),
    _Figure(
        name="Linear layers whose input features are a power of two",
        published=0.33,
        kind="Linear",
        test=POWERS_OF_TWO["input features"],
        why=(
            "Release, in part: 35.7 % in timm 0.6.13, 36.2 % in 0.9.2, 35.5 % in 0.9.12, 34.3 % in 1.0.31. None of "
            "these falls to 33 %; the rest must be in which architectures or layers were counted then, which is not on "
            "record."
        ),
    ),
    _Figure(
        name="Linear layers whose output features are a power of two",
        published=0.25,
        kind="Linear",
        test=POWERS_OF_TWO["output features"],
        why=(
            "As for input features: 27.6 % in timm 0.6.13, 27.9 % in 0.9.2, 27.3 % in 0.9.12, 26.6 % in 1.0.31. "
            "Classifiers, whose outputs are classes, are counted here; without them the share would be higher still."
        ),
    ),
)


def compare(found: Survey) -> tuple[Compared, ...]:
    """Set the published figures beside ours; none where the survey is not of all of timm."""
    if found.library != "timm" or found.pattern != EVERY:
        return ()
    built = surveyed(found.rows)
    return tuple(
        Compared(
            name=figure.name,
            published=figure.published,
            ours=_share(built, figure),
            other_ways=_other_ways(built, figure),
            why=figure.why,
        )
        for figure in FIGURES
    )


def _share(rows: Sequence[Row], figure: _Figure, also: Test = lambda layer: True) -> float | None:
    layers = of_kind([layer for row in rows for layer in row.layers], figure.kind)
    return share([layer for layer in layers if also(layer)], figure.test)


def _other_ways(rows: Sequence[Row], figure: _Figure) -> dict[str, float | None]:
    trained = [row for row in rows if row.facts is not None and row.facts.weights]
    ways = {
        "architectures with weights": _share(trained, figure),
        "once per set of weights": _share([_by_weights(row) for row in trained], figure),
        "mean over architectures": _mean_share(rows, figure),
    }
    if figure.kind == "Conv2d":
        ways["without grouped layers"] = _share(rows, figure, lambda layer: layer.groups == 1)
    return ways


def _by_weights(row: Row) -> Row:
    weights = row.facts.weights if row.facts is not None and row.facts.weights else 0
    return replace(row, layers=tuple(replace(layer, count=layer.count * weights) for layer in row.layers))


def _mean_share(rows: Sequence[Row], figure: _Figure) -> float | None:
    shares = [found for row in rows if (found := share(of_kind(row.layers, figure.kind), figure.test)) is not None]
    return fmean(shares) if shares else None
