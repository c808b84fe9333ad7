"""Exact rewrites over copied weights, made on a clone: q/k/v as one product, norms folded into what reads them.

Copies of the stock model's own layers are shared by all paths; those of layers that a path has cut are its own.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from gearshift.errors import PathRefusedError
from gearshift.paths.sharing import DerivedTensors
from gearshift.paths.transforms.depth import SkippedBlock
from gearshift.paths.vit.affine import Affine, bare, first_linear, is_foldable, is_linear, shifted
from gearshift.paths.vit.layout import SEGMENTER, class_of, layout_of
from gearshift.paths.vit.readout import PooledReadout, readout_of

Make = Callable[[], Tensor]


def merge_projections(clone: Any, stock: Any, derived: DerivedTensors) -> None:
    """Put one layer in the place of each attention's three, wherever they are linear layers.

    Raises:
        PathRefusedError: They are nowhere.
    """
    layout = layout_of(clone)
    merged = 0
    for name, block in layout.blocks_of(clone):
        if isinstance(block, SkippedBlock):
            continue
        attention, name = getattr(block, layout.attention), f"{name}.{layout.attention}"
        layers = [getattr(attention, part) for part in layout.projections]
        if not all(is_linear(layer) for layer in layers) or len({layer.bias is None for layer in layers}) > 1:
            continue
        own = all(
            _is_own(layer, f"{name}.{part}", stock) for layer, part in zip(layers, layout.projections, strict=True)
        )
        attention.qkv = _affine(f"qkv/{name}" if own else None, layers, derived)
        for part in layout.projections:
            delattr(attention, part)
        merged += 1
    if not merged:
        raise PathRefusedError("qkv merges linear layers, and this path leaves none to merge; drop qkv")


def fold_norms(clone: Any, stock: Any, derived: DerivedTensors) -> None:
    """Fold scale and shift of every layer norm into the linear maps that read it, wherever only such maps do.

    Raises:
        PathRefusedError: That is nowhere.
    """
    layout = layout_of(clone)
    folded = 0
    for name, block in layout.blocks_of(clone):
        if isinstance(block, SkippedBlock):
            continue
        joint = hasattr(getattr(block, layout.attention), "qkv")
        projections = [f"{name}.{layout.attention}.{part}" for part in (("qkv",) if joint else layout.projections)]
        folded += _fold(clone, stock, f"{name}.{layout.norms[0]}", projections, derived)
        folded += _fold(clone, stock, f"{name}.{layout.norms[1]}", _first_of_mlp(name, block.mlp), derived)
    if class_of(clone) != SEGMENTER:  # its readout brings a fold of its own
        folded += _fold(clone, stock, _last_norm(clone), list(layout.heads), derived)
    if not folded:
        raise PathRefusedError("norms folds layer norms into linear layers, and this path has none to fold; drop norms")


def _first_of_mlp(block: str, mlp: Any) -> list[str]:
    """The linear maps that read the MLP's input; none that are known for an MLP of another kind."""
    for names in (("fc1",), ("fc1_g", "fc1_x")):
        if all(hasattr(mlp, name) for name in names):
            return [f"{block}.mlp.{name}" for name in names]
    return []


def _last_norm(model: Any) -> str:
    """The norm that the head reads; "" where something other than a mean stands between."""
    layout, readout = layout_of(model), readout_of(model)
    if not isinstance(readout.fc_norm, nn.Identity):
        return "fc_norm"
    averaged = not isinstance(readout, PooledReadout) or (model.global_pool == "avg" and model.attn_pool is None)
    return layout.inside(layout.norm) if averaged else ""


def _fold(clone: Any, stock: Any, norm_name: str, names: Sequence[str], derived: DerivedTensors) -> bool:
    norm = clone.get_submodule(norm_name) if norm_name else None
    layers = [clone.get_submodule(name) for name in names]
    linears = [first_linear(layer) for layer in layers]
    if not is_foldable(norm) or not layers or any(linear is None for linear in linears):
        return False
    for name, layer, linear in zip(names, layers, linears, strict=True):
        folded = _folded(f"norms/{name}" if _is_own(linear, name, stock) else None, norm, linear, derived)
        clone.set_submodule(name, nn.Sequential(folded, *list(layer)[1:]) if linear is not layer else folded)
    clone.set_submodule(norm_name, bare(norm))
    return True


def _is_own(linear: Any, name: str, stock: Any) -> bool:
    """Whether a layer of a clone holds the stock model's own weights, or a copy of them that all paths share."""
    if isinstance(linear, Affine):
        return linear.shared
    return any(linear.weight is own for own in stock.get_submodule(name).parameters(recurse=False))


def _affine(key: str | None, layers: Sequence[Any], derived: DerivedTensors) -> Affine:
    weight = _made(key, "weight", lambda: torch.cat([layer.weight for layer in layers]), derived)
    bias = None
    if layers[0].bias is not None:
        bias = _made(key, "bias", lambda: torch.cat([layer.bias for layer in layers]), derived)
    return Affine(weight, bias, shared=key is not None)


def _folded(key: str | None, norm: Any, linear: Any, derived: DerivedTensors) -> Affine:
    weight = _made(key, "weight", partial(_scaled, linear.weight, norm.weight), derived)
    bias = _made(key, "bias", partial(shifted, linear.weight, linear.bias, norm.bias), derived)
    return Affine(weight, bias, shared=key is not None)


def _made(key: str | None, part: str, make: Make, derived: DerivedTensors) -> Tensor:
    return make().detach() if key is None else derived.get(f"{key}/{part}", make, stored=False)


def _scaled(weight: Tensor, scale: Tensor) -> Tensor:
    return weight * scale
