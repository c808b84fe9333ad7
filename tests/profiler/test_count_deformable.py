"""Deformable sampling as torchvision and transformers write it, against closed formulas."""

import pytest
import torch
from torchvision.ops import DeformConv2d
from transformers import DeformableDetrConfig, ResNetConfig
from transformers.models.deformable_detr.modeling_deformable_detr import (
    DeformableDetrForObjectDetection,
    DeformableDetrMultiscaleDeformableAttention,
)

from gearshift.profiler import OperatorType, count

TAPS = 4  # a bilinear sample; each tap is a product and a sum


@pytest.mark.parametrize("on_meta", [False, True], ids=["real", "meta"])
@pytest.mark.parametrize("masked", [False, True], ids=["v1", "v2"])
@pytest.mark.parametrize(("groups", "offset_groups"), [(1, 1), (2, 1), (2, 4)])
def test_deformable_convolution_is_a_convolution_of_samples(groups, offset_groups, masked, on_meta):
    conv = DeformConv2d(8, 6, 3, stride=2, padding=1, groups=groups)
    x, out = torch.rand(2, 8, 9, 11), 5 * 6
    offset = torch.rand(2, 2 * offset_groups * 9, 5, 6)
    mask = torch.rand(2, offset_groups * 9, 5, 6) if masked else None

    result = count(conv, (x, offset, mask), on_meta=on_meta)

    assert result.macs == 2 * out * 6 * (8 // groups) * 3 * 3
    assert result.by_type[OperatorType.CONVOLUTION].macs == result.macs
    assert result.elementwise_flops == 2 * out * 8 * 3 * 3 * (2 * TAPS + masked)
    assert result.uncounted == {}


LEVELS = [(16, 16), (8, 8), (4, 4), (2, 2)]


@pytest.mark.parametrize("on_meta", [False, True], ids=["real", "meta"])
@pytest.mark.parametrize("queries", [7, 340])
def test_multi_scale_deformable_attention(queries, on_meta):
    heads, points, d, batch = 2, 4, 32, 3
    config = DeformableDetrConfig(
        d_model=d, num_feature_levels=len(LEVELS), use_timm_backbone=False, backbone_config=ResNetConfig()
    )
    attention = DeformableDetrMultiscaleDeformableAttention(config, heads, points)
    tokens = sum(height * width for height, width in LEVELS)

    result = count(
        attention,
        torch.rand(batch, queries, d),
        {
            "encoder_hidden_states": torch.rand(batch, tokens, d),
            "reference_points": torch.rand(batch, queries, len(LEVELS), 2),
            "spatial_shapes": torch.tensor(LEVELS),
            "spatial_shapes_list": LEVELS,
            "level_start_index": torch.tensor([0, 256, 320, 336]),
        },
        on_meta=on_meta,
    )

    samples = queries * heads * len(LEVELS) * points
    value, output = tokens * d * d, queries * d * d
    offsets, weights = d * samples * 2, d * samples
    assert result.macs == batch * (value + output + offsets + weights)
    assert result.by_type[OperatorType.LINEAR].macs == result.macs
    width = d // heads
    sampling = samples * width * 2 * TAPS
    weighing = samples * width * 2  # times the attention weight, and summed over levels and points
    softmax = 5 * samples
    locations = 2 * samples * (2 + 2)  # offset / size + reference; then 2 x - 1
    assert result.elementwise_flops == batch * (sampling + weighing + softmax + locations)
    assert result.by_operator["aten::grid_sampler_2d"].elementwise_flops == batch * sampling
    assert result.uncounted == {}


def test_the_encoder_of_deformable_detr():
    """Cost is linear in the number of tokens: twice the image side, four times the encoder."""
    config = DeformableDetrConfig(
        use_timm_backbone=False,
        backbone_config=ResNetConfig(out_features=["stage2", "stage3", "stage4"], depths=[1, 1, 1, 1]),
        encoder_layers=2,
        decoder_layers=2,
        d_model=64,
        encoder_attention_heads=4,
        encoder_ffn_dim=128,
    )
    model = DeformableDetrForObjectDetection(config)
    small, large = (count(model, torch.empty(1, 3, size, size), on_meta=True) for size in (256, 512))

    def encoder(side: int) -> int:
        tokens, d, heads, levels, points = sum((side // s) ** 2 for s in (8, 16, 32, 64)), 64, 4, 4, 4
        return 2 * tokens * d * (2 * d + 3 * heads * levels * points + 2 * 128)

    assert small.by_module["model.encoder"].macs == encoder(256)
    assert large.by_module["model.encoder"].macs == encoder(512) == 4 * encoder(256)
