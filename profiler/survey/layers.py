"""The layers of a module that multiply by weights: convolutions and `Linear`, equal ones counted together."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from torch import nn
from torch.nn.modules.conv import _ConvNd

KINDS: dict[str, type[nn.Module]] = {
    kind.__name__: kind
    for kind in (
        nn.Conv1d,
        nn.Conv2d,
        nn.Conv3d,
        nn.ConvTranspose1d,
        nn.ConvTranspose2d,
        nn.ConvTranspose3d,
        nn.Linear,
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """Layers that are equal in all of this, and how many they are.

    Attributes:
        kind: PyTorch's class that it is an instance of, such as `Conv2d`.
        class_name: Its own class; with its module in front where that class has PyTorch's name.
        in_features: Input features, or input channels.
        out_features: Output features, or output channels.
        kernel: Kernel size; empty for `Linear`.
        stride: Stride; empty for `Linear`.
        groups: Groups of a convolution; 1 for `Linear`.
        bias: Whether it adds a bias.
        count: How many there are; a module that is used in several places is one.
    """

    kind: str
    class_name: str
    in_features: int
    out_features: int
    kernel: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    groups: int = 1
    bias: bool
    count: int = 1

    @property
    def is_depthwise(self) -> bool:
        """Whether every input channel has filters of its own."""
        return self.groups > 1 and self.groups == self.in_features


def layers_of(module: nn.Module) -> tuple[Layer, ...]:
    """List the layers of a module, subclasses included, in order of their first place."""
    return together(layer for item in module.modules() if (layer := _layer(item)) is not None)


def together(layers: Iterable[Layer]) -> tuple[Layer, ...]:
    """Count equal layers together, in order of first appearance."""
    counts: Counter[Layer] = Counter()
    for layer in layers:
        counts[replace(layer, count=1)] += layer.count
    return tuple(replace(layer, count=count) for layer, count in counts.items())


def _layer(module: Any) -> Layer | None:
    kind = next((name for name, base in KINDS.items() if isinstance(module, base)), None)
    if kind is None:
        return None
    class_name, bias = _class_name(type(module)), module.bias is not None
    if isinstance(module, _ConvNd):
        return Layer(
            kind=kind,
            class_name=class_name,
            in_features=module.in_channels,
            out_features=module.out_channels,
            kernel=tuple(module.kernel_size),
            stride=tuple(module.stride),
            groups=module.groups,
            bias=bias,
        )
    return Layer(
        kind=kind,
        class_name=class_name,
        in_features=module.in_features,
        out_features=module.out_features,
        bias=bias,
    )


def _class_name(kind: type[nn.Module]) -> str:
    is_namesake = kind.__name__ in KINDS and kind is not KINDS[kind.__name__]
    return f"{kind.__module__}.{kind.__name__}" if is_namesake else kind.__name__
