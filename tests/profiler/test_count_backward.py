"""Backward passes: what they cost, and which module each call belongs to."""

from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode
from torchvision.ops import DeformConv2d

from gearshift.profiler import CallRecorder, OperatorType

timm = pytest.importorskip("timm")


def recorded(model: nn.Module, *inputs: torch.Tensor) -> tuple[list, list]:
    """Return the calls of a forward and of a backward pass, recorded together."""
    with CallRecorder(model) as recorder:
        out = model(*inputs)
        forward = len(recorder.calls)
        out.sum().backward()
    return recorder.calls[:forward], recorder.calls[forward:]


def by_module(calls, operator_type=None) -> dict[str, int]:
    macs: Counter[str] = Counter()
    for call in calls:
        if call.macs and operator_type in (None, call.operator_type):
            macs[call.module] += call.macs
    return dict(macs)


def test_gradients_belong_to_the_module_whose_forward_they_differentiate():
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Sequential(nn.Linear(16, 4), nn.LayerNorm(4)))
    forward, backward = recorded(model, torch.rand(5, 8, requires_grad=True))

    assert by_module(forward) == {"0": 5 * 8 * 16, "2.0": 5 * 16 * 4}
    assert by_module(backward) == {"0": 2 * 5 * 8 * 16, "2.0": 2 * 5 * 16 * 4}
    assert by_module(backward, OperatorType.LINEAR) == by_module(backward)
    owners = {call.operator: call.module for call in backward}
    assert owners["aten::gelu_backward"] == "1"
    assert owners["aten::native_layer_norm_backward"] == "2.1"


def test_every_module_of_a_transformer_pays_twice_its_forward():
    model = timm.create_model("vit_tiny_patch16_224", depth=2, img_size=64)
    forward, backward = recorded(model, torch.rand(2, 3, 64, 64, requires_grad=True))

    for operator_type in (OperatorType.LINEAR, OperatorType.CONVOLUTION):
        expected = {name: 2 * macs for name, macs in by_module(forward, operator_type).items()}
        assert by_module(backward, operator_type) == expected
    assert by_module(backward, OperatorType.MATMUL) == {}
    n, d, heads = 4 * 4 + 1, 64, 3
    products = 2 * heads * n * n * d  # one product of one block; backward: the scores again, and four gradients
    assert by_module(forward, OperatorType.ATTENTION) == {f"blocks.{i}.attn": 2 * products for i in range(2)}
    assert by_module(backward, OperatorType.ATTENTION) == {f"blocks.{i}.attn": 5 * products for i in range(2)}


@pytest.mark.parametrize("groups", [1, 2, 4, 8])
@pytest.mark.parametrize(
    ("kind", "options"),
    [(nn.Conv2d, {}), (nn.Conv2d, {"dilation": 2, "stride": 2}), (nn.ConvTranspose2d, {"stride": 2})],
    ids=["plain", "dilated", "transposed"],
)
def test_convolutions_cost_twice_their_forward_whatever_the_groups(kind, options, groups):
    conv = nn.Sequential(kind(8, 16, 3, groups=groups, **options))
    forward, backward = recorded(conv, torch.rand(2, 8, 16, 16, requires_grad=True))

    assert by_module(backward) == {"0": 2 * by_module(forward)["0"]}
    assert by_module(backward, OperatorType.CONVOLUTION) == by_module(backward)


def test_deformable_convolution_costs_twice_its_forward():
    class Deforms(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = DeformConv2d(4, 6, 3, padding=1)

        def forward(self, x, offset):
            return self.conv(x, offset)

    inputs = [torch.rand(2, c, 9, 9, requires_grad=True) for c in (4, 18)]
    forward, backward = recorded(Deforms(), *inputs)

    assert by_module(forward) == {"conv": 2 * 9 * 9 * 6 * 4 * 3 * 3}
    assert by_module(backward) == {"conv": 2 * 2 * 9 * 9 * 6 * 4 * 3 * 3}


@pytest.mark.parametrize(
    ("backend", "products"),
    # fused: the scores again and four gradients; unfused they were kept, and only the gradients are left
    [(SDPBackend.FLASH_ATTENTION, 5), (SDPBackend.MATH, 4)],
    ids=["fused", "math"],
)
def test_attention(backend, products):
    class Attends(nn.Module):
        def forward(self, q, k, v):
            return F.scaled_dot_product_attention(q, k, v)

    q, k, v = (torch.rand(2, 4, n, 8, requires_grad=True) for n in (5, 6, 6))
    with sdpa_kernel(backend):
        forward, backward = recorded(Attends(), q, k, v)

    product = 2 * 4 * 5 * 6 * 8
    assert sum(call.macs for call in forward) == 2 * product
    assert sum(call.macs for call in backward) == products * product


@pytest.mark.parametrize("reentrant", [False, True])
def test_what_a_checkpoint_computes_again_belongs_to_its_module(reentrant):
    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)

        def forward(self, x):
            return checkpoint(lambda y: self.second(F.gelu(self.first(y))), x, use_reentrant=reentrant)

    forward, backward = recorded(Checkpointed(), torch.rand(3, 4, requires_grad=True))

    once = 3 * 4 * 4
    assert by_module(forward) == {"first": once, "second": once}
    # twice forward each, and what is computed again: without reentry that stops at the last value that is needed
    assert by_module(backward) == {"first": 3 * once, "second": (3 if reentrant else 2) * once}


def test_a_backward_pass_of_an_earlier_forward_belongs_to_the_root():
    model = nn.Sequential(nn.Linear(4, 4))
    out = model(torch.rand(3, 4))
    with CallRecorder(model) as recorder:
        out.sum().backward()

    assert {call.module for call in recorder.calls} == {""}


def test_custom_functions_belong_to_the_module_that_called_them():
    class Doubles(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight):
            ctx.save_for_backward(x, weight)
            return x @ weight

        @staticmethod
        def backward(ctx, grad):
            x, weight = ctx.saved_tensors
            return grad @ weight.t(), x.t() @ grad

    class Custom(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.rand(4, 6))

        def forward(self, x):
            return Doubles.apply(x, self.weight)

    forward, backward = recorded(nn.Sequential(Custom()), torch.rand(3, 4, requires_grad=True))

    assert by_module(forward) == {"0": 3 * 4 * 6}
    assert by_module(backward, OperatorType.LINEAR) == {"0": 2 * 3 * 4 * 6}


def test_a_training_step_agrees_with_the_stock_counter_where_that_is_right():
    """On the meta device and without groups PyTorch's own counter is complete."""
    with torch.device("meta"):
        model = timm.create_model("convnext_atto", depths=(1, 1, 1, 1), dims=(8, 16, 16, 32), conv_mlp=True)
        for item in model.modules():
            if isinstance(item, nn.Conv2d) and item.groups > 1:
                item.requires_grad_(False)  # leaves the input's gradient, which it counts rightly
        image = torch.empty(2, 3, 64, 64, requires_grad=True)
        with FlopCounterMode(display=False) as witness:
            model(image).sum().backward()
        forward, backward = recorded(model, image)

    assert 2 * sum(call.macs for call in forward + backward) == witness.get_total_flops()
