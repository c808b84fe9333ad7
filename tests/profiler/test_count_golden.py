"""Totals of whole models, with the formula beside them, on the meta device."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import (
    SegformerConfig,
    SegformerForSemanticSegmentation,
    SwinConfig,
    UperNetConfig,
    UperNetForSemanticSegmentation,
)

from gearshift.profiler import Count, OperatorType, count

B0 = {}
B2 = {
    "hidden_sizes": [64, 128, 320, 512],
    "depths": [3, 4, 6, 3],
    "decoder_hidden_size": 768,
    "num_attention_heads": [1, 2, 5, 8],
    "sr_ratios": [8, 4, 2, 1],
    "mlp_ratios": [4, 4, 4, 4],
}


def segformer(config: dict, size: int, labels: int = 150, attention: str = "sdpa") -> Count:
    with torch.device("meta"):
        model = SegformerForSemanticSegmentation(
            SegformerConfig(num_labels=labels, attn_implementation=attention, **config)
        )
        return count(model, torch.empty(1, 3, size, size))


def segformer_macs(config: SegformerConfig, size: int, labels: int) -> tuple[int, int]:
    """Return MACs of convolutions and of everything else, term by term from the paper's architecture."""
    conv = other = 0
    channels, side = 3, size
    decoder, quarter = config.decoder_hidden_size, (size // 4) ** 2
    for stage, c in enumerate(config.hidden_sizes):
        side //= config.strides[stage]
        n, r = side * side, config.sr_ratios[stage]
        m = n // r**2
        hidden = c * config.mlp_ratios[stage]
        conv += n * c * channels * config.patch_sizes[stage] ** 2  # overlapping patch embedding
        for _ in range(config.depths[stage]):
            conv += m * c * c * r * r if r > 1 else 0  # sequence reduction
            other += 2 * n * c * c + 2 * m * c * c  # query and output, key and value
            other += 2 * n * m * c  # both products of attention
            other += 2 * n * c * hidden  # feed-forward
            conv += n * hidden * 9  # its depthwise convolution
        other += n * c * decoder  # decoder's projection
        channels = c
    conv += quarter * 4 * decoder * decoder  # linear_fuse
    conv += quarter * decoder * labels  # classifier
    return conv, other


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize(
    ("config", "size", "labels", "gmacs"),
    [(B0, 512, 150, 8.388), (B2, 512, 150, 62.338), (B2, 1024, 19, 289.466)],
    ids=["b0", "b2", "b2-cityscapes"],
)
def test_segformer(config, size, labels, gmacs, attention):
    result = segformer(config, size, labels, attention)
    conv, other = segformer_macs(SegformerConfig(**config), size, labels)

    assert result.macs == conv + other
    assert result.by_type[OperatorType.CONVOLUTION].macs == conv
    assert result.macs / 1e9 == pytest.approx(gmacs, abs=5e-4)
    assert result.uncounted == {}


def test_where_segformer_b2_spends():
    result = segformer(B2, 512)
    fuse = result.by_module["decode_head.linear_fuse"]

    assert fuse.macs == 128 * 128 * (4 * 768) * 768  # 38.65 G
    assert fuse.macs / result.macs == pytest.approx(0.620, abs=5e-4)
    assert result.by_type[OperatorType.CONVOLUTION].macs / result.macs == pytest.approx(0.692, abs=5e-4)


def test_swin_upernet():
    backbone = SwinConfig(
        embed_dim=96, depths=[2, 2, 6, 2], num_heads=[3, 6, 12, 24], window_size=7,
        out_features=["stage1", "stage2", "stage3", "stage4"],
    )  # fmt: skip
    with torch.device("meta"):
        model = UperNetForSemanticSegmentation(UperNetConfig(backbone_config=backbone, num_labels=150))
        result = count(model, torch.empty(1, 3, 512, 512))

    auxiliary = 32 * 32 * (384 * 256 * 9 + 256 * 150)  # computed at inference, and thrown away
    assert result.by_module["auxiliary_head"].macs == auxiliary
    assert result.by_module["decode_head.fpn_bottleneck"].macs == 128 * 128 * 2048 * 512 * 9  # 154.62 G
    assert (result.macs - auxiliary) / 1e9 == pytest.approx(236.865, abs=5e-4)
    assert result.by_type[OperatorType.CONVOLUTION].macs / result.macs == pytest.approx(0.893, abs=5e-4)
    assert result.settings["window_sizes"] == [7]


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_vit_tiny(device):
    timm = pytest.importorskip("timm")
    model = timm.create_model("vit_tiny_patch16_224", device=device)
    result = count(model, torch.zeros(1, 3, 224, 224, device=device))

    n, d = 14 * 14 + 1, 192
    patches, head = 14 * 14 * d * 3 * 16 * 16, d * 1000
    linear, attention = 12 * n * (4 + 8) * d * d, 12 * 2 * n * n * d
    assert result.macs == patches + linear + attention + head == 1_253_683_200
    assert result.macs - attention == 1_074_851_328  # what is left when fused attention is missed
    assert result.by_type[OperatorType.ATTENTION].macs == attention


@pytest.mark.parametrize(
    "name",
    [
        "resnet18",
        "mobilenetv3_small_100",
        "deit_tiny_patch16_224",
        "swin_tiny_patch4_window7_224",
        "mixer_s32_224",
        "convnext_atto",
        "maxvit_nano_rw_256",
        "efficientvit_b0",
        "coat_tiny",
        "xcit_nano_12_p16_224",
    ],
)
def test_whole_architectures_agree_with_the_stock_counter_on_meta(name):
    timm = pytest.importorskip("timm")
    with torch.device("meta"):
        model = timm.create_model(name).eval()
        image = torch.empty(1, *model.pretrained_cfg["input_size"])
        with torch.no_grad(), FlopCounterMode(display=False) as witness:
            model(image)
        result = count(model, image)

    assert result.flops == witness.get_total_flops()
    assert result.uncounted == {}
