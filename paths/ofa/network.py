"""ResNet-50-D of any shape, with the parameter names that the published code gives a single network.

Stem of three 3x3 convolutions (the second with a shortcut), bottlenecks with the stride in the 3x3 convolution,
average pooling before the 1x1 convolution of a shortcut.
"""

from collections import OrderedDict
from collections.abc import Iterator

from torch import Tensor, nn

from gearshift.paths.ofa.shape import CLASSES, BlockShape, Shape

LEAVES = (nn.Conv2d, nn.BatchNorm2d, nn.Linear)
"""The only modules that hold tensors."""


class ResNet50D(nn.Module):
    """Images `(B, 3, H, W)`, normalised as for ImageNet, to logits `(B, 1000)`."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        middle = shape.stem_middle
        self.input_stem = nn.ModuleList(
            [
                _convolution(3, middle, kernel=3, stride=2),
                *([_Residual(_convolution(middle, middle, kernel=3))] if shape.stem_block else []),
                _convolution(middle, shape.stem_out, kernel=3),
            ]
        )
        self.max_pooling = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        self.blocks = nn.ModuleList(_Bottleneck(block) for block in shape.blocks)
        classifier = nn.Linear(shape.blocks[-1].out_channels, CLASSES)
        self.classifier = nn.Sequential(OrderedDict([("linear", classifier)]))

    def forward(self, pixels: Tensor) -> Tensor:
        """Logits of a batch of images."""
        features = pixels
        for layer in self.input_stem:
            features = layer(features)
        features = self.max_pooling(features)
        for block in self.blocks:
            features = block(features)
        logits: Tensor = self.classifier(features.mean(dim=(2, 3)))
        return logits


def leaves(module: nn.Module) -> Iterator[nn.Module]:
    """The modules that hold tensors, in the order of the names."""
    return (part for part in module.modules() if isinstance(part, LEAVES))


class _Residual(nn.Module):
    """The stem's block: a convolution and its input, added."""

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, features: Tensor) -> Tensor:
        total: Tensor = self.conv(features) + features
        return total


class _Bottleneck(nn.Module):
    def __init__(self, shape: BlockShape) -> None:
        super().__init__()
        self.conv1 = _convolution(shape.in_channels, shape.middle_channels)
        self.conv2 = _convolution(shape.middle_channels, shape.middle_channels, kernel=3, stride=shape.stride)
        self.conv3 = _convolution(shape.middle_channels, shape.out_channels, activated=False)
        self.downsample = _shortcut(shape) if shape.downsamples else nn.Identity()
        self.final_act = nn.ReLU(inplace=True)

    def forward(self, features: Tensor) -> Tensor:
        residual = self.downsample(features)
        total: Tensor = self.final_act(self.conv3(self.conv2(self.conv1(features))) + residual)
        return total


def _convolution(
    in_channels: int, out_channels: int, *, kernel: int = 1, stride: int = 1, activated: bool = True
) -> nn.Sequential:
    layers: list[tuple[str, nn.Module]] = [
        ("conv", nn.Conv2d(in_channels, out_channels, kernel, stride, padding=kernel // 2, bias=False)),
        ("bn", nn.BatchNorm2d(out_channels)),
    ]
    if activated:
        layers.append(("act", nn.ReLU(inplace=True)))
    return nn.Sequential(OrderedDict(layers))


def _shortcut(shape: BlockShape) -> nn.Sequential:
    pool = nn.AvgPool2d(shape.stride, shape.stride, ceil_mode=True)
    convolution = _convolution(shape.in_channels, shape.out_channels, activated=False)
    return nn.Sequential(OrderedDict([("avg_pool", pool), *convolution.named_children()]))
