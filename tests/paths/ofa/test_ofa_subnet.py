"""Supernet and subnets: names, outputs against two references, shared memory, costs as counted."""

import random
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gearshift.errors import CheckpointError
from gearshift.paths.ofa import SharedSubnet, Subnet, Supernet, shape_of
from gearshift.paths.ofa.net_config import subnet_from_net_config
from gearshift.paths.sharing import storage_bytes, tensors_of
from gearshift.profiler import count
from tests.paths.ofa.published import ENDS, R50, SAMPLES, forward

PIXELS = (2, 3, 64, 64)


def pixels(seed: int = 0, shape: tuple[int, ...] = PIXELS) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def run(module: nn.Module, images: Tensor | None = None) -> Tensor:
    with torch.inference_mode():
        logits: Tensor = module(pixels() if images is None else images)
    return logits


def shared_bytes(supernet: Supernet, modules: list[SharedSubnet]) -> int:
    return storage_bytes(tensor for module in (supernet, *modules) for tensor in tensors_of(module))


# The supernet


def test_the_supernet_has_the_published_tensors(supernet: Supernet) -> None:
    names = supernet.state_dict().keys()
    assert len(names) == 368
    assert {
        "input_stem.0.conv.conv.weight",
        "input_stem.1.conv.conv.conv.weight",
        "input_stem.1.conv.bn.bn.running_var",
        "input_stem.2.bn.bn.num_batches_tracked",
        "blocks.17.conv3.bn.bn.bias",
        "blocks.14.downsample.conv.conv.weight",
        "classifier.linear.linear.bias",
    } <= names
    assert {name.split(".")[1] for name in names if "downsample.conv" in name} == {"0", "4", "8", "14"}
    assert supernet.get_parameter("blocks.0.conv1.conv.conv.weight").shape == (88, 64, 1, 1)
    assert round(sum(parameter.numel() for parameter in supernet.parameters()) / 1e6, 1) == 48.1
    assert not any(part.training for part in supernet.modules())


def test_random_weights_follow_the_generator() -> None:
    """He's deviation by fan-out, as published: sqrt(2 / 720)."""
    torch.manual_seed(4)
    weight = Supernet().get_parameter("blocks.17.conv1.conv.conv.weight").detach()
    torch.manual_seed(4)
    assert torch.equal(Supernet().get_parameter("blocks.17.conv1.conv.conv.weight"), weight)
    assert float(weight.std()) == pytest.approx((2 / 720) ** 0.5, rel=1e-2)


# Outputs


@pytest.mark.parametrize("subnet", [*ENDS, R50, *SAMPLES[:6]], ids=str)
def test_outputs_are_those_of_plain_functions(subnet: Subnet, supernet: Supernet) -> None:
    expected = forward(supernet.state_dict(), subnet, pixels())
    got = run(SharedSubnet(supernet, subnet))
    assert got.shape == (2, 1000)
    assert float(expected.std()) > 0.1
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-5)


def test_the_largest_subnet_is_the_supernet(supernet: Supernet) -> None:
    largest = SharedSubnet(supernet, Subnet.largest())
    for images in (pixels(), pixels(1, (1, 3, 63, 97))):
        assert torch.equal(run(largest, images), run(supernet, images))


def test_outputs_are_those_of_the_published_code(supernet: Supernet) -> None:
    """Set to a subnet, and as the single network that it extracts, which takes our tensors by their names."""
    networks: Any = pytest.importorskip(
        "ofa.imagenet_classification.elastic_nn.networks", reason="the reference: pip install --no-deps ofa"
    )
    reference = networks.OFAResNets(
        depth_list=[0, 1, 2], expand_ratio_list=[0.2, 0.25, 0.35], width_mult_list=[0.65, 0.8, 1.0]
    ).eval()
    assert list(reference.state_dict()) == list(supernet.state_dict())
    reference.load_state_dict(supernet.state_dict())
    for subnet in (*ENDS, *SAMPLES):
        ours = SharedSubnet(supernet, subnet)
        reference.set_active_subnet(**subnet.to_json())
        torch.testing.assert_close(run(ours), run(reference), rtol=0, atol=1e-5)
        single = reference.get_active_subnet(preserve_weight=False)
        single.load_state_dict(ours.state_dict())
        torch.testing.assert_close(run(single.eval()), run(ours), rtol=0, atol=1e-5)
        assert subnet_from_net_config(single.config) == subnet


def test_networks_are_drawn_as_by_the_published_code() -> None:
    networks: Any = pytest.importorskip(
        "ofa.imagenet_classification.elastic_nn.networks", reason="the reference: pip install --no-deps ofa"
    )
    with torch.device("meta"):
        reference = networks.OFAResNets(
            depth_list=[0, 1, 2], expand_ratio_list=[0.2, 0.25, 0.35], width_mult_list=[0.65, 0.8, 1.0]
        )
    state = random.getstate()
    try:
        random.seed(7)
        theirs = [reference.sample_active_subnet() for _ in range(10)]
    finally:
        random.setstate(state)
    rng = random.Random(7)
    assert [Subnet.sample(rng) for _ in range(10)] == [Subnet.from_json(value) for value in theirs]


# Shared weights


@pytest.mark.parametrize("subnet", [*ENDS, *SAMPLES[:3]], ids=str)
def test_weights_are_views_and_only_statistics_are_new(subnet: Subnet, supernet: Supernet) -> None:
    module = SharedSubnet(supernet, subnet)
    theirs = {tensor.untyped_storage().data_ptr() for tensor in tensors_of(supernet)}
    assert all(parameter.untyped_storage().data_ptr() in theirs for parameter in module.parameters())
    assert not any(buffer.untyped_storage().data_ptr() in theirs for buffer in module.buffers())
    norms = [norm for _, norm in module.norms()]
    # Two floats per channel, and one count of batches per norm.
    assert module.extra_bytes == sum(8 * norm.num_features + 8 for norm in norms)
    assert module.subnet == subnet


def test_twelve_subnets_cost_little_more_than_the_supernet(supernet: Supernet) -> None:
    modules = [SharedSubnet(supernet, subnet) for subnet in (*ENDS, *SAMPLES[:10])]
    alone = storage_bytes(tensors_of(supernet))
    together = shared_bytes(supernet, modules)
    assert together - alone == sum(module.extra_bytes for module in modules) > 0
    assert together <= 1.15 * alone


def test_shifting_to_and_fro_changes_no_bit(supernet: Supernet) -> None:
    before = {name: tensor.clone() for name, tensor in supernet.state_dict().items()}
    first, second = (SharedSubnet(supernet, subnet) for subnet in (SAMPLES[0], SAMPLES[1]))
    outputs = [run(module) for module in (first, second, first, supernet, second, first)]
    assert torch.equal(outputs[0], outputs[2])
    assert torch.equal(outputs[0], outputs[5])
    assert torch.equal(outputs[1], outputs[4])
    assert not torch.equal(outputs[0], outputs[1])
    assert all(torch.equal(before[name], tensor) for name, tensor in supernet.state_dict().items())


def test_a_changed_weight_of_the_supernet_is_the_subnet_s_too(own_supernet: Supernet) -> None:
    module = SharedSubnet(own_supernet, Subnet.smallest())
    with torch.no_grad():
        for parameter in own_supernet.parameters():
            parameter.mul_(0.9)
    expected = forward(own_supernet.state_dict(), Subnet.smallest(), pixels())
    torch.testing.assert_close(run(module), expected, rtol=0, atol=1e-5)


def test_a_subnet_trains_the_channels_that_it_has(own_supernet: Supernet) -> None:
    before = own_supernet.get_parameter("blocks.17.conv2.conv.conv.weight").detach().clone()
    with torch.inference_mode():  # built while serving
        module = SharedSubnet(own_supernet, Subnet(depths=(2,) * 5, expand_ratios=(0.2,) * 18, widths=(0.65,) * 6))
    statistics = {name: tensor.clone() for name, tensor in own_supernet.named_buffers()}
    module.train()
    module(pixels()).square().mean().backward()
    torch.optim.SGD(module.parameters(), lr=0.1).step()
    changed = own_supernet.get_parameter("blocks.17.conv2.conv.conv.weight").detach() != before
    assert changed[:264, :264].any()
    assert not changed[264:].any()
    assert not changed[:, 264:].any()
    assert all(torch.equal(statistics[name], buffer) for name, buffer in own_supernet.named_buffers())


def test_weights_that_need_no_gradient_need_none_in_a_subnet(own_supernet: Supernet) -> None:
    own_supernet.requires_grad_(False)
    module = SharedSubnet(own_supernet, Subnet.smallest())
    assert not any(parameter.requires_grad for parameter in module.parameters())


# Statistics


def test_statistics_are_used_as_they_are(supernet: Supernet) -> None:
    first = SharedSubnet(supernet, SAMPLES[0])
    given = {name: torch.rand_like(tensor) + 0.5 for name, tensor in first.statistics().items()}
    second = SharedSubnet(supernet, SAMPLES[0], given)
    assert all(second.statistics()[name] is tensor for name, tensor in given.items())
    assert not torch.equal(run(first), run(second))
    third = SharedSubnet(supernet, SAMPLES[0], second.statistics())
    assert torch.equal(run(third), run(second))


@pytest.mark.parametrize("fault", ["missing", "unexpected", "mismatched"])
def test_statistics_of_another_subnet_are_refused(fault: str, supernet: Supernet) -> None:
    statistics = SharedSubnet(supernet, SAMPLES[0]).statistics()
    name = "blocks.1.conv2.bn.running_mean"
    changed = dict(statistics)
    if fault == "missing":
        del changed[name]
    elif fault == "unexpected":
        name = "a.norm.running_mean"
        changed[name] = torch.zeros(3)
    else:
        changed[name] = torch.zeros(3)
    with pytest.raises(CheckpointError, match=f"{fault} {name}; give its own, or recalibrate it"):
        SharedSubnet(supernet, SAMPLES[0], changed)


# Costs


@pytest.mark.parametrize("subnet", [*ENDS, R50, *SAMPLES[:4]], ids=str)
@pytest.mark.parametrize("size", [(224, 224), (97, 130)])
def test_the_formula_is_what_is_counted(subnet: Subnet, size: tuple[int, int]) -> None:
    with torch.device("meta"):
        module = SharedSubnet(Supernet(), subnet)
        counted = count(module, (torch.zeros(1, 3, *size),))
    assert counted.macs == shape_of(subnet).macs(*size)


@pytest.mark.parametrize(("subnet", "millions"), [(Subnet.largest(), 48.1), (R50, 25.6), (Subnet.smallest(), 6.5)])
def test_sizes_are_the_published_ones(subnet: Subnet, millions: float) -> None:
    with torch.device("meta"):
        module = SharedSubnet(Supernet(), subnet)
    assert round(sum(parameter.numel() for parameter in module.parameters()) / 1e6, 1) == millions
