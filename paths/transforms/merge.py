"""Tokens of a plain vision transformer, merged where they are alike."""

import re
from dataclasses import dataclass
from typing import ClassVar, Self

from gearshift.errors import SpecError
from gearshift.paths.transforms.base import NUMBER, Transform


@dataclass(frozen=True, slots=True)
class MergedTokens(Transform):
    """Merge the `tokens` most alike pairs of tokens in each block, without training: `merge=8`.

    Bolya et al., "Token Merging: Your ViT But Faster", ICLR 2023 (arXiv 2210.09461). At most half of the tokens are
    merged in one block; those that the head reads by themselves (class, distillation) are never merged.
    """

    tokens: int
    name: ClassVar[str] = "merge"

    def __post_init__(self) -> None:
        if self.tokens < 1:
            raise SpecError(f"merge={self.tokens} must be at least 1 token per block")

    def value(self) -> str:
        """Such as `8`."""
        return str(self.tokens)

    @classmethod
    def read(cls, text: str | None) -> Self:
        """Read a number."""
        if text is None or not re.fullmatch(NUMBER, text):
            raise SpecError(f'merge="{text or ""}" is not a number of tokens per block; write, e.g., "merge=8"')
        return cls(int(text))
