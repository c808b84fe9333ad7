"""Attention whose linear maps of one input are one product: q/k/v without sequence reduction, k/v with it."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gearshift.errors import PathRefusedError
from gearshift.paths.segformer.forward import attend_heads, reduce_sequence
from gearshift.paths.sharing import DerivedTensors

STACKED = "qkv/"
"""Prefix of stacked weights' keys."""


class MergedAttention(nn.Module):
    """Exact rewrite of SegFormer's attention; the stacked weights are a copy, made once for all paths."""

    def __init__(self, attention: Any, key: str, derived: DerivedTensors) -> None:
        super().__init__()
        check_mergeable(attention)
        self.reduced = attention.sequence_reduction_ratio > 1
        self.attention = attention
        layers = _merged_layers(attention)
        for part in ("weight", "bias"):
            stacked = derived.get(f"{key}/{part}", partial(_stack, layers, part), stored=False)
            self.register_buffer(part, stacked, persistent=False)

    weight: Tensor
    bias: Tensor

    def forward(self, tokens: Tensor, height: int, width: int) -> Tensor:
        """Tokens `(B, N, C)` to `(B, N, C)`."""
        source = reduce_sequence(self.attention, tokens, height, width)
        merged = F.linear(source, self.weight, self.bias)
        if self.reduced:
            key, value = merged.chunk(2, dim=-1)
            query = self.attention.q_proj(tokens)
        else:
            query, key, value = merged.chunk(3, dim=-1)
        return attend_heads(self.attention, query, key, value)


def check_mergeable(attention: Any) -> None:
    """Raise `PathRefusedError` where a projection is anything but a linear layer with a bias."""
    for layer in _merged_layers(attention):
        if type(layer) is not nn.Linear or layer.bias is None:
            raise PathRefusedError(
                f"qkv merges linear layers with a bias, and this model has {layer}; use paths without qkv"
            )


def _merged_layers(attention: Any) -> list[Any]:
    reduced = attention.sequence_reduction_ratio > 1
    names = ("k_proj", "v_proj") if reduced else ("q_proj", "k_proj", "v_proj")
    return [getattr(attention, name) for name in names]


def _stack(layers: Sequence[Any], part: str) -> Tensor:
    return torch.cat([getattr(layer, part) for layer in layers])
