"""Factors distilled: a short training of the factors alone, towards the stock model's answers on calibration frames.

For one layer alone principal directions are already the best; what training adds is that the factored layers make up
for each other. The shared weights are frozen. Where training ends no closer than it began, the principal directions
stay: on the calibration frames, distilled factors are never worse.
"""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gearshift.errors import PathRefusedError
from gearshift.paths.lowrank.basis import PREFIX, derive_bases
from gearshift.paths.lowrank.factors import Factors, principal
from gearshift.paths.lowrank.noise import Reference, in_batches
from gearshift.paths.sharing import DerivedTensors, clone_structure

STEPS = 200
LEARNING_RATE = 2e-3
BATCH = 8
PARTS = ("read", "write", "offset")


class TrainableFactors(nn.Module):
    """A frozen layer with `y -> write (gate * (read y)) + offset` behind it, by output channel."""

    def __init__(self, layer: nn.Module, factors: Factors, rank: int) -> None:
        super().__init__()
        self._layer = (layer,)  # in a tuple: its weights are the stock model's, and none of this module's
        self.read = nn.Parameter(factors.read[:rank].clone())
        self.write = nn.Parameter(factors.write[:, :rank].clone(memory_format=torch.contiguous_format))
        self.offset = nn.Parameter(factors.offset.clone())
        self.gate: Callable[[], Tensor] | None = None

    def forward(self, features: Tensor) -> Tensor:
        """As the layer is called."""
        output: Tensor = self._layer[0](features)
        channel = 1 if isinstance(self._layer[0], nn.Conv2d) else -1
        kept = F.linear(output.movedim(channel, -1), self.read)
        if self.gate is not None:
            kept = kept * self.gate()
        return F.linear(kept, self.write, self.offset).movedim(-1, channel)


def trainable(
    stock: nn.Module, ranks: Mapping[str, int], derived: DerivedTensors
) -> tuple[nn.Module, dict[str, TrainableFactors]]:
    """The stock model in evaluation mode with principal factors that can be trained, and these by name."""
    student = clone_structure(stock).eval()
    layers = {}
    for name, rank in ranks.items():
        layers[name] = TrainableFactors(student.get_submodule(name), principal(name, rank, derived), rank)
        student.set_submodule(name, layers[name])
    return student, layers


def descend(parameters: Sequence[tuple[Sequence[Tensor], float]], loss: Callable[[int], Tensor], steps: int) -> None:
    """Adam with a rate that falls to 0 along a cosine; only these parameters get gradients.

    Args:
        parameters: Groups, each with its rate at the start.
        loss: Of a step.
        steps: How many.
    """
    groups = [{"params": list(group), "lr": rate} for group, rate in parameters]
    optimiser = torch.optim.Adam(groups)
    rates = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: (1 + math.cos(math.pi * step / steps)) / 2)
    trained = [tensor for group, _ in parameters for tensor in group]
    for step in range(steps):
        gradients = torch.autograd.grad(loss(step), trained)
        for tensor, gradient in zip(trained, gradients, strict=True):
            tensor.grad = gradient
        optimiser.step()
        rates.step()


def owner_of(value: str) -> str:
    """Prefix of the keys of one set of distilled factors: they belong to all their layers and ranks together."""
    return f"{PREFIX}lockd-{hashlib.sha256(value.encode()).hexdigest()[:12]}"


def distilled(name: str, value: str, derived: DerivedTensors) -> Factors:
    """Distilled factors of a layer; `derive_distilled` must have run."""
    read, write, offset = (derived.get(f"{owner_of(value)}/{name}/{part}", _not_derived) for part in PARTS)
    return Factors(read, write, offset)


def derive_distilled(
    stock: nn.Module, linears: Sequence[str], ranks: Mapping[str, int], value: str, derived: DerivedTensors
) -> None:
    """Train the factors that `value` names, unless they were trained before; the same from equal frames.

    Raises:
        PathRefusedError: There are no calibration frames.
    """
    known = derived.tensors()
    if all(f"{owner_of(value)}/{name}/{part}" in known for name in ranks for part in PARTS):
        return
    frames = in_batches(derived.frames("lowrank=lockd:..."), BATCH)
    derive_bases(stock, tuple(ranks), linears, derived)
    for name, factors in _distil(stock, ranks, frames, derived).items():
        for part, tensor in zip(PARTS, factors, strict=True):
            derived.get(f"{owner_of(value)}/{name}/{part}", tensor.clone)


def _distil(
    stock: nn.Module, ranks: Mapping[str, int], frames: Sequence[Tensor], derived: DerivedTensors
) -> dict[str, Factors]:
    with torch.inference_mode(mode=False), torch.enable_grad():
        student, layers = trainable(stock, ranks, derived)
        reference = Reference(clone_structure(stock).eval(), frames)
        before = reference.ratio(student)
        parameters = [tensor for layer in layers.values() for tensor in (layer.read, layer.write, layer.offset)]
        descend(
            [(parameters, LEARNING_RATE)], lambda step: reference.loss(student, step % len(reference.frames)), STEPS
        )
        if not reference.ratio(student) < before:
            _, layers = trainable(stock, ranks, derived)
    return {
        name: Factors(layer.read.detach(), layer.write.detach(), layer.offset.detach())
        for name, layer in layers.items()
    }


def _not_derived() -> Tensor:
    raise PathRefusedError("distilled factors are trained first; build the path with a PathFactory")
