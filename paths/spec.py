"""A path is data: an ordered list of transforms with their settings; it prints as a short id and reads back.

    lossless+skip=2.1,3.0+fuse=256+size=75%

The id is canonical: equal paths have equal ids, whatever the order in which their settings were given.
"""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gearshift.errors import SpecError
from gearshift.paths.transforms import ORDER, Transform, read_transform

STOCK = "stock"


@dataclass(frozen=True, slots=True)
class PathSpec:
    """One way through a model. The empty list is the stock model itself.

    Attributes:
        transforms: In canonical order (that of `transforms.ORDER`), at most one of each kind.
    """

    transforms: tuple[Transform, ...] = ()

    def __post_init__(self) -> None:
        """Sort into canonical order and refuse a kind given twice."""
        kinds = [transform.name for transform in self.transforms]
        twice = sorted({kind for kind in kinds if kinds.count(kind) > 1})
        if twice:
            raise SpecError(f'"{twice[0]}" is given twice; a path takes each transform at most once')
        ordered = sorted(self.transforms, key=lambda transform: ORDER.index(transform.name))
        object.__setattr__(self, "transforms", tuple(ordered))

    @classmethod
    def parse(cls, text: str) -> "PathSpec":
        """Read an id such as `lossless+size=75%`; `stock` is the stock model.

        Raises:
            SpecError: An unknown transform or an ill-formed value; the message says what is allowed.
        """
        stripped = text.strip()
        if stripped == STOCK:
            return cls()
        if not stripped:
            raise SpecError(f'a path needs a text such as "lossless+size=75%"; "{STOCK}" is the stock model')
        return cls(tuple(_parse_part(part.strip(), stripped) for part in stripped.split("+")))

    @property
    def id(self) -> str:
        """The canonical text."""
        return "+".join(_format(transform) for transform in self.transforms) or STOCK

    def __str__(self) -> str:
        return self.id

    def get(self, name: str) -> Transform | None:
        """The transform of this kind, or None."""
        return next((transform for transform in self.transforms if transform.name == name), None)

    def with_transform(self, transform: Transform) -> "PathSpec":
        """This path with `transform` added, in place of one of the same kind."""
        others = tuple(other for other in self.transforms if other.name != transform.name)
        return PathSpec((*others, transform))

    def without(self, name: str) -> "PathSpec":
        """This path without the transform of this kind."""
        return PathSpec(tuple(transform for transform in self.transforms if transform.name != name))

    def to_json(self) -> list[dict[str, str | None]]:
        """A list of `{"transform": name, "value": text or null}`."""
        return [{"transform": item.name, "value": item.value()} for item in self.transforms]

    @classmethod
    def from_json(cls, value: Sequence[Mapping[str, str | None]]) -> "PathSpec":
        """Read what `to_json` gave.

        Raises:
            SpecError: An unknown transform, an ill-formed value or an entry of another shape.
        """
        return cls(tuple(_read_entry(item) for item in value))


def _read_entry(item: Mapping[str, str | None]) -> Transform:
    name, value = item.get("transform"), item.get("value")
    if item.keys() != {"transform", "value"} or name is None:
        raise SpecError(f'{dict(item)} is no transform; write {{"transform": NAME, "value": TEXT or null}}')
    return read_transform(name, value)


def _parse_part(part: str, whole: str) -> Transform:
    name, equals, value = part.partition("=")
    if name == STOCK:
        raise SpecError(f'"{STOCK}" is the path that changes nothing; drop it from "{whole}"')
    if name not in ORDER:
        near = difflib.get_close_matches(name, ORDER, n=1)
        hint = f'did you mean "{near[0]}"?' if near else f"known: {', '.join(ORDER)}"
        raise SpecError(f'unknown transform "{name}" in path "{whole}"; {hint}')
    return read_transform(name, value if equals else None)


def _format(transform: Transform) -> str:
    value = transform.value()
    return transform.name if value is None else f"{transform.name}={value}"
