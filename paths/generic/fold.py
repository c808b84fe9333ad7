"""Exact: a batch norm in evaluation mode folded into the convolution that it reads, over copied weights."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from gearshift.paths.sharing import DerivedTensors


def fold(model: nn.Module, stock: nn.Module, pairs: Iterable[tuple[str, str]], derived: DerivedTensors) -> None:
    """Fold each (convolution, norm) of a clone in place; pairs of which a part is gone or was replaced are passed over.

    Args:
        model: The clone.
        stock: Whose weights it uses: what is folded from these is made once for all paths.
        pairs: By name.
        derived: Where folded weights are kept; not stored, since they are quickly made.
    """
    modules, originals = dict(model.named_modules()), dict(stock.named_modules())
    for convolution_name, norm_name in pairs:
        convolution, norm = modules.get(convolution_name), modules.get(norm_name)
        if type(convolution) is not nn.Conv2d or not is_foldable(norm):
            continue
        whole = convolution.weight is getattr(originals[convolution_name], "weight", None)
        weight, bias = _folded(convolution, norm, f"folded/{convolution_name}", derived if whole else DerivedTensors())
        folded = nn.Conv2d(
            convolution.in_channels,
            convolution.out_channels,
            convolution.kernel_size,  # type: ignore[arg-type]  # the constructor takes what the attribute holds
            convolution.stride,  # type: ignore[arg-type]
            convolution.padding,  # type: ignore[arg-type]
            convolution.dilation,  # type: ignore[arg-type]
            convolution.groups,
            padding_mode=convolution.padding_mode,
            device="meta",
        )
        folded.weight, folded.bias = nn.Parameter(weight), nn.Parameter(bias)
        model.set_submodule(convolution_name, folded.eval())
        model.set_submodule(norm_name, _behind(norm))


def is_foldable(norm: Any) -> bool:
    """Whether it is a batch norm of torch, or timm's with an activation, that uses running statistics."""
    known = type(norm) is nn.BatchNorm2d or type(norm).__name__ == "BatchNormAct2d"
    return known and norm.running_mean is not None and norm.running_var is not None and not norm.training


def _folded(convolution: nn.Conv2d, norm: Any, key: str, derived: DerivedTensors) -> tuple[Tensor, Tensor]:
    def gain() -> Tensor:
        scale: Tensor = torch.rsqrt(norm.running_var + norm.eps)
        return scale if norm.weight is None else scale * norm.weight

    def weight() -> Tensor:
        return convolution.weight * gain()[:, None, None, None]

    def bias() -> Tensor:
        before = 0.0 if convolution.bias is None else convolution.bias
        shift = 0.0 if norm.bias is None else norm.bias
        moved: Tensor = (before - norm.running_mean) * gain() + shift
        return moved

    return derived.get(f"{key}/weight", weight, stored=False), derived.get(f"{key}/bias", bias, stored=False)


def _behind(norm: Any) -> nn.Module:
    """What a norm does after normalising."""
    if type(norm) is nn.BatchNorm2d:
        return nn.Identity()
    return nn.Sequential(norm.drop, norm.act)
