"""Pruning of any model, what is recorded of it, and targets: on small models of timm and of our own."""

import copy
import sys
from collections.abc import Callable
from typing import Any

import pytest
import timm
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gearshift.errors import PathRefusedError, SpecError
from gearshift.paths.anatomy import Anatomy, AttentionSite
from gearshift.paths.build import PathFactory
from gearshift.paths.pruning.checked import difference
from gearshift.paths.pruning.choice import kept
from gearshift.paths.pruning.targets import Target, ratio_for
from gearshift.paths.sharing import DerivedTensors, clone_structure
from gearshift.paths.space import Space, resolve_targets
from gearshift.paths.spec import PathSpec
from gearshift.paths.transforms import Prune
from gearshift.profiler import count
from tests.paths.conftest import randomise, small_segformer


def classifier(name: str, size: int, **changes: Any) -> tuple[nn.Module, Anatomy, Tensor]:
    """A model of timm with weights that matter, its anatomy (without sites) and a frame."""
    torch.manual_seed(0)
    model = timm.create_model(name, num_classes=10, **changes).eval()
    randomise(model)
    head = model.get_classifier()
    fixed = tuple(key for key, part in model.named_modules() if part is head)
    return model, Anatomy(fixed=fixed, example_shape=(3, size, size)), torch.randn(2, 3, size, size)


def prune(model: nn.Module, anatomy: Anatomy, percent: int, derived: DerivedTensors | None = None) -> Any:
    derived = derived or DerivedTensors()
    clone = clone_structure(model)
    Prune(percent).prepare(model, anatomy, derived)
    Prune(percent).apply(clone, anatomy, derived)
    return clone


def outputs(model: nn.Module, frame: Tensor) -> Tensor:
    with torch.no_grad():
        result: Tensor = model(frame)
    return result


MODELS: dict[str, Callable[[], tuple[nn.Module, Anatomy, Tensor]]] = {
    "resnet": lambda: classifier("resnet10t", 64),
    "bottleneck": lambda: classifier("resnet26", 64, layers=(1, 1, 1, 1)),
    "mobilevit": lambda: classifier("mobilevit_xxs", 64),
    "squeeze-excite": lambda: classifier("mobilenetv3_small_050", 64),
    "convnext": lambda: classifier("convnext_atto", 64, depths=(1, 1, 2, 1), ls_init_value=1.0),
    "efficientformer": lambda: classifier("efficientformerv2_s0", 224),
    "vit": lambda: classifier("vit_tiny_patch16_224", 32, img_size=32, patch_size=8, depth=2),
}


@pytest.mark.parametrize("name", list(MODELS))
def test_a_pruned_model_is_the_silenced_stock_model(name: str) -> None:
    """Written here once more: columns of what is no longer read are 0, in single precision, on two other frames."""
    model, anatomy, frame = MODELS[name]()
    derived = DerivedTensors()
    pruned, silenced = prune(model, anatomy, 40, derived), copy.deepcopy(model)
    record = kept(model, anatomy, 40, derived)
    for place, indices in record.items():
        owner, _, axis = place.rpartition("/")
        if axis == "in":
            weight: Any = silenced.get_submodule(owner).weight
            with torch.no_grad():
                weight[:, sorted(set(range(weight.shape[1])) - set(indices.tolist()))] = 0
    expected = outputs(silenced, frame)
    assert float((outputs(pruned, frame) - expected).abs().max() / expected.abs().max()) < 1e-4
    assert float((outputs(model, frame) - expected).abs().max() / expected.abs().max()) > 1e-3
    assert count(pruned, (frame,)).macs < count(model, (frame,)).macs
    assert difference(model, anatomy, record, frame) < 1e-6


@pytest.mark.parametrize("name", ["resnet", "squeeze-excite", "mobilevit", "vit"])
def test_more_percent_never_cost_more_and_every_layer_keeps_a_unit(name: str) -> None:
    model, anatomy, frame = MODELS[name]()
    costs = [count(prune(model, anatomy, percent), (frame,)).macs for percent in (20, 60, 99)]
    assert costs == sorted(costs, reverse=True)
    assert costs[0] < count(model, (frame,)).macs
    before = dict(model.named_modules())
    for key, module in prune(model, anatomy, 99).named_modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            full: Any = before[key]
            assert module.weight.shape[0] >= min(8, full.weight.shape[0])
            if module.weight.shape[0] != full.weight.shape[0]:
                assert module.weight.shape[0] % 8 == 0


def test_the_percentage_is_of_channels() -> None:
    """Two convolutions of 256 channels in a row, half of the inner channels gone: the numbers in the layers say so."""
    model = nn.Sequential(nn.Conv2d(3, 256, 3), nn.ReLU(), nn.Conv2d(256, 256, 3), nn.ReLU(), nn.Conv2d(256, 5, 1))
    pruned = prune(model, Anatomy(fixed=("4",), example_shape=(3, 9, 9)), 50)
    assert [pruned[i].weight.shape[:2] for i in (0, 2, 4)] == [(128, 3), (128, 128), (5, 128)]
    assert [(pruned[i].in_channels, pruned[i].out_channels) for i in (0, 2, 4)] == [(3, 128), (128, 128), (128, 5)]
    assert pruned[2].weight.numel() * 4 == model[2].weight.numel()


def test_layers_that_are_added_are_cut_once() -> None:
    """The residual pair of 64 channels and 30 %: 44.8 rounds to 48, in both and not twice."""

    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.inner, self.head = nn.Conv2d(3, 64, 1), nn.Conv2d(64, 64, 1), nn.Linear(64, 3)

        def forward(self, x: Tensor) -> Any:
            x = self.stem(x)
            return self.head((x + self.inner(x.relu())).mean(dim=(2, 3)))

    pruned = prune(Pair(), Anatomy(fixed=("head",), example_shape=(3, 8, 8)), 30)
    assert (pruned.stem.out_channels, pruned.inner.in_channels, pruned.inner.out_channels) == (48, 48, 48)
    assert pruned.head.in_features == 48


def test_depthwise_groups_follow_and_a_convolution_to_one_channel_stays_ordinary() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 64, 1), nn.Conv2d(64, 64, 3, groups=64), nn.BatchNorm2d(64), nn.Conv2d(64, 1, 3)
    ).eval()
    pruned = prune(model, Anatomy(fixed=("3",), example_shape=(3, 9, 9)), 25)
    depthwise, norm, last = pruned[1], pruned[2], pruned[3]
    assert (depthwise.groups, depthwise.in_channels, depthwise.out_channels) == (48, 48, 48)
    assert (norm.num_features, len(norm.running_var)) == (48, 48)
    assert (last.in_channels, last.out_channels, last.groups) == (48, 1, 1)


def test_a_frozen_model_is_pruned_and_stays_frozen_and_untouched() -> None:
    model, anatomy, _ = classifier("resnet10t", 64)
    flags = [number % 2 == 0 for number, _ in enumerate(model.parameters())]
    for parameter, flag in zip(model.parameters(), flags, strict=True):
        parameter.requires_grad_(flag)
    model.train()
    weights = copy.deepcopy(model.state_dict())
    pruned = prune(model, anatomy, 50)
    assert sum(map(torch.numel, pruned.parameters())) < 0.4 * sum(map(torch.numel, model.parameters()))
    assert [parameter.requires_grad for parameter in model.parameters()] == flags
    assert [parameter.requires_grad for parameter in pruned.parameters()] == flags
    assert model.training
    assert all(torch.equal(tensor, weights[key]) for key, tensor in model.state_dict().items())
    assert not any(part._forward_hooks for part in model.modules())
    model.requires_grad_(False)
    assert sum(map(torch.numel, prune(model, anatomy, 50).parameters())) == sum(map(torch.numel, pruned.parameters()))


def test_one_model_leaves_nothing_behind_for_the_next() -> None:
    model, anatomy, frame = classifier("resnet10t", 64)
    first = outputs(prune(model, anatomy, 40), frame)
    other, other_anatomy, _ = MODELS["vit"]()
    prune(other, other_anatomy, 40)
    assert torch.equal(outputs(prune(model, anatomy, 40), frame), first)


def test_a_record_is_enough_without_torch_pruning(monkeypatch: pytest.MonkeyPatch) -> None:
    model, anatomy, frame = classifier("resnet10t", 64)
    derived = DerivedTensors()
    expected = outputs(prune(model, anatomy, 30, derived), frame)
    record = derived.stored()
    assert record
    assert all(tensor.dtype == torch.int32 and key.startswith("prune/30%/") for key, tensor in record.items())
    monkeypatch.setitem(sys.modules, "torch_pruning", None)
    again = DerivedTensors(record)
    assert torch.equal(outputs(prune(model, anatomy, 30, again), frame), expected)
    assert again.stored().keys() == record.keys()
    with pytest.raises(PathRefusedError, match=r"pip install 'gearshift\[prune\]'"):
        prune(model, anatomy, 40, again)


def test_what_has_no_effect_is_refused() -> None:
    model = nn.Sequential(nn.Conv2d(3, 64, 1), nn.ReLU(), nn.Conv2d(64, 5, 1))
    anatomy = Anatomy(fixed=("2",), example_shape=(3, 8, 8))
    with pytest.raises(PathRefusedError, match="would remove nothing"):
        prune(model, anatomy, 6)  # 60.16 channels: 64 are nearer than 56
    assert prune(model, anatomy, 7)[0].out_channels == 56


def test_what_does_not_depend_on_single_channels_is_left_alone() -> None:
    """A gate that takes the largest of all channels: its group is found not to hold, the other one is pruned."""

    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.head = nn.Conv2d(3, 64, 3), nn.Conv2d(64, 64, 3), nn.Linear(64, 3)

        def forward(self, x: Tensor) -> Any:
            x = self.second(self.first(x).relu())
            return self.head(F.softmax(x, dim=1).mean(dim=(2, 3)))

    pruned = prune(Gated(), Anatomy(fixed=("head",), example_shape=(3, 9, 9)), 50)
    assert (pruned.first.out_channels, pruned.second.in_channels, pruned.second.out_channels) == (32, 32, 64)


def test_a_wrong_record_is_noticed() -> None:
    model, anatomy, frame = classifier("resnet10t", 64)
    record = dict(kept(model, anatomy, 30, DerivedTensors()))
    place = next(place for place in record if place.endswith("conv2/in"))
    record[place] = (record[place] + 1) % int(model.get_submodule(place[:-3]).weight.shape[1])  # type: ignore[union-attr]
    assert difference(model, anatomy, record, frame) > 1e-4


def test_whole_heads_go_from_queries_keys_values_and_the_output() -> None:
    model, anatomy, frame = MODELS["vit"]()
    sites = tuple(
        AttentionSite(
            name=f"blocks.{index}.attn",
            heads=3,
            head_dim=64,
            projections={f"blocks.{index}.attn.qkv": 3},
            output=f"blocks.{index}.attn.proj",
            attributes={"num_heads": "heads", "attn_dim": "channels"},
        )
        for index in range(2)
    )
    anatomy = Anatomy(attentions=sites, fixed=anatomy.fixed, example_shape=anatomy.example_shape)
    pruned = prune(model, anatomy, 40)
    for block in pruned.blocks:
        assert (block.attn.num_heads, block.attn.qkv.out_features, block.attn.proj.in_features) == (2, 3 * 128, 128)
        assert block.attn.head_dim == 64
        assert block.mlp.fc1.out_features == block.mlp.fc2.in_features == 464  # 768 * 0.6 = 460.8
    assert outputs(pruned, frame).isfinite().all()


def test_pruning_and_cuts_of_the_same_parts_exclude_each_other() -> None:
    factory = PathFactory(small_segformer())
    for other in ("heads=50%", "mlp=50%"):
        with pytest.raises(PathRefusedError, match="cut the same parts"):
            factory.build(PathSpec.parse(f"prune=30%+{other}"))


def test_a_pruned_path_can_be_trained_without_the_stock_model_changing() -> None:
    model, anatomy, frame = classifier("resnet10t", 64)
    pruned = prune(model, anatomy, 40)
    weights = copy.deepcopy(model.state_dict())
    optimizer = torch.optim.SGD(pruned.parameters(), lr=0.1)
    pruned(frame).square().sum().backward()
    changed = [name for name, p in pruned.named_parameters() if p.grad is not None and p.shape != weights[name].shape]
    optimizer.step()
    assert changed
    for name in changed:
        assert model.get_parameter(name).equal(weights[name])


@pytest.mark.parametrize("percent", [30, 60, 90])
def test_a_target_is_met_by_the_least_percentage(percent: int) -> None:
    built: list[int] = []

    def pruned(ratio: int) -> nn.Module:
        if ratio < 4:
            raise PathRefusedError("nothing to remove")
        built.append(ratio)
        return nn.Linear(1000 - 10 * ratio, 1)

    cost = lambda module: float(module.in_features)  # noqa: E731
    ratio = ratio_for(Target("macs", percent), nn.Linear(1000, 1), pruned, {"macs": cost})
    assert ratio == max(4, 100 - percent)
    assert len(built) <= 9


def test_targets_that_cannot_be() -> None:
    for text in ("macs:0%", "speed:50%", "macs:50", "macs:100%"):
        with pytest.raises(SpecError, match="is no target"):
            Target.read(text)
    same: Callable[[int], nn.Module] = lambda _: nn.Linear(90, 1)  # noqa: E731
    costs = {"macs": lambda module: float(module.in_features)}
    with pytest.raises(PathRefusedError, match=r"cannot be reached.*90%.*ask for 91% or more"):
        ratio_for(Target("macs", 50), nn.Linear(100, 1), same, costs)
    with pytest.raises(SpecError, match="nothing here measures energy"):
        ratio_for(Target("energy", 50), nn.Linear(100, 1), same, costs)


def test_a_space_with_targets_becomes_one_of_percentages() -> None:
    frame = torch.randn(1, 3, 64, 64)
    factory = PathFactory(small_segformer(), calibration=[frame])
    space = Space(prune=["10%", "macs:90%", "latency:85%"], keep=5)
    macs = lambda path: float(count(path, (frame,)).macs)  # noqa: E731
    resolved = resolve_targets(space, factory, frame, timer=macs)
    assert resolved.keep == 5
    assert resolved.prune is not None
    assert "10%" in resolved.prune
    assert not factory.derived.tensors()  # what was only tried is not kept
    base = factory.build(factory.family.base(factory.stock)[0])
    shares = [macs(factory.build(PathSpec.parse(f"lossless+prune={text}"))) / macs(base) for text in resolved.prune]
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] <= 0.85 < shares[-2] <= 0.9
    assert resolve_targets(Space(prune=["10%"]), factory, frame) == Space(prune=["10%"])
