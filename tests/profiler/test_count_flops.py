"""Element-wise FLOPs: the arithmetic of every operator, and windows checked against what PyTorch computes."""

from math import log2

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torchvision.ops import deform_conv2d, roi_align

from gearshift.profiler import CallRecorder, OperatorType, Traffic, count, register_operator
from gearshift.profiler.flops import FORMULAS
from gearshift.profiler.operators import known_operators


class Calls(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def flops_of(function, *args, on_meta: bool = False) -> int:
    result = count(function if isinstance(function, nn.Module) else Calls(function), args, on_meta=on_meta)
    assert result.uncounted == {}
    return result.elementwise_flops


X = torch.rand(2, 6, 8, 10)
N = X.numel()
TOKENS = torch.rand(2, 5, 8)
COMPLEX = torch.rand(2, 8, dtype=torch.complex64)
CASES = {
    # Pointwise: one operation per element of the result, more where the formula has more.
    "add": (lambda x: x + x, (X,), N),
    "add scaled": (lambda x: torch.add(x, x, alpha=2), (X,), 2 * N),
    "in place": (lambda x: x.mul_(2), (X,), N),
    "broadcast": (lambda x: x * x[:1], (X,), N),
    "compare": (lambda x: x > 0.5, (X,), N),
    "clamp": (lambda x: x.clamp(0, 1), (X,), 2 * N),
    "clamp below": (lambda x: x.clamp(min=0), (X,), N),
    "lerp": (lambda x: torch.lerp(x, x, 0.5), (X,), 3 * N),
    "rsqrt": (torch.rsqrt, (X,), N),
    "complex product": (lambda z: z * z, (COMPLEX,), 6 * 16),
    "complex sum": (lambda z: z + z, (COMPLEX,), 2 * 16),
    # No arithmetic on floating-point numbers.
    "integers": (lambda x: x.long() * 3 + 1, (X,), 0),
    "booleans": (lambda x: x.bool() & x.bool(), (X,), 0),
    "casts and copies": (lambda x: torch.cat([x.half().float(), x.clone()]).permute(1, 0, 2, 3).contiguous(), (X,), 0),
    "selecting": (lambda x: torch.where(x.bool(), x, x).masked_fill(x.bool(), 0.0)[:, [0, 1]], (X,), 0),
    "sorting": (lambda x: x.flatten().topk(3).values.sort().values, (X,), 0),
    "the bias of a linear layer": (nn.Linear(8, 4), (TOKENS,), 0),
    "the bias of a convolution": (nn.Conv2d(6, 4, 3), (X,), 0),
    "nearest": (lambda x: F.interpolate(x, scale_factor=2), (X,), 0),
    "dropout in evaluation": (nn.Dropout(0.5), (X,), 0),
    # Activations, by the formulas written in the table.
    "relu": (F.relu, (X,), N),
    "sigmoid": (torch.sigmoid, (X,), 4 * N),
    "silu": (F.silu, (X,), 4 * N),
    "gelu": (F.gelu, (X,), 5 * N),
    "gelu tanh": (lambda x: F.gelu(x, approximate="tanh"), (X,), 9 * N),
    "hardswish": (F.hardswish, (X,), 5 * N),
    "relu6": (F.relu6, (X,), 2 * N),
    "leaky relu": (F.leaky_relu, (X,), 2 * N),
    "elu": (F.elu, (X,), 4 * N),
    "mish": (F.mish, (X,), 5 * N),
    "softplus": (F.softplus, (X,), 5 * N),
    "glu": (lambda x: F.glu(x, 1), (X,), 5 * N // 2),
    "softmax": (lambda x: x.softmax(1), (X,), 5 * N),
    "log softmax": (lambda x: x.log_softmax(1), (X,), 5 * N),
    # Norms: sum; subtract, square, sum; scale; then weight and bias.
    "layer norm": (nn.LayerNorm(10), (X,), (5 + 2) * N),
    "layer norm without bias": (nn.LayerNorm(10, bias=False), (X,), (5 + 1) * N),
    "layer norm without weights": (nn.LayerNorm(10, elementwise_affine=False), (X,), 5 * N),
    "group norm": (nn.GroupNorm(3, 6), (X,), (5 + 2) * N),
    "batch norm": (nn.BatchNorm2d(6), (X,), 2 * N),  # scale and shift, folded
    "instance norm": (nn.InstanceNorm2d(6), (X,), 6 * N),  # statistics of its own
    "vector norm": (lambda x: torch.linalg.vector_norm(x, dim=1), (X,), 2 * N),
    # Reductions: one per number that goes in.
    "sum": (lambda x: x.sum(1), (X,), N),
    "mean": (lambda x: x.mean(), (X,), N),
    "max": (lambda x: x.max(1).values, (X,), N),
    "larger of two": (lambda x: torch.max(x, x[:1]), (X,), N),
    "variance": (lambda x: x.var(1), (X,), 4 * N),
    "sum of integers": (lambda x: x.long().sum(), (X,), 0),
    "logsumexp": (lambda x: x.logsumexp(1), (X,), 4 * N),
    # Resampling: 2 per tap.
    "bilinear": (lambda x: F.interpolate(x, (16, 5), mode="bilinear"), (X,), 2 * 4 * 2 * 6 * 16 * 5),
    "bicubic": (lambda x: F.interpolate(x, (16, 5), mode="bicubic"), (X,), 2 * 16 * 2 * 6 * 16 * 5),
    "linear": (lambda x: F.interpolate(x[0], 5, mode="linear"), (X,), 2 * 2 * 6 * 8 * 5),
    "trilinear": (lambda x: F.interpolate(x[None], (2, 3, 4), mode="trilinear"), (X[0][None],), 2 * 8 * 1 * 24 * 1),
    "grid sample": (
        lambda x, grid: F.grid_sample(x, grid, align_corners=False), (X, torch.rand(2, 3, 4, 2)), 2 * 4 * 2 * 6 * 12,
    ),
    "grid sample nearest": (
        lambda x, grid: F.grid_sample(x, grid, mode="nearest", align_corners=False), (X, torch.rand(2, 3, 4, 2)), 0,
    ),
    "grid sample bicubic": (
        lambda x, grid: F.grid_sample(x, grid, mode="bicubic", align_corners=False),
        (X, torch.rand(2, 3, 4, 2)), 2 * 16 * 2 * 6 * 12,
    ),
    "grid sample 3d": (
        lambda x, grid: F.grid_sample(x, grid, align_corners=False),
        (torch.rand(1, 2, 3, 4, 5), torch.rand(1, 2, 3, 4, 3)), 2 * 8 * 2 * 24,
    ),
    "affine grid": (
        lambda theta: F.affine_grid(theta, [2, 1, 4, 5], align_corners=False), (torch.rand(2, 2, 3),),
        2 * 3 * 2 * 4 * 5 * 2,
    ),
    "fold": (lambda x: F.fold(x, (4, 4), 2), (torch.rand(1, 3 * 4, 9),), 3 * 4 * 9),
    "roi align": (
        lambda x, boxes: roi_align(x, boxes, 3, sampling_ratio=2), (X, torch.tensor([[0, 0, 0, 4.0, 4]])),
        2 * 2 * (2 * 4 + 1) * 6 * 3 * 3,  # four bilinear samples and their mean per bin
    ),
    # Pooling: the kernel's area per output.
    "average pool": (lambda x: F.avg_pool2d(x, (2, 3), stride=1), (X,), 6 * 2 * 6 * 7 * 8),
    "maximum pool": (lambda x: F.max_pool2d(x, 3, stride=2, padding=1), (X,), 9 * 2 * 6 * 4 * 5),
    "maximum pool 1d": (lambda x: F.max_pool1d(x, 3), (X[0],), 3 * 6 * 8 * 3),
    "average pool 3d": (lambda x: F.avg_pool3d(x, 2), (X[None],), 8 * 2 * 3 * 4 * 5),
    "global pool": (lambda x: F.adaptive_avg_pool2d(x, 1), (X,), N),
    # Sampling at offsets: every channel at every kernel position, bilinear, and the mask.
    "deformable convolution": (
        lambda x, offset, mask, w: deform_conv2d(x, offset, w, mask=mask),
        (X, torch.rand(2, 18, 6, 8), torch.rand(2, 9, 6, 8), torch.rand(4, 6, 3, 3)), (8 + 1) * 2 * 6 * 9 * 6 * 8,
    ),
    # Transforms and distances.
    "fft": (torch.fft.fft, (COMPLEX,), 2 * 5 * 8 * 3),
    "real fft": (torch.fft.rfft2, (torch.rand(3, 4, 8),), 3 * 5 * 32 * 5 // 2),
    "inverse real fft": (
        lambda z: torch.fft.irfft2(z, s=(4, 8)), (torch.rand(3, 4, 5, dtype=torch.complex64),), 3 * 5 * 32 * 5 // 2,
    ),
    "fft of any length": (torch.fft.fft, (torch.rand(6, dtype=torch.complex64),), round(5 * 6 * log2(6))),
    "few distances": (lambda a: torch.cdist(a, a), (TOKENS,), 3 * 2 * 5 * 5 * 8),
    "taxicab distances": (lambda a: torch.cdist(a, a, p=1), (torch.rand(30, 8),), 3 * 30 * 30 * 8),
    "many distances": (lambda a: torch.cdist(a, a), (torch.rand(30, 8),), 2 * 2 * 30 * 8 + 2 * 30 * 30),
    "recurrence": (nn.LSTM(8, 16), (TOKENS,), 22 * 2 * 5 * 16),
    "gated recurrence": (nn.GRU(8, 16), (TOKENS,), 16 * 2 * 5 * 16),
    "plain recurrence": (nn.RNN(8, 16), (TOKENS,), 2 * 2 * 5 * 16),
    "bilinear form": (nn.Bilinear(3, 4, 5, bias=False), (torch.rand(2, 3), torch.rand(2, 4)), 2 * 5 * 3 * 4),
}  # fmt: skip


@pytest.mark.parametrize("on_meta", [False, True], ids=["real", "meta"])
@pytest.mark.parametrize("name", CASES)
def test_arithmetic(name, on_meta):
    function, args, expected = CASES[name]
    assert flops_of(function, *args, on_meta=on_meta) == expected


@pytest.mark.parametrize("on_meta", [False, True], ids=["fused", "taken apart"])
@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}, {"batch_first": True}], ids=str)
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrence_multiplies_by_every_matrix_once_per_step(kind, options, on_meta):
    """On the CPU an LSTM is one kernel per layer and direction; on the meta device it is taken apart."""
    layer = kind(6, 8, **options)
    result = count(layer, torch.zeros(3, 5, 6), on_meta=on_meta)

    assert result.macs == 3 * 5 * sum(weight.numel() for weight in layer.parameters() if weight.dim() == 2)
    assert result.by_type[OperatorType.LINEAR].macs == result.macs
    assert result.uncounted == {}


def reached(transform, size: int) -> int:
    """Count which inputs reach which outputs of a linear transform of rows, by the impulses it answers."""
    return int((transform(torch.eye(size, dtype=torch.float64)[None]) != 0).sum())


@settings(max_examples=60, deadline=None)
@given(found=st.integers(1, 40), wanted=st.integers(1, 40))
def test_adaptive_windows_are_those_that_pytorch_sums(found, wanted):
    rows = torch.rand(1, 3, found)
    expected = 3 * reached(lambda x: F.adaptive_avg_pool1d(x, wanted), found)
    # in one dimension PyTorch pools the rows of an image of height 1
    assert flops_of(lambda x: F.adaptive_avg_pool1d(x, wanted), rows) == expected


@settings(max_examples=60, deadline=None)
@given(
    size=st.tuples(st.integers(2, 30), st.integers(2, 30)),
    wanted=st.tuples(st.integers(1, 30), st.integers(1, 30)),
    mode=st.sampled_from(["bilinear", "bicubic"]),
)
def test_antialiased_windows_hold_every_tap_that_pytorch_uses(size, wanted, mode):
    """Rows first, then columns. A window may also hold taps of weight 0, where the filter is: at most 4."""

    def taps(axis: int) -> int:
        impulses = torch.eye(size[axis], dtype=torch.float64)[None, None]  # one in each column, which stay apart
        answer = F.interpolate(impulses, (wanted[axis], size[axis]), mode=mode, antialias=True)
        return int((answer != 0).sum())

    image = torch.rand(2, 3, *size)
    counted = flops_of(lambda x: F.interpolate(x, wanted, mode=mode, antialias=True), image)

    def total(down: int, across: int) -> int:
        return 2 * 2 * 3 * (size[0] * across + wanted[1] * down)

    assert total(taps(0), taps(1)) <= counted <= total(taps(0) + 4 * wanted[0], taps(1) + 4 * wanted[1])


@pytest.mark.parametrize("shrink", [2, 4])
def test_an_antialiased_window_widens_as_the_image_shrinks(shrink):
    """Away from the border a window of a bilinear filter holds `2 shrink` pixels per axis."""
    side, out = 64 * shrink, 64
    x = torch.empty(1, 1, side, side, device="meta")
    interior = 2 * (side + out) * out * 2 * shrink  # rows at every input row, then columns

    counted = flops_of(lambda x: F.interpolate(x, (out, out), mode="bilinear", antialias=True), x)
    assert interior * 0.98 < counted <= interior


GRADIENTS = {
    "relu": (F.relu, 1),
    "sigmoid": (torch.sigmoid, 3),  # grad * y * (1 - y)
    "tanh": (torch.tanh, 3),
    "silu": (F.silu, 9),
    "gelu": (F.gelu, 11),
    "gelu tanh": (lambda x: F.gelu(x, approximate="tanh"), 18),
    "softmax": (lambda x: x.softmax(-1), 4),  # grad * y, sum; subtract, * y
    "log softmax": (lambda x: x.log_softmax(-1), 4),
    "layer norm": (nn.LayerNorm(10, elementwise_affine=False), 10),
    "bilinear": (lambda x: F.interpolate(x, (8, 10), mode="bilinear"), 8),
    "average pool": (lambda x: F.avg_pool2d(x, 3, stride=1, padding=1), 9),
    "maximum pool": (lambda x: F.max_pool2d(x, 1), 1),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name):
    """All outputs are as large as `X`, so that each gradient costs its operations per element."""
    function, expected = GRADIENTS[name]
    x = X.clone().requires_grad_()
    with CallRecorder(nn.Identity()) as recorder:
        out = function(x)
        forward = len(recorder.calls)
        out.backward(torch.ones_like(out))

    gradient = [call for call in recorder.calls[forward:] if "backward" in call.operator]
    assert sum(call.elementwise_flops for call in gradient) == expected * N


def test_a_registered_operator_may_have_flops():
    torch.library.define("gearshift_test::halved", "(Tensor x, *, int times=1) -> Tensor")
    torch.library.impl("gearshift_test::halved", "CPU", lambda x, times=1: x.clone())
    operator = torch.ops.gearshift_test.halved
    register_operator(operator, OperatorType.OTHER, traffic=Traffic.ALL, flops=lambda args, out: args[1] * out.numel())

    assert flops_of(lambda x: operator(x, times=3), torch.zeros(5)) == 15  # keyword-only arguments come last


def test_every_operator_that_computes_has_a_formula():
    for name, rule in known_operators().items():
        if "gearshift_test" not in name and rule.operator_type is not OperatorType.DATA_MOVEMENT:
            assert rule.macs or rule.flops or rule.traffic is Traffic.WRITTEN, name


def test_no_formula_is_dead():
    """Each belongs to an operator of the table, or to one that PyTorch tags pointwise and does not take apart."""
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    overloads: dict[str, list[str]] = {}
    for name in torch._C._dispatch_get_all_op_names():
        overloads.setdefault(name.partition(".")[0].removesuffix("_"), []).append(name)
    for name in FORMULAS.keys() - known_operators().keys():
        packet = getattr(torch.ops.aten, name.removeprefix("aten::"))
        assert any(torch.Tag.pointwise in getattr(packet, overload).tags for overload in packet.overloads()), name
        assert any(
            has_kernel(full, "CPU") or has_kernel(full, "CUDA") or not has_kernel(full, "CompositeImplicitAutograd")
            for full in overloads[name]
        ), name
