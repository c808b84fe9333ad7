"""How important the heads and hidden channels of a model are: measured on calibration frames, else told by weights."""

from typing import Any

import torch
from torch import Tensor, nn

from gearshift.paths.anatomy import Anatomy, AttentionSite, MlpSite
from gearshift.paths.cutting import observe, recorded
from gearshift.paths.sharing import DerivedTensors

_TINY = 1e-300


def head_importances(model: nn.Module, anatomy: Anatomy, derived: DerivedTensors) -> list[Tensor]:
    """Importance of every head `(heads,)` of every layer, in the anatomy's order.

    With calibration frames: the expected square of what a head adds to its attention's output, relative to the square
    of that output. Without: the product of the squared norms of its weights before and after, relative to the layer's.
    """
    keys = [f"importance/heads/{site.name}" for site in anatomy.attentions]
    make = _measured_heads if derived.calibration else _heads_by_magnitude
    made = recorded(derived, keys, lambda: dict(zip(keys, make(model, anatomy, derived), strict=True)))
    return [made[key] for key in keys]


def channel_importances(model: nn.Module, anatomy: Anatomy, derived: DerivedTensors) -> list[Tensor]:
    """Importance of every hidden channel `(hidden,)` of every feed-forward part, in the anatomy's order.

    With calibration frames: the expected square of what a channel adds to the output, `E[a^2] |w_out|^2`. Without: the
    product of the squared norms of its weights before and after.
    """
    keys = [f"importance/mlp/{site.reduce}" for site in anatomy.mlps]
    make = _measured_channels if derived.calibration else _channels_by_magnitude
    made = recorded(derived, keys, lambda: dict(zip(keys, make(model, anatomy, derived), strict=True)))
    return [made[key] for key in keys]


def _measured_heads(model: nn.Module, anatomy: Anatomy, derived: DerivedTensors) -> list[Tensor]:
    sites = anatomy.attentions
    seen = {site.output: _Contributions(model.get_submodule(site.output), site) for site in sites}
    observe(model, derived.frames("heads"), seen)
    return [seen[site.output].importance() for site in sites]


class _Contributions:
    """Sums, over what passes through an output projection, of squares of its output and of each head's part in it."""

    def __init__(self, projection: Any, site: AttentionSite) -> None:
        self.site = site
        self.columns: Tensor = projection.weight.detach().double().reshape(-1, site.heads, site.head_dim)
        # Second moments of a head's channels tell its contribution: E|W x|^2 = trace(W E[x x'] W').
        self.moments = self.columns.new_zeros(site.heads, site.head_dim, site.head_dim)
        self.output = self.columns.new_zeros(())

    def __call__(self, features: Tensor, output: Tensor) -> None:
        heads = features.reshape(-1, self.site.heads, self.site.head_dim)
        self.moments += torch.einsum("nhd,nhe->hde", heads, heads)
        self.output += output.double().square().sum()

    def importance(self) -> Tensor:
        contributions = torch.einsum("chd,hde,che->h", self.columns, self.moments, self.columns)
        share: Tensor = contributions / self.output.clamp_min(_TINY)
        return share


def _heads_by_magnitude(model: nn.Module, anatomy: Anatomy, derived: DerivedTensors) -> list[Tensor]:
    return [_head_magnitude(model, site) for site in anatomy.attentions]


def _head_magnitude(model: nn.Module, site: AttentionSite) -> Tensor:
    output: Any = model.get_submodule(site.output)
    after: Tensor = output.weight.double().reshape(-1, site.heads, site.head_dim).square().sum(dim=(0, 2))
    before = torch.zeros_like(after)
    for name, parts in site.projections.items():
        projection: Any = model.get_submodule(name)
        rows = projection.weight.double().reshape(parts, site.heads, site.head_dim, -1)
        before += rows.square().sum(dim=(0, 2, 3))
    product = before * after
    return product / product.sum().clamp_min(_TINY)


def _measured_channels(model: nn.Module, anatomy: Anatomy, derived: DerivedTensors) -> list[Tensor]:
    seen = {site.reduce: _Squares(model.get_submodule(site.reduce)) for site in anatomy.mlps}
    observe(model, derived.frames("mlp"), seen)
    return [seen[site.reduce].importance() for site in anatomy.mlps]


class _Squares:
    """Mean squares of the channels that enter a map, `(..., hidden)` or `(B, hidden, H, W)`."""

    def __init__(self, module: Any) -> None:
        self.weight: Tensor = module.weight.detach().double()
        self.total: Tensor = self.weight.new_zeros(self.weight.shape[1])
        self.count = 0

    def __call__(self, features: Tensor, _: Tensor) -> None:
        channels = features if self.weight.ndim == 2 else features.movedim(1, -1)
        squares = channels.double().square().flatten(0, -2)
        self.total += squares.sum(dim=0)
        self.count += len(squares)

    def importance(self) -> Tensor:
        added: Tensor = self.total / self.count * _squared_columns(self.weight)
        return added


def _channels_by_magnitude(model: nn.Module, anatomy: Anatomy, derived: DerivedTensors) -> list[Tensor]:
    return [_channel_magnitude(model, site) for site in anatomy.mlps]


def _channel_magnitude(model: nn.Module, site: MlpSite) -> Tensor:
    expand: Any = model.get_submodule(site.expand)
    reduce: Any = model.get_submodule(site.reduce)
    before: Tensor = expand.weight.double().square().flatten(1).sum(dim=1)
    return before * _squared_columns(reduce.weight.double())


def _squared_columns(weight: Tensor) -> Tensor:
    return weight.square().transpose(0, 1).flatten(1).sum(dim=1)
