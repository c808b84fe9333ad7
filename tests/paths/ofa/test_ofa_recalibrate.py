"""Recalibration: against hand-written layers and the published code, what it leaves alone, what it refuses."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gearshift.errors import DataError
from gearshift.paths.ofa import SharedSubnet, Subnet, Supernet, recalibrate
from tests.paths.ofa.published import SAMPLES

SUBNET = Subnet(depths=(2, 0, 1, 0, 0), expand_ratios=(0.2,) * 18, widths=(0.65,) * 6)


def batches(*sizes: int, seed: int = 0, height: int = 48, width: int = 64) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(size, 3, height, width, generator=generator) + 0.5 for size in sizes]


def snapshot(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def run(module: nn.Module) -> Tensor:
    with torch.inference_mode():
        logits: Tensor = module(batches(2, seed=9)[0])
    return logits


# What is found


def test_statistics_are_weighted_means_over_the_batches(supernet: Supernet) -> None:
    """The first two layers by hand: the second sees what the first made of each batch with that batch's statistics."""
    module = SharedSubnet(supernet, SUBNET)
    given = batches(3, 2, 4)
    assert recalibrate(module, given) == 9
    first: Any = module.input_stem[0]
    second: Any = module.input_stem[1]
    sums = [torch.zeros(24, dtype=torch.float64) for _ in range(4)]
    for batch in given:
        features = batch.double()
        for layer, place in ((first, 0), (second.conv, 2)):
            mixed = nn.functional.conv2d(features, layer.conv.weight.double(), stride=layer.conv.stride, padding=1)
            flat = mixed.transpose(0, 1).flatten(1)
            mean, variance = flat.mean(1), flat.var(1, correction=0)
            sums[place] += len(batch) * mean
            sums[place + 1] += len(batch) * variance
            normed = (mixed - mean[:, None, None]) / (variance[:, None, None] + 1e-5).sqrt()
            features = (normed * layer.bn.weight[:, None, None] + layer.bn.bias[:, None, None]).clamp_min(0)
    found = [first.bn.running_mean, first.bn.running_var, second.conv.bn.running_mean, second.conv.bn.running_var]
    for total, got in zip(sums, found, strict=True):
        torch.testing.assert_close(got, (total / 9).float().detach(), rtol=1e-4, atol=1e-5)


def test_one_batch_is_normalised_as_in_training(supernet: Supernet) -> None:
    """After recalibration on a batch, evaluating that batch is what training mode computes on it."""
    module = SharedSubnet(supernet, SUBNET)
    [batch] = batches(4)
    recalibrate(module, [batch])
    trained = SharedSubnet(supernet, SUBNET).train()
    with torch.no_grad():
        torch.testing.assert_close(module(batch), trained(batch), rtol=1e-3, atol=1e-4)


def test_statistics_are_those_of_the_published_code(supernet: Supernet) -> None:
    utils: Any = pytest.importorskip(
        "ofa.imagenet_classification.elastic_nn.utils", reason="the reference: pip install --no-deps ofa"
    )
    networks: Any = pytest.importorskip("ofa.imagenet_classification.elastic_nn.networks")
    with torch.device("meta"):
        reference = networks.OFAResNets(
            depth_list=[0, 1, 2], expand_ratio_list=[0.2, 0.25, 0.35], width_mult_list=[0.65, 0.8, 1.0]
        )
    for subnet in (SUBNET, SAMPLES[0]):
        reference.set_active_subnet(**subnet.to_json())
        module = SharedSubnet(supernet, subnet)
        single = reference.get_active_subnet(preserve_weight=False).to_empty(device="cpu").eval()
        single.load_state_dict(module.state_dict())
        given = batches(3, 4, 2)
        utils.set_running_statistics(single, [(batch, None) for batch in given])
        recalibrate(module, given)
        theirs = single.state_dict()
        for name, found in module.statistics().items():
            torch.testing.assert_close(found, theirs[name], rtol=1e-4, atol=1e-5)


def test_the_same_images_give_the_same_bits(supernet: Supernet) -> None:
    modules = [SharedSubnet(supernet, SUBNET) for _ in range(2)]
    for module in modules:
        recalibrate(module, batches(3, 2))
    first, second = (module.statistics() for module in modules)
    assert same(first, second)
    recalibrate(modules[0], batches(3, 2))  # what was found before plays no part
    assert same(modules[0].statistics(), second)
    recalibrate(modules[0], batches(3, 2, seed=1))
    assert not same(modules[0].statistics(), second)


def test_statistics_found_in_inference_mode_still_train(supernet: Supernet) -> None:
    with torch.inference_mode():
        module = SharedSubnet(supernet, SUBNET)
        recalibrate(module, batches(2))
    module.train()
    module(batches(2)[0]).sum().backward()
    supernet.zero_grad()


# What is left alone


def test_the_supernet_and_other_subnets_stay_as_they_are(supernet: Supernet) -> None:
    module, other = SharedSubnet(supernet, SUBNET), SharedSubnet(supernet, SAMPLES[0])
    before, others, output = snapshot(supernet), snapshot(other), run(module)
    recalibrate(module, batches(4))
    assert same(snapshot(supernet), before)
    assert same(snapshot(other), others)
    assert not torch.equal(run(module), output)
    assert not any(part.training for part in module.modules())
    assert not any(parameter.grad is not None for parameter in module.parameters())


def test_at_most_so_many_images_are_taken(supernet: Supernet) -> None:
    taken: list[int] = []

    def endless() -> Iterator[Tensor]:
        while True:
            taken.append(4)
            yield from batches(4, seed=len(taken))

    module, other = SharedSubnet(supernet, SUBNET), SharedSubnet(supernet, SUBNET)
    assert recalibrate(module, endless(), images=10) == 10
    assert len(taken) == 3
    by_hand = [batches(4, seed=1)[0], batches(4, seed=2)[0], batches(4, seed=3)[0][:2]]
    assert recalibrate(other, by_hand) == 10
    assert same(module.statistics(), other.statistics())


# What is refused


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "no images to recalibrate d=2-0-1-0x2,w=65x6,e=20x11 on; give at least one batch of (B, 3, H, W)"),
        ([torch.zeros(0, 3, 64, 64)], "no images to recalibrate"),
        ([torch.zeros(3, 64, 64)], "a batch of images has shape (3, 64, 64); give (B, 3, H, W)"),
        ([torch.zeros(2, 1, 64, 64)], "a batch of images has shape (2, 1, 64, 64); give (B, 3, H, W)"),
        ([torch.full((2, 3, 64, 64), float("nan"))], "statistics of input_stem.0.bn are not finite after 2 images"),
        ([torch.zeros(2, 3, 64, 64), torch.ones(1, 3, 32, 32)], "a batch leaves one value per channel"),
    ],
)
def test_images_that_give_no_statistics_are_refused_and_nothing_changes(
    given: list[Tensor], said: str, supernet: Supernet
) -> None:
    module = SharedSubnet(supernet, SUBNET)
    before = snapshot(module)
    with pytest.raises(DataError) as caught:
        recalibrate(module, given)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert same(snapshot(module), before)


@pytest.mark.parametrize("images", [0, -1])
def test_no_number_of_images_is_refused(images: int, supernet: Supernet) -> None:
    with pytest.raises(DataError, match=f"cannot recalibrate on {images} images; give at least 1"):
        recalibrate(SharedSubnet(supernet, SUBNET), batches(2), images=images)
