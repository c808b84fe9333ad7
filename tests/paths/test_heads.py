"""Heads and hidden channels that are cut: which, how many, and over whose memory."""

from typing import Any

import pytest
import timm
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.profiler import profile

from gearshift.errors import PathRefusedError
from gearshift.paths.anatomy import Anatomy, AttentionSite, MlpSite
from gearshift.paths.build import PathFactory
from gearshift.paths.cutting import rounded
from gearshift.paths.importance import channel_importances, head_importances
from gearshift.paths.knobs import heads_knob, mlp_knob
from gearshift.paths.sharing import DerivedTensors, clone_structure, extra_bytes
from gearshift.paths.spec import PathSpec
from gearshift.paths.transforms import Heads, Mlp, Structural
from gearshift.profiler import count
from tests.paths.conftest import randomise, small_segformer
from tests.paths.specimens.masks import channel_importance, head_importance


def vit() -> tuple[Any, Anatomy]:
    """A small ViT of timm: joint queries, keys and values, 6 heads of 8 channels in each of 3 layers."""
    torch.manual_seed(0)
    model: Any = timm.create_model(
        "vit_tiny_patch16_224", img_size=32, patch_size=8, embed_dim=48, depth=3, num_heads=6, num_classes=5
    ).eval()
    randomise(model)
    names = [f"blocks.{index}" for index in range(3)]
    sites = tuple(
        AttentionSite(
            name=f"{name}.attn",
            heads=6,
            head_dim=8,
            projections={f"{name}.attn.qkv": 3},
            output=f"{name}.attn.proj",
            attributes={"num_heads": "heads", "attn_dim": "channels"},
        )
        for name in names
    )
    mlps = tuple(MlpSite(expand=f"{name}.mlp.fc1", reduce=f"{name}.mlp.fc2") for name in names)
    return model, Anatomy(stages=(tuple(names),), attentions=sites, mlps=mlps)


def changed(transform: Structural, model: nn.Module, anatomy: Anatomy, derived: DerivedTensors) -> Any:
    clone = clone_structure(model)
    transform.prepare(model, anatomy, derived)
    transform.apply(clone, anatomy, derived)
    return clone


def frames(number: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(1, 3, 32, 32, generator=generator) for _ in range(number)]


@given(
    layers=st.lists(st.lists(st.floats(0, 1), min_size=1, max_size=12), min_size=1, max_size=8),
    percent=st.integers(1, 99),
)
def test_as_many_heads_stay_as_asked_for_and_one_in_each_layer(layers: list[list[float]], percent: int) -> None:
    kept = Heads(percent).kept(layers)
    total = sum(map(len, layers))
    assert all(1 <= count <= len(layer) for count, layer in zip(kept, layers, strict=True))
    assert sum(kept) == max(len(layers), -(-total * percent // 100))
    if percent < 99:
        assert all(a <= b for a, b in zip(kept, Heads(percent + 1).kept(layers), strict=True))


@given(channels=st.integers(1, 4096), percent=st.integers(0, 100), unit=st.sampled_from([8, 16, 32]))
def test_counts_are_rounded_to_units(channels: int, percent: int, unit: int) -> None:
    kept = rounded(channels, percent / 100, unit)
    assert kept == channels or (kept % unit == 0 and unit <= kept < channels)
    assert abs(kept - channels * percent / 100) <= max(unit / 2, unit - channels * percent / 100)
    if percent < 100:
        assert kept <= rounded(channels, (percent + 1) / 100, unit)


def test_three_heads_and_a_half_leave_two() -> None:
    """The share is rounded up to whole heads: 1.5 becomes 2."""
    assert Heads(50).kept([[0.2, 0.5, 0.3]]) == [2]
    assert Heads(34).kept([[0.2, 0.5, 0.3]]) == [2]
    assert Heads(1).kept([[0.2, 0.5, 0.3]]) == [1]
    assert Heads(50).kept([[0.1, 0.2], [0.4, 0.6, 0.5, 0.3]]) == [1, 2]


@pytest.mark.parametrize("number", [0, 3])
def test_importances_are_those_of_the_plain_formulas(number: int) -> None:
    model, anatomy = vit()
    drawn = frames(number)
    derived = DerivedTensors(calibration=drawn)
    for site, importance in zip(anatomy.attentions, head_importances(model, anatomy, derived), strict=True):
        torch.testing.assert_close(importance.tolist(), head_importance(model, site, drawn), rtol=1e-5, atol=0)
    for part, importance in zip(anatomy.mlps, channel_importances(model, anatomy, derived), strict=True):
        torch.testing.assert_close(importance.tolist(), channel_importance(model, part, drawn), rtol=1e-5, atol=0)


def test_a_silent_head_and_a_silent_channel_are_the_first_to_go() -> None:
    """What frames never excite goes, however large its weights are; without frames, the smallest weights go."""
    model, anatomy = vit()
    with torch.no_grad():
        model.blocks[1].attn.qkv.weight[2 * 48 + 8 : 2 * 48 + 16] = 0  # the values of head 1
        model.blocks[1].attn.qkv.bias[2 * 48 + 8 : 2 * 48 + 16] = 0
        model.blocks[1].attn.proj.weight[:, 8:16] *= 100
        model.blocks[0].mlp.fc1.bias[5] = -1000  # never active
        model.blocks[0].mlp.fc2.weight[:, 5] *= 100
    measured = DerivedTensors(calibration=frames(2))
    assert int(head_importances(model, anatomy, measured)[1].argmin()) == 1
    assert int(channel_importances(model, anatomy, measured)[0].argmin()) == 5
    guessed = DerivedTensors()
    assert int(head_importances(model, anatomy, guessed)[1].argmax()) == 1
    assert int(channel_importances(model, anatomy, guessed)[0].argmax()) == 5


def test_measuring_leaves_the_stock_model_as_it_was() -> None:
    model, anatomy = vit()
    model.train()
    head_importances(model, anatomy, DerivedTensors(calibration=frames(1)))
    channel_importances(model, anatomy, DerivedTensors(calibration=frames(1)))
    assert model.training
    assert not any(part._forward_hooks for part in model.modules())


@pytest.mark.parametrize("percent", [90, 50, 10])
def test_all_three_parts_of_a_joint_projection_lose_the_same_heads(percent: int) -> None:
    model, anatomy = vit()
    cut = changed(Heads(percent), model, anatomy, DerivedTensors())
    for block in cut.blocks:
        attention = block.attn
        assert attention.qkv.out_features == attention.qkv.weight.shape[0] == 3 * attention.num_heads * 8
        assert attention.proj.in_features == attention.proj.weight.shape[1] == attention.attn_dim
        assert (attention.attn_dim, attention.head_dim) == (attention.num_heads * 8, 8)
    assert sum(block.attn.num_heads for block in cut.blocks) == max(3, -(-18 * percent // 100))


def test_hidden_channels_of_a_mix_ffn_shrink_together() -> None:
    path: Any = PathFactory(small_segformer()).build(PathSpec.parse("mlp=50%"))
    mlp = path.inner.segformer.stages[3].blocks[0].mlp
    depthwise = mlp.dwconv.dwconv
    assert (mlp.fc1.out_features, depthwise.in_channels, depthwise.out_channels, depthwise.groups) == (48,) * 4
    assert mlp.fc2.in_features == 48


def test_paths_share_one_sorted_copy() -> None:
    """Ten paths of other widths need no more than one: each is a view of the weights that the first had sorted."""
    model, anatomy = vit()
    derived = DerivedTensors()
    paths = nn.ModuleList([changed(Mlp(percent), model, anatomy, derived) for percent in range(20, 99, 8)])
    one = extra_bytes(paths[0], model)
    assert one == sum(
        part.weight.nbytes + (part.bias.nbytes if name == "fc1" else 0)
        for block in model.blocks
        for name, part in block.mlp.named_children()
        if name in ("fc1", "fc2")
    )
    assert extra_bytes(paths, model) == one
    segformer = PathFactory(small_segformer())
    several = nn.ModuleList([segformer.build(PathSpec.parse(f"heads={percent}%")) for percent in (40, 60, 80)])
    most = max(extra_bytes(path, segformer.stock) for path in several)
    assert extra_bytes(several, segformer.stock) == most


def test_a_view_is_run_without_a_copy() -> None:
    """Columns of a larger matrix go to the product as they are: the operators are those of the stock model."""
    full = nn.Linear(256, 64)
    thin = nn.Linear(128, 64, device="meta")
    thin.weight, thin.bias = nn.Parameter(full.weight.detach()[:, :128]), full.bias
    assert not thin.weight.is_contiguous()
    tokens = torch.randn(1, 50, 128)

    def operators(module: nn.Module, features: Tensor) -> list[str]:
        with torch.inference_mode(), profile() as recorded:
            module(features)
        return [event.name for event in recorded.events() if event.name.startswith("aten::")]

    assert operators(thin, tokens) == operators(full, torch.randn(1, 50, 256))
    torch.testing.assert_close(thin(tokens), tokens @ full.weight[:, :128].T + full.bias)


def test_what_cuts_nothing_is_refused() -> None:
    model, anatomy = vit()
    with pytest.raises(PathRefusedError, match="heads=99% keeps 18 of 18"):
        changed(Heads(99), model, anatomy, DerivedTensors())
    with pytest.raises(PathRefusedError, match=r"mlp=99% would cut nothing .*192-192-192.*units of 8"):
        changed(Mlp(99), model, anatomy, DerivedTensors())
    stock = PathFactory(small_segformer())
    with pytest.raises(PathRefusedError, match="would lose none"):  # every layer is skipped
        stock.build(PathSpec.parse("blocks=0-0-0-0+heads=50%"))


def test_the_ranking_does_not_depend_on_what_else_is_left_out() -> None:
    """A path that skips a block keeps, in the others, the heads that it keeps without skipping."""
    factory = PathFactory(small_segformer(), calibration=[torch.randn(1, 3, 64, 64)])
    both: Any = factory.build(PathSpec.parse("skip=2.0+heads=60%"))
    alone: Any = factory.build(PathSpec.parse("heads=60%"))
    for left, right in ((0, 1), (1, 2)):  # the skipped block is gone from the list
        ours = both.inner.segformer.stages[2].blocks[left].attention.q_proj.weight
        assert torch.equal(ours, alone.inner.segformer.stages[2].blocks[right].attention.q_proj.weight)


def test_merged_projections_of_other_heads_are_other_tensors() -> None:
    factory = PathFactory(small_segformer())
    frame = torch.randn(1, 3, 64, 64)
    for cut in ("heads=75%", "heads=50%", "prune=50%"):
        plain, merged = (factory.build(PathSpec.parse(f"lossless{qkv}+{cut}")) for qkv in ("", "+qkv"))
        with torch.inference_mode():
            torch.testing.assert_close(merged(frame).logits, plain(frame).logits, rtol=1e-4, atol=1e-4)


def test_knobs_go_from_mild_to_strong_and_every_setting_saves() -> None:
    model, anatomy = vit()
    frame, derived = torch.randn(1, 3, 32, 32), DerivedTensors()
    for knob in (heads_knob(anatomy), mlp_knob(anatomy)):
        settings = [setting for setting in knob.settings if isinstance(setting, Structural)]
        costs = [count(changed(setting, model, anatomy, derived), (frame,)).macs for setting in settings]
        assert len(costs) >= 4
        assert costs == sorted(set(costs), reverse=True)
    assert not heads_knob(Anatomy()).settings
    assert not mlp_knob(Anatomy()).settings
