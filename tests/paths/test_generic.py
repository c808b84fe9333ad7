"""Models without a family: what one run finds out about them, folded batch norms, what they are told to lack."""

from typing import Any

import pytest
import timm
import torch
import torchvision
from torch import nn

from gearshift.errors import InputError, ModelError, PathRefusedError
from gearshift.paths.build import PathFactory, family_of
from gearshift.paths.generic import GenericFamily
from gearshift.paths.generic.discover import discover
from gearshift.paths.spec import PathSpec
from tests.paths.specimens.specimen import seeded

FAMILY = GenericFamily()


def small(name: str, **settings: Any) -> nn.Module:
    return seeded(lambda: timm.create_model(name, pretrained=False, num_classes=7, **settings))


@pytest.fixture(scope="module")
def resnet() -> nn.Module:
    return small("resnet10t")


BLOCKS = {
    # by the architectures' own papers: blocks of a stage that change neither size nor channels
    "resnet18": [2, 1, 1, 1],
    "mobilenetv3_small_100": [1, 2, 1, 2],
    "convnext_atto": [2, 2, 6, 2],
    "regnetx_002": [3, 6],
}


@pytest.mark.parametrize("name", list(BLOCKS))
def test_residual_blocks_are_found_and_nothing_else(name: str) -> None:
    """Among them no stage, no attention, no gate and no feed-forward part, which keep their input's shape too."""
    assert [depth for depth in discover(small(name)).anatomy.depths if depth] == BLOCKS[name]


def test_a_block_left_out_is_the_identity(resnet: nn.Module) -> None:
    model = small("resnet18")
    stage, block = discover(model).anatomy.stages[0][0], (0, 0)
    pixels = torch.randn(2, 3, 64, 64)
    with torch.inference_mode():
        handle = model.get_submodule(stage).register_forward_hook(lambda _, inputs, __: inputs[0])
        expected = model(pixels)
        handle.remove()
        got = PathFactory(model).build(PathSpec.parse(f"skip={block[0]}.{block[1]}"))(pixels)
    assert torch.allclose(got, expected, atol=1e-5)


def test_every_batch_norm_behind_a_convolution_is_folded(resnet: nn.Module) -> None:
    path = PathFactory(resnet).build(PathSpec.parse("lossless"))
    assert not [part for part in path.inner.modules() if isinstance(part, nn.BatchNorm2d)]
    assert path.extra_bytes == sum(
        4 * (part.weight.numel() + part.out_channels) for part in resnet.modules() if isinstance(part, nn.Conv2d)
    )


def test_a_norm_whose_convolution_is_read_elsewhere_too_is_found_out() -> None:
    """The fold would change what the bypass reads: the trial shows it, and the exact form is withdrawn."""

    class Bypassing(torchvision.models.ResNet):
        def _forward_impl(self, x: torch.Tensor) -> torch.Tensor:
            features = self.conv1(x)
            features = self.relu(self.bn1(features)) + features
            features = self.layer4(self.layer3(self.layer2(self.layer1(features))))
            return torch.as_tensor(self.fc(self.avgpool(features).flatten(1)))

    Bypassing.__module__ = "torchvision.models.resnet"
    model = seeded(lambda: Bypassing(torchvision.models.resnet.BasicBlock, [1, 1, 1, 1], num_classes=5))
    assert family_of(model).base(model) == [PathSpec()]


def test_a_model_of_one_size_offers_no_other() -> None:
    model = small("levit_128s")
    assert "size" not in FAMILY.kinds(model)
    with pytest.raises(InputError, match="a frame of 96x96 does not fit this model, which takes 224x224 only"):
        PathFactory(model).build(PathSpec())(torch.zeros(1, 3, 96, 96))


def test_what_is_missing_is_said_with_what_applies(resnet: nn.Module) -> None:
    said = FAMILY.missing(resnet)
    assert said.startswith("no family of paths knows ResNet: it has no exact rewrites of its own")
    assert all(kind in said for kind in FAMILY.kinds(resnet))


def test_a_transform_that_does_not_apply_is_refused_with_those_that_do(resnet: nn.Module) -> None:
    with pytest.raises(PathRefusedError, match='generic models like this one have no "merge"; they take: lossless'):
        PathFactory(resnet).build(PathSpec.parse("merge=4"))


def test_a_model_of_no_known_library_is_no_generic_one() -> None:
    assert not FAMILY.matches(nn.Sequential(nn.Conv2d(3, 8, 3)))
    with pytest.raises(ModelError, match="any image model of timm, transformers or torchvision"):
        family_of(nn.Linear(2, 2))


def test_finding_out_leaves_the_model_as_it_was(resnet: nn.Module) -> None:
    model = small("resnet10t")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    discover(model)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert not any(module._forward_hooks for module in model.modules())
