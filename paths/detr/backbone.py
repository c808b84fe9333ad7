"""The ResNet below both models, of transformers or of timm: its frozen batch norms, exactly, in fewer passes.

The stock frozen batch norm is four small operators and two passes over the features. `merge_passes` makes it one
pass over the same buffers; `fold_norms` folds it into the convolution before it, over copied weights, and no pass is
left.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.models.deformable_detr.modeling_deformable_detr import DeformableDetrFrozenBatchNorm2d
from transformers.models.detr.modeling_detr import DetrFrozenBatchNorm2d
from transformers.models.resnet.modeling_resnet import ResNetBackbone, ResNetConvLayer, ResNetShortCut

from gearshift.errors import PathRefusedError
from gearshift.paths.sharing import DerivedTensors

BACKBONE = "model.backbone.model"
FROZEN = (DetrFrozenBatchNorm2d, DeformableDetrFrozenBatchNorm2d)
EPSILON = 1e-5
"""Under the root of the frozen batch norm; written into the stock code."""


class OnePassNorm(nn.Module):
    """A frozen batch norm as one operator, over the stock module's own buffers."""

    def __init__(self, norm: Any) -> None:
        super().__init__()
        for name in ("weight", "bias", "running_mean", "running_var"):
            self.register_buffer(name, getattr(norm, name))

    weight: Tensor
    bias: Tensor
    running_mean: Tensor
    running_var: Tensor

    def forward(self, features: Tensor) -> Tensor:
        """`(B, C, H, W)` to `(B, C, H, W)`."""
        return F.batch_norm(features, self.running_mean, self.running_var, self.weight, self.bias, eps=EPSILON)


class FoldedConvolution(nn.Module):
    """A convolution with the frozen batch norm behind it; the weights are a copy, made once for all paths."""

    def __init__(self, convolution: nn.Conv2d, norm: Any, name: str, derived: DerivedTensors) -> None:
        super().__init__()
        for part, make in (("weight", folded_weight), ("bias", folded_bias)):
            tensor = derived.get(f"norms/{name}/{part}", partial(make, convolution, norm), stored=False)
            self.register_buffer(part, tensor, persistent=False)
        self._settings: Any = (convolution.stride, convolution.padding, convolution.dilation, convolution.groups)

    weight: Tensor
    bias: Tensor

    def forward(self, features: Tensor) -> Tensor:
        """What the convolution and the norm give."""
        return F.conv2d(features, self.weight, self.bias, *self._settings)


def folded_weight(convolution: nn.Conv2d, norm: Any) -> Tensor:
    """Each filter times its channel's scale."""
    return convolution.weight * _scale(norm)[:, None, None, None]


def folded_bias(convolution: nn.Conv2d, norm: Any) -> Tensor:
    """The norm's shift, less what the mean takes, plus the scaled bias where the convolution has one."""
    before = -norm.running_mean if convolution.bias is None else convolution.bias - norm.running_mean
    shift: Tensor = norm.bias + before * _scale(norm)
    return shift


def merge_passes(model: nn.Module) -> None:
    """In a clone: frozen batch norms in one pass, and a ResNet's activations in place."""
    backbone = model.get_submodule(BACKBONE)
    known = type(backbone) is ResNetBackbone
    for name, module in list(backbone.named_modules()):
        if isinstance(module, FROZEN):
            backbone.set_submodule(name, OnePassNorm(module))
        elif known and type(module) is nn.ReLU:
            # What it reads comes out of a norm or of a sum, and nothing else reads that.
            backbone.set_submodule(name, nn.ReLU(inplace=True))


def fold_norms(model: nn.Module, stock: nn.Module, derived: DerivedTensors) -> None:
    """In a clone: fold every frozen batch norm whose convolution is still the stock model's own.

    A convolution that another transform has replaced keeps its norm.
    """
    for convolution, norm in foldable(stock):
        kept, behind = _present(model, convolution), _present(model, norm)
        before, frozen = stock.get_submodule(convolution), stock.get_submodule(norm)
        if type(kept) is nn.Conv2d and isinstance(behind, FROZEN) and kept.weight is before.weight:
            model.set_submodule(convolution, FoldedConvolution(kept, frozen, convolution, derived))
            model.set_submodule(norm, nn.Identity())


def foldable(stock: nn.Module) -> list[tuple[str, str]]:
    """Names of each convolution and of the frozen batch norm that alone reads it.

    Raises:
        PathRefusedError: The backbone is another one, where the stock code must be asked what follows on what.
    """
    backbone: Any = stock.get_submodule(BACKBONE)
    if type(backbone) is not ResNetBackbone and type(backbone).__module__ != "timm.models._features":
        raise PathRefusedError(
            f"norms folds the frozen batch norms of a ResNet, and this backbone is a {type(backbone).__name__}; "
            "use paths without norms"
        )
    pairs = [pair for name, module in backbone.named_modules(prefix=BACKBONE) for pair in _pairs(name, module)]
    frozen = sum(isinstance(module, FROZEN) for module in backbone.modules())
    if not pairs or len(pairs) != frozen:
        raise PathRefusedError(
            f"norms folds a frozen batch norm into the convolution before it, and this backbone has {frozen} of them "
            f"and {len(pairs)} such pairs; use paths without norms"
        )
    return pairs


def residual_stages(stock: nn.Module) -> tuple[tuple[str, ...], ...]:
    """Blocks of each stage that keep the shape: all but the first; none of a backbone that is no ResNet."""
    backbone: Any = stock.get_submodule(BACKBONE)
    if type(backbone) is ResNetBackbone:
        return tuple(
            tuple(f"{BACKBONE}.encoder.stages.{index}.layers.{block}" for block in range(1, len(stage.layers)))
            for index, stage in enumerate(backbone.encoder.stages)
        )
    layers = [f"layer{number}" for number in range(1, 5)]
    if not all(isinstance(getattr(backbone, layer, None), nn.Sequential) for layer in layers):
        return ()
    return tuple(
        tuple(f"{BACKBONE}.{layer}.{block}" for block in range(1, len(getattr(backbone, layer)))) for layer in layers
    )


def feature_maps(backbone: nn.Module, pixel_values: Tensor) -> Sequence[Tensor]:
    """Maps of the stages that the model asks for, channels last."""
    features: Any = backbone(pixel_values.contiguous(memory_format=torch.channels_last))
    maps: Sequence[Tensor] = getattr(features, "feature_maps", features)  # timm gives the list itself
    return maps


def _pairs(name: str, module: nn.Module) -> Iterator[tuple[str, str]]:
    """The pairs among a module's children: transformers' two kinds of layers, timm's numbered ones and shortcuts."""
    if type(module) in (ResNetConvLayer, ResNetShortCut):
        yield f"{name}.convolution", f"{name}.normalization"
        return
    children = dict(module.named_children())
    for number in range(1, 4):
        if isinstance(children.get(f"bn{number}"), FROZEN) and type(children.get(f"conv{number}")) is nn.Conv2d:
            yield f"{name}.conv{number}", f"{name}.bn{number}"
    ordered = list(children.items())
    for (before, convolution), (behind, norm) in pairwise(ordered):
        if isinstance(module, nn.Sequential) and type(convolution) is nn.Conv2d and isinstance(norm, FROZEN):
            yield f"{name}.{before}", f"{name}.{behind}"


def _scale(norm: Any) -> Tensor:
    scale: Tensor = norm.weight * (norm.running_var + EPSILON).rsqrt()
    return scale


def _present(model: nn.Module, name: str) -> nn.Module | None:
    """The module of this name, or None where a skipped block has taken it along."""
    try:
        return model.get_submodule(name)
    except AttributeError:
        return None
