"""The lossless ViT: every variant of the stock modules that is admitted is exact; the others are refused by name."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gearshift.errors import InputError, PathRefusedError
from gearshift.paths.build import FAMILIES, PathFactory, family_of
from gearshift.paths.cost import count_macs
from gearshift.paths.sharing import DerivedTensors
from gearshift.paths.spec import PathSpec
from gearshift.paths.vit.family import VitFamily
from tests.paths.specimens import SPECIMENS
from tests.paths.specimens.vit import SIZE, SQUARE, TAKEN, list_of, segmenter, timm_vit

timm = pytest.importorskip("timm")

FAMILY = VitFamily()
VARIANTS: dict[str, dict[str, Any]] = {
    "class token": {},
    "average": {"global_pool": "avg"},
    "average without a class token": {"global_pool": "avg", "class_token": False},
    "average before the norm": {"global_pool": "avg", "fc_norm": False},
    "largest": {"global_pool": "max"},
    "largest after the norm": {"global_pool": "max", "fc_norm": False},
    "average and largest of all": {"global_pool": "avgmax", "pool_include_prefix": True},
    "attention pooling": {"global_pool": "map"},
    "attention pooling of all": {"global_pool": "prr"},
    "norm of the class token": {"fc_norm": True},
    "no last norm": {"final_norm": False},
    "registers": {"reg_tokens": 3},
    "prefix without positions": {"reg_tokens": 1, "no_embed_class": True},
    "no positions": {"pos_embed": "none"},
    "norms of queries and keys": {"qk_norm": True},
    "layer scale": {"init_values": 0.1},
    "norm before the blocks": {"pre_norm": True},
    "norms inside": {"scale_attn_norm": True, "scale_mlp_norm": True},
    "norm of patches": {"embed_norm_layer": "layernorm"},
    "root mean squares": {"norm_layer": "rmsnorm"},
    "gated mlp": {"mlp_layer": timm.layers.SwiGLU},
    "no biases": {"qkv_bias": False, "proj_bias": False},
    "stochastic depth and dropout": {"drop_path_rate": 0.3, "proj_drop_rate": 0.2, "drop_rate": 0.2},
    "dynamic size": {"dynamic_img_size": True},
}


def frames(size: tuple[int, int] = SIZE, batch: int = 2) -> Tensor:
    return torch.randn(batch, 3, *size, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


def difference(ours: Any, theirs: Any) -> float:
    with torch.inference_mode():
        return float((ours - theirs).abs().max() / theirs.abs().max())


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_admitted_variant_is_exact_in_every_form(variant: str) -> None:
    model = timm_vit(**VARIANTS[variant]).double()
    factory = PathFactory(model)
    forms = FAMILY.base(model)
    assert forms[0].id == "lossless"
    assert (variant == "root mean squares") == (len(forms) == 1)
    for form in forms:
        path = factory.build(form)
        with torch.inference_mode():
            assert difference(path(frames()), model(frames())) < 1e-10
        assert count_macs(path, frames(batch=1)) <= count_macs(model, frames(batch=1))


@pytest.mark.parametrize("fused", [True, False])
def test_attention_that_is_not_fused_keeps_the_scale_it_has(fused: bool) -> None:
    """timm's eager attention takes the attribute, the fused one torch's default, whatever the attribute says."""
    model = timm_vit().double()
    for block in model.blocks:
        block.attn.fused_attn = fused
        block.attn.scale = 0.1
    assert difference(PathFactory(model).build(PathSpec.parse("lossless"))(frames()), model(frames())) < 1e-10


@pytest.mark.parametrize(
    "path",
    [
        "skip=0.1,0.3",
        "heads=60%",
        "mlp=50%",
        "heads=40%+mlp=30%+skip=0.0",
        "lowrank=0:9,3:9,12:10,13:8,14:11",
        "heads=60%+lowrank=14:12",
        "skip=0.1+prune=50%",
    ],
)
@pytest.mark.parametrize("name", ["vit of timm", "distilled vit of timm", "vit of transformers", "vit segmenter"])
def test_the_lossless_form_of_a_cut_model_is_that_of_the_cut_model(name: str, path: str) -> None:
    """Structural transforms come first, whatever they put in the place of a layer."""
    item = SPECIMENS[name]
    if name == "vit of transformers":
        path = path.replace("12:10,13:8,14:11", "20:10,21:8,22:11").replace("lowrank=14:12", "lowrank=23:12")
    model = item.make().double()
    generator = torch.Generator().manual_seed(5)
    drawn = [torch.randn(1, 3, *item.sizes[0], generator=generator, dtype=torch.float64) for _ in range(3)]
    factory = PathFactory(model, calibration=drawn)
    cut = factory.build(PathSpec.parse(path))
    pixels = frames(item.sizes[0])
    with torch.inference_mode():
        expected = cut(pixels)
    for form in FAMILY.base(model):
        with torch.inference_mode():
            got = factory.build(PathSpec.parse(f"{form.id}+{path}"))(pixels)
        if name == "vit of transformers":
            assert difference(got.logits, expected.logits) < 1e-10
        else:
            assert difference(got, expected) < 1e-10


def test_lossless_needs_no_memory_and_copies_are_shared() -> None:
    model = SPECIMENS["vit of transformers"].make()
    factory = PathFactory(model)
    assert factory.build(PathSpec.parse("lossless")).extra_bytes == 0
    first = factory.build(PathSpec.parse("lossless+qkv+norms"))
    second = factory.build(PathSpec.parse("lossless+qkv+norms+skip=0.1"))
    theirs = {tensor.data_ptr() for tensor in first.inner.buffers() if tensor.numel()}
    assert {tensor.data_ptr() for tensor in second.inner.buffers() if tensor.numel()} < theirs
    assert factory.derived.stored() == {}


def test_copies_of_cut_layers_are_not_kept_for_other_paths() -> None:
    factory = PathFactory(timm_vit())
    factory.build(PathSpec.parse("heads=60%+mlp=50%"))
    before = set(factory.derived.tensors())
    path = factory.build(PathSpec.parse("lossless+norms+heads=60%+mlp=50%"))
    assert set(factory.derived.tensors()) - before == {"norms/head/weight", "norms/head/bias"}
    assert path.extra_bytes > 0


def test_a_base_model_at_224_saves_8_percent_of_its_operations() -> None:
    """Golden totals: 12 blocks of 197 tokens; the last one for the class token alone."""
    with torch.device("meta"):
        model = timm.create_model("vit_base_patch16_224").eval()
        pixels = torch.empty(1, 3, 224, 224)
    n, c, heads = 197, 768, 12
    block, outside = 12 * n * c * c + 2 * n * n * c, 196 * c * 768 + c * 1000
    last = 12 * c * c + 2 * heads * n * c
    assert count_macs(model, pixels) == 12 * block + outside == 17_563_828_224
    lossless = PathFactory(model).build(PathSpec.parse("lossless"))
    assert count_macs(lossless, pixels) == 11 * block + last + outside == 16_120_582_656


def refused(model: Any, path: str, match: str) -> None:
    with pytest.raises(PathRefusedError, match=match) as caught:
        PathFactory(model).build(PathSpec.parse(path))
    assert "\n" not in str(caught.value)


class OddAttention(timm.layers.Attention):  # type: ignore[misc]
    """A user's own: it may compute something else."""


class OddNorm(nn.LayerNorm):
    """A user's own."""


class OddBlock(timm.models.vision_transformer.Block):  # type: ignore[misc]
    """A user's own."""


def test_what_is_not_rewritten_is_refused_by_name() -> None:
    for change, match in (
        ({"block_fn": timm.models.vision_transformer.ParallelScalingBlock}, "blocks.0 is a ParallelScalingBlock"),
        ({"block_fn": OddBlock}, "blocks.0 is a OddBlock"),
        ({"attn_layer": OddAttention}, "blocks.0.attn is a OddAttention"),
        ({"attn_layer": "diff"}, "blocks.0.attn is a DiffAttention"),
        ({"norm_layer": OddNorm}, "blocks.0.norm1 is a OddNorm"),
        ({"depth": 0}, "it has no blocks"),
    ):
        model = timm_vit(**change)
        refused(model, "lossless", match)
        assert FAMILY.base(model) == [PathSpec()]
        assert all(knob.name != "merge" for knob in FAMILY.knobs(model, DerivedTensors()))
    gated = timm_vit()
    gated.blocks[1].attn.gate = nn.Linear(24, 24)
    refused(gated, "lossless", "blocks.1.attn gates its output")
    overlapping = timm_vit()
    overlapping.patch_embed.proj = nn.Conv2d(3, 24, 8, stride=8, padding=2)
    refused(overlapping, "lossless", "not into patches side by side")
    refused(overlapping, "size=24x24", "not into patches side by side")


def test_exact_forms_that_have_nothing_to_rewrite_are_refused() -> None:
    refused(timm_vit(), "lossless+qkv", 'have no "qkv"')
    refused(timm_vit(norm_layer="rmsnorm"), "lossless+norms", "has none to fold; drop norms")
    model = SPECIMENS["vit of transformers"].make()
    for name in ("qkv", "norms", "merge=2"):
        refused(model, name, rf'write "lossless\+{name}"')
    refused(model, "lossless+qkv+skip=0.0,0.1,0.2,0.3", "leaves none to merge; drop qkv")


def test_models_that_are_not_of_the_family_or_tell_no_classes_apart_are_not_known() -> None:
    class Mine(timm.models.VisionTransformer):  # type: ignore[misc]
        """A user's own."""

    assert not FAMILY.matches(Mine(img_size=32, patch_size=8, embed_dim=24, depth=1, num_heads=3))
    assert not FAMILY.matches(timm_vit(num_classes=0))
    assert not FAMILY.matches(timm_vit(global_pool=""))
    assert not FAMILY.matches(nn.Linear(2, 2))
    assert family_of(timm_vit()) in [family for family in FAMILIES if family.name == "vit"]


def test_what_only_the_stock_form_answers_is_refused_in_one_line() -> None:
    model = SPECIMENS["vit of transformers"].make()
    path = PathFactory(model).build(PathSpec.parse("lossless"))
    pixels = torch.zeros(1, 3, *SQUARE)
    with pytest.raises(InputError, match="takes no output_hidden_states; use the stock form"):
        path(pixels, output_hidden_states=True)
    assert torch.equal(path(pixels, interpolate_pos_encoding=True).logits, path(pixels, return_dict=False)[0])
    assert path(pixels, output_attentions=False).logits.shape == (1, 7)


def test_blocks_beyond_the_last_that_is_read_are_dropped() -> None:
    model = segmenter()
    assert len(list_of(model)) == TAKEN[-1] + 1
    model.backbone.blocks.append(timm.models.vision_transformer.Block(24, 3))
    path = PathFactory(model.eval()).build(PathSpec.parse("lossless"))
    assert len(path.inner.blocks) == TAKEN[-1] + 1


@pytest.mark.parametrize("name", ["vit of timm", "vit segmenter"])
def test_every_knob_setting_builds_and_runs(name: str) -> None:
    item = SPECIMENS[name]
    factory = item.factory()
    base = FAMILY.base(factory.stock)[0]
    knobs = FAMILY.knobs(factory.stock, factory.derived)
    assert {"block 0.0", "heads", "mlp", "merge", "size"} <= {knob.name for knob in knobs}
    pixels = torch.zeros(1, 3, *item.sizes[0])
    for knob in knobs:
        costs = []
        for setting in knob.settings:
            path = factory.build(base.with_transform(setting))
            costs.append(count_macs(path, pixels))
        assert costs == sorted(costs, reverse=True), knob.name
