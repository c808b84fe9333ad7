"""The one table of operators: what type of work each does, its MACs and FLOPs, and which bytes it has to touch.

Keys are the qualified names of operators (`aten::mm` for the packet `torch.ops.aten.mm`), so that one table
serves releases of PyTorch that lack some of them. Only multiply-add operators have MACs; norms, activations,
resampling and element-wise work have FLOPs instead, apart from the MACs, by the formulas of
`gearshift.profiler.flops`. An operator that is neither here, nor a view, nor tagged pointwise by PyTorch has no
rule: it is reported as uncounted, never hidden.

A matrix product starts as `matmul` here. `gearshift.profiler.recorder` books it as `linear` where it
multiplies by a weight, and everything inside `scaled_dot_product_attention` as `attention`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache
from types import MappingProxyType
from typing import Any

import torch

from gearshift.errors import InputError
from gearshift.profiler import macs
from gearshift.profiler.flops import FORMULAS, FlopFormula, per_output
from gearshift.profiler.macs import Formula, OperatorType


class Traffic(Enum):
    """Which bytes a call must at least move."""

    ALL = auto()  # reads every input, writes every output
    GATHERED = auto()  # reads as much of the first input as it writes, and the indices
    COPIED = auto()  # overwrites the first argument without reading it
    WRITTEN = auto()  # reads nothing
    FREE = auto()  # a view or an allocation


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """How one operator is booked; `macs` and `flops` are None for operators that have none."""

    operator_type: OperatorType
    macs: Formula | None = None
    flops: FlopFormula | None = None
    traffic: Traffic = Traffic.ALL


def find_rule(operator: Any) -> Rule | None:
    """Return the rule for an operator, or None where nothing is known about it.

    In-place forms (`relu_`) follow their plain form.
    """
    return _find_rule(operator)


def known_operators() -> Mapping[str, Rule]:
    """Return the table as it stands, by qualified name."""
    return MappingProxyType(_OPERATORS)


def register_operator(
    operator: "torch._ops.OpOverloadPacket[..., Any] | str",
    operator_type: OperatorType,
    macs: Formula | None = None,
    traffic: Traffic = Traffic.ALL,
    flops: FlopFormula | None = None,
) -> None:
    """Teach the counter an operator, for instance a custom one.

    Args:
        operator: The packet, such as `torch.ops.my.op`, or its qualified name, `my::op`.
        operator_type: The row of the cost table that it belongs to.
        macs: `formula(args, out)`, its multiply-accumulates from shapes; None if it has none. `args` are the
            arguments as the schema lists them, keyword-only ones last.
        traffic: Which bytes a call has to move.
        flops: `formula(args, out)`, its floating-point operations beside the MACs; None if it has none.

    Raises:
        InputError: The name is not qualified, or there is no such type of work.
    """
    name = operator if isinstance(operator, str) else operator._qualified_op_name
    if not all(name.partition("::")):
        raise InputError(f'"{name}" names no operator; write namespace::name, such as my::op')
    if operator_type not in tuple(OperatorType):
        raise InputError(f'"{operator_type}" is no type of work; choose one of {", ".join(OperatorType)}')
    _OPERATORS[name] = Rule(operator_type=OperatorType(operator_type), macs=macs, flops=flops, traffic=traffic)
    _find_rule.cache_clear()


@cache
def _find_rule(operator: Any) -> Rule | None:
    name = qualified_name(operator)
    plain = name.removesuffix("_")
    rule = _OPERATORS.get(name) or _OPERATORS.get(plain)
    if rule is not None or not isinstance(operator, torch._ops.OpOverload):
        return rule
    if _is_view(operator):
        return _VIEW
    if not _is_pointwise(operator, plain):
        return None
    return Rule(operator_type=OperatorType.ELEMENTWISE, flops=FORMULAS.get(plain, _ONE_PER_ELEMENT))


@cache
def qualified_name(operator: Any) -> str:
    """Return `namespace::name` without the overload, such as `aten::add` for `aten::add.Tensor`.

    Operators that take functions, such as flex attention's, are in the namespace `higher_order`.
    """
    name: str = operator.name()
    return name.partition(".")[0] if "::" in name else f"higher_order::{name}"


def _is_view(operator: "torch._ops.OpOverload[..., Any]") -> bool:
    returns = operator._schema.returns
    return bool(returns) and all(r.alias_info is not None and not r.alias_info.is_write for r in returns)


def _is_pointwise(operator: "torch._ops.OpOverload[..., Any]", plain: str) -> bool:
    if torch.Tag.pointwise in operator.tags or plain in _UNTAGGED:
        return True
    namespace, _, name = plain.partition("::")
    packet = getattr(getattr(torch.ops, namespace), name, None)
    form = getattr(packet, operator._overloadname, None)
    return form is not None and torch.Tag.pointwise in form.tags


_UNTAGGED = frozenset({"aten::floor_divide"})  # pointwise, but PyTorch does not say so
_VIEW = Rule(operator_type=OperatorType.DATA_MOVEMENT, traffic=Traffic.FREE)
_ONE_PER_ELEMENT = per_output(1)
_OPERATORS: dict[str, Rule] = {}


def _book(
    operator_type: OperatorType,
    names: str,
    formula: Formula | None = None,
    *,
    traffic: Traffic = Traffic.ALL,
) -> None:
    """Enter every name of a blank-separated list, in `aten` unless it says otherwise."""
    for name in names.split():
        key = name if "::" in name else f"aten::{name}"
        register_operator(key, operator_type, formula, traffic, FORMULAS.get(key))


_book(OperatorType.CONVOLUTION, "convolution _convolution convolution_overrideable", macs.convolution)
_book(
    OperatorType.CONVOLUTION,
    """cudnn_convolution cudnn_convolution_relu cudnn_convolution_add_relu miopen_convolution
    miopen_convolution_relu miopen_convolution_add_relu miopen_depthwise_convolution mkldnn_convolution
    _nnpack_spatial_convolution _slow_conv2d_forward slow_conv3d_forward slow_conv_dilated2d
    slow_conv_dilated3d
    _conv_depthwise2d conv_depthwise3d torchvision::deform_conv2d""",
    macs.plain_convolution,
)
_book(
    OperatorType.CONVOLUTION,
    "cudnn_convolution_transpose miopen_convolution_transpose slow_conv_transpose2d slow_conv_transpose3d",
    macs.transposed_convolution,
)
_book(OperatorType.CONVOLUTION, "conv_tbc", macs.time_batch_channel_convolution)
_book(
    OperatorType.CONVOLUTION,
    "convolution_backward convolution_backward_overrideable",
    macs.convolution_backward,
)
_book(OperatorType.CONVOLUTION, "torchvision::_deform_conv2d_backward", macs.deformable_convolution_backward)

_book(OperatorType.MATMUL, "mm bmm _int_mm _scaled_mm _scaled_mm_v2", macs.matrix_product)
_book(OperatorType.MATMUL, "addmm _addmm_activation baddbmm addbmm", macs.added_matrix_product)
_book(OperatorType.MATMUL, "mv dot vdot", macs.vector_product)
_book(OperatorType.MATMUL, "addmv", macs.added_vector_product)
_book(OperatorType.MATMUL, "addr", macs.outer_product)
_book(OperatorType.MATMUL, "_grouped_mm _scaled_grouped_mm _scaled_grouped_mm_v2", macs.grouped_product)
_book(OperatorType.MATMUL, "_trilinear", macs.trilinear)
_book(OperatorType.MATMUL, "_euclidean_dist", macs.euclidean_distances)
_book(OperatorType.LINEAR, "mkldnn_rnn_layer", macs.onednn_recurrence)
_book(OperatorType.LINEAR, "_cudnn_rnn miopen_rnn", macs.recurrence)
_book(
    OperatorType.LINEAR,
    """_weight_int8pack_mm _weight_int4pack_mm _weight_int4pack_mm_for_cpu quantized::linear
    quantized::linear_relu quantized::linear_dynamic quantized::linear_relu_dynamic
    quantized::linear_dynamic_fp16 quantized::linear_relu_dynamic_fp16""",
    macs.packed_product,
)

_book(
    OperatorType.ATTENTION,
    """_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention
    _scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention
    _scaled_dot_product_fused_attention_overrideable _scaled_dot_product_attention_math_for_mps
    scaled_dot_product_attention higher_order::flex_attention""",
    macs.attention,
)
_book(
    OperatorType.ATTENTION,
    """_scaled_dot_product_flash_attention_for_cpu_backward _scaled_dot_product_flash_attention_backward
    _scaled_dot_product_efficient_attention_backward _scaled_dot_product_cudnn_attention_backward
    _scaled_dot_product_fused_attention_overrideable_backward""",
    macs.attention_backward,
)
_book(OperatorType.ATTENTION, "_flash_attention_forward torch_attn::_varlen_attn", macs.flash_attention)
_book(OperatorType.ATTENTION, "_efficient_attention_forward", macs.efficient_attention)
_book(OperatorType.ATTENTION, "_native_multi_head_attention", macs.multi_head_attention)
_book(OperatorType.ATTENTION, "_transformer_encoder_layer_fwd", macs.transformer_layer)

_book(
    OperatorType.NORM,
    """native_layer_norm native_layer_norm_backward native_batch_norm native_batch_norm_backward
    cudnn_batch_norm cudnn_batch_norm_backward miopen_batch_norm miopen_batch_norm_backward
    _native_batch_norm_legit _native_batch_norm_legit_no_training _native_batch_norm_legit_functional
    _batch_norm_with_update _batch_norm_with_update_functional _batch_norm_no_update batch_norm_backward
    batch_norm_stats batch_norm_elemt batch_norm_backward_elemt batch_norm_backward_reduce
    batch_norm_gather_stats batch_norm_gather_stats_with_counts batch_norm_update_stats
    native_group_norm native_group_norm_backward _fused_rms_norm _fused_rms_norm_backward
    linalg_vector_norm norm renorm _weight_norm_interface _weight_norm_interface_backward""",
)
_book(
    OperatorType.ACTIVATION,
    """relu gelu silu mish sigmoid tanh hardtanh hardswish hardsigmoid leaky_relu elu softplus
    log_sigmoid_forward _prelu_kernel rrelu_with_noise glu threshold softshrink hardshrink
    _softmax _log_softmax _safe_softmax _masked_softmax
    gelu_backward silu_backward mish_backward sigmoid_backward tanh_backward hardtanh_backward
    hardswish_backward hardsigmoid_backward leaky_relu_backward elu_backward softplus_backward
    log_sigmoid_backward _prelu_kernel_backward rrelu_with_noise_backward glu_backward threshold_backward
    softshrink_backward hardshrink_backward _softmax_backward_data _log_softmax_backward_data
    _masked_softmax_backward""",
)
_book(
    OperatorType.RESAMPLE,
    """upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d
    _upsample_nearest_exact2d _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d
    upsample_trilinear3d upsample_bicubic2d _upsample_bilinear2d_aa _upsample_bicubic2d_aa
    _upsample_lanczos2d_aa grid_sampler_2d grid_sampler_3d cudnn_grid_sampler _grid_sampler_2d_cpu_fallback
    affine_grid_generator cudnn_affine_grid_generator avg_pool2d avg_pool3d _adaptive_avg_pool2d
    _adaptive_avg_pool3d adaptive_max_pool2d adaptive_max_pool3d max_pool2d_with_indices
    max_pool3d_with_indices fractional_max_pool2d fractional_max_pool3d max_unpool2d max_unpool3d
    upsample_nearest1d_backward upsample_nearest2d_backward upsample_nearest3d_backward
    _upsample_nearest_exact1d_backward _upsample_nearest_exact2d_backward _upsample_nearest_exact3d_backward
    upsample_linear1d_backward upsample_bilinear2d_backward upsample_trilinear3d_backward
    upsample_bicubic2d_backward _upsample_bilinear2d_aa_backward _upsample_bicubic2d_aa_backward
    grid_sampler_2d_backward grid_sampler_3d_backward avg_pool2d_backward avg_pool3d_backward
    _adaptive_avg_pool2d_backward _adaptive_avg_pool3d_backward adaptive_max_pool2d_backward
    adaptive_max_pool3d_backward max_pool2d_with_indices_backward max_pool3d_with_indices_backward
    torchvision::roi_align torchvision::roi_pool torchvision::ps_roi_align torchvision::ps_roi_pool""",
)
_book(
    OperatorType.ELEMENTWISE,
    """native_dropout native_dropout_backward masked_fill where complex polar
    _transform_bias_rescale_qkv linalg_cross _thnn_fused_lstm_cell _thnn_fused_gru_cell""",
)

_book(
    OperatorType.DATA_MOVEMENT,
    """clone _to_copy cat stack _stack _chunk_cat constant_pad_nd reflection_pad1d
    reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d replication_pad3d roll flip rot90
    repeat repeat_interleave tril triu pixel_shuffle pixel_unshuffle channel_shuffle native_channel_shuffle
    im2col col2im unsafe_split unsafe_split_with_sizes split_with_sizes_copy split_copy index_put
    _index_put_impl _unsafe_index_put index_copy index_fill index_add index_reduce scatter scatter_add
    scatter_reduce masked_scatter slice_scatter select_scatter diagonal_scatter as_strided_scatter block_diag
    diag_embed nonzero nonzero_static masked_select _local_scalar_dense _pin_memory _to_dense
    reflection_pad1d_backward reflection_pad2d_backward reflection_pad3d_backward replication_pad1d_backward
    replication_pad2d_backward replication_pad3d_backward slice_backward select_backward unfold_backward
    diagonal_backward embedding_dense_backward expand_copy permute_copy view_copy unsqueeze_copy squeeze_copy
    transpose_copy slice_copy select_copy t_copy as_strided_copy
    unfold_copy detach_copy alias_copy _nested_tensor_from_mask to_padded_tensor""",
)
_book(
    OperatorType.DATA_MOVEMENT,
    "index _unsafe_index index_select gather embedding take",
    traffic=Traffic.GATHERED,
)
_book(OperatorType.DATA_MOVEMENT, "copy copy_ _copy_from", traffic=Traffic.COPIED)
_book(
    OperatorType.DATA_MOVEMENT,
    """zeros ones full eye arange range linspace logspace scalar_tensor tril_indices triu_indices zeros_like
    ones_like full_like new_zeros new_ones new_full zero fill hann_window hamming_window kaiser_window""",
    traffic=Traffic.WRITTEN,
)
_book(
    OperatorType.DATA_MOVEMENT,
    """empty empty_like empty_strided empty_permuted new_empty new_empty_strided _unsafe_view _reshape_alias
    detach detach_ lift lift_fresh alias t_ transpose_ squeeze_ unsqueeze_ as_strided_ resize resize_ set
    set_ is_same_size is_pinned is_set_to record_stream _efficientzerotensor _assert_async _assert_scalar
    _linalg_check_errors _nested_tensor_from_mask_left_aligned _assert_tensor_metadata
    _functional_assert_async sym_constrain_range sym_constrain_range_for_size""",
    traffic=Traffic.FREE,
)

_book(
    OperatorType.OTHER,
    """_fft_c2c _fft_r2c _fft_c2r _cdist_forward _pdist_forward
    sum nansum mean prod amax amin aminmax _aminmax max min argmax argmin any all _is_all_true _is_any_true
    var var_mean std std_mean median nanmedian mode cumsum cumprod cummax cummin logcumsumexp logsumexp trace
    count_nonzero dist topk sort kthvalue unique_dim unique_consecutive _unique _unique2 searchsorted
    bucketize isin histc bincount equal allclose mse_loss smooth_l1_loss huber_loss soft_margin_loss
    nll_loss_forward nll_loss2d_forward binary_cross_entropy mse_loss_backward smooth_l1_loss_backward
    huber_loss_backward nll_loss_backward nll_loss2d_backward binary_cross_entropy_backward
    torchvision::nms""",
)
_book(
    OperatorType.OTHER,
    """rand randn randint randperm rand_like randn_like randint_like normal uniform bernoulli random
    exponential multinomial poisson""",
    traffic=Traffic.WRITTEN,
)
