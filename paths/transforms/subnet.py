"""A smaller network out of an elastic supernet: what it gives up against the largest one.

    subnet=d2:1,w4:80,e3:25        depth 1 in stage 2, width 80 % in stage 4, expand ratio 25 % in stage 3
    subnet=d:0,w:65,e:20           the smallest network: without a number, everywhere
    subnet=d0:0,w0.1:80,e3.2:20    stem without its block, its second convolution narrower, block 2 of stage 3
    subnet=d=2-1-2-2-1,w=65-80-100x4,e=35x6-25x9        every value, as `ofa.space.Subnet` prints it

Place 0 is the stem, 1 to 4 are the stages; blocks and the stem's convolutions count from 0. What is particular goes
before what is general. However it was given, the id holds only what differs from the largest network.
"""

import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from gearshift.errors import SpecError
from gearshift.paths.ofa.space import DEPTHS, EXPAND_RATIOS, STAGE_BLOCKS, WIDTHS, Subnet
from gearshift.paths.transforms.base import Transform

_LARGEST = Subnet.largest()
_STAGES = range(1, 1 + len(STAGE_BLOCKS))
_ITEM = re.compile(r"([dew])([0-9](?:\.[0-9])?)?:([0-9]{1,3})")
_VALUES: dict[str, dict[int, float]] = {
    "d": {depth: depth for depth in DEPTHS},
    "w": {round(100 * width): width for width in WIDTHS},
    "e": {round(100 * ratio): ratio for ratio in EXPAND_RATIOS},
}


def _places() -> dict[str, dict[str, tuple[int, ...]]]:
    """By key and address, from general to particular: the places of a subnet's values that it stands for."""
    widths = {"": tuple(range(2 + len(STAGE_BLOCKS))), "0": (0, 1)}
    widths |= {str(stage): (1 + stage,) for stage in _STAGES} | {"0.0": (0,), "0.1": (1,)}
    starts = {stage: sum(STAGE_BLOCKS[: stage - 1]) for stage in _STAGES}
    blocks = {stage: range(starts[stage], starts[stage] + STAGE_BLOCKS[stage - 1]) for stage in _STAGES}
    ratios = {"": tuple(range(sum(STAGE_BLOCKS)))} | {str(stage): tuple(blocks[stage]) for stage in _STAGES}
    ratios |= {f"{stage}.{number}": (place,) for stage in _STAGES for number, place in enumerate(blocks[stage])}
    depths = {"": tuple(range(1 + len(STAGE_BLOCKS)))} | {str(place): (place,) for place in (0, *_STAGES)}
    return {"d": depths, "w": widths, "e": ratios}


_PLACES = _places()
_ALLOWED = (
    "d (d0 stem, d1-d4) 0, 1, 2; w (w0 stem, w1-w4, w0.0, w0.1) 65, 80, 100; e (e1-e4, blocks such as e3.2) 20, 25, 35"
)


@dataclass(frozen=True, slots=True)
class ElasticSubnet(Transform):
    """Run a smaller network of the supernet, over its first channels and blocks. Settings add up: the smaller holds."""

    subnet: Subnet
    name: ClassVar[str] = "subnet"

    def __post_init__(self) -> None:
        """Refuse what changes nothing."""
        if self.subnet == _LARGEST:
            raise SpecError(f"subnet gives the largest network, which is the stock model; leave it out, or: {_ALLOWED}")

    def value(self) -> str:
        """Such as `d2:1,w4:80,e3:25`."""
        return ",".join(item for key in _PLACES for item in _differences(key, self.subnet))

    @classmethod
    def read(cls, text: str | None) -> Self:
        """Read settings joined by commas, or a whole subnet as `Subnet.id` gives it."""
        if text is not None and "=" in text:
            return cls(Subnet.parse(text))
        given: dict[tuple[str, str], int] = {}
        for item in (text or "").split(","):
            match = _ITEM.fullmatch(item.strip())
            if match is None:
                raise SpecError(f'subnet="{text or ""}" is no list of settings such as "d2:1,e3:25"; {_ALLOWED}')
            key, address, value = match[1], match[2] or "", int(match[3])
            if address not in _PLACES[key] or value not in _VALUES[key]:
                raise SpecError(f'subnet has no "{item.strip()}"; allowed: {_ALLOWED}')
            if (key, address) in given:
                raise SpecError(f'subnet="{text}" gives {key}{address} twice; give it once')
            given[key, address] = value
        return cls(_with_settings(given))

    def onto(self, present: "ElasticSubnet | None") -> "ElasticSubnet":
        """The smaller of both, everywhere."""
        if present is None:
            return self
        ours, theirs = self.subnet, present.subnet
        return ElasticSubnet(
            Subnet(
                depths=tuple(map(min, ours.depths, theirs.depths)),
                expand_ratios=tuple(map(min, ours.expand_ratios, theirs.expand_ratios)),
                widths=tuple(map(min, ours.widths, theirs.widths)),
            )
        )

    def within(self, present: "ElasticSubnet | None") -> bool:
        """Whether the network present is nowhere larger."""
        return present is not None and all(map(operator.le, _flat(present.subnet), _flat(self.subnet)))


def _with_settings(given: Mapping[tuple[str, str], int]) -> Subnet:
    """The largest network with settings by key and address."""
    lists = {key: list(_values(key, _LARGEST)) for key in _PLACES}
    for key, addresses in _PLACES.items():
        for address, places in addresses.items():
            for place in places if (key, address) in given else ():
                lists[key][place] = _VALUES[key][given[key, address]]
    depths = tuple(int(depth) for depth in lists["d"])
    return Subnet(depths=depths, widths=tuple(lists["w"]), expand_ratios=tuple(lists["e"]))


def _values(key: str, subnet: Subnet) -> Sequence[float]:
    """Depths, widths or ratios."""
    if key == "d":
        return subnet.depths
    return subnet.widths if key == "w" else subnet.expand_ratios


def _flat(subnet: Subnet) -> tuple[float, ...]:
    return (*subnet.depths, *subnet.widths, *subnet.expand_ratios)


_EVERYWHERE = {
    key: {number: _values(key, _with_settings({(key, ""): number})) for number in values}
    for key, values in _VALUES.items()
}
"""What a network holds where one value is given everywhere: not always that value (see `Subnet`)."""


def _differences(key: str, subnet: Subnet) -> Iterator[str]:
    """The fewest settings of one key that tell a subnet from the largest network."""
    values, largest = _values(key, subnet), _values(key, _LARGEST)
    held = set(subnet.kept_blocks) if key == "e" else set(range(len(values)))
    left = {place for place in held if values[place] != largest[place]}
    for address, places in _PLACES[key].items():
        covered = held.intersection(places)
        number = _common(key, {place: values[place] for place in covered})
        if covered and covered <= left and number is not None:
            yield f"{key}{address}:{number}"
            left -= covered


def _common(key: str, values: Mapping[int, float]) -> int | None:
    """The number that gives these values at these places, or None."""
    for number, everywhere in _EVERYWHERE[key].items():
        if all(everywhere[place] == value for place, value in values.items()):
            return number
    return None
