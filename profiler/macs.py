"""Multiply-accumulates of one operator call, from shapes alone.

Every formula takes the call's positional arguments as its schema lists them (keyword-only ones behind them) and
the call's output, looks only at shapes, and returns MACs: a mapping where one fused kernel does work of several
types, None where shapes alone do not tell. They are dense counts: masks, causal attention and zeros in the
weights save nothing, since dense kernels compute them all the same; block masks of flex attention are taken
alike, so that a total does not depend on how attention is spelt. A multiply-accumulate of complex numbers is
one. Which operator uses which formula is said in `gearshift.profiler.operators`.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from math import prod
from typing import Any, TypeAlias

import torch


class OperatorType(StrEnum):
    """What kind of work an operator does; the rows of the cost table."""

    CONVOLUTION = "convolution"
    LINEAR = "linear"
    ATTENTION = "attention"
    MATMUL = "matmul"
    NORM = "norm"
    ACTIVATION = "activation"
    RESAMPLE = "resample"
    ELEMENTWISE = "elementwise"
    DATA_MOVEMENT = "data movement"
    OTHER = "other"


Macs: TypeAlias = int | Mapping[OperatorType, int]
Formula: TypeAlias = Callable[[Sequence[Any], Any], Macs | None]


def product(left: torch.Tensor, right: torch.Tensor) -> int:
    """MACs of `left @ right`, `(..., m, k) @ (..., k, n)` with equal leading sizes: `... m k n`."""
    return _size(left.shape) * int(right.shape[-1])


def matrix_product(args: Sequence[Any], out: Any) -> int:
    """`mm(a, b)`, `bmm(a, b)`, `_int_mm(a, b)`: `b m k n`."""
    return product(args[0], args[1])


def added_matrix_product(args: Sequence[Any], out: Any) -> int:
    """`addmm(c, a, b)`, `baddbmm(c, a, b)`, `addbmm(c, a, b)`: `b m k n`; adding `c` is free."""
    return product(args[1], args[2])


def vector_product(args: Sequence[Any], out: Any) -> int:
    """`mv(a, x)`, `dot(x, y)`, `vdot(x, y)`: one MAC per element of the first operand."""
    return _size(args[0].shape)


def added_vector_product(args: Sequence[Any], out: Any) -> int:
    """`addmv(c, a, x)`: one MAC per element of the matrix."""
    return _size(args[1].shape)


def packed_product(args: Sequence[Any], out: Any) -> int:
    """A product with a packed (quantised) weight, its own shape hidden: `out.numel() * in_features`."""
    return _size(out.shape) * int(args[0].shape[-1])


def outer_product(args: Sequence[Any], out: Any) -> int:
    """`addr(c, x, y)`: one MAC per element of the matrix."""
    return _size(out.shape)


def grouped_product(args: Sequence[Any], out: Any) -> int:
    """`_grouped_mm(a, b, offsets, ...)`: every row (or column) meets the matrix of its own group, once.

    Rows behind the last offset, which belong to no group, are counted too: offsets are data.
    """
    left, right = args[0], args[1]
    if left.dim() > right.dim():  # (g, m, k) and (k, n), grouped along n
        return _size(right.shape) * int(left.shape[-2])
    return product(left, right)


def trilinear(args: Sequence[Any], out: Any) -> int:
    """`_trilinear(a, b, c, expand_a, expand_b, expand_c, ...)`, as in `nn.Bilinear`: one MAC per triple."""
    sizes = [_expanded(tensor.shape, dims) for tensor, dims in zip(args[:3], args[3:6], strict=True)]
    return _size(tuple(max(along) for along in zip(*sizes, strict=True)))


def _expanded(shape: Sequence[int], dims: Sequence[int]) -> list[int]:
    sizes = list(shape)
    for dim in sorted(dims):
        sizes.insert(dim, 1)
    return sizes


def euclidean_distances(args: Sequence[Any], out: Any) -> int:
    """`_euclidean_dist(a, b)`, `cdist` by a product: two columns more, for the squared norms."""
    return _size(out.shape) * (int(args[0].shape[-1]) + 2)


def steps(sequence: torch.Tensor) -> int:
    """How many inputs a recurrent layer takes: `(time, batch, width)` in any order, or packed `(total, width)`."""
    return _size(sequence.shape[:-1])


def onednn_recurrence(args: Sequence[Any], out: Any) -> int:
    """`mkldnn_rnn_layer(x, w_input, w_hidden, ...)`: both matrices, once per step."""
    return steps(args[0]) * (_size(args[1].shape) + _size(args[2].shape))


def recurrence(args: Sequence[Any], out: Any) -> int:
    """`_cudnn_rnn(x, weights, ...)`, `miopen_rnn`: every matrix of every layer and direction, once per step."""
    return steps(args[0]) * sum(_size(weight.shape) for weight in args[1] if weight.dim() > 1)


def convolution(args: Sequence[Any], out: Any) -> int:
    """`convolution(x, w, bias, stride, padding, dilation, transposed, ...)`, grouped or not.

    `w` is `(c_out, c_in / groups, *kernel)`: it holds the division by groups already. Transposed, it is
    `(c_in, c_out / groups, *kernel)` and every *input* position meets the whole kernel.
    """
    return _convolution(args[0], args[1], out, transposed=bool(args[6]))


def plain_convolution(args: Sequence[Any], out: Any) -> int:
    """A backend's own `convolution(x, w, ...)` that is never transposed."""
    return _convolution(args[0], args[1], out, transposed=False)


def transposed_convolution(args: Sequence[Any], out: Any) -> int:
    """A backend's own `conv_transpose(x, w, ...)`."""
    return _convolution(args[0], args[1], out, transposed=True)


def time_batch_channel_convolution(args: Sequence[Any], out: Any) -> int:
    """`conv_tbc(x, w, ...)` with `w` of `(kernel, c_in, c_out)`: `out.numel() * kernel * c_in`."""
    return _size(out.shape) * _size(args[1].shape[:2])


def convolution_backward(args: Sequence[Any], out: Any) -> int:
    """`convolution_backward(grad, x, w, ..., transposed, ..., output_mask)`.

    Each of the two gradients, for `x` and for `w`, pairs the same elements as the forward pass does, so each
    costs exactly the forward's MACs, whatever the groups.
    """
    grad, x, w, transposed, wanted = args[0], args[1], args[2], bool(args[7]), args[10]
    return _convolution(x, w, grad, transposed=transposed) * (bool(wanted[0]) + bool(wanted[1]))


def deformable_convolution_backward(args: Sequence[Any], out: Any) -> int:
    """`_deform_conv2d_backward(grad, x, w, ...)`: gradients of the samples and of `w`, each as dear as forward."""
    return 2 * _convolution(args[1], args[2], args[0], transposed=False)


def _convolution(x: torch.Tensor, w: torch.Tensor, out: torch.Tensor, *, transposed: bool) -> int:
    positions = x if transposed else out
    return _size(positions.shape) * _size(w.shape[1:])


def attention(args: Sequence[Any], out: Any) -> int:
    """Fused attention over `q (..., n, d)`, `k (..., m, d)`, `v (..., m, e)`: both products, `n m (d + e)`.

    Leading sizes are the query's, so grouped queries (fewer key heads) are counted as computed.
    """
    return _attention(args[0].shape, args[1].shape, args[2].shape)


def attention_backward(args: Sequence[Any], out: Any) -> int:
    """`..._backward(grad_out, q, k, v, ...)`: the scores again, then the gradients of q, k, v and the scores.

    Five products where the forward has two: `n m (3 d + 2 e)`.
    """
    query, keys, width = args[1].shape, int(args[2].shape[-2]), int(args[3].shape[-1])
    return _size(query[:-1]) * keys * (3 * int(query[-1]) + 2 * width)


def flash_attention(args: Sequence[Any], out: Any) -> int | None:
    """`_flash_attention_forward(q, k, v, cum_seq_q, cum_seq_k, ...)`, `_varlen_attn`: `(batch, tokens, heads, d)`.

    Packed sequences are `(tokens, heads, d)` with the bounds of each in `cum_seq`; these are data, read where
    they lie in the host's memory. Elsewhere reading would wait for the device: not counted.
    """
    return _scored(flash_scores(args), args)


def efficient_attention(args: Sequence[Any], out: Any) -> int | None:
    """`_efficient_attention_forward(q, k, v, bias, cu_seqlens_q, cu_seqlens_k, ...)`: as `flash_attention`."""
    return _scored(efficient_scores(args), args)


def attention_scores(query: Sequence[int], key: Sequence[int]) -> int:
    """How many scores attention computes, from the shapes of `q (..., n, d)` and `k (..., m, d)`."""
    return _size(query[:-1]) * int(key[-2])


def flash_scores(args: Sequence[Any]) -> int | None:
    """How many scores `flash_attention` computes; None where that is data on a device."""
    return _token_major_scores(args[0].shape, args[1].shape, args[3], args[4])


def efficient_scores(args: Sequence[Any]) -> int | None:
    """How many scores `efficient_attention` computes; None where that is data on a device."""
    return _token_major_scores(args[0].shape, args[1].shape, args[4], args[5])


def _token_major_scores(
    query: Sequence[int], key: Sequence[int], bounds: torch.Tensor | None, key_bounds: torch.Tensor | None
) -> int | None:
    if bounds is None:
        batch, tokens, heads, _ = query
        return int(batch * heads * tokens * key[1])
    key_bounds = bounds if key_bounds is None else key_bounds
    if bounds.device.type != "cpu" or key_bounds.device.type != "cpu":
        return None
    return int((bounds.diff() * key_bounds.diff()).sum()) * int(query[-2])


def _scored(scores: int | None, args: Sequence[Any]) -> int | None:
    return None if scores is None else scores * int(args[0].shape[-1] + args[2].shape[-1])


def _attention(query: Sequence[int], key: Sequence[int], value: Sequence[int]) -> int:
    return attention_scores(query, key) * int(query[-1] + value[-1])


def multi_head_attention(args: Sequence[Any], out: Any) -> Macs:
    """`_native_multi_head_attention(q, k, v, embed_dim, ...)`, the fast path of `nn.MultiheadAttention`.

    The four projections, `d^2` per token each, and both attention products.
    """
    query, key, value = (lengths(tensor) for tensor in args[:3])
    return {
        OperatorType.LINEAR: (2 * sum(query) + sum(key) + sum(value)) * args[3] ** 2,
        OperatorType.ATTENTION: 2 * _pairs(query, key) * args[3],
    }


def transformer_layer(args: Sequence[Any], out: Any) -> Macs:
    """`_transformer_encoder_layer_fwd(x, embed_dim, ...)`, the fast path of `nn.TransformerEncoderLayer`.

    Self-attention as in `multi_head_attention` and the two matrices of the feed-forward part. Padded sequences
    reach it as a nested tensor: then only their tokens are computed, and counted.
    """
    tokens, embed_dim, first, second = lengths(args[0]), args[1], args[14], args[16]
    return {
        OperatorType.LINEAR: sum(tokens) * (4 * embed_dim**2 + _size(first.shape) + _size(second.shape)),
        OperatorType.ATTENTION: 2 * _pairs(tokens, tokens) * embed_dim,
    }


TAKE_NESTED: frozenset[Formula] = frozenset({multi_head_attention, transformer_layer})
"""The formulas that know sequences of several lengths in one nested tensor."""


def lengths(sequences: torch.Tensor) -> list[int]:
    """Return the length of each sequence of `(batch, tokens, d)`, nested or not."""
    if sequences.is_nested:
        sizes: list[list[int]] = sequences._nested_tensor_size().tolist()
        return [size[0] for size in sizes]
    return [int(sequences.shape[1])] * int(sequences.shape[0])


def _pairs(left: Sequence[int], right: Sequence[int]) -> int:
    return sum(n * m for n, m in zip(left, right, strict=True))


def _size(shape: Sequence[int]) -> int:
    return prod(shape)
