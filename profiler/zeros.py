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
    return tuple(chain.from_iterable(_describe(*weight) for weight in _weights(module)))


def _weights(module: nn.Module) -> Iterator[tuple[str, torch.Tensor, tuple[str, str]]]:
    """Yield the name of every matrix or kernel, the tensor, and what its first two axes are."""
    for name, item in module.named_modules():
        if isinstance(item, nn.Linear | _ConvNd):
            transposed = getattr(item, "transposed", False)
            yield name, item.weight, ("input", "output") if transposed else ("output", "input")
        elif isinstance(item, nn.MultiheadAttention) and item.in_proj_weight is not None:
            yield f"{name}.in_proj_weight".lstrip("."), item.in_proj_weight, ("output", "input")


def _describe(name: str, weight: torch.Tensor, sides: tuple[str, str]) -> Iterator[str]:
    if type(weight) not in (torch.Tensor, nn.Parameter) or weight.is_meta or weight.layout is not torch.strided:
        return
    nonzero = weight.detach() != 0
    for axis, side in enumerate(sides):
        live = nonzero.transpose(0, axis).flatten(1).any(dim=1)
        zeros = live.numel() - int(live.sum())
        if zeros:
            yield (
                f"{name}: {zeros} of {live.numel()} {side} channels are zero and still computed; "
                "only removing them from the shapes saves work"
            )
            return
