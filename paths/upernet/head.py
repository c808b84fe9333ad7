"""UPerNet's head in its exact form: batch norms folded, convolutions below the upsampling where that is cheaper.

The last convolution reads four maps, three of them upsampled: these are convolved at their own sizes (`shifted.py`),
as are the pooled maps below the convolution that reads them. Everything is channels-last.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.models.upernet import modeling_upernet as stock_modules

from gearshift.errors import PathRefusedError
from gearshift.paths.sharing import DerivedTensors
from gearshift.paths.upernet.shifted import add_shifted, stacked_taps

Share = Callable[[Any, str, Callable[[], Tensor]], Tensor]
"""From a module, a key and what makes a tensor of it: the tensor, shared where the module is the stock model's."""


class LeanHead(nn.Module):
    """The decode head of a path.

    Args:
        head: The path's own, after its structural changes.
        stock: The stock model's.
        kept: Output channels of the last convolution, where `cut_decoder` cut it.
        derived: Shares what is made of the stock model's own weights.
    """

    def __init__(self, head: Any, stock: Any, kept: int | None, derived: DerivedTensors) -> None:
        super().__init__()
        owners = {id(tensor): "upernet" for tensor in stock.parameters()}
        if kept is not None:
            owners.setdefault(id(head.fpn_bottleneck.conv.weight), f"upernet/decoder={kept}")

        def share(layer: Any, key: str, make: Callable[[], Tensor]) -> Tensor:
            if owner := owners.get(id(layer.conv.weight)):
                return derived.get(f"{owner}/{key}", make, stored=False)
            return make().detach()

        self.laterals = _folded_all(head.lateral_convs, "lateral", share)
        self.pools = nn.ModuleList(
            _Pool(block, f"pool{index}", share) for index, block in enumerate(head.psp_modules.blocks)
        )
        self.outputs = _folded_all(head.fpn_convs, "fpn", share)
        scales = [head.channels] * len(head.pool_scales)
        self.bottleneck = PyramidConvolution(head.bottleneck, [head.in_channels[-1], *scales], "bottleneck", share)
        levels = [head.channels] * len(head.in_channels)
        self.fuse = PyramidConvolution(head.fpn_bottleneck, levels, "fuse", share)
        self.classifier = head.classifier

    def forward(self, maps: Sequence[Tensor]) -> Tensor:
        """Logits `(B, K, H_0, W_0)` from the backbone's maps `(B, C_i, H_i, W_i)`."""
        maps = [image.contiguous(memory_format=torch.channels_last) for image in maps]
        top = self.bottleneck([maps[-1], *(pool(maps[-1]) for pool in self.pools)])
        levels = [top]
        for image, lateral in zip(maps[-2::-1], reversed(self.laterals), strict=True):
            levels.insert(0, _upsampled(levels[0], image.shape[2:]).add_(lateral(image)))
        outputs = [output(level) for output, level in zip(self.outputs, levels[:-1], strict=True)]
        logits: Tensor = self.classifier(self.fuse([*outputs, top]))
        return logits


class PyramidConvolution(nn.Module):
    """A 3x3 convolution, its norm and its activation, over maps of several sizes upsampled to the first one's.

    Args:
        layer: A stock `UperNetConvModule`, which reads the maps' concatenation.
        inputs: Channels of each map.
        key: For keys.
        share: See `Share`.
    """

    def __init__(self, layer: Any, inputs: Sequence[int], key: str, share: Share) -> None:
        super().__init__()
        first, *others = layer.conv.weight.detach().split(list(inputs), dim=1)
        _register(self, layer, first, key, share)
        for index, part in enumerate(others, start=1):
            taps = share(layer, f"{key}/taps{index}", partial(_taps, layer, part))
            self.register_buffer(f"taps{index}", taps, persistent=False)
        self._others = len(others)

    weight: Tensor
    bias: Tensor

    def forward(self, images: Sequence[Tensor]) -> Tensor:
        """Maps `(B, C_i, H_i, W_i)` to `(B, D, H_0, W_0)`."""
        size = images[0].shape[2:]
        total = F.conv2d(images[0], self.weight, self.bias, padding=1).permute(0, 2, 3, 1).contiguous()
        for index, image in enumerate(images[1:], start=1):
            taps = getattr(self, f"taps{index}")
            if image.shape[2:].numel() < size.numel():
                add_shifted(total, image, taps)
            else:  # pooled to more than there was: upsampled, it is the smaller map
                kernel = taps.unflatten(2, (3, -1)).permute(3, 1, 0, 2)
                total += F.conv2d(_upsampled(image, size), kernel, padding=1).permute(0, 2, 3, 1)
        return total.relu_().permute(0, 3, 1, 2)


class _Folded(nn.Module):
    """A convolution, its norm and its activation as one convolution and an activation in place."""

    def __init__(self, layer: Any, key: str, share: Share) -> None:
        super().__init__()
        _register(self, layer, layer.conv.weight.detach(), key, share)
        self._padding = layer.conv.padding

    weight: Tensor
    bias: Tensor

    def forward(self, image: Tensor) -> Tensor:
        return F.conv2d(image, self.weight, self.bias, padding=self._padding).relu_()


class _FoldedMix(nn.Module):
    """The same for a 1x1 convolution, as a linear map: small maps would not get the fast convolution."""

    def __init__(self, layer: Any, key: str, share: Share) -> None:
        super().__init__()
        weight = share(layer, f"{key}/weight", lambda: _scaled(layer, layer.conv.weight.detach()).flatten(1))
        self.register_buffer("weight", weight, persistent=False)
        self.register_buffer("bias", share(layer, f"{key}/bias", lambda: _shift(layer)), persistent=False)

    weight: Tensor
    bias: Tensor

    def forward(self, image: Tensor) -> Tensor:
        return F.linear(image.permute(0, 2, 3, 1), self.weight, self.bias).relu_().permute(0, 3, 1, 2)


class _Pool(nn.Module):
    """One scale of the pyramid pooling, before its upsampling."""

    def __init__(self, block: Any, key: str, share: Share) -> None:
        super().__init__()
        self.pool, layer = block.layers
        self.layer = _folded(layer, key, share)

    def forward(self, image: Tensor) -> Tensor:
        pooled: Tensor = self.layer(self.pool(image))
        return pooled


def _folded(layer: Any, key: str, share: Share) -> nn.Module:
    """The layer with its norm folded; as it is where its convolution has been replaced (by two thinner ones, say)."""
    if type(layer.conv) is not nn.Conv2d:
        as_it_is: nn.Module = layer
        return as_it_is
    if layer.conv.kernel_size == (1, 1):
        return _FoldedMix(layer, key, share)
    return _Folded(layer, key, share)


def _folded_all(layers: Sequence[Any], key: str, share: Share) -> nn.ModuleList:
    return nn.ModuleList(_folded(layer, f"{key}{index}", share) for index, layer in enumerate(layers))


def _register(module: nn.Module, layer: Any, weight: Tensor, key: str, share: Share) -> None:
    """Register a slice of a layer's kernel times its norm's scale, channels-last, and the shift."""
    # Shared tensors are contiguous: the view on them is channels-last.
    kernel = share(layer, f"{key}/weight", lambda: _scaled(layer, weight).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
    module.register_buffer("weight", kernel.contiguous(memory_format=torch.channels_last), persistent=False)
    module.register_buffer("bias", share(layer, f"{key}/bias", lambda: _shift(layer)), persistent=False)


def _scale(layer: Any) -> Tensor:
    norm = layer.batch_norm
    scale: Tensor = norm.weight.detach().double() / (norm.running_var.double() + norm.eps).sqrt()
    return scale


def _scaled(layer: Any, weight: Tensor) -> Tensor:
    return (weight.double() * _scale(layer)[:, None, None, None]).to(weight.dtype)


def _taps(layer: Any, weight: Tensor) -> Tensor:
    return stacked_taps(_scaled(layer, weight))


def _shift(layer: Any) -> Tensor:
    norm, conv = layer.batch_norm, layer.conv
    bias = 0 if conv.bias is None else conv.bias.detach().double()
    shift: Tensor = norm.bias.detach().double() + _scale(layer) * (bias - norm.running_mean.double())
    return shift.to(conv.weight.dtype)


def _upsampled(image: Tensor, size: Sequence[int]) -> Tensor:
    return F.interpolate(image, size=tuple(size), mode="bilinear", align_corners=False)


def check_lean(head: Any) -> None:
    """Raise `PathRefusedError` where the head is not the one that is rewritten, with the reason."""
    fault = next(_faults(head), None)
    if fault is not None:
        raise PathRefusedError(f"the decode head cannot be rewritten: {fault}; use paths without lossless")


def _faults(head: Any) -> Iterator[str]:
    """What stands in the way; a later check may rely on the earlier ones."""
    if type(head) is not stock_modules.UperNetHead:
        yield f"it is a {type(head).__name__}, not a UperNetHead"
    if head.align_corners or head.psp_modules.align_corners:
        yield "it aligns corners when it upsamples"
    for block in head.psp_modules.blocks:
        if [type(part) for part in block.layers] != [nn.AdaptiveAvgPool2d, stock_modules.UperNetConvModule]:
            yield "a scale of its pooling is more than a pooling and a convolution"
    layers = [block.layers[1] for block in head.psp_modules.blocks]
    for layer in (*layers, *head.lateral_convs):
        yield from _layer_faults(layer, 1)
    for layer in (*head.fpn_convs, head.bottleneck, head.fpn_bottleneck):
        yield from _layer_faults(layer, 3)


def _layer_faults(layer: Any, kernel: int) -> Iterator[str]:
    if type(layer) is not stock_modules.UperNetConvModule:
        yield f"{type(layer).__name__} stands where a UperNetConvModule is expected"
    conv, norm = layer.conv, layer.batch_norm
    if type(conv) is not nn.Conv2d:
        yield f"a convolution is a {type(conv).__name__}, not a Conv2d"
    if conv.kernel_size != (kernel, kernel) or conv.padding != (kernel // 2, kernel // 2):
        yield f"a convolution has kernel {conv.kernel_size} and padding {conv.padding}, not {kernel} and {kernel // 2}"
    if (conv.stride, conv.dilation, conv.groups, conv.padding_mode) != ((1, 1), (1, 1), 1, "zeros"):
        yield "a convolution has a stride, a dilation, groups or another padding than zeros"
    if type(norm) is not nn.BatchNorm2d or norm.running_var is None or norm.weight is None:
        yield f"{type(norm).__name__} stands behind a convolution, not a batch norm with statistics, scale and shift"
    if type(layer.activation) is not nn.ReLU:
        yield f"its activation is {type(layer.activation).__name__}, not ReLU"
