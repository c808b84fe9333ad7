"""Attention on every backend: what each kernel is counted as, run on the CPU or on the meta device."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.utils.flop_counter import sdpa_flop_count

from gearshift.profiler import OperatorType, count

ATEN = torch.ops.aten
B, H, N, M, D = 2, 4, 5, 6, 8
SCORES = B * H * N * M


class Calls(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args, **kwargs):
        return self.function(*args, **kwargs)


def tokens_first(kernel):
    """Give a kernel over `(batch, tokens, heads, d)` what the others take."""
    return lambda q, k, v: kernel(*(tensor.transpose(1, 2) for tensor in (q, k, v)))


KERNELS = {
    "flash": lambda q, k, v: ATEN._scaled_dot_product_flash_attention(q, k, v),
    "flash causal": lambda q, k, v: ATEN._scaled_dot_product_flash_attention(q, k, v, 0.0, True),
    "efficient": lambda q, k, v: ATEN._scaled_dot_product_efficient_attention(q, k, v, None, False),
    "cudnn": lambda q, k, v: ATEN._scaled_dot_product_cudnn_attention(q, k, v, None, False),
    "flash for cpu": lambda q, k, v: ATEN._scaled_dot_product_flash_attention_for_cpu(q, k, v),
    "overrideable": lambda q, k, v: ATEN._scaled_dot_product_fused_attention_overrideable(q, k, v),
    "math for mps": lambda q, k, v: ATEN._scaled_dot_product_attention_math_for_mps(q, k, v),
    "bare flash": tokens_first(
        lambda q, k, v: ATEN._flash_attention_forward(q, k, v, None, None, N, M, 0.0, False, False)
    ),
    "bare efficient": tokens_first(
        lambda q, k, v: ATEN._efficient_attention_forward(q, k, v, None, None, None, N, M, 0.0, 0)
    ),
}


@pytest.mark.parametrize("width", [D, 2 * D], ids=["same width", "wider values"])
@pytest.mark.parametrize("heads", [H, H // 2], ids=["own keys", "grouped queries"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_every_kernel_counts_both_products(kernel, heads, width):
    q = torch.empty(B, H, N, D, device="meta")
    k, v = torch.empty(B, heads, M, D, device="meta"), torch.empty(B, heads, M, width, device="meta")

    result = count(Calls(KERNELS[kernel]), (q, k, v))

    assert result.macs == SCORES * (D + width)
    assert result.by_type[OperatorType.ATTENTION].macs == result.macs
    assert result.elementwise_flops == 6 * SCORES  # scale, and a softmax of five
    assert result.uncounted == {}
    if heads == H:
        assert result.flops == sdpa_flop_count(q.shape, k.shape, v.shape)


@pytest.mark.parametrize(
    "kernel",
    [ATEN._scaled_dot_product_efficient_attention, ATEN._scaled_dot_product_cudnn_attention],
    ids=["efficient", "cudnn"],
)
def test_a_mask_is_one_sum_per_score(kernel):
    q, k = torch.empty(B, H, N, D, device="meta"), torch.empty(B, H, M, D, device="meta")
    mask = torch.empty(B, H, N, M, device="meta")

    result = count(Calls(lambda q, k, mask: kernel(q, k, k, mask, False)), (q, k, mask))

    assert (result.macs, result.elementwise_flops) == (SCORES * 2 * D, 7 * SCORES)


OPTIONS = {
    "plain": {},
    "causal": {"is_causal": True},
    "boolean mask": {"attn_mask": torch.ones(N, M, dtype=torch.bool)},
    "float mask": {"attn_mask": torch.zeros(B, 1, N, M)},
    "no dropout": {"dropout_p": 0.0},
    "grouped queries": {"enable_gqa": True},
    "wider values": {},
}


@pytest.mark.parametrize("backend", [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH], ids=["fused", "math"])
@pytest.mark.parametrize("option", OPTIONS)
def test_masks_grouping_and_widths_count_alike_on_every_device(option, backend):
    heads = H // 2 if option == "grouped queries" else H
    width = 2 * D if option == "wider values" else D
    q, k, v = torch.zeros(B, H, N, D), torch.zeros(B, heads, M, D), torch.zeros(B, heads, M, width)
    attends = Calls(F.scaled_dot_product_attention)
    if option == "wider values" and backend is SDPBackend.FLASH_ATTENTION:
        backend = SDPBackend.MATH  # the fused kernel of the CPU refuses these; PyTorch falls back by itself

    with sdpa_kernel(backend):
        real = count(attends, (q, k, v), OPTIONS[option])
        meta = count(attends, (q, k, v), OPTIONS[option], on_meta=True)

    for result in (real, meta):
        assert result.macs == SCORES * (D + width)
        assert result.by_type[OperatorType.ATTENTION].macs == result.macs
        assert result.uncounted == {}
    if backend is SDPBackend.FLASH_ATTENTION:
        assert real.elementwise_flops == meta.elementwise_flops == SCORES * (7 if "mask" in option else 6)
    elif option == "plain":  # both operands are scaled instead of the scores
        assert real.elementwise_flops == 5 * SCORES + B * H * (N + M) * D


def test_packed_sequences_of_the_fast_path_count_their_own_tokens():
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), num_layers=3)
    x, padding = torch.zeros(2, 5, 8), torch.zeros(2, 5, dtype=torch.bool)
    padding[0, 3:] = True  # sequences of 3 and 5 tokens

    with pytest.warns(UserWarning, match="nested tensors is in prototype"):
        result = count(encoder, x, {"src_key_padding_mask": padding})

    tokens, pairs = 3 + 5, 3 * 3 + 5 * 5
    assert result.uncounted == {}
    assert result.by_type[OperatorType.LINEAR].macs == 3 * tokens * (4 * 8 * 8 + 2 * 8 * 16)
    assert result.by_type[OperatorType.ATTENTION].macs == 3 * 2 * pairs * 8


def test_fast_paths_hold_the_element_wise_work_of_their_parts():
    x, heads, n, width, hidden = torch.zeros(2, 5, 8), 2, 5, 8, 16
    layer = nn.TransformerEncoderLayer(8, heads, hidden, batch_first=True)
    fused = count(layer, x)
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        parts = count(layer, x)
    finally:
        torch.backends.mha.set_fastpath_enabled(True)

    assert "aten::_transformer_encoder_layer_fwd" in fused.by_operator
    assert "aten::native_layer_norm" in parts.by_operator
    assert fused.macs == parts.macs
    assert fused.elementwise_flops == 2 * n * (6 * heads * n + 2 * 7 * width + 2 * width + hidden)
    own_sum = 2 * n * 3 * width  # taken apart, the bias of the three projections is added in a call of its own
    assert parts.elementwise_flops == fused.elementwise_flops + own_sum


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("masked", [False, True], ids=["dense", "block mask"])
def test_flex_attention_is_counted_densely_and_can_still_be_compiled(masked, compiled, monkeypatch):
    q = torch.zeros(B, H, 16, D)
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 16, 16, device="cpu") if masked else None
    attend = torch.compile(flex_attention, backend="eager") if compiled else flex_attention
    module = torch.nn.attention.flex_attention
    monkeypatch.setattr(module, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", False)

    result = count(Calls(lambda q: attend(q, q, q, score_mod=lambda s, *_: s + 1, block_mask=mask)), q)

    assert result.macs == B * H * 16 * 16 * 2 * D
    assert result.by_type[OperatorType.ATTENTION].macs == result.macs
    assert result.uncounted == {}
    assert module._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG is False
