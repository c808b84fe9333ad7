"""Prune: structured pruning of any model, channels and whole heads."""

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from gearshift.paths.anatomy import Anatomy
from gearshift.paths.pruning.choice import kept
from gearshift.paths.pruning.places import cut
from gearshift.paths.sharing import DerivedTensors
from gearshift.paths.transforms.base import Percent


@dataclass(frozen=True, slots=True)
class Prune(Percent):
    """Remove a share of the channels of every layer that can lose some: `prune=40%` of 256 channels leaves 152.

    The percentage is of channels, not of weights or operations: a map between two pruned layers keeps about
    `(1 - 0.4)^2` of its weights. Channels that depend on each other (through a residual sum, say) go together and are
    counted once; those with the smallest weights go. What is left is rounded to the nearest multiple of 8, and 8 stay
    at least; attentions that the anatomy describes lose whole heads, rounded down. What pruning cannot leave equal to
    the stock model with the same channels silenced is not pruned (see `pruning.groups`).

    Which channels stay is found with torch-pruning once and recorded; a path is built from the record without it.
    """

    name: ClassVar[str] = "prune"
    excludes: ClassVar[tuple[str, ...]] = ("heads", "mlp")

    @classmethod
    def fits(cls, anatomy: Anatomy) -> bool:
        """Where it is known which frame the model takes."""
        return anatomy.example_shape is not None

    def prepare(self, stock: nn.Module, anatomy: Anatomy, derived: DerivedTensors) -> None:
        """Choose what stays, and check it."""
        kept(stock, anatomy, self.percent, derived)

    def apply(self, model: nn.Module, anatomy: Anatomy, derived: DerivedTensors) -> None:
        """Cut the clone to what stays; parts that the path has left out before are passed over."""
        cut(model, anatomy, kept(model, anatomy, self.percent, derived), f"pruned/{self.value()}", derived)
