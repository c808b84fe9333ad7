"""What a survey needs of a model library."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import nn


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a library's own documentation says of an architecture.

    Attributes:
        family: The file or model type that defines it.
        model_class: Its class.
        year: Of the paper that it goes back to; None where no paper is cited.
        year_from: Where the year was found; see `gearshift.profiler.survey.years`.
        weights: Published sets of weights; None where the library keeps no list of them.
    """

    family: str
    model_class: str | None = None
    year: int | None = None
    year_from: str | None = None
    weights: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """An architecture on the meta device, and the input of its default size."""

    module: nn.Module
    pixels: torch.Tensor


class Library(Protocol):
    """A library, as installed; nothing is ever downloaded."""

    def names(self) -> Sequence[str]:
        """All architectures, in a fixed order."""

    def facts(self, name: str) -> Facts:
        """What is documented of an architecture."""

    def build(self, name: str) -> Built:
        """Build an architecture in evaluation mode; called where new tensors go to the meta device."""
