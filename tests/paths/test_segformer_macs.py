"""Multiply-accumulates of paths: counted on the meta device, against arithmetic and golden totals."""

import math
from typing import Any

import pytest
import torch

from gearshift.paths.build import PathFactory, build_path
from gearshift.paths.models import build_described
from gearshift.paths.segformer.family import skipped_blocks
from gearshift.paths.sharing import DerivedTensors
from gearshift.paths.spec import PathSpec
from gearshift.profiler import count


@pytest.fixture(scope="module")
def b2() -> Any:
    """SegFormer-B2 with 150 classes."""
    return build_described("segformer-b2")


def counted(stock: Any, text: str, height: int = 512, width: int = 512, batch: int = 1) -> int:
    path = build_path(stock, PathSpec.parse(text))
    result = count(path, (torch.empty(batch, 3, height, width, device="meta"),), on_meta=True)
    assert not result.uncounted
    return result.macs


def tokens(stock: Any, height: int, width: int) -> list[tuple[int, int]]:
    """Map sizes of the stages: each patch embedding divides by its stride, rounding up."""
    sizes = []
    for stride in stock.config.strides:
        height, width = math.ceil(height / stride), math.ceil(width / stride)
        sizes.append((height, width))
    return sizes


def encoder_macs(stock: Any, spec: PathSpec, sizes: list[tuple[int, int]]) -> int:
    """Patch embeddings, and per block: q, k, v, out; reduction; both attention products; Mix-FFN."""
    config, skipped, before, total = stock.config, skipped_blocks(stock, spec), 3, 0
    for stage, (height, width) in enumerate(sizes):
        n, c = height * width, config.hidden_sizes[stage]
        ratio, hidden = config.sr_ratios[stage], config.hidden_sizes[stage] * config.mlp_ratios[stage]
        m = (height // ratio) * (width // ratio)
        total += n * c * before * config.patch_sizes[stage] ** 2
        attention = 2 * n * c * c + 2 * m * c * c + 2 * n * m * c
        reduction = m * c * c * ratio**2 if ratio > 1 else 0
        mix = 2 * n * c * hidden + n * hidden * 9
        blocks = config.depths[stage] - sum(1 for address in skipped if address[0] == stage)
        total += blocks * (attention + reduction + mix)
        before = c
    return total


def kept_channels(stock: Any, spec: PathSpec) -> tuple[list[int], int]:
    """Fuse input channels of each stage, of which the deepest fills up first, and output channels."""
    width = stock.config.decoder_hidden_size
    fuse: Any = spec.get("fuse")
    decoder: Any = spec.get("decoder")
    left, kept = fuse.channels if fuse else 4 * width, []
    for _ in range(4):
        kept.append(min(width, left))
        left -= kept[-1]
    return kept[::-1], decoder.channels if decoder else width


def decoder_macs(stock: Any, spec: PathSpec, sizes: list[tuple[int, int]]) -> int:
    """Stock form: projections below the upsampling, the rest above. Folded: one matrix per stage."""
    kept, fused = kept_channels(stock, spec)
    full = sizes[0][0] * sizes[0][1]
    total = full * fused * stock.config.num_labels
    for (height, width), channels, k in zip(sizes, stock.config.hidden_sizes, kept, strict=True):
        n = height * width
        if spec.get("lossless") is None:
            total += n * channels * k + full * k * fused
        else:
            total += n * min(channels * fused, k * (channels + fused))
    return total


def expected(stock: Any, text: str, height: int = 512, width: int = 512) -> int:
    spec = PathSpec.parse(text)
    size: Any = spec.get("size")
    if size is not None:
        height, width = size.resolve(height, width)
    sizes = tokens(stock, height, width)
    return encoder_macs(stock, spec, sizes) + decoder_macs(stock, spec, sizes)


# Totals of SegFormer-B2, 150 classes, 512x512. The formula of each is `expected`; the design rests on the
# first two: 62.34 G becomes 23.68 G.
GOLDEN = {
    "stock": 62_337_843_200,
    "lossless": 23_683_137_536,
    "lossless+qkv": 23_683_137_536,
    "lossless+skip=2.1": 22_297_706_496,  # less one block of stage 2: 1,385,431,040
    "lossless+decoder=192": 21_097_349_120,
    "lossless+fuse=1536": 22_475_177_984,  # less stages 0 and 1: 768 * (16384 * 64 + 4096 * 128)
    "lossless+size=50%": 5_190_975_488,
    "fuse=1536": 41_802_530_816,
    "decoder=192": 31_931_236_352,
}


@pytest.mark.parametrize(("text", "golden"), GOLDEN.items(), ids=GOLDEN)
def test_golden_totals_of_b2(text: str, golden: int, b2: Any) -> None:
    assert counted(b2, text) == expected(b2, text) == golden


def test_the_lossless_form_saves_what_the_design_says(b2: Any) -> None:
    assert round(counted(b2, "stock") / 1e9, 2) == 62.34
    assert round(counted(b2, "lossless") / 1e9, 2) == 23.68
    assert round(100 * (1 - counted(b2, "lossless") / counted(b2, "stock")), 1) == 62.0


def test_cityscapes_at_1024() -> None:
    """The second row of the table: 19 classes, 289.47 G becomes 134.85 G."""
    model = build_described("segformer-b2")
    model.config.num_labels = 19
    model.decode_head.classifier = torch.nn.Conv2d(768, 19, 1)
    assert round(counted(model, "stock", 1024, 1024) / 1e9, 2) == 289.47
    assert round(counted(model, "lossless", 1024, 1024) / 1e9, 2) == 134.85


def test_every_setting_counts_as_the_formula_says(setting: PathSpec, stock: Any) -> None:
    text = f"lossless+{setting.id}"
    assert counted(stock, text, 61, 99) == expected(stock, text, 61, 99)


@pytest.mark.parametrize(
    "text",
    [
        "stock",
        "fuse=600",
        "fuse=1",
        "decoder=100",
        "fuse=1018+decoder=255+skip=2.0",
        "size=50%+blocks=1-0-2-1",
        "lossless+qkv",
        "lossless+qkv+fuse=255+decoder=9+skip=0.1,3.0+size=47x70",
    ],
)
def test_other_forms_count_as_the_formula_says(text: str, stock: Any) -> None:
    assert counted(stock, text, 96, 128) == expected(stock, text, 96, 128)


def test_counting_for_real_equals_counting_on_meta(stock: Any) -> None:
    for text in ("stock", "lossless+fuse=600+decoder=64", "decoder=64"):
        path = build_path(stock, PathSpec.parse(text))
        assert count(path, (torch.zeros(1, 3, 61, 99),)).macs == counted(stock, text, 61, 99)


def test_macs_grow_with_the_batch(stock: Any) -> None:
    for text in ("lossless", "fuse=300"):
        assert counted(stock, text, 64, 64, batch=3) == 3 * counted(stock, text, 64, 64)


@pytest.mark.parametrize("changes", [{}, {"decoder_hidden_size": 768}, {"decoder_hidden_size": 64}], ids=str)
def test_every_setting_of_a_knob_saves_over_the_milder_one(changes: dict[str, Any], make_stock: Any) -> None:
    """B088: in the lossless form each saves; in the stock form none costs more."""
    model = make_stock(**changes)
    for form in ("stock", "lossless"):
        base = PathSpec.parse(form)
        for knob in PathFactory(model).family.knobs(model, DerivedTensors()):
            costs = [expected(model, base.id, 960, 960)]
            costs += [expected(model, base.with_transform(item).id, 960, 960) for item in knob.settings]
            assert costs == sorted(costs, reverse=True), (form, knob.name)
            assert form == "stock" or len(set(costs)) == len(costs), (form, knob.name)
