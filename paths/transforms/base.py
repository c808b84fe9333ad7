"""What every transform is: a kind and a value that prints and reads back; some can also be carried out on any model."""

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Self

from torch import nn

from gearshift.errors import SpecError
from gearshift.paths.anatomy import Anatomy
from gearshift.paths.sharing import DerivedTensors

NUMBER = "([0-9]{1,6})"


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

    def onto(self, present: Self | None) -> Self:
        """What a path holds after this setting is turned on, where it held `present` of the same kind."""
        return self

    def within(self, present: Self | None) -> bool:
        """Whether a path that holds `present` of this kind holds this setting."""
        return self == present


class Structural(Transform):
    """A transform that knows a model by its anatomy alone, so that every family that has one can take it."""

    __slots__ = ()

    excludes: ClassVar[tuple[str, ...]] = ()
    """Names of transforms that cannot be on the same path."""

    @classmethod
    @abstractmethod
    def fits(cls, anatomy: Anatomy) -> bool:
        """Whether a model of this anatomy has what the transform changes."""

    def prepare(self, stock: nn.Module, anatomy: Anatomy, derived: DerivedTensors) -> None:
        """Derive what must be made from the stock model itself (statistics of its features, say), before it is cut.

        Raises:
            PathRefusedError: It cannot be made: there are no calibration frames, for instance.
        """
        return

    @abstractmethod
    def apply(self, model: nn.Module, anatomy: Anatomy, derived: DerivedTensors) -> None:
        """Change `model`, a clone over the stock model's tensors, in place: modules are replaced, tensors are not.

        Raises:
            PathRefusedError: The setting does not fit this model, or would change nothing.
        """


class Flag(Transform):
    """A transform without a setting."""

    __slots__ = ()

    def value(self) -> None:
        """None."""
        return

    @classmethod
    def read(cls, text: str | None) -> Self:
        """Accept no value."""
        if text is not None:
            raise SpecError(f'"{cls.name}" takes no value, got "{text}"; write "{cls.name}" alone')
        return cls()


@dataclass(frozen=True, slots=True)
class Count(Transform):
    """A positive number of channels."""

    channels: int

    def __post_init__(self) -> None:
        if self.channels < 1:
            raise SpecError(f"{self.name}={self.channels} must be at least 1")

    def value(self) -> str:
        """Such as `256`."""
        return str(self.channels)

    @classmethod
    def read(cls, text: str | None) -> Self:
        """Read a number."""
        if text is None or not re.fullmatch(NUMBER, text):
            raise SpecError(f'{cls.name}="{text or ""}" is not a number of channels; write, e.g., "{cls.name}=256"')
        return cls(int(text))


@dataclass(frozen=True, slots=True)
class Percent(Structural):
    """A share in whole percent, 1 to 99; the subclass says of what."""

    percent: int

    def __post_init__(self) -> None:
        if not 1 <= self.percent <= 99:
            raise SpecError(f"{self.name}={self.percent}% is out of range; allowed are 1% to 99%")

    def value(self) -> str:
        """Such as `75%`."""
        return f"{self.percent}%"

    @classmethod
    def read(cls, text: str | None) -> Self:
        """Read a percentage."""
        if text is None or not (match := re.fullmatch(f"{NUMBER}%", text)):
            hint = "; a target belongs in a space file, which turns it into one" if ":" in (text or "") else ""
            raise SpecError(f'{cls.name}="{text or ""}" is no percentage; write, e.g., "{cls.name}=75%"{hint}')
        return cls(int(match[1]))


@dataclass(frozen=True, slots=True)
class Share(Percent):
    """A share that is kept."""
