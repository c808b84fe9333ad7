"""Every multiply-add operator, with the arithmetic beside it and PyTorch's own counter as a witness."""

from math import prod

import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from gearshift.profiler import CallRecorder, OperatorType, count
from gearshift.profiler.operators import known_operators


def shape(*sizes: int) -> torch.Tensor:
    return torch.empty(sizes, device="meta")


def macs_of(name: str, args: tuple, out: object) -> int:
    macs = known_operators()[name].macs(args, out)
    return sum(macs.values()) if isinstance(macs, dict) else macs


X, W, OUT = shape(2, 4, 9, 9), shape(6, 2, 3, 3), shape(2, 6, 7, 7)  # two groups of 2 -> 3 channels
CONVOLUTION = 2 * 7 * 7 * 6 * 2 * 3 * 3
UP_W, UP_OUT = shape(4, 3, 3, 3), shape(2, 6, 11, 11)  # transposed, two groups of 2 -> 3 channels
TRANSPOSED = 2 * 9 * 9 * 4 * 3 * 3 * 3
A, B = shape(5, 7), shape(7, 3)
Q, K, V = shape(2, 4, 5, 8), shape(2, 4, 6, 8), shape(2, 4, 6, 3)
ATTENTION = 2 * 4 * 5 * 6 * (8 + 3)
TOKENS_FIRST = tuple(tensor.transpose(1, 2) for tensor in (Q, K, V))
T, D = shape(2, 5, 8), 8
MULTI_HEAD = 2 * 5 * 4 * 8 * 8 + 2 * 2 * 5 * 5 * 8

PLAIN = dict.fromkeys(
    (
        "aten::cudnn_convolution",
        "aten::cudnn_convolution_relu",
        "aten::cudnn_convolution_add_relu",
        "aten::miopen_convolution",
        "aten::miopen_convolution_relu",
        "aten::miopen_convolution_add_relu",
        "aten::miopen_depthwise_convolution",
        "aten::mkldnn_convolution",
        "aten::_nnpack_spatial_convolution",
        "aten::_slow_conv2d_forward",
        "aten::slow_conv3d_forward",
        "aten::slow_conv_dilated2d",
        "aten::slow_conv_dilated3d",
        "aten::_conv_depthwise2d",
        "aten::conv_depthwise3d",
        "torchvision::deform_conv2d",
    ),
    ((X, W), OUT, CONVOLUTION),
)
UP = dict.fromkeys(
    (
        "aten::cudnn_convolution_transpose",
        "aten::miopen_convolution_transpose",
        "aten::slow_conv_transpose2d",
        "aten::slow_conv_transpose3d",
    ),
    ((X, UP_W), UP_OUT, TRANSPOSED),
)
PACKED = dict.fromkeys(
    (
        "aten::_weight_int8pack_mm",
        "aten::_weight_int4pack_mm",
        "aten::_weight_int4pack_mm_for_cpu",
        "quantized::linear",
        "quantized::linear_relu",
        "quantized::linear_dynamic",
        "quantized::linear_relu_dynamic",
        "quantized::linear_dynamic_fp16",
        "quantized::linear_relu_dynamic_fp16",
    ),
    ((A, None), shape(5, 3), 5 * 7 * 3),
)
FUSED = dict.fromkeys(
    (
        "aten::scaled_dot_product_attention",
        "aten::_scaled_dot_product_flash_attention_for_cpu",
        "aten::_scaled_dot_product_flash_attention",
        "aten::_scaled_dot_product_efficient_attention",
        "aten::_scaled_dot_product_cudnn_attention",
        "aten::_scaled_dot_product_fused_attention_overrideable",
        "aten::_scaled_dot_product_attention_math_for_mps",
        "higher_order::flex_attention",
    ),
    ((Q, K, V), None, ATTENTION),
)
FUSED_BACKWARD = dict.fromkeys(
    (
        "aten::_scaled_dot_product_flash_attention_for_cpu_backward",
        "aten::_scaled_dot_product_flash_attention_backward",
        "aten::_scaled_dot_product_efficient_attention_backward",
        "aten::_scaled_dot_product_cudnn_attention_backward",
        "aten::_scaled_dot_product_fused_attention_overrideable_backward",
    ),
    # scores again and dK and dQ over d=8, dV and the scores' gradient over e=3
    ((V, Q, K, V), None, 2 * 4 * 5 * 6 * (3 * 8 + 2 * 3)),
)
BACKWARD = dict.fromkeys(
    ("aten::convolution_backward", "aten::convolution_backward_overrideable"),
    ((OUT, X, W, None, None, None, None, False, None, 2, [True, True, True]), None, 2 * CONVOLUTION),
)
GROUPED = ("aten::_grouped_mm", "aten::_scaled_grouped_mm", "aten::_scaled_grouped_mm_v2")
CASES = {
    **dict.fromkeys(
        ("aten::convolution", "aten::_convolution", "aten::convolution_overrideable"),
        ((X, W, None, None, None, None, False), OUT, CONVOLUTION),
    ),
    **PLAIN,
    **UP,
    **BACKWARD,
    # gradients of the samples and of the weight
    "torchvision::_deform_conv2d_backward": ((OUT, X, W), None, 2 * CONVOLUTION),
    "aten::conv_tbc": ((shape(9, 2, 4), shape(3, 4, 6)), shape(7, 2, 6), 7 * 2 * 6 * 3 * 4),
    **dict.fromkeys(
        ("aten::mm", "aten::_int_mm", "aten::_scaled_mm", "aten::_scaled_mm_v2"), ((A, B), None, 5 * 7 * 3)
    ),
    **dict.fromkeys(("aten::addmm", "aten::_addmm_activation"), ((shape(3), A, B), None, 5 * 7 * 3)),
    "aten::bmm": ((shape(2, 5, 7), shape(2, 7, 3)), None, 2 * 5 * 7 * 3),
    "aten::baddbmm": ((shape(3), shape(2, 5, 7), shape(2, 7, 3)), None, 2 * 5 * 7 * 3),
    "aten::addbmm": ((shape(3), shape(2, 5, 7), shape(2, 7, 3)), None, 2 * 5 * 7 * 3),
    "aten::mv": ((A, shape(7)), None, 5 * 7),
    "aten::addmv": ((shape(5), A, shape(7)), None, 5 * 7),
    **dict.fromkeys(("aten::dot", "aten::vdot"), ((shape(7), shape(7)), None, 7)),
    "aten::addr": ((shape(5, 7), shape(5), shape(7)), shape(5, 7), 5 * 7),
    # rows 0..8 in two groups, each with a matrix of its own
    **dict.fromkeys(GROUPED, ((shape(8, 16), shape(2, 16, 32), shape(2)), None, 8 * 16 * 32)),
    # nn.Bilinear(3, 4, 5) on two rows: batch and output kept, both inputs summed over
    "aten::_trilinear": (
        (shape(2, 3), shape(5, 3, 4), shape(2, 4), [1, 3], [0], [1, 2], [2, 3]),
        None,
        2 * 5 * 3 * 4,
    ),
    "aten::_euclidean_dist": ((shape(2, 30, 7), shape(2, 40, 7)), shape(2, 30, 40), 2 * 30 * 40 * (7 + 2)),
    "aten::mkldnn_rnn_layer": ((shape(9, 2, 6), shape(32, 6), shape(32, 8)), None, 9 * 2 * 32 * (6 + 8)),
    # two layers of an LSTM 6 -> 8 -> 8, each with biases
    **dict.fromkeys(
        ("aten::_cudnn_rnn", "aten::miopen_rnn"),
        (
            (shape(9, 2, 6), [shape(32, 6), shape(32, 8), shape(32), shape(32)] + [shape(32, 8)] * 2 + [shape(32)] * 2),
            None,
            9 * 2 * 32 * (6 + 8 + 8 + 8),
        ),
    ),
    **PACKED,
    **FUSED,
    **FUSED_BACKWARD,
    **dict.fromkeys(
        ("aten::_flash_attention_forward", "torch_attn::_varlen_attn"),
        ((*TOKENS_FIRST, None, None), None, ATTENTION),
    ),
    "aten::_efficient_attention_forward": ((*TOKENS_FIRST, None, None, None), None, ATTENTION),
    "aten::_native_multi_head_attention": ((T, T, T, D, 2), None, MULTI_HEAD),
    "aten::_transformer_encoder_layer_fwd": (
        (T, D, 2, *(None,) * 11, shape(16, 8), None, shape(8, 16), None),
        None,
        MULTI_HEAD + 2 * 5 * 2 * 8 * 16,
    ),
}


@pytest.mark.parametrize("name", sorted(CASES))
def test_formula(name):
    args, out, expected = CASES[name]
    assert macs_of(name, args, out) == expected


def test_every_multiply_add_operator_of_the_library_has_its_arithmetic_here():
    ours = {name for name, rule in known_operators().items() if rule.macs and "gearshift_test" not in name}
    assert ours == set(CASES)


@pytest.mark.parametrize(
    ("left", "right", "offsets", "by_group"),
    [
        pytest.param((8, 16), (2, 16, 32), [5, 8], [5 * 16 * 32, 3 * 16 * 32], id="rows"),
        pytest.param((2, 8, 16), (2, 16, 32), None, [8 * 16 * 32, 8 * 16 * 32], id="batch"),
        pytest.param((2, 8, 16), (16, 32), [8, 32], [8 * 16 * 8, 8 * 16 * 24], id="columns"),
        pytest.param((8, 16), (16, 32), [8, 16], [8 * 8 * 32, 8 * 8 * 32], id="inner"),
    ],
)
def test_grouped_products_cost_a_product_per_group(left, right, offsets, by_group):
    offsets = None if offsets is None else torch.tensor(offsets)

    assert macs_of("aten::_grouped_mm", (shape(*left), shape(*right), offsets), None) == sum(by_group)


@pytest.mark.parametrize(
    ("name", "gap"),
    [
        ("aten::_flash_attention_forward", ()),
        ("torch_attn::_varlen_attn", ()),
        ("aten::_efficient_attention_forward", (None,)),
    ],
)
def test_packed_attention_is_counted_where_its_lengths_can_be_read(name, gap):
    q, k = shape(5, 4, 8), shape(7, 4, 8)  # sequences of 3 and 2 queries over 6 and 1 keys, 4 heads of 8
    bounds, key_bounds, hidden = torch.tensor([0, 3, 5]), torch.tensor([0, 6, 7]), shape(3)
    formula, flops = known_operators()[name].macs, known_operators()[name].flops

    assert formula((q, k, k, *gap, bounds, key_bounds), None) == 4 * (3 * 6 + 2 * 1) * (8 + 8)
    assert flops((q, k, k, *gap, bounds, key_bounds), None) == 6 * 4 * (3 * 6 + 2 * 1)
    assert formula((q, k, k, *gap, hidden, hidden), None) is None  # on a device: reading would wait for it


def test_the_table_holds_no_composite_operator():
    """A composite operator is taken apart before the table is asked, so a rule for it would be dead."""
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    registered = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")]
    composite: dict[str, bool] = {}
    for overload in registered:
        taken_apart = has_kernel(overload, "CompositeImplicitAutograd") and not any(
            has_kernel(overload, backend) for backend in ("CPU", "CUDA")
        )
        name = overload.partition(".")[0].removesuffix("_")
        composite[name] = composite.get(name, True) and taken_apart

    alive = {
        "aten::scaled_dot_product_attention",  # on the meta device it stands for a fused kernel
        "aten::_fused_rms_norm",  # has a kernel in builds for accelerators only
    }
    assert {name for name in known_operators() if composite.get(name.removesuffix("_"))} <= alive


# --- Attention in every form -----------------------------------------------------------------------------


class Attends(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.options = options

    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, **self.options)


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("backend", [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH])
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.5}], ids=str)
def test_attention_is_counted_in_every_form(device, backend, options):
    q = torch.zeros(1, 12, 64, 64, device=device)
    with sdpa_kernel(backend):
        result = count(Attends(**options), (q, q, q))

    assert result.macs == 2 * 1 * 12 * 64 * 64 * 64 == 6_291_456
    assert result.flops == 12_582_912
    assert result.by_type[OperatorType.ATTENTION].macs == result.macs
    assert result.uncounted == {}


def test_masked_and_grouped_attention_are_counted_densely():
    q, kv = torch.zeros(1, 8, 10, 16), torch.zeros(1, 2, 12, 16)
    mask = torch.zeros(10, 12, dtype=torch.bool)

    assert count(Attends(attn_mask=mask), (q, kv.repeat(1, 4, 1, 1), kv.repeat(1, 4, 1, 1))).macs == 8 * 10 * 12 * 32
    assert count(Attends(enable_gqa=True), (q, kv, kv)).macs == 8 * 10 * 12 * 32


@pytest.mark.parametrize("on_meta", [False, True], ids=["real", "meta"])
def test_fast_paths_of_multi_head_attention_are_counted_exactly(on_meta):
    x = torch.zeros(2, 5, 8)
    attention = count(nn.MultiheadAttention(8, 2, batch_first=True), (x, x, x), on_meta=on_meta)
    layer = count(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), x, on_meta=on_meta)

    projections, scores, feed_forward = 2 * 5 * 4 * 8 * 8, 2 * 2 * 5 * 5 * 8, 2 * 5 * 2 * 8 * 16
    assert attention.macs == projections + scores
    assert layer.macs == projections + scores + feed_forward
    assert layer.by_type[OperatorType.LINEAR].macs == projections + feed_forward
    assert layer.by_type[OperatorType.ATTENTION].macs == scores
    if not on_meta:  # measuring does not push the modules off their fast paths
        assert "aten::_native_multi_head_attention" in attention.by_operator
        assert "aten::_transformer_encoder_layer_fwd" in layer.by_operator


# --- Convolutions ----------------------------------------------------------------------------------------


def recorded_macs(module: nn.Module, x: torch.Tensor) -> tuple[int, int]:
    """Return forward and backward MACs."""
    with CallRecorder(module) as forward:
        out = module(x)
    with CallRecorder(module) as backward:
        out.sum().backward()
    return sum(call.macs for call in forward.calls), sum(call.macs for call in backward.calls)


@pytest.mark.parametrize(("groups", "expected"), [(1, 294_912), (2, 147_456), (4, 73_728), (8, 36_864)])
def test_groups_divide_once_and_backward_is_twice_forward(groups, expected):
    conv = nn.Conv2d(8, 16, 3, padding=1, groups=groups, bias=False)
    x = torch.zeros(1, 8, 16, 16, requires_grad=True)

    assert expected == 16 * 16 * 16 * (8 // groups) * 3 * 3
    assert count(conv, x).macs == expected
    assert recorded_macs(conv, x) == (expected, 2 * expected)


def test_backward_without_an_input_gradient_is_as_dear_as_forward():
    forward, backward = recorded_macs(nn.Conv2d(8, 16, 3, groups=4), torch.zeros(1, 8, 16, 16))

    assert backward == forward


@pytest.mark.parametrize(("size", "expected"), [(224, 59_006_976), (225, 60_065_376)])
def test_output_sizes_are_the_real_ones(size, expected):
    out = (size + 2 * 3 - 7) // 2 + 1
    assert expected == out * out * 32 * 3 * 7 * 7
    assert count(nn.Conv2d(3, 32, 7, stride=2, padding=3), torch.zeros(1, 3, size, size), on_meta=True).macs == expected


@settings(max_examples=60, deadline=None)
@given(
    dims=st.integers(1, 3),
    transposed=st.booleans(),
    groups=st.integers(1, 3),
    wide=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    kernel=st.integers(1, 3),
    stride=st.integers(1, 3),
    dilation=st.integers(1, 2),
    padding=st.integers(0, 2),
    size=st.integers(3, 9),
    batch=st.integers(1, 2),
)
def test_any_convolution_agrees_with_the_stock_counter_forward_and_is_twice_that_backward(
    dims, transposed, groups, wide, kernel, stride, dilation, padding, size, batch
):
    reach = dilation * (kernel - 1) + 1
    assume(size + 2 * padding >= reach)
    assume(not transposed or (size - 1) * stride - 2 * padding + reach > 0)
    kind = getattr(nn, f"Conv{'Transpose' if transposed else ''}{dims}d")
    c_in, c_out = (channels * groups for channels in wide)
    conv = kind(c_in, c_out, kernel, stride=stride, padding=padding, dilation=dilation, groups=groups, device="meta")
    x = torch.empty(batch, c_in, *(size,) * dims, device="meta", requires_grad=True)
    with FlopCounterMode(display=False) as witness:
        out = conv(x)

    assert recorded_macs(conv, x) == (witness.get_total_flops() / 2, witness.get_total_flops())
    positions = prod(x.shape[2:] if transposed else out.shape[2:])
    assert witness.get_total_flops() / 2 == batch * positions * c_in * c_out // groups * kernel**dims


# --- Products --------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    batch=st.lists(st.integers(1, 3), max_size=3),
    m=st.integers(1, 6),
    k=st.integers(1, 6),
    n=st.integers(1, 6),
    bias=st.booleans(),
    contiguous=st.booleans(),
)
def test_any_linear_agrees_with_arithmetic(batch, m, k, n, bias, contiguous):
    x = torch.empty(*batch, m, k) if contiguous else torch.empty(*batch, k, m).transpose(-1, -2)
    linear = nn.Linear(k, n, bias=bias)
    result = count(linear, x)

    assert result.macs == prod(batch) * m * k * n
    assert result.by_type[OperatorType.LINEAR].macs == result.macs
    forward, backward = recorded_macs(linear, x)
    assert (forward, backward) == (result.macs, result.macs)  # the weight's gradient; x wants none


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize(
    ("function", "shapes", "expected"),
    [
        (torch.mv, [(5, 7), (7,)], 35),
        (torch.dot, [(7,), (7,)], 7),
        (torch.bmm, [(2, 5, 7), (2, 7, 3)], 210),
        (torch.baddbmm, [(2, 5, 3), (2, 5, 7), (2, 7, 3)], 210),
        (torch.addbmm, [(5, 3), (2, 5, 7), (2, 7, 3)], 210),
        (torch.addmm, [(5, 3), (5, 7), (7, 3)], 105),
        (torch.addmv, [(5,), (5, 7), (7,)], 35),
        (torch.matmul, [(4, 5, 7), (7,)], 140),
        (torch.matmul, [(7,), (4, 7, 5)], 140),
        (lambda a, b, c: torch.einsum("ij,jk,kl->il", a, b, c), [(10, 20), (20, 30), (30, 10)], 6000 + 3000),
        (torch.kron, [(2, 2), (3, 3)], 0),
    ],
)  # fmt: skip
def test_products_of_every_spelling(device, function, shapes, expected):
    class Product(nn.Module):
        def forward(self, *tensors):
            return function(*tensors)

    result = count(Product(), [torch.zeros(size, device=device) for size in shapes])
    assert (result.macs, result.uncounted) == (expected, {})


def test_integer_products_are_counted():
    class Product(nn.Module):
        def forward(self, a, b):
            return torch._int_mm(a, b)

    a, b = torch.ones(32, 16, dtype=torch.int8), torch.ones(16, 8, dtype=torch.int8)
    assert count(Product(), (a, b)).macs == 32 * 16 * 8


def test_a_training_step_of_an_mlp_costs_three_forwards_less_the_first_input_gradient():
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
    forward, backward = recorded_macs(model, torch.zeros(5, 8))

    assert forward == 5 * (8 * 16 + 16 * 4)
    assert backward == 2 * forward - 5 * 8 * 16
