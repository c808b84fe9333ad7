"""Totals of whole models, with the formula beside them, on the meta device."""

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode
from transformers import (
    DetrConfig,
    DetrForObjectDetection,
    ResNetConfig,
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


def segformer(config: dict, height: int, width: int, labels: int = 150, attention: str = "sdpa") -> Count:
    with torch.device("meta"):
        model = SegformerForSemanticSegmentation(
            SegformerConfig(num_labels=labels, attn_implementation=attention, **config)
        )
        return count(model, torch.empty(1, 3, height, width))


class Terms(dict[str, int]):
    """MACs by kind of work, of one model."""

    def add(self, kind: str, macs: int) -> None:
        self[kind] = self.get(kind, 0) + macs

    @property
    def total(self) -> int:
        return sum(self.values())


def segformer_macs(config: SegformerConfig, height: int, width: int, labels: int) -> Terms:
    """Return MACs term by term from the paper's architecture."""
    terms = Terms()
    channels, decoder, quarter = 3, config.decoder_hidden_size, (height // 4) * (width // 4)
    for stage, c in enumerate(config.hidden_sizes):
        height, width = height // config.strides[stage], width // config.strides[stage]
        n, r = height * width, config.sr_ratios[stage]
        m = n // r**2
        hidden = c * config.mlp_ratios[stage]
        terms.add("convolution", n * c * channels * config.patch_sizes[stage] ** 2)  # overlapping patch embedding
        for _ in range(config.depths[stage]):
            terms.add("convolution", m * c * c * r * r if r > 1 else 0)  # sequence reduction
            terms.add("linear", 2 * n * c * c + 2 * m * c * c)  # query and output, key and value
            terms.add("attention", 2 * n * m * c)  # both products
            terms.add("linear", 2 * n * c * hidden)  # feed-forward
            terms.add("convolution", n * hidden * 9)  # its depthwise convolution
        terms.add("linear", n * c * decoder)  # decoder's projection
        channels = c
    terms.add("convolution", quarter * 4 * decoder * decoder)  # linear_fuse
    terms.add("convolution", quarter * decoder * labels)  # classifier
    return terms


def by_type(result: Count) -> dict[str, int]:
    return {str(name): totals.macs for name, totals in result.by_type.items() if totals.macs}


@pytest.mark.parametrize(
    ("config", "height", "width", "labels", "gmacs", "convolution", "attention"),
    [
        (B0, 512, 512, 150, 8.388, None, None),
        (B2, 512, 512, 150, 62.338, 0.692, None),
        (B2, 1024, 1024, 19, 289.466, None, None),
        (B2, 1024, 2048, 19, 703.485, 0.472, 0.354),
    ],
    ids=["b0", "b2", "b2-cityscapes-square", "b2-cityscapes"],
)
def test_segformer(config, height, width, labels, gmacs, convolution, attention):
    result = segformer(config, height, width, labels)
    terms = segformer_macs(SegformerConfig(**config), height, width, labels)

    assert by_type(result) == terms
    assert result.macs == terms.total
    assert result.macs / 1e9 == pytest.approx(gmacs, abs=5e-4)
    for kind, share in (("convolution", convolution), ("attention", attention)):
        assert share is None or terms[kind] / terms.total == pytest.approx(share, abs=5e-4)
    assert result.uncounted == {}


def test_segformer_without_fused_attention():
    """Unfused, both products are matrix products, and the total is the same."""
    result = by_type(segformer(B2, 512, 512, attention="eager"))
    terms = segformer_macs(SegformerConfig(**B2), 512, 512, 150)

    assert result == {"convolution": terms["convolution"], "linear": terms["linear"], "matmul": terms["attention"]}


def test_where_segformer_b2_spends():
    result = segformer(B2, 512, 512)
    fuse = result.by_module["decode_head.linear_fuse"]

    assert fuse.macs == 128 * 128 * (4 * 768) * 768  # 38.65 G
    assert fuse.macs / result.macs == pytest.approx(0.620, abs=5e-4)


SWIN_T = {"embed_dim": 96, "depths": [2, 2, 6, 2], "num_heads": [3, 6, 12, 24], "window_size": 7}


def swin_upernet_macs(size: int, labels: int, hidden: int = 512) -> Terms:
    """Swin-T and UPerNet on a square image, without the auxiliary head."""
    terms = Terms()
    c, side, window = 96, size // 4, 7
    sides, widths = [], []
    terms.add("convolution", side * side * c * 3 * 4 * 4)  # patch embedding
    for stage, depth in enumerate(SWIN_T["depths"]):
        n, padded = side * side, (-(-side // window) * window) ** 2  # windows reach beyond the image
        for _ in range(depth):
            terms.add("linear", 4 * padded * c * c)  # query, key, value and output, of whole windows
            terms.add("attention", 2 * padded * window**2 * c)
            terms.add("linear", 2 * n * c * 4 * c)
        sides.append(side)
        widths.append(c)
        if stage < 3:
            terms.add("linear", (n // 4) * 4 * c * 2 * c)  # patch merging
            c, side = 2 * c, side // 2
    for stage in range(3):
        terms.add("convolution", sides[stage] ** 2 * widths[stage] * hidden)  # lateral
        terms.add("convolution", sides[stage] ** 2 * hidden * hidden * 9)  # fpn_convs
    terms.add("convolution", sum(scale**2 for scale in (1, 2, 3, 6)) * widths[3] * hidden)  # pyramid pooling
    terms.add("convolution", sides[3] ** 2 * (widths[3] + 4 * hidden) * hidden * 9)  # its bottleneck
    terms.add("convolution", sides[0] ** 2 * 4 * hidden * hidden * 9)  # fpn_bottleneck
    terms.add("convolution", sides[0] ** 2 * hidden * labels)  # classifier
    return terms


@pytest.mark.parametrize("auxiliary", [False, True], ids=["without auxiliary head", "stock"])
def test_swin_upernet(auxiliary):
    backbone = SwinConfig(out_features=["stage1", "stage2", "stage3", "stage4"], **SWIN_T)
    with torch.device("meta"):
        model = UperNetForSemanticSegmentation(
            UperNetConfig(backbone_config=backbone, num_labels=150, use_auxiliary_head=auxiliary)
        )
        result = count(model, torch.empty(1, 3, 512, 512))

    terms = swin_upernet_macs(512, 150)
    assert terms.total / 1e9 == pytest.approx(236.865, abs=5e-4)
    assert terms["convolution"] / terms.total == pytest.approx(0.893, abs=5e-4)
    if auxiliary:  # computed at inference, and thrown away
        terms.add("convolution", 32 * 32 * (384 * 256 * 9 + 256 * 150))
    assert by_type(result) == terms
    bottleneck = result.by_module["decode_head.fpn_bottleneck"].macs
    assert bottleneck == 128 * 128 * 2048 * 512 * 9  # 154.62 G
    assert auxiliary or bottleneck / result.macs == pytest.approx(0.653, abs=5e-4)
    assert result.settings["window_sizes"] == [7]


def resnet50_macs(height: int, width: int) -> int:
    """Convolutions of ResNet-50 without its classifier; each stage but the first halves in its 3x3."""
    height, width = -(-height // 2), -(-width // 2)
    macs = height * width * 64 * 3 * 7 * 7
    height, width = -(-height // 2), -(-width // 2)  # maximum pooling
    channels = 64
    for stage, depth in enumerate((3, 4, 6, 3)):
        out, middle, before = 256 << stage, 64 << stage, height * width
        if stage:
            height, width = -(-height // 2), -(-width // 2)
        n = height * width
        for block in range(depth):
            macs += (n if block else before) * channels * middle  # reduces, before the stride
            macs += n * middle * middle * 9 + n * middle * out
            macs += 0 if block else n * channels * out  # shortcut
            channels = out
    return macs


def detr_macs(height: int, width: int, queries: int = 100, d: int = 256, hidden: int = 2048, labels: int = 91) -> Terms:
    """DETR on ResNet-50: six encoder and six decoder layers, and the two heads."""
    terms = Terms()
    n, q = -(-height // 32) * -(-width // 32), queries
    terms.add("convolution", resnet50_macs(height, width) + n * 2048 * d)  # and the projection of its output
    for _ in range(6):
        terms.add("linear", 4 * n * d * d + 2 * n * d * hidden)
        terms.add("attention", 2 * n * n * d)
    for _ in range(6):
        terms.add("linear", 4 * q * d * d + 2 * q * d * d + 2 * n * d * d + 2 * q * d * hidden)  # self, cross, rest
        terms.add("attention", 2 * q * q * d + 2 * q * n * d)
    terms.add("linear", q * d * (labels + 1) + q * (d * d + d * d + d * 4))  # classes, boxes
    return terms


@pytest.mark.parametrize(("height", "width", "gmacs"), [(512, 512, 24.893), (800, 1066, 81.167)])
def test_detr_with_fused_attention(height, width, gmacs):
    """DETR asks whether a mask of its own is all ones, which the meta device cannot say.

    Of fake tensors it does not ask, and they have the CPU's fused attention.
    """
    config = DetrConfig(use_timm_backbone=False, backbone_config=ResNetConfig(out_features=["stage4"]), num_labels=91)
    with FakeTensorMode():
        result = count(DetrForObjectDetection(config), torch.empty(1, 3, height, width))

    terms = detr_macs(height, width)
    assert by_type(result) == terms
    assert terms.total / 1e9 == pytest.approx(gmacs, abs=5e-4)
    fused = result.by_operator["aten::_scaled_dot_product_flash_attention_for_cpu"]
    assert (fused.calls, fused.macs) == (18, terms["attention"])
    assert result.uncounted == {}


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
