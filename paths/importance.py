"""How important the heads and hidden channels of a model are: measured on calibration frames, else told by weights."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gearshift.paths.anatomy import Anatomy, AttentionSite, MlpSite
from gearshift.paths.cutting import observe, recorded
from gearshift.paths.outputs import logits_of
from gearshift.paths.sharing import DerivedTensors, clone_structure

GRADIENT_FRAMES = 32
"""Calibration frames that heads are judged on: each takes a backward pass."""
_TINY = 1e-300


def head_importances(model: nn.Module, anatomy: Anatomy, derived: DerivedTensors) -> list[Tensor]:
    """Importance of every head `(heads,)` of every layer, in the anatomy's order.

    With calibration frames: the expected square of the derivative of the loss by a gate on the head's output, which to
    first order is what removing it changes (Michel et al., "Are Sixteen Heads Really Better than One?", NeurIPS 2019,
    squared rather than absolute). The loss is the cross-entropy with the model's own answers, so that no labels are
    needed. Without frames: the product of the squared norms of its weights before and after, relative to the layer's.
    """
    keys = [f"importance/heads/{site.name}" for site in anatomy.attentions]
    make = _measured_heads if derived.calibration else _heads_by_magnitude
    made = recorded(derived, keys, lambda: dict(zip(keys, make(model, anatomy, derived), strict=True)))
    return [made[key] for key in keys]


def channel_importances(model: nn.Module, anatomy: Anatomy, derived: DerivedTensors) -> list[Tensor]:
    """Importance of every hidden channel `(hidden,)` of every feed-forward part, in the anatomy's order.

    With calibration frames: the variance of what a channel adds to the output, `Var[a] |w_out|^2` (its mean is not
    lost: see `channel_means`). Without: the product of the squared norms of its weights before and after.
    """
    keys = [f"importance/mlp/{site.reduce}" for site in anatomy.mlps]
    make = _measured_channels if derived.calibration else _channels_by_magnitude
    made = recorded(derived, keys, lambda: dict(zip(keys, make(model, anatomy, derived), strict=True)))
    return [made[key] for key in keys]


def channel_means(model: nn.Module, anatomy: Anatomy, derived: DerivedTensors) -> list[Tensor] | None:
    """Mean `(hidden,)` of every hidden channel over the calibration frames; None where there never were any."""
    keys = [f"mean/mlp/{site.reduce}" for site in anatomy.mlps]
    if not derived.calibration and not all(derived.has(key) for key in keys):
        return None
    made = recorded(
        derived,
        keys,
        lambda: {key: seen.mean() for key, seen in zip(keys, _observed_channels(model, anatomy, derived), strict=True)},
    )
    return [made[key] for key in keys]


def _measured_heads(model: nn.Module, anatomy: Anatomy, derived: DerivedTensors) -> list[Tensor]:
    """By one backward pass per frame through a clone whose heads are all gated."""
    frames = derived.frames("heads")[:GRADIENT_FRAMES]
    with torch.inference_mode(mode=False), torch.enable_grad():
        gated = clone_structure(model).eval()
        parameter = next(gated.parameters())
        gates = [_gate(gated, site) for site in anatomy.attentions]
        total = [torch.zeros_like(gate, dtype=torch.float64) for gate in gates]
        for frame in frames:
            logits = logits_of(gated(frame.clone().to(parameter.device, parameter.dtype)))
            scores = logits.flatten(0, 1) if logits.ndim == 3 else logits  # of queries, or of frames and pixels
            loss = F.cross_entropy(scores, scores.argmax(1))
            for sum_, slope in zip(total, torch.autograd.grad(loss, gates), strict=True):
                sum_ += slope.double().square()
    return [sum_.detach() / len(frames) for sum_ in total]


def _gate(model: nn.Module, site: AttentionSite) -> Tensor:
    """Multiply what enters an output projection by a factor of 1 for each head, and return these."""
    output = model.get_submodule(site.output)
    parameter = next(output.parameters())
    gate = torch.ones(site.heads, device=parameter.device, dtype=parameter.dtype, requires_grad=True)
    output.register_forward_pre_hook(lambda _, inputs: (inputs[0] * gate.repeat_interleave(site.head_dim), *inputs[1:]))
    return gate


def _heads_by_magnitude(model: nn.Module, anatomy: Anatomy, derived: DerivedTensors) -> list[Tensor]:
    return [_head_magnitude(model, site) for site in anatomy.attentions]


def _head_magnitude(model: nn.Module, site: AttentionSite) -> Tensor:
    output: Any = model.get_submodule(site.output)
    after: Tensor = output.weight.double().reshape(-1, site.heads, site.head_dim).square().sum(dim=(0, 2))
    before = torch.zeros_like(after)
    for name, parts in site.projections.items():
        projection: Any = model.get_submodule(name)
        rows = projection.weight.double().reshape(parts, site.heads, site.head_dim, -1)
        before += rows.square().sum(dim=(0, 2, 3))
    product = before * after
    return product / product.sum().clamp_min(_TINY)


def _measured_channels(model: nn.Module, anatomy: Anatomy, derived: DerivedTensors) -> list[Tensor]:
    return [seen.importance() for seen in _observed_channels(model, anatomy, derived)]


def _observed_channels(model: nn.Module, anatomy: Anatomy, derived: DerivedTensors) -> list["_Moments"]:
    seen = {site.reduce: _Moments(model.get_submodule(site.reduce)) for site in anatomy.mlps}
    observe(model, derived.frames("mlp"), seen)
    return list(seen.values())


class _Moments:
    """Means and variances of the channels that enter a map, `(..., hidden)` or `(B, hidden, H, W)`."""

    def __init__(self, module: Any) -> None:
        self.weight: Tensor = module.weight.detach().double()
        self.sum: Tensor = self.weight.new_zeros(self.weight.shape[1])
        self.squares: Tensor = self.weight.new_zeros(self.weight.shape[1])
        self.count = 0

    def __call__(self, features: Tensor, _: Tensor) -> None:
        channels = features if self.weight.ndim == 2 else features.movedim(1, -1)
        values = channels.double().flatten(0, -2)
        self.sum += values.sum(dim=0)
        self.squares += values.square().sum(dim=0)
        self.count += len(values)

    def mean(self) -> Tensor:
        return self.sum / self.count

    def importance(self) -> Tensor:
        variance = (self.squares / self.count - self.mean().square()).clamp_min(0)
        added: Tensor = variance * _squared_columns(self.weight)
        return added


def _channels_by_magnitude(model: nn.Module, anatomy: Anatomy, derived: DerivedTensors) -> list[Tensor]:
    return [_channel_magnitude(model, site) for site in anatomy.mlps]


def _channel_magnitude(model: nn.Module, site: MlpSite) -> Tensor:
    expand: Any = model.get_submodule(site.expand)
    reduce: Any = model.get_submodule(site.reduce)
    before: Tensor = expand.weight.double().square().flatten(1).sum(dim=1)
    return before * _squared_columns(reduce.weight.double())


def _squared_columns(weight: Tensor) -> Tensor:
    return weight.square().transpose(0, 1).flatten(1).sum(dim=1)
