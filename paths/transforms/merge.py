"""Tokens of a plain vision transformer, merged where they are alike."""

import re
from dataclasses import dataclass
from typing import ClassVar, Self

from gearshift.errors import SpecError
from gearshift.paths.transforms.base import NUMBER, Transform


@dataclass(frozen=True, slots=True)
class MergedTokens(Transform):
    """Merge the most alike pairs of tokens in each block, without training: `merge=8` pairs, `merge=4%` of the tokens.

    Bolya et al., "Token Merging: Your ViT But Faster", ICLR 2023 (arXiv 2210.09461). At most half of the tokens are
    merged in one block; those that the head reads by themselves (class, distillation) are never merged. A percentage is
    of the tokens that a frame has before the first block, so that smaller frames lose as large a share of theirs.
    """

    tokens: int | None = None
    percent: int | None = None
    name: ClassVar[str] = "merge"

    def __post_init__(self) -> None:
        """Accept either a number or a percentage."""
        if (self.tokens is None) == (self.percent is None):
            raise SpecError("merge is either a number of tokens or a percentage; give one of them")
        if self.tokens is not None and self.tokens < 1:
            raise SpecError(f"merge={self.tokens} must be at least 1 token per block")
        if self.percent is not None and not 1 <= self.percent <= 50:
            raise SpecError(f"merge={self.percent}% is out of range; allowed are 1% to 50% of the tokens per block")

    def value(self) -> str:
        """Such as `8` or `4%`."""
        return str(self.tokens) if self.percent is None else f"{self.percent}%"

    @classmethod
    def read(cls, text: str | None) -> Self:
        """Read a number or a percentage."""
        if text is not None and (match := re.fullmatch(f"{NUMBER}%", text)):
            return cls(percent=int(match[1]))
        if text is None or not re.fullmatch(NUMBER, text):
            raise SpecError(
                f'merge="{text or ""}" is neither a number of tokens per block nor a percentage; '
                'write, e.g., "merge=8" or "merge=4%"'
            )
        return cls(int(text))

    def count(self, length: int) -> int:
        """Pairs merged in each block of a frame of `length` tokens."""
        return self.tokens or max(1, round(length * (self.percent or 0) / 100))
