"""Properties of every path of every family, on small random models, odd sizes and batches of 1 and 3.

Which models and paths: `tests/paths/specimens`, one file per family. A family or a transform that is registered and
that no specimen shows fails here.
"""

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from gearshift.paths.build import FAMILIES, PathFactory, family_of
from gearshift.paths.cost import count_macs
from gearshift.paths.sharing import DerivedTensors
from gearshift.paths.spec import PathSpec
from tests.paths.specimens import SPECIMENS
from tests.paths.specimens.specimen import Specimen, everything

SINGLE, DOUBLE = 1e-4, 1e-10
ALL = [(name, path) for name, item in SPECIMENS.items() for path in item.paths]
EXACT = [(name, path) for name, item in SPECIMENS.items() for path in item.exact]
MASKED = [(name, path) for name, item in SPECIMENS.items() for path in item.masked]
COUNTED = [(name, path) for name, item in SPECIMENS.items() for path in item.macs]

_factories: dict[str, PathFactory] = {}


def factory_of(name: str) -> PathFactory:
    """One factory per specimen: as in use, what paths derive is shared between them."""
    if name not in _factories:
        _factories[name] = SPECIMENS[name].factory()
    return _factories[name]


def frames(size: tuple[int, int], batch: int = 1, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(sum(size) + batch)
    return torch.randn(batch, 3, *size, generator=generator, dtype=torch.float64).to(dtype)


def run(module: nn.Module, pixels: Tensor) -> dict[str, Tensor]:
    with torch.inference_mode():
        return everything(module(pixels))


def assert_close(got: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float) -> None:
    """Each tensor equal to `tolerance` of its own largest value."""
    assert got.keys() == expected.keys()
    for name, reference in expected.items():
        assert got[name].shape == reference.shape
        assert got[name].isfinite().all()
        assert float((got[name] - reference).abs().max() / reference.abs().max()) < tolerance, name


@pytest.mark.parametrize(("name", "path"), EXACT)
@pytest.mark.parametrize("batch", [1, 3])
def test_an_exact_path_gives_what_the_stock_model_gives(name: str, path: str, batch: int) -> None:
    factory = factory_of(name)
    built = factory.build(PathSpec.parse(path))
    for size in SPECIMENS[name].sizes:
        pixels = frames(size, batch)
        assert_close(run(built, pixels), run(factory.stock, pixels), SINGLE)


@pytest.mark.parametrize(("name", "path"), EXACT)
def test_an_exact_path_is_exact_in_double_precision(name: str, path: str) -> None:
    """What is left in single precision is rounding, not a wrong formula."""
    item = SPECIMENS[name]
    model = item.make().double()
    built = PathFactory(model, calibration=item.calibration()).build(PathSpec.parse(path))
    pixels = frames(item.sizes[-1], 3, torch.float64)
    assert_close(run(built, pixels), run(model, pixels), DOUBLE)


@pytest.mark.parametrize(("name", "path"), MASKED)
@pytest.mark.parametrize("batch", [1, 3])
def test_a_path_that_cuts_gives_what_the_masked_stock_model_gives(name: str, path: str, batch: int) -> None:
    factory, item = factory_of(name), SPECIMENS[name]
    built = factory.build(PathSpec.parse(path))
    masked = item.masked[path](copy.deepcopy(factory.stock)).eval()
    for size in item.sizes:
        pixels = frames(size, batch)
        assert_close(run(built, pixels), run(masked, pixels), SINGLE)
        assert any(
            float((run(masked, pixels)[key] - value).abs().max()) > 0
            for key, value in run(factory.stock, pixels).items()
        ), "the mask changes nothing"


@pytest.mark.parametrize(("name", "path"), COUNTED)
def test_counted_operations_are_those_of_the_formula(name: str, path: str) -> None:
    factory, item = factory_of(name), SPECIMENS[name]
    built = factory.build(PathSpec.parse(path))
    for height, width in item.sizes:
        assert count_macs(built, frames((height, width))) == item.macs[path](height, width)


@pytest.mark.parametrize("name", list(SPECIMENS))
def test_shifting_between_paths_leaves_no_trace(name: str) -> None:
    """A, then B, then A again, for every pair: bit for bit what A gave before, the stock model included."""
    factory, item = factory_of(name), SPECIMENS[name]
    pixels = frames(item.sizes[0])
    weights = {key: tensor.clone() for key, tensor in factory.stock.state_dict().items()}
    built = {path: factory.build(PathSpec.parse(path)) for path in item.paths}
    before = {path: run(module, pixels) for path, module in built.items()}
    for other in built.values():
        run(other, pixels)
        for path, module in built.items():
            after = run(module, pixels)
            assert all(torch.equal(after[key], value) for key, value in before[path].items()), path
        if len(built) > 8:  # the pairs grow with the square: half of them is enough of a family with many paths
            break
    assert all(torch.equal(tensor, weights[key]) for key, tensor in factory.stock.state_dict().items())


@pytest.mark.parametrize(("name", "path"), ALL)
def test_a_path_reads_back_from_text_and_json(name: str, path: str) -> None:
    spec = PathSpec.parse(path)
    assert PathSpec.parse(spec.id) == spec
    assert PathSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec


@pytest.mark.parametrize(("name", "path"), ALL)
def test_a_path_takes_and_gives_what_the_stock_model_does(name: str, path: str) -> None:
    factory = factory_of(name)
    built = factory.build(PathSpec.parse(path))
    for batch in (1, 3):
        pixels = frames(SPECIMENS[name].sizes[0], batch)
        got, expected = run(built, pixels), run(factory.stock, pixels)
        assert got.keys() == expected.keys()
        for key, value in expected.items():
            # Hidden states are as many as the frame that was run has; all else is as of the whole frame.
            assert got[key].shape == value.shape or ("size" in path and "hidden_state" in key)
        assert all(value.isfinite().all() for value in got.values())


def test_another_process_builds_the_same_paths(tmp_path: Path) -> None:
    """From a path's JSON, the weights, and what a bundle would store: the same outputs."""
    for name, item in SPECIMENS.items():
        factory = item.factory()
        pixels = frames(item.sizes[0], 3)
        for number, path in enumerate(item.paths):
            spec = PathSpec.parse(path)
            outputs = run(factory.build(spec), pixels)
            save_file({k: v.contiguous() for k, v in outputs.items()}, tmp_path / f"{name}-{number}.safetensors")
            (tmp_path / f"{name}-{number}.json").write_text(json.dumps(spec.to_json()))
        save_file(factory.derived.stored(), tmp_path / f"{name}.derived")
    done = subprocess.run(
        [sys.executable, "-c", f"from tests.paths.test_every_path import rebuild; rebuild({str(tmp_path)!r})"],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr


def rebuild(folder: str) -> None:
    """In another process: build every path anew and compare with what was written."""
    torch.set_num_threads(1)
    for name, item in SPECIMENS.items():
        factory = PathFactory(item.make(), DerivedTensors(load_file(f"{folder}/{name}.derived")))
        pixels = frames(item.sizes[0], 3)
        for number, path in enumerate(item.paths):
            spec = PathSpec.from_json(json.loads(Path(f"{folder}/{name}-{number}.json").read_text()))
            assert spec == PathSpec.parse(path)
            assert_close(run(factory.build(spec), pixels), load_file(f"{folder}/{name}-{number}.safetensors"), 1e-6)


def kinds_shown(item: Specimen) -> set[str]:
    return {transform.name for path in item.paths for transform in PathSpec.parse(path).transforms}


def test_every_family_and_every_transform_of_it_has_a_specimen() -> None:
    shown: dict[str, set[str]] = {}
    offered: dict[str, set[str]] = {}
    for item in SPECIMENS.values():
        model: Any = item.make()
        family = family_of(model)
        shown.setdefault(family.name, set()).update(kinds_shown(item))
        offered.setdefault(family.name, set()).update(family.kinds(model))
    assert {family.name for family in FAMILIES} == set(shown)
    assert shown == offered
