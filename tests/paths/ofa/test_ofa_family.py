"""Subnets as paths: outputs and statistics against the published code, calibration, memory, the search."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gearshift.errors import CheckpointError, DataError, PathRefusedError
from gearshift.paths.build import PathFactory, family_of
from gearshift.paths.journal import Journal
from gearshift.paths.ofa import SharedSubnet, Subnet, Supernet, recalibrate
from gearshift.paths.ofa.family import path_of
from gearshift.paths.ofa.statistics import batched
from gearshift.paths.quality import Quality
from gearshift.paths.search import Effort, Search
from gearshift.paths.sharing import DerivedTensors, storage_bytes, tensors_of
from gearshift.paths.spec import PathSpec
from gearshift.paths.transforms import InputSize
from tests.paths.ofa.published import ENDS, SAMPLES

PATH = PathSpec.parse("subnet=d:0,w:65,e:20")
SIZED = PathSpec.parse("subnet=d:0,w:65,e:20+size=50%")


def frames(count: int, height: int = 64, width: int = 64, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(1, 3, height, width, generator=generator) for _ in range(count)]


def run(module: nn.Module, pixels: Tensor | None = None) -> Tensor:
    with torch.inference_mode():
        logits: Tensor = module(torch.cat(frames(2, seed=9)) if pixels is None else pixels)
    return logits


def statistics_of(module: Any) -> Mapping[str, Tensor]:
    found: dict[str, Tensor] = module.inner.statistics()
    return found


# Outputs


@pytest.mark.slow
def test_paths_are_what_the_published_code_extracts_and_calibrates(supernet: Supernet) -> None:
    """The largest, the smallest and 20 others, their statistics found by each side on the same frames."""
    networks: Any = pytest.importorskip(
        "ofa.imagenet_classification.elastic_nn.networks", reason="the reference: pip install --no-deps ofa"
    )
    utils: Any = pytest.importorskip("ofa.imagenet_classification.elastic_nn.utils")
    reference = networks.OFAResNets(
        depth_list=[0, 1, 2], expand_ratio_list=[0.2, 0.25, 0.35], width_mult_list=[0.65, 0.8, 1.0]
    ).eval()
    reference.load_state_dict(supernet.state_dict())
    given = frames(4)
    factory = PathFactory(supernet, calibration=given)
    for subnet in (*ENDS, *SAMPLES):
        reference.set_active_subnet(**subnet.to_json())
        single = reference.get_active_subnet(preserve_weight=True).eval()
        if subnet != Subnet.largest():
            utils.set_running_statistics(single, [(torch.cat(given), None)])
        expected = run(single)
        got = run(factory.build(PathSpec.parse(path_of(subnet).id)))
        assert float((got - expected).abs().max() / expected.abs().max()) < 1e-4, subnet


def test_the_stock_path_is_the_supernet_bit_for_bit(supernet: Supernet) -> None:
    path = PathFactory(supernet).build(PathSpec())
    assert torch.equal(run(path), run(supernet))
    assert path.extra_bytes == 0


def test_the_lossless_form_shares_weights_and_statistics(supernet: Supernet) -> None:
    factory = PathFactory(supernet, calibration=frames(2))
    plain, lossless = factory.build(PATH), factory.build(PathSpec.parse(f"lossless+{PATH}"))
    assert len(factory.derived.tensors()) == 1
    assert lossless.extra_bytes == plain.extra_bytes
    torch.testing.assert_close(run(lossless), run(plain), rtol=0, atol=1e-4)
    layouts: list[bool] = []
    for part in lossless.modules():
        if isinstance(part, nn.Conv2d):
            part.register_forward_hook(
                lambda _, arguments, output: layouts.extend(
                    map_.is_contiguous(memory_format=torch.channels_last) for map_ in (*arguments, output)
                )
            )
    run(lossless)
    assert len(layouts) > 60
    assert all(layouts)


@pytest.mark.parametrize("size", [(1, 1), (2, 33), (31, 7)])
def test_frames_of_any_size_run(size: tuple[int, int], supernet: Supernet) -> None:
    factory = PathFactory(supernet, calibration=frames(4))
    for spec in (PathSpec(), PATH):
        assert run(factory.build(spec), frames(1, *size)[0]).shape == (1, 1000)


# Statistics


def test_without_calibration_frames_a_subnet_is_refused(supernet: Supernet) -> None:
    with pytest.raises(PathRefusedError, match=r'^"subnet" \(batch-norm statistics of its own\) needs calibration fra'):
        PathFactory(supernet).build(PATH)
    PathFactory(supernet).build(PathSpec.parse("size=50%"))


def test_statistics_are_found_once_for_each_size_and_stored(supernet: Supernet) -> None:
    factory = PathFactory(supernet, calibration=frames(4))
    paths = {spec: [factory.build(spec) for _ in range(2)] for spec in (PATH, SIZED)}
    stored = factory.derived.stored()
    assert set(stored) == {"statistics/d:0,w:65,e:20", "statistics/d:0,w:65,e:20/size=50%"}
    for built, tensor in zip(paths.values(), stored.values(), strict=True):
        for path in built:
            places = {buffer.untyped_storage().data_ptr() for buffer in statistics_of(path).values()}
            assert places == {tensor.untyped_storage().data_ptr()}
    assert not torch.equal(*stored.values())
    again = PathFactory(supernet, DerivedTensors(stored))  # without frames
    for spec, (path, _) in paths.items():
        assert torch.equal(run(again.build(spec)), run(path))


@pytest.mark.parametrize("images", [3, 5])
def test_frames_of_several_sizes_count_each_as_it_is(
    images: int, supernet: Supernet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The statistics are those of batches put together by hand; no more frames than the limit are taken."""
    monkeypatch.setattr("gearshift.paths.ofa.family.IMAGES", images)
    tall, wide = frames(3, 70, 48), frames(3, 48, 96, seed=1)
    mixed = [frame for pair in zip(tall, wide, strict=True) for frame in pair]
    path = PathFactory(supernet, calibration=mixed).build(PATH)
    by_hand = SharedSubnet(supernet, Subnet.smallest())
    recalibrate(by_hand, [torch.cat(tall[: (images + 1) // 2]), torch.cat(wide[: images // 2])])
    for name, expected in by_hand.statistics().items():
        torch.testing.assert_close(statistics_of(path)[name], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("count", "expected"), [(1, [1]), (6, [6]), (7, [4, 3]), (13, [5, 4, 4])])
def test_batches_are_even_and_no_larger_than_memory_allows(
    count: int, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gearshift.paths.ofa.statistics.BATCH_POSITIONS", 6 * 8 * 8)
    given = frames(count, 8, 8)
    found = list(batched(given, None, torch.float64))
    assert [len(batch) for batch in found] == expected
    assert {batch.dtype for batch in found} == {torch.float64}
    assert sorted(float(image[0, 0, 0]) for batch in found for image in batch) == sorted(
        float(frame[0, 0, 0, 0]) for frame in given
    )
    sizes = {batch.shape[2:] for batch in batched(given, InputSize(height=5, width=9), torch.float32)}
    assert sizes == {(5, 9)}


def test_frames_that_give_no_statistics_are_refused(supernet: Supernet) -> None:
    factory = PathFactory(supernet, calibration=[torch.full((1, 3, 64, 64), float("nan"))])
    with pytest.raises(DataError, match="not finite after 1 images"):
        factory.build(PATH)
    assert not factory.derived.tensors()


def test_stored_statistics_of_another_subnet_are_refused(supernet: Supernet) -> None:
    derived = DerivedTensors({"statistics/d:0,w:65,e:20": torch.zeros(2, 5)})
    with pytest.raises(CheckpointError, match=r"statistics of shape \(2, 5\) are not of the subnet d=0x5,w=65x6,e=20x"):
        PathFactory(supernet, derived).build(PATH)


def test_a_model_of_another_precision_is_calibrated_in_it() -> None:
    supernet = Supernet().double()
    path = PathFactory(supernet, calibration=frames(2)).build(PATH)
    assert {tensor.dtype for tensor in statistics_of(path).values()} == {torch.float64}
    assert run(path).dtype == torch.float64


# As a family


def test_a_subnet_is_no_supernet(supernet: Supernet) -> None:
    assert family_of(supernet).name == "ofa"
    assert family_of(supernet).kinds(supernet) == ("lossless", "subnet", "size")
    assert not family_of(supernet).matches(SharedSubnet(supernet, Subnet.smallest()))
    with pytest.raises(
        PathRefusedError, match='ofa models like this one have no "skip"; they take: lossless, subnet, size'
    ):
        PathFactory(supernet).build(PathSpec.parse("skip=1.1"))


def test_twelve_paths_cost_little_more_than_the_supernet(supernet: Supernet) -> None:
    factory = PathFactory(supernet, calibration=frames(2, 32, 32))
    paths = [factory.build(path_of(subnet)) for subnet in (*ENDS, *SAMPLES[:10])]
    alone = storage_bytes(tensors_of(supernet))
    together = storage_bytes(tensor for module in (supernet, *paths) for tensor in tensors_of(module))
    assert together - alone == sum(path.extra_bytes for path in paths) > 0
    assert together <= 1.15 * alone


class Agreement:
    """A judge: how near the logits are to the stock model's."""

    labelled = False

    def __init__(self, supernet: Supernet) -> None:
        self.expected = run(supernet)

    def judge(self, path: nn.Module, every: int = 1) -> Quality:
        distance = float((run(path) - self.expected).norm() / self.expected.norm())
        return Quality(metric="nearness", value=1 / (1 + distance), images=2)


def test_the_search_turns_parts_of_the_subnet_together(supernet: Supernet) -> None:
    """Timed by formula; what it ends with are legal paths of several parts."""
    factory = PathFactory(supernet, calibration=frames(2))
    knobs = [
        knob
        for knob in factory.family.knobs(supernet, factory.derived)
        if knob.name in ("depth of stage 3", "expand ratio of stage 4", "stem block")
    ]
    lasting: dict[str, float] = {
        "stock": 1.2,
        "lossless": 1.0,
        "subnet=d0:0": 0.95,
        "subnet=d3:1": 0.9,
        "subnet=d3:0": 0.8,
        "subnet=e4:25": 0.9,
    }

    def time(paths: Mapping[str, Any], rounds: int) -> dict[str, float]:
        return {name: lasting.get(path.spec.id.removeprefix("lossless+"), 0.7) for name, path in paths.items()}

    search = Search(
        factory,
        Agreement(supernet),  # type: ignore[arg-type]
        frames(1)[0],
        Effort(recombined=4, floor=0.1),
        Journal(None, "made"),
        knobs=knobs,
        timer=time,
    )
    found = [item.spec for item in search.run()]
    assert found[0] == search.base == PathSpec.parse("lossless")
    parts = [value.split(",") for spec in found[1:] for transform in spec.transforms if (value := transform.value())]
    assert max(map(len, parts)) > 1
