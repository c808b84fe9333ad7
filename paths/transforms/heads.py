"""Heads: attention heads that a path leaves out, the least important of all layers first."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from gearshift.errors import PathRefusedError
from gearshift.paths.anatomy import Anatomy, AttentionSite, present
from gearshift.paths.cutting import by_importance, count_again, observe, put, recorded
from gearshift.paths.sharing import DerivedTensors
from gearshift.paths.transforms.base import Share

log = logging.getLogger(__name__)

_TINY = 1e-300


@dataclass(frozen=True, slots=True)
class Heads(Share):
    """Keep a share of all attention heads: `heads=75%` of 36 keeps 27.

    The least important are cut first, ranked over all layers of the stock model together, so that the ranking does not
    depend on what else a path leaves out; every layer keeps its most important head. The share is rounded up to whole
    heads, and where one head per layer is more than the share, that is what stays. A head's size never changes.
    """

    name: ClassVar[str] = "heads"

    @classmethod
    def fits(cls, anatomy: Anatomy) -> bool:
        """Where a layer has more than one head."""
        return any(site.heads > 1 for site in anatomy.attentions)

    def prepare(self, stock: nn.Module, anatomy: Anatomy, derived: DerivedTensors) -> None:
        """Tell how important each head is."""
        head_importances(stock, anatomy, derived)

    def apply(self, model: nn.Module, anatomy: Anatomy, derived: DerivedTensors) -> None:
        """Cut the heads; a layer that the path has left out before is passed over."""
        importances = head_importances(model, anatomy, derived)
        kept = self.kept([importance.tolist() for importance in importances])
        total = sum(site.heads for site in anatomy.attentions)
        counts = f"{sum(kept)} of {total} ({'-'.join(map(str, kept))} by layer)"
        changed = False
        for site, importance, count in zip(anatomy.attentions, importances, kept, strict=True):
            if count < site.heads and present(model, site.name):
                cut_heads(model, site, by_importance(importance), count, derived)
                changed = True
        if not changed:
            raise PathRefusedError(f"heads={self.value()} keeps {counts}: this path would lose none; ask for fewer")
        log.info("heads=%s keeps %s", self.value(), counts)

    def kept(self, importances: Sequence[Sequence[float]]) -> list[int]:
        """How many heads each layer keeps, from the importance of every head of every layer."""
        total = sum(len(layer) for layer in importances)
        cut = total * (100 - self.percent) // 100
        least_first = sorted(
            (value, layer, head)
            for layer, values in enumerate(importances)
            for head, value in enumerate(values)
            if head != values.index(max(values))
        )
        layers = [layer for _, layer, _ in least_first[:cut]]
        return [len(values) - layers.count(layer) for layer, values in enumerate(importances)]


def head_importances(model: nn.Module, anatomy: Anatomy, derived: DerivedTensors) -> list[Tensor]:
    """Importance of every head `(heads,)` of every layer, in the anatomy's order.

    With calibration frames: the expected square of what a head adds to its attention's output, relative to the square
    of that output. Without: the product of the squared norms of its weights before and after, relative to the layer's.
    """
    keys = [f"importance/heads/{site.name}" for site in anatomy.attentions]
    make = _measured if derived.calibration else _by_magnitude
    made = recorded(derived, keys, lambda: dict(zip(keys, make(model, anatomy, derived), strict=True)))
    return [made[key] for key in keys]


def cut_heads(model: nn.Module, site: AttentionSite, order: Tensor, count: int, derived: DerivedTensors) -> None:
    """Leave a layer the first `count` heads of `order`.

    Weights sorted by importance are derived once for all paths, of which each takes a view; only where queries, keys
    and values are outputs of one map is that no view, and paths with as many heads share a copy.
    """
    for name in (*site.projections, site.output):
        if not isinstance(module := model.get_submodule(name), nn.Linear):
            raise PathRefusedError(f"heads cuts linear maps, and {name} is {module}; use paths without heads")
    for name, parts in site.projections.items():
        for kind in ("weight", "bias"):
            _cut(model, f"{name}.{kind}", 0, (parts, site.heads, site.head_dim), order, count, derived)
    _cut(model, f"{site.output}.weight", 1, (1, site.heads, site.head_dim), order, count, derived)
    for name, axis in site.per_head.items():
        _cut(model, name, axis, (1, site.heads, 1), order, count, derived)
    for name in (*site.projections, site.output):
        count_again(model.get_submodule(name))
    for attribute, meaning in site.attributes.items():
        setattr(model.get_submodule(site.name), attribute, count if meaning == "heads" else count * site.head_dim)


def _cut(
    model: nn.Module,
    name: str,
    axis: int,
    layout: tuple[int, int, int],
    order: Tensor,
    count: int,
    derived: DerivedTensors,
) -> None:
    """Keep the first heads of `order` along an axis of `(parts, heads, head_dim)` entries."""
    owner, _, kind = name.rpartition(".")
    full = getattr(model.get_submodule(owner), kind, None)
    if full is None:  # a map without a bias
        return
    parts, _, head_dim = layout
    if parts == 1:
        ordered = derived.get(f"sorted/heads/{name}", partial(_chosen, full, axis, layout, order), stored=False)
        put(model, name, ordered.narrow(axis, 0, count * head_dim))
    else:
        key = f"sorted/heads/{name}/{count}"
        put(model, name, derived.get(key, partial(_chosen, full, axis, layout, order[:count]), stored=False))


def _chosen(full: Tensor, axis: int, layout: tuple[int, int, int], heads: Tensor) -> Tensor:
    """Entries of some heads along an axis of `(parts, heads, head_dim)` entries."""
    apart = full.reshape(*full.shape[:axis], *layout, *full.shape[axis + 1 :])
    return apart.index_select(axis + 1, heads).flatten(axis, axis + 2)


def _measured(model: nn.Module, anatomy: Anatomy, derived: DerivedTensors) -> list[Tensor]:
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


def _by_magnitude(model: nn.Module, anatomy: Anatomy, derived: DerivedTensors) -> list[Tensor]:
    return [_magnitude(model, site) for site in anatomy.attentions]


def _magnitude(model: nn.Module, site: AttentionSite) -> Tensor:
    output: Any = model.get_submodule(site.output)
    after: Tensor = output.weight.double().reshape(-1, site.heads, site.head_dim).square().sum(dim=(0, 2))
    before = torch.zeros_like(after)
    for name, parts in site.projections.items():
        projection: Any = model.get_submodule(name)
        rows = projection.weight.double().reshape(parts, site.heads, site.head_dim, -1)
        before += rows.square().sum(dim=(0, 2, 3))
    product = before * after
    return product / product.sum().clamp_min(_TINY)
