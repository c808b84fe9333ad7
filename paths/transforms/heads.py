"""Heads: attention heads that a path leaves out, the least important of all layers first."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from torch import Tensor, nn

from gearshift.errors import PathRefusedError
from gearshift.paths.anatomy import Anatomy, AttentionSite, present
from gearshift.paths.cutting import by_importance, count_again, put
from gearshift.paths.importance import head_importances
from gearshift.paths.sharing import DerivedTensors
from gearshift.paths.transforms.base import Share

log = logging.getLogger(__name__)


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
