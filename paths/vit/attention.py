"""Attention over the stock modules: for all tokens, or for the few that the head reads.

For the few, keys and values of all tokens need not be computed. With queries `q_h = W_q x_r` of head `h`,

    score_hn = q_h . (W_k,h x_n + b_k,h) = (W_k,h^T q_h) . x_n + const
    result_h = sum_n a_hn (W_v,h x_n + b_v,h) = W_v,h (sum_n a_hn x_n) + b_v,h

(softmax drops what is equal for all n, and its weights sum to 1): the head's matrices are applied to the few
queries and to the few results instead of to every token, and attention runs over the tokens themselves.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gearshift.paths.vit.affine import Part, last_linear, unflatten
from gearshift.paths.vit.layout import Layout


class JointProjections(nn.Module):
    """Queries, keys and values from one layer whose outputs are `(3, heads, head_dim)`."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer
        self.parted = last_linear(layer) is not None

    def forward(self, tokens: Tensor) -> tuple[Tensor, ...]:
        """Three times `(B, N, heads * head_dim)`."""
        return self.layer(tokens).chunk(3, dim=-1)  # type: ignore[no-any-return]

    def parts(self, tokens: Tensor) -> list[Part]:
        """The three as parts of the layer; only where `parted`."""
        first, last = _taken_apart(self.layer)
        features = first(tokens)
        biases = (None,) * 3 if last.bias is None else last.bias.chunk(3)
        return [Part(features, weight, bias) for weight, bias in zip(last.weight.chunk(3), biases, strict=True)]


class SeparateProjections(nn.Module):
    """Queries, keys and values from a layer each."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.parted = all(last_linear(layer) is not None for layer in layers)

    def forward(self, tokens: Tensor) -> tuple[Tensor, ...]:
        """Three times `(B, N, heads * head_dim)`."""
        return tuple(layer(tokens) for layer in self.layers)

    def parts(self, tokens: Tensor) -> list[Part]:
        """The three as parts of their layers; only where `parted`."""
        taken_apart = [_taken_apart(layer) for layer in self.layers]
        return [Part(first(tokens), last.weight, last.bias) for first, last in taken_apart]


def _taken_apart(layer: Any) -> tuple[nn.Module, Any]:
    parts = last_linear(layer)
    if parts is None:
        raise TypeError(f"{type(layer).__name__} does not end with a linear layer")
    return parts


class LeanAttention(nn.Module):
    """Multi-head attention; how many heads there are is told from the channels of the projections.

    Args:
        projections: Of the tokens.
        head_dim: Channels of a head.
        scale: Of the scores.
        query_norm, key_norm: Per head.
        norm: Of the heads' results together.
        output: Projects them.
    """

    def __init__(
        self,
        *,
        projections: JointProjections | SeparateProjections,
        head_dim: int,
        scale: float,
        output: nn.Module,
        query_norm: nn.Module,
        key_norm: nn.Module,
        norm: nn.Module,
    ) -> None:
        super().__init__()
        self.projections = projections
        self.query_norm, self.key_norm, self.norm = query_norm, key_norm, norm
        self.output = output
        self._head_dim = head_dim
        self._scale = scale
        plain = isinstance(query_norm, nn.Identity) and isinstance(key_norm, nn.Identity)
        self._short = plain and projections.parted

    def forward(self, tokens: Tensor, sizes: Tensor | None, *, with_keys: bool) -> tuple[Tensor, Tensor | None]:
        """Attend from every token.

        Args:
            tokens: `(B, N, C)`.
            sizes: `(B, N, 1)`, how many patches a token stands for: attention is proportional to it (equation 1 of
                the token merging paper). None where each stands for one.
            with_keys: Whether keys are wanted.

        Returns:
            Results `(B, N, C)` and, where asked for, the keys' mean over heads `(B, N, head_dim)`, by which alike
            tokens are told.
        """
        query, key, value = self._heads(tokens)
        return self._merged(self._attend(query, key, value, sizes)), key.mean(dim=1) if with_keys else None

    def read(self, tokens: Tensor, reads: slice, sizes: Tensor | None) -> Tensor:
        """Attend from the tokens of `reads` alone, to all: `(B, R, C)`."""
        if reads.stop is None or not self._short:
            query, key, value = self._heads(tokens)
            return self._merged(self._attend(query[:, :, reads], key, value, sizes))
        queries, keys, values = self.projections.parts(tokens)
        asked = self._asked(queries, keys, reads)
        seen = self._attend(asked[:, None], keys.features[:, None], values.features[:, None], sizes)[:, 0]
        return self._merged(self._valued(seen, values))

    def _heads(self, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query, key, value = (
            unflatten(part, -1, (-1, self._head_dim)).transpose(1, 2) for part in self.projections(tokens)
        )
        return self.query_norm(query), self.key_norm(key), value

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, sizes: Tensor | None) -> Tensor:
        bias = None if sizes is None else sizes.log().transpose(1, 2)[:, None]
        return F.scaled_dot_product_attention(query, key, value, attn_mask=bias, scale=self._scale)

    def _merged(self, heads: Tensor) -> Tensor:
        merged: Tensor = self.output(self.norm(heads.transpose(1, 2).flatten(2)))
        return merged

    def _asked(self, query: Part, key: Part, reads: slice) -> Tensor:
        """Queries seen through the keys' matrices: `(B, heads * R, C)`."""
        queries = F.linear(query.features[:, reads], query.weight, query.bias)
        batch, length, _ = queries.shape
        queries = unflatten(queries, -1, (-1, self._head_dim)).permute(2, 0, 1, 3).flatten(1, 2)
        asked = torch.bmm(queries, unflatten(key.weight, 0, (-1, self._head_dim)))
        return unflatten(asked, 1, (batch, length)).transpose(0, 1).flatten(1, 2)

    def _valued(self, seen: Tensor, value: Part) -> Tensor:
        """Sums of tokens `(B, heads * R, C)` through the values' matrices: `(B, heads, R, head_dim)`."""
        weight = unflatten(value.weight, 0, (-1, self._head_dim))
        heads, batch = len(weight), len(seen)
        sums = unflatten(seen, 1, (heads, -1)).transpose(0, 1).flatten(1, 2)
        values = unflatten(torch.bmm(sums, weight.transpose(1, 2)), 1, (batch, -1)).transpose(0, 1)
        return values if value.bias is None else values + value.bias.view(heads, 1, self._head_dim)


def attention_of(module: Any, layout: Layout) -> LeanAttention:
    """The attention over a stock module, or over one whose projections a path has replaced."""
    joint = getattr(module, "qkv", None)
    projections = (
        SeparateProjections(module.q_proj, module.k_proj, module.v_proj) if joint is None else JointProjections(joint)
    )
    return LeanAttention(
        projections=projections,
        head_dim=module.head_dim,
        scale=_scale(module),
        output=getattr(module, layout.output),
        query_norm=getattr(module, "q_norm", nn.Identity()),
        key_norm=getattr(module, "k_norm", nn.Identity()),
        norm=getattr(module, "norm", nn.Identity()),
    )


def _scale(module: Any) -> float:
    """timm's fused attention takes torch's default, whatever the attribute says."""
    if hasattr(module, "scaling"):
        return float(module.scaling)
    return float(module.head_dim**-0.5 if module.fused_attn else module.scale)
