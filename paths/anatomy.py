"""Where things are in a model: what a transform that knows no family needs to know of it, as module names.

All names are those of `named_modules()` of the stock model, and stay valid while transforms replace modules by
others of the same place.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from torch import nn


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionSite:
    """A multi-head attention whose heads can be cut.

    Attributes:
        name: Of the module that holds `attributes`.
        heads: How many heads it has.
        head_dim: Channels of a head.
        projections: Linear maps whose outputs are `(parts, heads, head_dim)`, with their number of parts: 3 for a
            joint one of queries, keys and values, 1 for each of three.
        output: The linear map whose inputs are `(heads, head_dim)`.
        per_head: Parameters and buffers with one entry per head, with that axis (Swin's position bias table: 1).
        attributes: What must say the new number of heads, or their channels in all, after a cut.
    """

    name: str
    heads: int
    head_dim: int
    projections: Mapping[str, int]
    output: str
    per_head: Mapping[str, int] = field(default_factory=dict)
    attributes: Mapping[str, Literal["heads", "channels"]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MlpSite:
    """A feed-forward part whose hidden channels can be cut.

    Attributes:
        expand: The map (linear or 1x1 convolution) whose outputs are the hidden channels.
        between: Depthwise convolutions and channel norms (per channel, such as batch norm) between the two.
        reduce: The map whose inputs are the hidden channels.
    """

    expand: str
    between: tuple[str, ...] = ()
    reduce: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Anatomy:
    """The parts of a model.

    Attributes:
        stages: Residual blocks that can be skipped, by stage: input and output have one shape.
        together: How many neighbouring blocks are skipped at once (2 for Swin's shifted pairs).
        blocks_return_tuples: Whether a block returns `(features,)` instead of features.
        attentions: Where heads can be cut.
        mlps: Where hidden channels can be cut.
        linears: Linear maps and convolutions that may be replaced by two thinner ones.
        fixed: Modules that pruning leaves as they are: the classifier, say.
        example_shape: Channels, height and width of a frame that the model takes; pruning traces one.
    """

    stages: tuple[tuple[str, ...], ...] = ()
    together: int = 1
    blocks_return_tuples: bool = False
    attentions: tuple[AttentionSite, ...] = ()
    mlps: tuple[MlpSite, ...] = ()
    linears: tuple[str, ...] = ()
    fixed: tuple[str, ...] = ()
    example_shape: tuple[int, int, int] | None = None

    @property
    def depths(self) -> list[int]:
        """Number of blocks of each stage."""
        return [len(stage) for stage in self.stages]


def present(model: nn.Module, name: str) -> bool:
    """Whether a model still has a module of this name: what lay in a skipped block is gone."""
    try:
        model.get_submodule(name)
    except AttributeError:
        return False
    return True
