"""Counting and profiling leave the model, its inputs and the random state exactly as found."""

import random
from collections import deque

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.modules import module as torch_modules

from gearshift.profiler import count, profile

ON_META = pytest.param(lambda module, x: count(module, x, on_meta=True), id="count-on-meta")
MEASURES = [
    pytest.param(count, id="count"),
    ON_META,
    pytest.param(lambda module, x: profile(module, x, repeats=1, warmup=0), id="profile"),
]


class Untidy(nn.Module):
    """Does what models in the wild do: draws, caches, updates buffers, writes into its input."""

    def __init__(self, fails: bool):
        super().__init__()
        self.fails = fails
        self.backbone = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True))
        self.head = nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 2))
        self.unused = nn.Linear(2, 2)
        self.seen = {}
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("scratch", torch.zeros(3), persistent=False)
        self.backbone.register_forward_hook(lambda *_: None)

    def forward(self, x):
        x.mul_(2)
        self.calls += 1
        self.scratch = torch.ones(3, device=x.device)
        self.seen[tuple(x.shape)] = True
        self.cache = x
        torch.rand(3)
        random.random()
        np.random.rand()  # noqa: NPY002 - models do
        out = self.head(self.backbone(x).mean((2, 3)))
        if self.fails:
            raise RuntimeError("on purpose")
        return out


def state_of(model):
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return (
        [module.training for module in model.modules()],
        [{key: id(value) for key, value in vars(module).items()} for module in model.modules()],
        [[list(getattr(module, name)) for name in hooks] for module in model.modules()],
        {name: value.tolist() for name, value in model.state_dict().items()},
        {name: (id(buffer), buffer.tolist()) for name, buffer in model.named_buffers()},
        [parameter.grad for parameter in model.parameters()],
        dict(model.seen),
        torch.random.get_rng_state().tolist(),
        random.getstate(),
        np.random.get_state()[1].tolist(),  # noqa: NPY002
        [len(getattr(torch_modules, f"_global_{name}")) for name in ("forward_hooks", "forward_pre_hooks")],
    )


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("fails", [False, True], ids=["succeeds", "raises"])
def test_everything_is_left_as_found(measure, fails):
    model, image = Untidy(fails), torch.ones(2, 3, 8, 8)
    model.backbone.eval()  # mixed flags
    before = state_of(model)

    if fails:
        with pytest.raises(RuntimeError, match="on purpose"):
            measure(model, image)
    else:
        measure(model, image)

    assert state_of(model) == before
    assert image.eq(1).all()


@pytest.mark.parametrize("measure", MEASURES)
def test_measuring_again_gives_the_same_counts(measure):
    model, image = Untidy(fails=False), torch.ones(2, 3, 8, 8)
    macs = [measure(model, image).macs for _ in range(3)]

    assert macs == [2 * 6 * 6 * 4 * 3 * 9 + 2 * 4 * 2] * 3


def test_a_counted_model_can_still_be_trained():
    model, image = Untidy(fails=False), torch.ones(2, 3, 8, 8)
    count(model, image)
    model(image).sum().backward()

    assert all(p.grad is not None for p in model.backbone.parameters())


def test_gradients_are_kept():
    model = nn.Linear(3, 2)
    model(torch.ones(1, 3)).sum().backward()
    found = model.weight.grad.clone()
    count(model, torch.ones(1, 3))

    assert model.weight.grad.equal(found)


class Scribbler(nn.Module):
    """Writes wherever a module can: into parameters, containers within containers, tensors that nobody registered."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.full((4, 4), 9.0))
        self.log, self.names, self.recent = [1], {"a"}, deque([1, 2], maxlen=2)
        self.nested = {"calls": {"n": 0}, "list": [[1], [2]]}
        self.loose, self.kept = torch.zeros(3), (torch.zeros(2), [0])
        self.cast = nn.Parameter(torch.ones(2))

    def forward(self, x):
        self.weight.clamp_(max=1.0)
        self.log.append(x)
        self.names.add(len(self.log))
        self.recent.append(x)
        self.nested["calls"]["n"] += 1
        self.nested["list"][0].append(3)
        self.loose += 1
        self.kept[0].fill_(7)
        self.kept[1][0] += 1
        self.cast.data = self.cast.data.double()
        return x @ self.weight


def scribbled(model):
    return repr((model.weight, model.log, model.names, model.recent, model.nested, model.loose, model.kept, model.cast))


@pytest.mark.parametrize("measure", [measure for measure in MEASURES if measure is not ON_META])
def test_whatever_a_forward_writes_into_is_as_it_was(measure):
    model, x = Scribbler(), torch.rand(2, 4)
    before, objects = scribbled(model), [id(value) for value in vars(model).values()]
    assert measure(model, x).macs == 2 * 4 * 4

    assert scribbled(model) == before
    assert [id(value) for value in vars(model).values()] == objects
    assert model.weight.requires_grad
