"""Exact rewrites: what they compute is what the stock model computes, up to rounding."""

from dataclasses import dataclass
from typing import ClassVar

from gearshift.paths.transforms.base import Flag


@dataclass(frozen=True, slots=True)
class Lossless(Flag):
    """Every exact rewrite that the family knows and that this module admits."""

    name: ClassVar[str] = "lossless"


@dataclass(frozen=True, slots=True)
class MergedProjections(Flag):
    """Exact: the linear maps of one input (queries, keys, values) as one product, over copied weights."""

    name: ClassVar[str] = "qkv"


@dataclass(frozen=True, slots=True)
class FoldedNorms(Flag):
    """Exact: scale and shift of a layer norm folded into the linear maps that read it, over copied weights."""

    name: ClassVar[str] = "norms"
