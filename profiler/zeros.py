"""Weights that are zero and still cost full price."""

from collections.abc import Iterator
from itertools import chain

import torch
from torch import nn
from torch.nn.modules.conv import _ConvNd


def zeroed_channels(module: nn.Module) -> tuple[str, ...]:
    """Describe layers with whole output or input channels of zeros, as masking leaves them.

    Dense kernels multiply zeros as they multiply anything else: only taking channels out of the shapes saves
    work.
    """
    layers = {name: item for name, item in module.named_modules() if isinstance(item, nn.Linear | _ConvNd)}
    return tuple(chain.from_iterable(_describe(name, layer) for name, layer in layers.items()))


def _describe(name: str, layer: nn.Module) -> Iterator[str]:
    weight = layer.weight
    if type(weight) not in (torch.Tensor, nn.Parameter) or weight.is_meta or weight.layout is not torch.strided:
        return
    nonzero = weight.detach() != 0
    sides = ("input", "output") if getattr(layer, "transposed", False) else ("output", "input")
    for axis, side in enumerate(sides):
        live = nonzero.transpose(0, axis).flatten(1).any(dim=1)
        zeros = live.numel() - int(live.sum())
        if zeros:
            yield (
                f"{name}: {zeros} of {live.numel()} {side} channels are zero and still computed; "
                "only removing them from the shapes saves work"
            )
            return
