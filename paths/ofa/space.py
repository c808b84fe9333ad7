"""The design space: a subnet is data, checked when made; it prints as a short text and reads back.

    d=2-1-2-2-1,w=65-80-100x4,e=35x6-25x9          depths, widths and expand ratios (the last two in percent)
    {"d": [2, 1, ...], "e": [0.35, ...], "w": [0, 1, 2, ...]}        as published: widths by index

`x4` repeats a value. The text lists the ratios of the blocks that are kept, JSON those of all 18.
"""

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from gearshift.errors import SpecError

DEPTHS = (0, 1, 2)
EXPAND_RATIOS = (0.2, 0.25, 0.35)
WIDTHS = (0.65, 0.8, 1.0)
BASE_DEPTHS = (2, 2, 4, 2)
"""Blocks that each stage always has; a stage's depth is added."""
STAGE_BLOCKS = tuple(base + max(DEPTHS) for base in BASE_DEPTHS)
BLOCKS = sum(STAGE_BLOCKS)

_DEPTH_COUNT, _WIDTH_COUNT = 1 + len(BASE_DEPTHS), 2 + len(BASE_DEPTHS)
_KEYS = {
    "d": f"depths of stem and stages: {_DEPTH_COUNT} values",
    "e": f"expand ratios of the blocks: {BLOCKS} values",
    "w": f"widths of the stem's two convolutions and of the stages: {_WIDTH_COUNT} values",
}
_ITEM = re.compile(r"(0|[1-9]\d?\d?)(?:x([1-9]\d?))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Subnet:
    """One network of the space. Equal networks are equal values.

    To that end what no output depends on takes the smallest value: the ratio of a block that is dropped, stem depth
    1 (the stem has its residual block at depth 2 only), and a first width of 0.8 (24 channels, as at 0.65).

    Attributes:
        depths: Of the stem (2: with its residual block) and of the four stages (blocks beyond the base depth).
        expand_ratios: Of the 18 blocks, stage by stage at full depth: middle channels to output channels.
        widths: Of the stem's first and last convolution and of the four stages, as factors. May be given as
            indices, too: integers are indices into `WIDTHS`, floats are factors, and the two do not mix.
    """

    depths: tuple[int, ...]
    expand_ratios: tuple[float, ...]
    widths: tuple[float, ...]

    def __post_init__(self) -> None:
        """Check every value and bring it to the form in which equal networks are equal."""
        depths = _checked("d", self.depths, DEPTHS, _DEPTH_COUNT)
        ratios = _checked("e", self.expand_ratios, EXPAND_RATIOS, BLOCKS)
        widths = _factors(self.widths)
        kept = set(_kept_blocks(depths))
        stem = depths[0] if depths[0] == max(DEPTHS) else min(DEPTHS)
        first = min(WIDTHS) if widths[0] < max(WIDTHS) else widths[0]
        object.__setattr__(self, "depths", (stem, *depths[1:]))
        object.__setattr__(
            self,
            "expand_ratios",
            tuple(ratio if index in kept else min(EXPAND_RATIOS) for index, ratio in enumerate(ratios)),
        )
        object.__setattr__(self, "widths", (first, *widths[1:]))

    @classmethod
    def largest(cls) -> "Subnet":
        """The supernet itself."""
        return cls(
            depths=(max(DEPTHS),) * _DEPTH_COUNT,
            expand_ratios=(max(EXPAND_RATIOS),) * BLOCKS,
            widths=(max(WIDTHS),) * _WIDTH_COUNT,
        )

    @classmethod
    def smallest(cls) -> "Subnet":
        """The cheapest network of the space."""
        return cls(
            depths=(min(DEPTHS),) * _DEPTH_COUNT,
            expand_ratios=(min(EXPAND_RATIOS),) * BLOCKS,
            widths=(min(WIDTHS),) * _WIDTH_COUNT,
        )

    @classmethod
    def sample(cls, rng: random.Random) -> "Subnet":
        """Draw every value uniformly, in the published code's order: the same seed gives the same networks."""
        ratios = tuple(rng.choice(EXPAND_RATIOS) for _ in range(BLOCKS))
        stem = rng.choice((max(DEPTHS), min(DEPTHS)))
        depths = tuple(rng.choice(DEPTHS) for _ in BASE_DEPTHS)
        widths = tuple(rng.choice(WIDTHS) for _ in range(_WIDTH_COUNT))
        return cls(depths=(stem, *depths), expand_ratios=ratios, widths=widths)

    @classmethod
    def parse(cls, text: str) -> "Subnet":
        """Read what `id` gave.

        Raises:
            SpecError: An ill-formed text, a key or value that is not allowed, or another number of values.
        """
        parts = [part.strip().partition("=") for part in text.split(",")]
        _check_keys([key for key, _, _ in parts], f'the subnet "{text}"')
        lists = {key: list(_items(key, items)) for key, _, items in parts}
        depths = _checked("d", lists["d"], DEPTHS, _DEPTH_COUNT)
        kept = _kept_blocks(depths)
        if len(lists["e"]) != len(kept):
            raise SpecError(
                f'"e" has {len(lists["e"])} values, but these depths keep {len(kept)} blocks; give one each'
            )
        ratios = [min(EXPAND_RATIOS)] * BLOCKS
        for index, percent in zip(kept, lists["e"], strict=True):
            ratios[index] = _from_percent("e", percent, EXPAND_RATIOS)
        widths = tuple(_from_percent("w", percent, WIDTHS) for percent in lists["w"])
        return cls(depths=depths, expand_ratios=tuple(ratios), widths=widths)

    @property
    def id(self) -> str:
        """The canonical text."""
        ratios = [self.expand_ratios[index] for index in self.kept_blocks]
        return f"d={_runs(self.depths)},w={_runs(_percents(self.widths))},e={_runs(_percents(ratios))}"

    def __str__(self) -> str:
        return self.id

    @property
    def kept_blocks(self) -> tuple[int, ...]:
        """Indices, among the supernet's blocks, of those that this network has: the first ones of each stage."""
        return _kept_blocks(self.depths)

    def to_json(self) -> dict[str, list[int] | list[float]]:
        """The published form, widths by index."""
        return {
            "d": list(self.depths),
            "e": list(self.expand_ratios),
            "w": [WIDTHS.index(width) for width in self.widths],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Subnet":
        """Read what `to_json`, or the published code's `sample_active_subnet`, gave.

        Raises:
            SpecError: A key is unknown or missing, or a list holds another number of values or one not allowed.
        """
        if not isinstance(value, Mapping):
            raise SpecError(f'a subnet is {value!r}; write {{"d": [...], "e": [...], "w": [...]}}')
        _check_keys([str(key) for key in value], "a subnet")
        return cls(depths=value["d"], expand_ratios=value["e"], widths=value["w"])


def _check_keys(keys: Sequence[str], where: str) -> None:
    known = "; ".join(f"{key} = {meaning}" for key, meaning in _KEYS.items())
    unknown = [key for key in keys if key not in _KEYS]
    missing = [key for key in _KEYS if key not in keys]
    twice = [key for key in keys if keys.count(key) > 1]
    for fault, found in (("unknown key", unknown), ("key given twice", twice), ("missing key", missing)):
        if found:
            raise SpecError(f'{fault} "{found[0]}" in {where}; allowed: {known}')


def _checked(key: str, values: Any, allowed: Sequence[Any], count: int) -> tuple[Any, ...]:
    """Return `values` as they stand in `allowed`."""
    listed = ", ".join(str(value) for value in allowed)
    if not isinstance(values, list | tuple) or len(values) != count:
        got = f"has {len(values)} values" if isinstance(values, list | tuple) else f"is {values!r}"
        raise SpecError(f'"{key}" {got}; it takes {_KEYS[key]}, each one of {listed}')
    for place, value in enumerate(values):
        if isinstance(value, bool) or not isinstance(value, int | float) or value not in allowed:
            raise SpecError(f'"{key}" holds {value!r} at place {place}; allowed: {listed}')
    return tuple(allowed[allowed.index(value)] for value in values)


def _factors(values: Any) -> tuple[float, ...]:
    """Widths as factors, from factors or indices: the integer 1 is an index (0.8), the float 1.0 a factor."""
    if not isinstance(values, list | tuple):
        return _checked("w", values, WIDTHS, _WIDTH_COUNT)
    integers = [isinstance(value, int) and not isinstance(value, bool) for value in values]
    if all(integers):
        return tuple(WIDTHS[index] for index in _checked("w", values, range(len(WIDTHS)), _WIDTH_COUNT))
    if any(integers):
        listed = ", ".join(f"{factor} or index {index}" for index, factor in enumerate(WIDTHS))
        raise SpecError(f'"w" mixes indices and factors: {values!r}; give one kind, of {listed}')
    return _checked("w", values, WIDTHS, _WIDTH_COUNT)


def _kept_blocks(depths: Sequence[int]) -> tuple[int, ...]:
    starts = [sum(STAGE_BLOCKS[:stage]) for stage in range(len(STAGE_BLOCKS))]
    return tuple(
        start + number
        for start, base, depth in zip(starts, BASE_DEPTHS, depths[1:], strict=True)
        for number in range(base + depth)
    )


def _percents(values: Sequence[float]) -> list[int]:
    return [round(100 * value) for value in values]


def _from_percent(key: str, percent: int, allowed: Sequence[float]) -> float:
    known = dict(zip(_percents(allowed), allowed, strict=True))
    if percent not in known:
        raise SpecError(f'"{key}" holds {percent}; allowed, in percent: {", ".join(map(str, known))}')
    return known[percent]


def _runs(values: Sequence[int]) -> str:
    runs = [(value, len(list(same))) for value, same in groupby(values)]
    return "-".join(str(value) if count == 1 else f"{value}x{count}" for value, count in runs)


def _items(key: str, text: str) -> Iterator[int]:
    for item in text.split("-"):
        match = _ITEM.fullmatch(item.strip())
        if match is None:
            raise SpecError(f'"{key}" holds "{item}"; write whole numbers such as 35, or 35x4 for four of them')
        yield from [int(match[1])] * int(match[2] or 1)
