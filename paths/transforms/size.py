"""Input size: frames are resized before the model, and its output after."""

import re
from dataclasses import dataclass
from typing import ClassVar, Self

from gearshift.errors import SpecError
from gearshift.paths.transforms.base import NUMBER, Transform


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
        if text is not None and (match := re.fullmatch(f"{NUMBER}%", text)):
            return cls(percent=int(match[1]))
        if text is not None and (match := re.fullmatch(f"{NUMBER}(?:x{NUMBER})?", text)):
            return cls(height=int(match[1]), width=int(match[2] or match[1]))
        raise SpecError(f'size="{text or ""}" is neither HxW nor a percentage; write "size=384x512" or "size=75%"')

    def resolve(self, height: int, width: int) -> tuple[int, int]:
        """Return the size at which a frame of `height` x `width` is run."""
        if self.percent is None:
            return self.height or height, self.width or width
        return _round_to_32(height * self.percent / 100), _round_to_32(width * self.percent / 100)


def _round_to_32(length: float) -> int:
    return max(32, round(length / 32) * 32)
