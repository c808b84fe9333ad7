"""Floating-point operations of element-wise work, from shapes alone: what multiply-adds do not cover.

The convention, one line each:

* An addition, a multiplication, a division, a comparison that selects a value (max, clamp) and one evaluation
  of an elementary function (exp, log, sqrt, rsqrt, pow, tanh, erf, sin) count 1 each. The coefficients below
  are the operations of the formula that the docstring or the comment writes out, per element.
* A reduction of n numbers counts n, as n multiply-accumulates hold n additions.
* A weighted sum of t taps counts 2 t: resampling, sampling at offsets.
* What is done once per row, channel, window or sampling position, and not once per element, is left out.
* Selecting, moving, casting, sorting, counting, drawing random numbers, and integers and booleans count 0.
* A complex number is two numbers; multiplying two takes 6.

None of this is in `macs`, and nothing of `macs` is in this: a bias, for instance, is where the first sum of a
multiply-accumulate starts, and free, unless PyTorch adds it in a call of its own. Other counters choose other
coefficients (fvcore: 1 per tap, 5 per element of a layer norm, 0 for activations; FlopCounterMode: 0 for all of
this); `benchmarks/counters.py` shows the differences by arithmetic.

`FORMULAS` is keyed by qualified name as the table in `gearshift.profiler.operators` is, and is read there.
Formulas take positional arguments as the schema lists them, keyword-only ones behind them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from math import log2, prod
from typing import Any, TypeAlias

import torch

from gearshift.profiler import macs

FlopFormula: TypeAlias = Callable[[Sequence[Any], Any], int]


def per_output(operations: int) -> FlopFormula:
    """So many operations per element of the (first) output, where it or the first input is floating-point."""
    return lambda args, out: operations * _numbers(_first(out), of=_first(args))


def per_input(operations: int, position: int = 0) -> FlopFormula:
    """So many operations per element of one input: reductions, gradients, accumulating copies."""
    return lambda args, out: operations * _numbers(args[position])


def reduction(operations: int) -> FlopFormula:
    """So many per element of the first input, or of the output of the two-operand form (`max(a, b)`)."""
    return lambda args, out: operations * max(_numbers(args[0]), _numbers(_first(out), of=args[0]))


# --- Pointwise -------------------------------------------------------------------------------------------


def complex_product(args: Sequence[Any], out: Any) -> int:
    """`mul(a, b)`: 1; of complex numbers 6, four products and two sums."""
    return (3 if out.is_complex() else 1) * _numbers(out)


def clamp(args: Sequence[Any], out: Any) -> int:
    """`clamp(x, min, max)`: one comparison per bound that is given."""
    return _numbers(out) * sum(bound is not None for bound in args[1:3])


def scaled_sum(args: Sequence[Any], out: Any) -> int:
    """`add(a, b, alpha)`, `sub`: 1, and 1 more to scale `b` where `alpha` is not 1."""
    return _numbers(out) * (2 if len(args) > 2 and args[2] != 1 else 1)


# `x / sqrt2, erf, + 1, * x, / 2`; with tanh `x * x * x * c, + x, * k, tanh, + 1, * x, / 2`
_GELU = {"none": 5, "tanh": 9}
# erf: cdf 4, density 4, `x * density, + cdf, * grad`; tanh: the inner function 6, its derivative and the rest 12
_GELU_BACKWARD = {"none": 11, "tanh": 18}


def gelu(args: Sequence[Any], out: Any) -> int:
    """`gelu(x, approximate)`: `x / 2 * (1 + erf(x / sqrt2))` 5; the tanh approximation 9."""
    return _numbers(out) * _GELU[args[1] if len(args) > 1 else "none"]


def gelu_backward(args: Sequence[Any], out: Any) -> int:
    """`gelu_backward(grad, x, approximate)`: 11, or 18 with tanh."""
    return _numbers(out) * _GELU_BACKWARD[args[2] if len(args) > 2 else "none"]


# --- Norms -----------------------------------------------------------------------------------------------


def layer_norm(args: Sequence[Any], out: Any) -> int:
    """`native_layer_norm(x, shape, weight, bias, ...)`: sum; subtract, square, sum; scale; weight; bias."""
    return _numbers(args[0]) * (5 + _given(args, 2, 3))


def group_norm(args: Sequence[Any], out: Any) -> int:
    """`native_group_norm(x, weight, bias, ...)`: as a layer norm."""
    return _numbers(args[0]) * (5 + _given(args, 1, 2))


def rms_norm(args: Sequence[Any], out: Any) -> int:
    """`_fused_rms_norm(x, shape, weight, eps)`: square, sum, scale; weight."""
    return _numbers(args[0]) * (3 + _given(args, 2))


def batch_norm(training_at: int | None) -> FlopFormula:
    """`..batch_norm(x, ...)`: `x * scale + shift`, folded per channel; with batch statistics 4 more.

    Args:
        training_at: Position of the flag; None for operators that only ever normalise by given statistics.
    """

    def formula(args: Sequence[Any], out: Any) -> int:
        trains = training_at is not None and bool(args[training_at])
        return _numbers(args[0]) * (6 if trains else 2)

    return formula


def norm_backward(mask_at: int, into_x: int) -> FlopFormula:
    """`..norm_backward(grad, x, ..., output_mask)`: `into_x` for the input's gradient, 4 for weight, 1 for bias.

    The input's: `grad * weight, sum; x - mean, * rstd; product, sum; - mean, - x * mean, * rstd`, 10 with the
    normalised `x` (2 of them), 8 for an RMS norm. The weight's: the normalised `x` again, `* grad, sum`.
    """

    def formula(args: Sequence[Any], out: Any) -> int:
        wanted = [bool(flag) for flag in args[mask_at]]
        return _numbers(args[1]) * sum(n for n, flag in zip((into_x, 4, 1), wanted, strict=False) if flag)

    return formula


# --- Attention and recurrence, beside their products -----------------------------------------------------

_SCORE = 6  # scale; then a softmax: max, subtract, exp, sum, divide


def attention(mask_at: int | None = None) -> FlopFormula:
    """Fused attention: 6 per score (scale and softmax), 1 more where a mask is added."""

    def formula(args: Sequence[Any], out: Any) -> int:
        scores = macs.attention_scores(args[0].shape, args[1].shape)
        return scores * (_SCORE + (_given(args, mask_at) if mask_at is not None else 0))

    return formula


def attention_backward(args: Sequence[Any], out: Any) -> int:
    """Per score 6: `scale, - logsumexp, exp` again; gradient `- row sum, * probability, * scale`."""
    return 6 * macs.attention_scores(args[1].shape, args[2].shape)


def flash_attention(args: Sequence[Any], out: Any) -> int:
    """`_flash_attention_forward` and what calls it: as `attention`, over the sequences where packed."""
    return _SCORE * (macs.flash_scores(args) or 0)


def efficient_attention(args: Sequence[Any], out: Any) -> int:
    """`_efficient_attention_forward(q, k, v, bias, ...)`: as `attention`, over the sequences where packed."""
    return (_SCORE + _given(args, 3)) * (macs.efficient_scores(args) or 0)


def multi_head_attention(args: Sequence[Any], out: Any) -> int:
    """`_native_multi_head_attention(q, k, v, embed_dim, heads, ...)`: 6 per score of every head."""
    pairs = zip(macs.lengths(args[0]), macs.lengths(args[1]), strict=True)
    return _SCORE * int(args[4]) * sum(n * m for n, m in pairs)


def transformer_layer(args: Sequence[Any], out: Any) -> int:
    """`_transformer_encoder_layer_fwd(x, width, heads, ...)`: scores, two layer norms of 7, two sums, activation."""
    tokens, width, heads, hidden = macs.lengths(args[0]), int(args[1]), int(args[2]), int(args[14].shape[0])
    activation = _GELU["none"] if args[7] else 1
    return sum(n * (_SCORE * heads * n + 2 * 7 * width + 2 * width + activation * hidden) for n in tokens)


# Per hidden unit and step, by PyTorch's number of the cell. Plain: sum of both products, activation. LSTM: four
# gate sums, three sigmoids of 4, tanh; `f * c + i * g`; `o * tanh(c)`. GRU: two gate sums, two sigmoids;
# `tanh(a + r * b)`; `(h - n) * z + n`.
_CELL = {0: 2, 1: 2, 2: 22, 3: 16}


def onednn_recurrence(args: Sequence[Any], out: Any) -> int:
    """`mkldnn_rnn_layer(x, ..., mode, hidden, ...)`: one layer, one direction."""
    return _CELL[int(args[9])] * macs.steps(args[0]) * int(args[10])


def recurrence(mode_at: int, layers_at: int, bidirectional_at: int) -> FlopFormula:
    """`_cudnn_rnn(x, ..., mode, hidden, ..., layers, ...)`: all layers and directions in one call."""

    def formula(args: Sequence[Any], out: Any) -> int:
        layers = int(args[layers_at]) * (2 if args[bidirectional_at] else 1)
        return _CELL[int(args[mode_at])] * macs.steps(args[0]) * int(args[mode_at + 1]) * layers

    return formula


# --- Resampling and pooling ------------------------------------------------------------------------------


def antialiased(interpolation: int) -> FlopFormula:
    """`_upsample_.._aa(x, size, align_corners, scale_h, scale_w)`: rows first, then columns, 2 per tap.

    Args:
        interpolation: Taps per axis where nothing shrinks; the window widens by the scale where it does.
    """

    def formula(args: Sequence[Any], out: Any) -> int:
        return _antialiased(interpolation, args[0].shape, out.shape, args[2], args[3:5])

    return formula


def antialiased_backward(interpolation: int) -> FlopFormula:
    """`_upsample_.._aa_backward(grad, size, input_size, align_corners, ...)`: the forward's taps."""
    return lambda args, out: _antialiased(interpolation, args[2], args[0].shape, args[3], args[4:6])


def _antialiased(
    interpolation: int, found: Sequence[int], wanted: Sequence[int], align_corners: bool, factors: Sequence[Any]
) -> int:
    (high, wide), (new_high, new_wide) = found[-2:], wanted[-2:]
    factor_h, factor_w = (*factors, None, None)[:2]
    across = _taps(interpolation, int(wide), int(new_wide), align_corners, factor_w)
    down = _taps(interpolation, int(high), int(new_high), align_corners, factor_h)
    return 2 * prod(wanted[:-2]) * (high * across + new_wide * down)


@cache
def _taps(interpolation: int, found: int, wanted: int, align_corners: bool, factor: float | None) -> int:
    """Sum the windows' widths along one axis, each cut at the border."""
    if align_corners:
        scale = (found - 1) / (wanted - 1) if wanted > 1 else 0.0
    else:
        scale = 1 / factor if factor else found / wanted
    support = interpolation / 2 * max(scale, 1.0)
    centres = (scale * (position + 0.5) for position in range(wanted))
    return sum(min(int(c + support + 0.5), found) - max(int(c - support + 0.5), 0) for c in centres)


def _grid_taps(mode: int, axes: int) -> int:
    per_axis = {0: 2, 1: 0, 2: 4}[mode]  # bilinear, nearest, bicubic
    return int(per_axis**axes)


def grid_sample(axes: int) -> FlopFormula:
    """`grid_sampler(x, grid, mode, ...)`: 2 per tap and sampled value; nearest selects, 0."""
    return lambda args, out: 2 * _grid_taps(args[2], axes) * _numbers(out)


def grid_sample_backward(axes: int) -> FlopFormula:
    """`grid_sampler_backward(grad, x, grid, mode, ..., output_mask)`: the taps again per wanted gradient.

    One weighted sum for the input, one per axis for the grid.
    """

    def formula(args: Sequence[Any], out: Any) -> int:
        sums = bool(args[6][0]) + axes * bool(args[6][1])
        return 2 * _grid_taps(args[3], axes) * _numbers(args[0]) * sums

    return formula


def deformable_convolution(args: Sequence[Any], out: Any) -> int:
    """`deform_conv2d(x, weight, ..., use_mask)`: each value the kernel meets is a bilinear sample, 4 taps.

    Every input channel is sampled at every kernel position of every output position, whatever the groups; a
    mask multiplies each sample.
    """
    return _samples(args[0], args[1], out) * (2 * 4 + bool(args[13]))


def deformable_convolution_backward(args: Sequence[Any], out: Any) -> int:
    """The samples again, scattered into the input, and one weighted sum for each of the two offsets."""
    return _samples(args[1], args[2], args[0]) * (4 * 2 * 4 + 2 * bool(args[14]))


def _samples(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor) -> int:
    return prod(x.shape[:2]) * prod(weight.shape[2:]) * prod(out.shape[2:])


def roi_align(args: Sequence[Any], out: Any) -> int:
    """`roi_align(x, rois, scale, height, width, ratio, ...)`: per bin `ratio^2` bilinear samples and their mean.

    An adaptive ratio depends on the boxes; then 1 sample per bin, which is the least.
    """
    return 9 * max(int(args[5]), 1) ** 2 * _numbers(_first(out))


def pooling(args: Sequence[Any], out: Any) -> int:
    """`avg_pool(x, kernel, ...)`, `max_pool(x, kernel, ...)`: the kernel's area per output."""
    return _pooling(args[1], _first(out), args[0])


def pooling_backward(args: Sequence[Any], out: Any) -> int:
    """`avg_pool_backward(grad, x, kernel, ...)`: each gradient is added to its whole window."""
    return _pooling(args[2], args[0], args[1])


def _pooling(kernel: Sequence[int], pooled: torch.Tensor, x: torch.Tensor) -> int:
    axes = 3 if len(kernel) == 3 or (len(kernel) == 1 and x.dim() == 5) else 2
    return _numbers(pooled) * (prod(kernel) if len(kernel) > 1 else int(kernel[0]) ** axes)


def adaptive_pooling(axes: int) -> FlopFormula:
    """`adaptive_pool(x, size)`: the sum of all windows, which may overlap."""
    return lambda args, out: _adaptive(axes, args[0], _first(out))


def adaptive_pooling_backward(axes: int) -> FlopFormula:
    """`_adaptive_avg_pool_backward(grad, x)`: as forward."""
    return lambda args, out: _adaptive(axes, args[1], args[0])


def _adaptive(axes: int, x: torch.Tensor, pooled: torch.Tensor) -> int:
    sizes = zip(x.shape[-axes:], pooled.shape[-axes:], strict=True)
    return prod(pooled.shape[:-axes]) * prod(_windows(int(found), int(wanted)) for found, wanted in sizes)


@cache
def _windows(found: int, wanted: int) -> int:
    """Sum the widths of windows `floor(i n / m) .. ceil((i + 1) n / m)`."""
    return sum(-(-(i + 1) * found // wanted) - i * found // wanted for i in range(wanted))


def affine_grid(args: Sequence[Any], out: Any) -> int:
    """`affine_grid_generator(theta, size, ...)`: each coordinate a sum over the axes and the offset."""
    return 2 * (int(out.shape[-1]) + 1) * _numbers(out)


# --- Transforms and distances ----------------------------------------------------------------------------


def fourier(args: Sequence[Any], out: Any) -> int:
    """`_fft_c2c(x, dim, ...)`: `5 n log2 n` per transform of n points, the field's convention (radix 2)."""
    return _fourier(args[0], args[1])


def real_fourier(args: Sequence[Any], out: Any) -> int:
    """`_fft_r2c(x, dim, ...)`, `_fft_c2r(x, dim, ...)`: half, since one side is real and symmetric."""
    return _fourier(out if args[0].is_complex() else args[0], args[1]) // 2


def _fourier(signal: torch.Tensor, dims: Sequence[int]) -> int:
    return round(5 * signal.numel() * log2(max(prod(signal.shape[dim] for dim in dims), 1)))


def distances(args: Sequence[Any], out: Any) -> int:
    """`_cdist_forward(a, b, p, ...)`, `_pdist_forward(x, p)`: difference, power, sum per pair and coordinate."""
    return 3 * _numbers(out) * int(args[0].shape[-1])


def euclidean_distances(args: Sequence[Any], out: Any) -> int:
    """`_euclidean_dist(a, b)`: squared norms of the rows, and a clamp and a root per pair."""
    return 2 * (_numbers(args[0]) + _numbers(args[1])) + 2 * _numbers(out)


def trilinear(args: Sequence[Any], out: Any) -> int:
    """`_trilinear(a, b, c, ...)`: the second product of each triple; the first is its multiply-accumulate."""
    return macs.trilinear(args, out)


def trace(args: Sequence[Any], out: Any) -> int:
    """`trace(x)`: one sum per diagonal element."""
    return int(min(args[0].shape))


def fused_activation(args: Sequence[Any], out: Any) -> int:
    """`_addmm_activation(c, a, b, beta, alpha, use_gelu)`: a ReLU, or a GELU."""
    return _numbers(out) * (_GELU["none"] if len(args) > 5 and args[5] else 1)


def _first(value: Any) -> Any:
    """Return the first tensor of arguments or outputs."""
    if isinstance(value, torch.Tensor):
        return value
    return next((item for item in value if isinstance(item, torch.Tensor)), None) if value else None


def _numbers(tensor: Any, of: Any = None) -> int:
    """Count a tensor's numbers where they are floating-point, or where those they came from are."""
    if tensor is None:
        return 0
    if tensor.is_complex():
        return 2 * int(tensor.numel())
    if tensor.is_floating_point() or (of is not None and (of.is_floating_point() or of.is_complex())):
        return int(tensor.numel())
    return 0


def _given(args: Sequence[Any], *positions: int) -> int:
    """Count which of these arguments are not None."""
    return sum(position < len(args) and args[position] is not None for position in positions)


def _named(table: Mapping[str, FlopFormula]) -> Iterator[tuple[str, FlopFormula]]:
    """Spread blank-separated names, in `aten` unless they say otherwise."""
    for names, formula in table.items():
        for name in names.split():
            yield (name if "::" in name else f"aten::{name}"), formula


_AXES = {"1d": 1, "2d": 2, "3d": 3}
_INTERPOLATIONS = {
    "upsample_linear1d": 2,
    "upsample_bilinear2d": 4,
    "upsample_bicubic2d": 16,
    "upsample_trilinear3d": 8,
}

FORMULAS: dict[str, FlopFormula] = dict(
    _named(
        {
            # Pointwise arithmetic; what is not listed here and tagged pointwise by PyTorch counts 1.
            "mul": complex_product,
            "add sub rsub": scaled_sum,
            "clamp": clamp,
            "lerp addcmul addcdiv": per_output(3),
            "logaddexp logaddexp2 sinc logit xlogy special_xlog1py": per_output(3),
            "_conj_physical conj_physical": per_output(0),  # flips signs
            "native_dropout native_dropout_backward": per_output(2),  # compare with the draw or mask, scale
            "_transform_bias_rescale_qkv": per_output(1),  # scales the query; the bias belongs to the product
            "complex where masked_fill": per_output(0),
            "polar": per_output(2),  # per number of the complex result: cos or sin, times the magnitude
            "linalg_cross": per_output(3),  # two products and their difference
            # Activations.
            "relu threshold tanh": per_output(1),
            "hardtanh leaky_relu _prelu_kernel rrelu_with_noise hardshrink": per_output(2),
            "softshrink": per_output(3),
            "sigmoid": per_output(4),  # 1 / (1 + exp(-x))
            "silu": per_output(4),  # x / (1 + exp(-x))
            "hardsigmoid": per_output(4),  # + 3, clamp twice, / 6
            "elu celu": per_output(4),  # compare, exp, - 1, * alpha
            "hardswish": per_output(5),  # as hardsigmoid, * x
            "glu": per_output(5),  # sigmoid, * x
            "mish": per_output(5),  # exp, + 1, log, tanh, * x
            "softplus": per_output(5),  # * beta, exp, + 1, log, / beta
            "log_sigmoid_forward": per_output(7),  # min(x, 0) - log(1 + exp(-abs(x)))
            "gelu": gelu,
            "_softmax _safe_softmax _masked_softmax": per_output(5),  # max, subtract, exp, sum, divide
            "_log_softmax": per_output(5),  # max, subtract, exp, sum, subtract
            "threshold_backward": per_output(1),
            "hardtanh_backward leaky_relu_backward rrelu_with_noise_backward hardshrink_backward": per_output(2),
            "softshrink_backward": per_output(2),
            "sigmoid_backward": per_output(3),  # grad * y * (1 - y)
            "tanh_backward": per_output(3),  # grad * (1 - y * y)
            "hardsigmoid_backward": per_output(3),
            "_prelu_kernel_backward elu_backward": per_output(4),
            "_softmax_backward_data _masked_softmax_backward": per_output(4),  # grad * y, sum; subtract, * y
            "_log_softmax_backward_data": per_output(4),  # sum; exp, * sum, subtract
            "softplus_backward hardswish_backward": per_output(5),
            "log_sigmoid_backward": per_output(6),
            "glu_backward": per_input(9),  # sigmoid, * grad; (1 - s) * s * x * grad
            "silu_backward": per_output(9),  # sigmoid; 1 - s, * x, + 1, * s, * grad
            "mish_backward": per_output(14),
            "gelu_backward": gelu_backward,
            # Norms.
            "native_layer_norm": layer_norm,
            "native_group_norm": group_norm,
            "_fused_rms_norm": rms_norm,
            "native_batch_norm cudnn_batch_norm miopen_batch_norm": batch_norm(5),
            "_native_batch_norm_legit _native_batch_norm_legit_functional": batch_norm(5),
            "_batch_norm_with_update _batch_norm_with_update_functional": per_input(6),
            "_native_batch_norm_legit_no_training _batch_norm_no_update batch_norm_elemt": batch_norm(None),
            "batch_norm_stats batch_norm_update_stats": per_input(4),
            "batch_norm_gather_stats batch_norm_gather_stats_with_counts": per_input(0),  # per channel
            "batch_norm_backward_reduce": per_input(5),
            "batch_norm_backward_elemt": per_input(4),
            "native_layer_norm_backward": norm_backward(7, 10),
            "native_group_norm_backward": norm_backward(9, 10),
            "_fused_rms_norm_backward": norm_backward(5, 8),
            "native_batch_norm_backward batch_norm_backward": norm_backward(9, 10),
            "cudnn_batch_norm_backward miopen_batch_norm_backward": per_input(15),
            "linalg_vector_norm norm": per_input(2),  # power, sum
            "renorm _weight_norm_interface": per_input(3),  # and the scaling
            "_weight_norm_interface_backward": per_input(5),
            # Attention and recurrence.
            "_scaled_dot_product_flash_attention_for_cpu": attention(5),
            "_scaled_dot_product_flash_attention higher_order::flex_attention": attention(),
            """_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention
            _scaled_dot_product_fused_attention_overrideable _scaled_dot_product_attention_math_for_mps
            scaled_dot_product_attention""": attention(3),
            """_scaled_dot_product_flash_attention_for_cpu_backward _scaled_dot_product_flash_attention_backward
            _scaled_dot_product_efficient_attention_backward _scaled_dot_product_cudnn_attention_backward
            _scaled_dot_product_fused_attention_overrideable_backward
            """: attention_backward,
            "_flash_attention_forward torch_attn::_varlen_attn": flash_attention,
            "_efficient_attention_forward": efficient_attention,
            "_native_multi_head_attention": multi_head_attention,
            "_transformer_encoder_layer_fwd": transformer_layer,
            "mkldnn_rnn_layer": onednn_recurrence,
            "_cudnn_rnn": recurrence(6, 9, 13),
            "miopen_rnn": recurrence(5, 7, 11),
            "_thnn_fused_lstm_cell": per_output(22),
            "_thnn_fused_gru_cell": per_output(16),
            # Fused epilogues of products.
            "_addmm_activation": fused_activation,
            "cudnn_convolution_relu miopen_convolution_relu": per_output(1),
            "cudnn_convolution_add_relu miopen_convolution_add_relu": per_output(2),
            "torchvision::deform_conv2d": deformable_convolution,
            "torchvision::_deform_conv2d_backward": deformable_convolution_backward,
            # Resampling; nearest and unpooling move values.
            **{name: per_output(2 * taps) for name, taps in _INTERPOLATIONS.items()},
            **{f"{name}_backward": per_input(2 * taps) for name, taps in _INTERPOLATIONS.items()},
            **{f"upsample_nearest{d} _upsample_nearest_exact{d}": per_output(0) for d in _AXES},
            **{f"upsample_nearest{d}_backward _upsample_nearest_exact{d}_backward": per_input(1) for d in _AXES},
            "_upsample_bilinear2d_aa": antialiased(2),
            "_upsample_bicubic2d_aa": antialiased(4),
            "_upsample_lanczos2d_aa": antialiased(6),
            "_upsample_bilinear2d_aa_backward": antialiased_backward(2),
            "_upsample_bicubic2d_aa_backward": antialiased_backward(4),
            "grid_sampler_2d _grid_sampler_2d_cpu_fallback": grid_sample(2),
            "grid_sampler_3d": grid_sample(3),
            "cudnn_grid_sampler": per_output(8),
            "grid_sampler_2d_backward": grid_sample_backward(2),
            "grid_sampler_3d_backward": grid_sample_backward(3),
            "affine_grid_generator cudnn_affine_grid_generator": affine_grid,
            "torchvision::roi_align torchvision::ps_roi_align": roi_align,
            "torchvision::roi_pool torchvision::ps_roi_pool": per_output(1),  # the least: one value per bin
            # Pooling.
            """avg_pool2d avg_pool3d max_pool2d_with_indices max_pool3d_with_indices fractional_max_pool2d
            fractional_max_pool3d""": pooling,
            "avg_pool2d_backward avg_pool3d_backward": pooling_backward,
            "_adaptive_avg_pool2d adaptive_max_pool2d": adaptive_pooling(2),
            "_adaptive_avg_pool3d adaptive_max_pool3d": adaptive_pooling(3),
            "_adaptive_avg_pool2d_backward": adaptive_pooling_backward(2),
            "_adaptive_avg_pool3d_backward": adaptive_pooling_backward(3),
            """adaptive_max_pool2d_backward adaptive_max_pool3d_backward max_pool2d_with_indices_backward
            max_pool3d_with_indices_backward""": per_input(1),
            "max_unpool2d max_unpool3d": per_output(0),
            # Reductions and losses.
            "sum nansum mean prod amax amin max min argmax argmin cumsum cumprod cummax cummin": reduction(1),
            "aminmax _aminmax": per_input(2),
            "var var_mean std std_mean logcumsumexp logsumexp": per_input(4),
            "dist": per_input(3),
            "trace": trace,
            """any all _is_all_true _is_any_true count_nonzero equal allclose isin median nanmedian mode topk sort
            kthvalue unique_dim unique_consecutive _unique _unique2 searchsorted bucketize histc bincount
            torchvision::nms""": per_output(0),
            "mse_loss": per_input(3),  # subtract, square, sum
            "smooth_l1_loss huber_loss soft_margin_loss": per_input(5),
            "binary_cross_entropy": per_input(7),  # y log p + (1 - y) log(1 - p), sum
            "mse_loss_backward smooth_l1_loss_backward huber_loss_backward": per_input(3, 1),
            "binary_cross_entropy_backward": per_input(5, 1),
            "nll_loss_forward nll_loss2d_forward nll_loss_backward nll_loss2d_backward": per_output(0),  # gathers
            # Copies that accumulate.
            "scatter_add index_add scatter_reduce index_reduce": per_input(1, 3),
            "col2im embedding_dense_backward unfold_backward": per_input(1),
            # Transforms and distances.
            "_fft_c2c": fourier,
            "_fft_r2c _fft_c2r": real_fourier,
            "_cdist_forward _pdist_forward": distances,
            "_euclidean_dist": euclidean_distances,
            "_trilinear": trilinear,
        }
    )
)
"""Formulas by qualified name of the operator; in-place forms follow their plain form."""
