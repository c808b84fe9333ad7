"""MLP: hidden channels of feed-forward parts that a path leaves out, the least important of each layer."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from gearshift.errors import PathRefusedError
from gearshift.paths.anatomy import Anatomy, MlpSite, present
from gearshift.paths.cutting import by_importance, count_again, put, rounded
from gearshift.paths.importance import channel_importances, channel_means
from gearshift.paths.sharing import DerivedTensors
from gearshift.paths.transforms.base import Share


@dataclass(frozen=True, slots=True)
class Mlp(Share):
    """Keep a share of the hidden channels of every feed-forward part: `mlp=75%` of 768 keeps 576.

    The count is rounded to the nearest multiple (halves up) of 8, of 16 from 512 hidden channels on, of 32 from 2048
    on (odd widths are slow); at least one such unit stays. Depthwise convolutions and norms between the two maps are
    cut too. Where there are calibration frames, what a cut channel gives on average is not lost: it goes into the bias
    of the map behind.
    """

    name: ClassVar[str] = "mlp"

    @classmethod
    def fits(cls, anatomy: Anatomy) -> bool:
        """Where there are feed-forward parts."""
        return bool(anatomy.mlps)

    def prepare(self, stock: nn.Module, anatomy: Anatomy, derived: DerivedTensors) -> None:
        """Tell how important each hidden channel is."""
        channel_importances(stock, anatomy, derived)
        channel_means(stock, anatomy, derived)

    def apply(self, model: nn.Module, anatomy: Anatomy, derived: DerivedTensors) -> None:
        """Cut the channels; a part that the path has left out before is passed over."""
        importances = channel_importances(model, anatomy, derived)
        means: Sequence[Tensor | None] = channel_means(model, anatomy, derived) or [None] * len(importances)
        changed = False
        for site, importance, mean in zip(anatomy.mlps, importances, means, strict=True):
            kept = self.kept(len(importance))
            if kept < len(importance) and present(model, site.reduce):
                order = by_importance(importance)
                if mean is not None:
                    _keep_means(model, site, order[kept:], mean, derived)
                _cut_channels(model, site, order, kept, derived)
                changed = True
        if not changed:
            widths = "-".join(str(len(importance)) for importance in importances)
            raise PathRefusedError(
                f"mlp={self.value()} would cut nothing of this path (hidden channels {widths}, cut in units of "
                f"{unit(max(map(len, importances)))}); ask for fewer"
            )

    def kept(self, hidden: int) -> int:
        """How many of a part's hidden channels stay."""
        return rounded(hidden, self.percent / 100, unit(hidden))


def unit(hidden: int) -> int:
    """What the number of hidden channels is a multiple of."""
    return 8 if hidden < 512 else 16 if hidden < 2048 else 32


def _keep_means(model: nn.Module, site: MlpSite, cut: Tensor, mean: Tensor, derived: DerivedTensors) -> None:
    """Add to the bias of the map behind what the cut channels give it on average."""
    reduce: Any = model.get_submodule(site.reduce)

    def moved() -> Tensor:
        columns = reduce.weight.flatten(1).double().index_select(1, cut)
        given: Tensor = columns @ mean.to(columns.device, torch.float64).index_select(0, cut)
        return given.to(reduce.weight.dtype) if reduce.bias is None else (given + reduce.bias).to(reduce.weight.dtype)

    bias = derived.get(f"mean/mlp/{site.reduce}/without {len(cut)}", moved, stored=False)
    reduce.bias = nn.Parameter(bias, requires_grad=reduce.weight.requires_grad)


def _cut_channels(model: nn.Module, site: MlpSite, order: Tensor, kept: int, derived: DerivedTensors) -> None:
    """Leave a part the first of its channels by importance: views of weights that were sorted once for all paths."""
    for name in (site.expand, *site.between):
        module = model.get_submodule(name)
        for kind, tensor in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)):
            if tensor.ndim:  # a count of batches has no channels
                key = f"sorted/mlp/{name}.{kind}"
                ordered = derived.get(key, partial(tensor.index_select, 0, order), stored=False)
                put(model, f"{name}.{kind}", ordered[:kept])
        count_again(module)
    reduce: Any = model.get_submodule(site.reduce)
    key = f"sorted/mlp/{site.reduce}.weight"
    if reduce.weight.ndim == 2:
        columns = derived.get(key, partial(reduce.weight.index_select, 1, order), stored=False)[:, :kept]
    else:  # a convolution copies strided weights at every call: better once, for all paths that keep as many
        columns = derived.get(f"{key}/{kept}", partial(reduce.weight.index_select, 1, order[:kept]), stored=False)
    put(model, f"{site.reduce}.weight", columns)
    count_again(reduce)
