"""Linear maps: over derived tensors, taken apart where only some outputs are wanted, with a norm folded in."""

from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.nn import functional as F

from gearshift.paths.vit.layout import class_of


class Affine(nn.Module):
    """A linear map over derived tensors; they are no parameters of the stock model and no checkpoint holds them.

    Attributes:
        shared: Whether they are made of the stock model's own weights alone, and the same for all paths.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, *, shared: bool = True) -> None:
        super().__init__()
        self.shared = shared
        self.register_buffer("weight", weight, persistent=False)
        self.register_buffer("bias", bias, persistent=False)

    weight: Tensor
    bias: Tensor | None

    def forward(self, features: Tensor) -> Tensor:
        """`(..., C)` to `(..., D)`."""
        return F.linear(features, self.weight, self.bias)


def unflatten(tensor: Any, axis: int, sizes: tuple[int, ...]) -> Tensor:
    """Several axes in the place of one (torch's method of this name is not typed)."""
    parts: Tensor = tensor.unflatten(axis, sizes)
    return parts


class Part(NamedTuple):
    """Some outputs of a layer, not yet computed: a linear map, and the features `(B, N, C)` that it reads."""

    features: Tensor
    weight: Tensor
    bias: Tensor | None


def is_linear(layer: object) -> bool:
    """Whether `layer` is one linear map (a subclass may compute something else: it is none)."""
    return type(layer) in (nn.Linear, Affine)


def last_linear(layer: Any) -> tuple[nn.Module, Any] | None:
    """A layer as what comes first and the linear map that ends it; None for a layer of another kind."""
    if is_linear(layer):
        return nn.Identity(), layer
    if _is_sequence(layer) and is_linear(layer[-1]):
        return nn.Sequential(*list(layer)[:-1]), layer[-1]
    return None


def first_linear(layer: Any) -> Any:
    """The linear map that a layer begins with, or None."""
    first = layer[0] if _is_sequence(layer) else layer
    return first if is_linear(first) else None


def _is_sequence(layer: Any) -> bool:
    """Whether `layer` is nothing but its parts one after the other."""
    return isinstance(layer, nn.Sequential) and type(layer).forward is nn.Sequential.forward and len(layer) > 0


def is_foldable(norm: Any) -> bool:
    """Whether `norm` is a layer norm of torch's or timm's with scale and shift."""
    known = class_of(norm) in ("torch.nn.modules.normalization.LayerNorm", "timm.layers.norm.LayerNorm")
    return known and norm.weight is not None and norm.bias is not None


def bare(norm: Any) -> nn.LayerNorm:
    """A layer norm without its scale and shift."""
    return nn.LayerNorm(norm.normalized_shape, norm.eps, elementwise_affine=False)


def shifted(weight: Tensor, bias: Tensor | None, shift: Tensor) -> Tensor:
    """The bias that a linear map has after a norm's shift is folded into it."""
    moved = weight.double() @ shift.double()
    return (moved if bias is None else moved + bias.double()).to(weight.dtype)
