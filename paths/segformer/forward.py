"""SegFormer's forward pass with tokens kept as channels-last images, over the stock modules' own parameters.

The same functions serve training (gradients flow, stochastic depth is honoured) and every path. Differences
from the stock forward, all exact:

* Tokens `(B, N, C)` already are a channels-last image `(B, C, H, W)`: a view, where the stock code transposes
  and copies around each convolution.
* `decode` applies each stage's projection and its slice of the fuse convolution as one matrix at the stage's
  own resolution, below the bilinear upsampling. A 1x1 convolution commutes with bilinear interpolation, whose
  weights sum to one, so that biases survive; the batch norm acts on the sum, as in the stock model.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Projection(NamedTuple):
    """An affine map of channels: `weight` (C_out, C_in) and `bias` (C_out,) or none."""

    weight: Tensor
    bias: Tensor | None


def as_image(tokens: Tensor, height: int, width: int) -> Tensor:
    """View tokens `(B, H*W, C)` as a channels-last image `(B, C, H, W)`; nothing is copied."""
    batch, _, channels = tokens.shape
    return tokens.view(batch, height, width, channels).permute(0, 3, 1, 2)


def as_tokens(image: Tensor) -> Tensor:
    """View a channels-last image `(B, C, H, W)` as tokens `(B, H*W, C)`; another layout may be copied."""
    batch, channels, height, width = image.shape
    return image.permute(0, 2, 3, 1).reshape(batch, height * width, channels)


def encode(stages: Sequence[nn.Module], pixel_values: Tensor) -> list[Tensor]:
    """Run the encoder.

    Args:
        stages: The stock model's `segformer.stages` (or a path's, with blocks removed).
        pixel_values: `(B, 3, H, W)`.

    Returns:
        One channels-last map `(B, C_i, H_i, W_i)` per stage, at strides 4, 8, 16 and 32.
    """
    maps = []
    image = pixel_values
    for stage in stages:
        image = encode_stage(stage, image)
        maps.append(image)
    return maps


def encode_stage(stage: Any, image: Tensor) -> Tensor:
    """Run one stage: patch embedding, blocks, norm. `(B, C, H, W)` to `(B, C', H', W')`."""
    embedded = stage.patch_embeddings.proj(image)
    height, width = embedded.shape[2:]
    tokens = stage.patch_embeddings.layer_norm(as_tokens(embedded))
    for block in stage.blocks:
        tokens = encode_block(block, tokens, height, width)
    return as_image(stage.layer_norm(tokens), height, width)


def encode_block(block: Any, tokens: Tensor, height: int, width: int) -> Tensor:
    """Run one transformer block on tokens `(B, N, C)`."""
    attended = attend(block.attention, block.layernorm_before(tokens), height, width)
    tokens = tokens + block.drop_path(block.hidden_dropout(attended))
    mixed = mix(block.mlp, block.layernorm_after(tokens), height, width)
    added: Tensor = tokens + block.drop_path(mixed)
    return added


def attend(attention: Any, tokens: Tensor, height: int, width: int) -> Tensor:
    """Self-attention with keys and values from the reduced sequence; `(B, N, C)` to `(B, N, C)`."""
    if not hasattr(attention, "q_proj"):  # a rewritten attention brings its own forward
        rewritten: Tensor = attention(tokens, height, width)
        return rewritten
    reduced = reduce_sequence(attention, tokens, height, width)
    return attend_heads(attention, attention.q_proj(tokens), attention.k_proj(reduced), attention.v_proj(reduced))


def attend_heads(attention: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Attend per head and project the output: `(B, N, C)`, keys and values `(B, M, C)`, to `(B, N, C)`."""
    mixed = F.scaled_dot_product_attention(
        _heads(query, attention.head_dim),
        _heads(key, attention.head_dim),
        _heads(value, attention.head_dim),
        dropout_p=attention.attention_dropout if attention.training else 0.0,
        scale=attention.scaling,
    )
    merged: Tensor = attention.o_proj(mixed.transpose(1, 2).reshape(query.shape))
    return merged


def reduce_sequence(attention: Any, tokens: Tensor, height: int, width: int) -> Tensor:
    """Shorten the sequence by the strided convolution: `(B, N, C)` to `(B, N / sr_ratio^2, C)`."""
    if attention.sequence_reduction_ratio == 1:
        return tokens
    reduction = attention.sequence_reduction
    reduced: Tensor = reduction.layer_norm(as_tokens(reduction.sequence_reduction(as_image(tokens, height, width))))
    return reduced


def mix(mlp: Any, tokens: Tensor, height: int, width: int) -> Tensor:
    """Mix-FFN: linear, 3x3 depthwise convolution, activation, linear."""
    hidden = mlp.dwconv.dwconv(as_image(mlp.fc1(tokens), height, width))
    activated = mlp.dropout(mlp.activation_fn(as_tokens(hidden)))
    mixed: Tensor = mlp.dropout(mlp.fc2(activated))
    return mixed


def stage_projections(head: Any) -> list[Projection]:
    """Fold each stage's projection into its slice of the fuse convolution, without the batch norm.

    The concatenation holds the *last* stage first: stage `i` of `n` meets slice `n - 1 - i`. Differentiable.
    """
    fuse = head.linear_fuse.weight[:, :, 0, 0]
    slices = fuse.chunk(len(head.linear_projections), dim=1)[::-1]
    return [
        Projection(part @ stage.proj.weight, part @ stage.proj.bias)
        for part, stage in zip(slices, head.linear_projections, strict=True)
    ]


def fuse(maps: Sequence[Tensor], projections: Sequence[Projection]) -> Tensor:
    """Project every map at its own resolution, upsample to the first one's, and add: `(B, D, H_0, W_0)`."""
    size = maps[0].shape[2:]
    total: Tensor | None = None
    for image, projection in zip(maps, projections, strict=True):
        projected = project(image, projection)
        if projected.shape[2:] != size:
            projected = F.interpolate(projected, size=size, mode="bilinear", align_corners=False)
        total = projected if total is None else total + projected
    if total is None:
        raise ValueError("fuse needs at least one map")
    return total


def project(image: Tensor, projection: Projection) -> Tensor:
    """Apply an affine map of channels to a channels-last image, as a matrix product on its tokens."""
    height, width = image.shape[2:]
    return as_image(F.linear(as_tokens(image), projection.weight, projection.bias), height, width)


def decode(head: Any, maps: Sequence[Tensor]) -> Tensor:
    """Run the decode head below the upsampling, in the head's own mode; logits `(B, K, H_0, W_0)`."""
    fused = head.activation(head.batch_norm(fuse(maps, stage_projections(head))))
    logits: Tensor = head.classifier(head.dropout(fused))
    return logits


def forward(model: Any, pixel_values: Tensor) -> Tensor:
    """Run a stock `SegformerForSemanticSegmentation`, in its own mode: logits `(B, K, H/4, W/4)`."""
    channels_last = pixel_values.contiguous(memory_format=torch.channels_last)
    return decode(model.decode_head, encode(model.segformer.stages, channels_last))


def _heads(tokens: Tensor, head_dim: int) -> Tensor:
    batch, length, _ = tokens.shape
    return tokens.view(batch, length, -1, head_dim).transpose(1, 2)
