"""The kinds of change that a path may make, as checked values; a family of models carries them out."""

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Self

from gearshift.errors import SpecError

_NUMBER = "([0-9]{1,6})"


class Transform(ABC):
    """One setting of a path: a kind (`name`) and a value that prints and reads back."""

    __slots__ = ()

    name: ClassVar[str]

    @abstractmethod
    def value(self) -> str | None:
        """Return the text after `=` in the path's id, or None for a transform without a setting."""

    @classmethod
    @abstractmethod
    def read(cls, text: str | None) -> Self:
        """Read what `value` gave; raises `SpecError` with what is allowed."""


class _Flag(Transform):
    """A transform without a setting."""

    __slots__ = ()

    def value(self) -> None:
        return None

    @classmethod
    def read(cls, text: str | None) -> Self:
        if text is not None:
            raise SpecError(f'"{cls.name}" takes no value, got "{text}"; write "{cls.name}" alone')
        return cls()


@dataclass(frozen=True, slots=True)
class Lossless(_Flag):
    """Every exact rewrite that the family knows and that this module admits."""

    name: ClassVar[str] = "lossless"


@dataclass(frozen=True, slots=True)
class MergedProjections(_Flag):
    """Exact: the linear maps of one input (queries, keys, values) as one product, over copied weights."""

    name: ClassVar[str] = "qkv"


@dataclass(frozen=True, slots=True)
class Blocks(Transform):
    """Keep the first `kept[i]` transformer blocks of stage `i`: `blocks=3-4-5-3`."""

    kept: tuple[int, ...]
    name: ClassVar[str] = "blocks"

    def __post_init__(self) -> None:
        """Refuse what would not read back."""
        if not self.kept or min(self.kept) < 0:
            raise SpecError(f'blocks="{self.value()}" needs one count of at least 0 for each stage')

    def value(self) -> str:
        """Such as `3-4-5-3`."""
        return "-".join(str(count) for count in self.kept)

    @classmethod
    def read(cls, text: str | None) -> Self:
        """Read counts joined by dashes."""
        if text is None or not re.fullmatch(f"{_NUMBER}(-{_NUMBER})*", text):
            raise SpecError(f'blocks="{text or ""}" is not a list of counts; write, e.g., "blocks=3-4-5-3"')
        return cls(tuple(int(count) for count in text.split("-")))


@dataclass(frozen=True, slots=True)
class Skip(Transform):
    """Make single residual blocks the identity: `skip=2.1,2.3` skips blocks 1 and 3 of stage 2 (from 0)."""

    blocks: tuple[tuple[int, int], ...]
    name: ClassVar[str] = "skip"

    def __post_init__(self) -> None:
        """Sort, so that equal choices have equal ids."""
        if len(set(self.blocks)) != len(self.blocks) or not self.blocks:
            raise SpecError(f'skip="{self.value()}" must name at least one block, each once')
        if any(number < 0 for address in self.blocks for number in address):
            raise SpecError(f'skip="{self.value()}" has a negative number; stages and blocks count from 0')
        object.__setattr__(self, "blocks", tuple(sorted(self.blocks)))

    def value(self) -> str:
        """Such as `2.1,2.3`."""
        return ",".join(f"{stage}.{block}" for stage, block in self.blocks)

    @classmethod
    def read(cls, text: str | None) -> Self:
        """Read `stage.block` addresses joined by commas."""
        address = rf"{_NUMBER}\.{_NUMBER}"
        if text is None or not re.fullmatch(f"{address}(,{address})*", text):
            raise SpecError(f'skip="{text or ""}" is not a list of stage.block; write, e.g., "skip=2.1,2.3"')
        pairs = (pair.split(".") for pair in text.split(","))
        return cls(tuple((int(stage), int(block)) for stage, block in pairs))


@dataclass(frozen=True, slots=True)
class _Count(Transform):
    """A positive number of channels."""

    channels: int

    def __post_init__(self) -> None:
        if self.channels < 1:
            raise SpecError(f"{self.name}={self.channels} must be at least 1")

    def value(self) -> str:
        return str(self.channels)

    @classmethod
    def read(cls, text: str | None) -> Self:
        if text is None or not re.fullmatch(_NUMBER, text):
            raise SpecError(f'{cls.name}="{text or ""}" is not a number of channels; write, e.g., "{cls.name}=256"')
        return cls(int(text))


@dataclass(frozen=True, slots=True)
class FuseChannels(_Count):
    """Keep the first N input channels of the decoder's fuse convolution, as the source paper slices it.

    The convolution's input holds the deepest stage first: small N drops the shallow, high-resolution stages.
    """

    name: ClassVar[str] = "fuse"


@dataclass(frozen=True, slots=True)
class DecoderChannels(_Count):
    """Keep the N output channels of the fuse convolution that matter most to the classifier."""

    name: ClassVar[str] = "decoder"


@dataclass(frozen=True, slots=True)
class InputSize(Transform):
    """Resize the input: `size=384x512` (height x width), or `size=75%` of each frame, in multiples of 32."""

    height: int | None = None
    width: int | None = None
    percent: int | None = None
    name: ClassVar[str] = "size"

    def __post_init__(self) -> None:
        """Accept either a height and a width, or a percentage."""
        height, width, percent = self.height, self.width, self.percent
        if percent is None:
            if height is None or width is None or min(height, width) < 1:
                raise SpecError(f"size needs a height and a width of at least 1, got {height}x{width}")
        elif height is not None or width is not None:
            raise SpecError(f"size is either {height}x{width} or {percent}%, not both")
        elif not 1 <= percent <= 400:
            raise SpecError(f"size={percent}% is out of range; allowed are 1% to 400%")

    def value(self) -> str:
        """Such as `384x512` or `75%`."""
        return f"{self.height}x{self.width}" if self.percent is None else f"{self.percent}%"

    @classmethod
    def read(cls, text: str | None) -> Self:
        """Read `HxW`, one number for a square, or a percentage."""
        if text is not None and (match := re.fullmatch(f"{_NUMBER}%", text)):
            return cls(percent=int(match[1]))
        if text is not None and (match := re.fullmatch(f"{_NUMBER}(?:x{_NUMBER})?", text)):
            return cls(height=int(match[1]), width=int(match[2] or match[1]))
        raise SpecError(f'size="{text or ""}" is neither HxW nor a percentage; write "size=384x512" or "size=75%"')

    def resolve(self, height: int, width: int) -> tuple[int, int]:
        """Return the size at which a frame of `height` x `width` is run."""
        if self.percent is None:
            return self.height or height, self.width or width
        return _round_to_32(height * self.percent / 100), _round_to_32(width * self.percent / 100)


def _round_to_32(length: float) -> int:
    return max(32, round(length / 32) * 32)


_KINDS: tuple[type[Transform], ...] = (
    Lossless,
    MergedProjections,
    Blocks,
    Skip,
    FuseChannels,
    DecoderChannels,
    InputSize,
)
_BY_NAME = {kind.name: kind for kind in _KINDS}
ORDER: tuple[str, ...] = tuple(_BY_NAME)
"""Names of all kinds, in the order in which a family applies them and an id prints them."""


def read_transform(name: str, value: str | None) -> Transform:
    """Read one transform by the name of its kind."""
    if name not in _BY_NAME:
        raise SpecError(f'unknown transform "{name}"; known: {", ".join(ORDER)}')
    return _BY_NAME[name].read(value)
