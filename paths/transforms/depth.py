"""Depth: residual blocks that a path leaves out."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from torch import nn

from gearshift.errors import PathRefusedError, SpecError
from gearshift.paths.anatomy import Anatomy
from gearshift.paths.sharing import DerivedTensors
from gearshift.paths.transforms.base import NUMBER, Structural


@dataclass(frozen=True, slots=True)
class Blocks(Structural):
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
        if text is None or not re.fullmatch(f"{NUMBER}(-{NUMBER})*", text):
            raise SpecError(f'blocks="{text or ""}" is not a list of counts; write, e.g., "blocks=3-4-5-3"')
        return cls(tuple(int(count) for count in text.split("-")))

    @classmethod
    def fits(cls, anatomy: Anatomy) -> bool:
        """Where there are blocks."""
        return any(anatomy.stages)

    def skipped(self, depths: Sequence[int]) -> tuple[tuple[int, int], ...]:
        """Addresses of the blocks left out of a model of these depths.

        Raises:
            PathRefusedError: The model has other stages, or fewer blocks in one.
        """
        if len(self.kept) != len(depths) or any(k > d for k, d in zip(self.kept, depths, strict=True)):
            most = "-".join(map(str, depths))
            raise PathRefusedError(f"blocks={self.value()} does not fit; this model has blocks={most} at most")
        return tuple((stage, block) for stage, d in enumerate(depths) for block in range(self.kept[stage], d))

    def apply(self, model: nn.Module, anatomy: Anatomy, derived: DerivedTensors) -> None:
        """Put an identity in the place of each block beyond those kept."""
        if skipped := self.skipped(anatomy.depths):
            Skip(skipped).apply(model, anatomy, derived)


@dataclass(frozen=True, slots=True)
class Skip(Structural):
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
        address = rf"{NUMBER}\.{NUMBER}"
        if text is None or not re.fullmatch(f"{address}(,{address})*", text):
            raise SpecError(f'skip="{text or ""}" is not a list of stage.block; write, e.g., "skip=2.1,2.3"')
        pairs = (pair.split(".") for pair in text.split(","))
        return cls(tuple((int(stage), int(block)) for stage, block in pairs))

    @classmethod
    def fits(cls, anatomy: Anatomy) -> bool:
        """Where there are blocks."""
        return any(anatomy.stages)

    def onto(self, present: "Skip | None") -> "Skip":
        """Skipped blocks add up."""
        return self if present is None else Skip(tuple({*present.blocks, *self.blocks}))

    def within(self, present: "Skip | None") -> bool:
        """Whether all of these blocks are among the skipped ones."""
        return present is not None and set(present.blocks) >= set(self.blocks)

    def apply(self, model: nn.Module, anatomy: Anatomy, derived: DerivedTensors) -> None:
        """Put an identity in the place of each block."""
        addresses = self.checked(anatomy.depths)
        self._check_groups(anatomy)
        for stage, block in addresses:
            model.set_submodule(anatomy.stages[stage][block], SkippedBlock(as_tuple=anatomy.blocks_return_tuples))

    def checked(self, depths: Sequence[int]) -> tuple[tuple[int, int], ...]:
        """The addresses, refused where a model of these depths does not have one."""
        for stage, block in self.blocks:
            if stage >= len(depths) or block >= depths[stage]:
                known = ", ".join(f"{index}.0-{index}.{d - 1}" for index, d in enumerate(depths) if d)
                raise PathRefusedError(f"skip={stage}.{block} does not exist; this model has {known or 'no blocks'}")
        return self.blocks

    def _check_groups(self, anatomy: Anatomy) -> None:
        """Refuse a part of blocks that belong together."""
        for stage, block in self.blocks:
            first = block - block % anatomy.together
            group = [(stage, number) for number in range(first, min(first + anatomy.together, anatomy.depths[stage]))]
            if missing := [address for address in group if address not in self.blocks]:
                whole, alone = (",".join(f"{s}.{b}" for s, b in part) for part in (group, missing))
                raise PathRefusedError(
                    f"this model's blocks are left out {anatomy.together} at a time, and {stage}.{block} would go "
                    f"without {alone}; write skip={whole}, or keep them"
                )


class SkippedBlock(nn.Module):
    """A residual block that adds nothing."""

    def __init__(self, *, as_tuple: bool = False) -> None:
        super().__init__()
        self._as_tuple = as_tuple

    def forward(self, features: Any, *_: Any, **__: Any) -> Any:
        """Give back the first argument."""
        return (features,) if self._as_tuple else features
