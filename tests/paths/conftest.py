"""Small stock models whose weights hide nothing, and every path of theirs for the tests that ask for it.

A test with an argument `setting` runs over every setting of every knob, one with `combination` over paths of
several settings (each knob takes part), one with `exact` over the lossless forms that the family offers.
"""

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import settings
from torch import nn
from transformers import SegformerConfig, SegformerForSemanticSegmentation

from gearshift.paths.knobs import turn
from gearshift.paths.segformer.family import SegformerFamily
from gearshift.paths.sharing import DerivedTensors
from gearshift.paths.spec import PathSpec
from gearshift.paths.transforms import Blocks, DecoderChannels, FuseChannels, InputSize, Transform

# How long one example takes says something of the machine only; the same examples are drawn in every run.
settings.register_profile("unhurried", deadline=None, derandomize=True)
settings.load_profile("unhurried")

SMALL: dict[str, Any] = {
    "hidden_sizes": [16, 24, 40, 48],
    "depths": [2, 1, 3, 1],
    "num_attention_heads": [1, 2, 5, 3],
    "sr_ratios": [8, 4, 2, 1],
    "mlp_ratios": [2, 2, 2, 2],
    "decoder_hidden_size": 256,
    "num_labels": 7,
}

MakeStock = Callable[..., Any]


def small_segformer(seed: int = 0, attention: str = "sdpa", **changes: Any) -> Any:
    """A SegFormer of `SMALL` with `changes`; weights, biases and statistics drawn from `seed`."""
    config = SegformerConfig(**(SMALL | changes))
    config._attn_implementation = attention
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = SegformerForSemanticSegmentation(config)
        randomise(model)
    return model.eval()


def randomise(model: nn.Module) -> None:
    """Give what starts at 0 or 1 values that matter: biases, norms' scales (of either sign), statistics."""
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_(0, 0.5)
                module.running_var.uniform_(0.3, 3)
            if isinstance(module, nn.BatchNorm2d | nn.LayerNorm):
                module.weight.normal_(0, 1)
            if isinstance(module, nn.Linear | nn.Conv2d):
                module.weight.normal_(0, module.weight[0].numel() ** -0.5)
            if isinstance(getattr(module, "bias", None), torch.Tensor):
                module.bias.normal_(0, 0.3)


STOCK = small_segformer()
FAMILY = SegformerFamily()
EXACT = [spec for spec in FAMILY.base(STOCK) if spec != PathSpec()]
# The knobs' own settings, and the ends of what the transforms take: one channel, a stage kept in part
# (factored or not), nothing cut, whole stages without blocks, a size that is no multiple of 32.
SETTINGS: list[Transform] = [
    *(setting for knob in FAMILY.knobs(STOCK, DerivedTensors()) for setting in knob.settings),
    Blocks((1, 1, 2, 0)),
    Blocks((0, 0, 0, 0)),
    *(FuseChannels(kept) for kept in (1, 20, 255, 600, 775, 778, 1018, 1024)),
    *(DecoderChannels(kept) for kept in (1, 255, 256)),
    InputSize(height=47, width=70),
]


def combinations(count: int) -> list[PathSpec]:
    """Paths with one setting of each of several kinds, drawn so that every setting takes part."""
    rng = random.Random(0)
    drawn = []
    for number in range(count):
        spec = PathSpec((SETTINGS[number % len(SETTINGS)],))
        for setting in rng.sample(SETTINGS, 4):
            spec = spec if spec.get(setting.name) and setting.name != "skip" else turn(spec, setting)
        drawn.append(spec)
    return drawn


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test over all paths of the kind that its arguments name."""
    lists = {
        "setting": [PathSpec((setting,)) for setting in SETTINGS],
        "combination": combinations(len(SETTINGS)),
        "exact": EXACT,
    }
    for name, specs in lists.items():
        if name in metafunc.fixturenames:
            metafunc.parametrize(name, specs, ids=[spec.id for spec in specs])


@pytest.fixture(scope="session")
def make_stock() -> MakeStock:
    """`small_segformer`, for tests that need a model of their own."""
    return small_segformer


@pytest.fixture(scope="session")
def stock() -> Any:
    """One small model for all tests that only read it."""
    return STOCK


@pytest.fixture(autouse=True)
def torch_as_found() -> Iterator[None]:
    """One thread, and a seed of its own, for every test."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield
    torch.set_num_threads(threads)
