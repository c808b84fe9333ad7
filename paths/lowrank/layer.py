"""What can be factored, what that costs, and the two layers that take its place."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn

from gearshift.errors import PathRefusedError


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A linear map, or a convolution as the linear map of patches that it is.

    Attributes:
        inputs: Values that one output position reads.
        outputs: Channels.
    """

    inputs: int
    outputs: int

    @classmethod
    def of(cls, module: nn.Module, name: str) -> Self:
        """Read a module.

        Raises:
            PathRefusedError: It is neither a plain linear layer nor a convolution of one group.
        """
        if type(module) is nn.Linear:
            return cls(inputs=module.in_features, outputs=module.out_features)
        if type(module) is nn.Conv2d and module.groups == 1:
            return cls(inputs=module.weight[0].numel(), outputs=module.out_channels)
        groups = f" of {module.groups} groups" if isinstance(module, nn.Conv2d) else ""
        raise PathRefusedError(
            f"lowrank factors plain linear layers and convolutions of one group, and {name} is "
            f"{type(module).__name__}{groups}; leave it out, or drop the transform that changes it"
        )

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one output position."""
        return self.inputs * self.outputs

    def factored_macs(self, rank: int) -> int:
        """The same of the two layers."""
        return rank * (self.inputs + self.outputs)

    @property
    def largest_rank(self) -> int:
        """The largest that costs less than the layer; 0 where none does."""
        return (self.macs - 1) // (self.inputs + self.outputs)


class FactoredLinear(nn.Sequential):
    """Two linear layers; what reads the sizes of a linear layer finds them here."""

    def __init__(self, linear: nn.Linear, first: Tensor, second: Tensor, bias: Tensor) -> None:
        rank = len(first)
        narrow = nn.Linear(linear.in_features, rank, bias=False, device="meta")
        wide = nn.Linear(rank, linear.out_features, device="meta")
        narrow.weight, wide.weight, wide.bias = _shared(first), _shared(second), _shared(bias)
        super().__init__(narrow, wide)
        self.in_features, self.out_features = linear.in_features, linear.out_features

    def __repr__(self) -> str:
        return f"FactoredLinear({self.in_features} -> {self[0].out_features} -> {self.out_features})"


class FactoredConv2d(nn.Sequential):
    """The same convolution to fewer channels (kernel, stride, padding and dilation kept), then a 1x1 convolution."""

    def __init__(self, convolution: nn.Conv2d, first: Tensor, second: Tensor, bias: Tensor) -> None:
        rank = len(first)
        narrow = nn.Conv2d(
            convolution.in_channels,
            rank,
            convolution.kernel_size,  # type: ignore[arg-type]
            stride=convolution.stride,  # type: ignore[arg-type]
            padding=convolution.padding,  # type: ignore[arg-type]
            dilation=convolution.dilation,  # type: ignore[arg-type]
            bias=False,
            padding_mode=convolution.padding_mode,
            device="meta",
        )
        wide = nn.Conv2d(rank, convolution.out_channels, 1, device="meta")
        narrow.weight = _shared(first.view(rank, *convolution.weight.shape[1:]))
        wide.weight, wide.bias = _shared(second[:, :, None, None]), _shared(bias)
        super().__init__(narrow, wide)
        self.in_channels, self.out_channels = convolution.in_channels, convolution.out_channels


def factored(module: nn.Module, first: Tensor, second: Tensor, bias: Tensor) -> nn.Module:
    """The two layers over `first` `(rank, inputs)`, `second` `(outputs, rank)` and `bias`, which are not copied."""
    if isinstance(module, nn.Conv2d):
        return FactoredConv2d(module, first, second, bias)
    assert isinstance(module, nn.Linear)  # `Layer.of` admits no other
    return FactoredLinear(module, first, second, bias)


def matrix_of(module: nn.Module) -> Tensor:
    """The weights `(outputs, inputs)`."""
    weight = module.weight
    assert isinstance(weight, Tensor)
    return weight.detach().flatten(1)


def bias_of(module: nn.Module) -> Tensor | None:
    """The bias, if there is one."""
    bias = module.bias
    return bias.detach() if isinstance(bias, Tensor) else None


def _shared(tensor: Tensor) -> nn.Parameter:
    with torch.inference_mode(mode=False):
        return nn.Parameter(tensor, requires_grad=False)
