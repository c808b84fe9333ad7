"""Heads and channels that are masked in the weights: nothing is saved, and the count says so."""

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize, prune
from transformers import SegformerConfig, SegformerModel, ViTConfig, ViTModel

from gearshift.profiler import count

timm = pytest.importorskip("timm")

HEADS, D = 4, 32
HALF = D // 2  # the channels of half the heads


def transformers_vit() -> nn.Module:
    return ViTModel(
        ViTConfig(
            hidden_size=D, num_hidden_layers=1, num_attention_heads=HEADS, intermediate_size=64, image_size=32,
            patch_size=8,
        ),
        add_pooling_layer=False,
    )  # fmt: skip


def timm_vit() -> nn.Module:
    return timm.create_model(
        "vit_tiny_patch16_224", img_size=32, patch_size=8, depth=1, embed_dim=D, num_heads=HEADS, num_classes=5
    )


def torch_encoder() -> nn.Module:
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Conv2d(3, D, 8, stride=8)
            self.layer = nn.TransformerEncoderLayer(D, HEADS, 64, batch_first=True)

        def forward(self, x):
            return self.layer(self.embed(x).flatten(2).transpose(1, 2))

    return Encoder()


def segformer() -> nn.Module:
    return SegformerModel(
        SegformerConfig(hidden_sizes=[8, 8, 8, D], depths=[1] * 4, num_attention_heads=[1, 1, 1, HEADS])
    )


def zero_rows(weight):
    weight[:HALF] = 0


def zero_columns(weight):
    weight[:, :HALF] = 0


CASES = {
    "queries": (transformers_vit, "q_proj", zero_rows, HALF, D, "output"),
    "output": (transformers_vit, "o_proj", zero_columns, HALF, D, "input"),
    "fused queries, keys and values": (timm_vit, "attn.qkv", zero_rows, HALF, 3 * D, "output"),
    "timm's output": (timm_vit, "attn.proj", zero_columns, HALF, D, "input"),
    "nn.MultiheadAttention": (torch_encoder, "self_attn.in_proj_weight", zero_rows, HALF, 3 * D, "output"),
    "its output": (torch_encoder, "self_attn.out_proj", zero_columns, HALF, D, "input"),
    "patch embedding": (torch_encoder, "embed", zero_rows, HALF, D, "output"),
    "depthwise": (segformer, "dwconv", zero_rows, HALF, None, "output"),
}


@pytest.mark.parametrize("name", CASES)
def test_half_of_the_heads_zeroed_saves_nothing_and_is_noted(name):
    build, layer, zero, zeros, channels, side = CASES[name]
    model, image = build(), torch.rand(1, 3, 32, 32)
    before = count(model, image)
    path, weight = next(
        (path.removesuffix(".weight"), weight)
        for path, weight in model.named_parameters()
        if path.removesuffix(".weight").endswith(layer) and len(weight) > HALF
    )
    with torch.no_grad():
        zero(weight)

    after = count(model, image)

    assert before.notes == ()
    assert after.macs == before.macs
    assert after.elementwise_flops == before.elementwise_flops
    (note,) = after.notes
    assert note.startswith(f"{path}: {zeros} of {channels or len(weight)} {side} channels are zero and still computed")


def test_masks_of_pruning_libraries_are_noted_where_they_lie_over_the_weight():
    pruned, parametrised = (nn.Sequential(nn.Linear(8, 6)) for _ in range(2))
    prune.ln_structured(pruned[0], "weight", amount=2, n=2, dim=0)

    class Masked(nn.Module):
        def forward(self, weight):
            return weight * torch.tensor([0.0, 0, 1, 1, 1, 1])[:, None]

    parametrize.register_parametrization(parametrised[0], "weight", Masked())
    x = torch.rand(3, 8)

    for model in (pruned, parametrised):
        result = count(model, x)
        assert result.macs == 3 * 8 * 6
        assert result.notes[0].startswith("0: 2 of 6 output channels are zero")


def test_taking_the_channels_out_is_what_saves():
    masked, taken_out = nn.Linear(8, 6), nn.Linear(8, 4)
    with torch.no_grad():
        masked.weight[4:] = 0

    assert count(taken_out, torch.rand(3, 8)).macs == 3 * 8 * 4 < count(masked, torch.rand(3, 8)).macs
    assert count(taken_out, torch.rand(3, 8)).notes == ()
