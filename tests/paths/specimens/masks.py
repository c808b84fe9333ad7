"""Independent references for paths that cut: the stock model with weights set to 0, ranked by plain formulas.

A head is cut where its columns of the output projection are 0, a hidden channel where its column of the second map is.
"""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from gearshift.paths.anatomy import Anatomy
from gearshift.paths.build import PathFactory, family_of
from gearshift.paths.spec import PathSpec

Mask = Callable[[Any], nn.Module]


def heads_cut(percent: int, frames: Sequence[Tensor] = ()) -> Mask:
    """The stock model with the least important heads silenced."""

    def mask(model: Any) -> nn.Module:
        anatomy = family_of(model).anatomy(model)
        for site, kept in zip(anatomy.attentions, kept_heads(model, anatomy, percent, frames), strict=True):
            output = model.get_submodule(site.output)
            with torch.no_grad():
                for head in set(range(site.heads)) - kept:
                    output.weight[:, head * site.head_dim : (head + 1) * site.head_dim] = 0
        return model

    return mask


def mlp_cut(percent: int, frames: Sequence[Tensor] = ()) -> Mask:
    """The stock model with the least important hidden channels of every feed-forward part silenced."""

    def mask(model: Any) -> nn.Module:
        anatomy = family_of(model).anatomy(model)
        importances = [channel_importance(model, site, frames) for site in anatomy.mlps]
        means = [channel_mean(model, site, frames) for site in anatomy.mlps]  # all before anything is silenced
        for site, importance, mean in zip(anatomy.mlps, importances, means, strict=True):
            hidden = len(importance)
            step = 8 if hidden < 512 else 16 if hidden < 2048 else 32
            choices = [hidden, *range(hidden - hidden % step, 0, -step)]  # of two as near, the larger
            kept = min(choices, key=lambda count, wanted=hidden * percent / 100: abs(count - wanted))  # type: ignore[misc]
            worst = sorted(range(hidden), key=importance.__getitem__)[: hidden - kept]
            silence(model.get_submodule(site.reduce), worst, mean)
        return model

    return mask


def silence(reduce: nn.Module, channels: Sequence[int], constant: Tensor) -> None:
    """Let a map read a constant for some of its input channels."""

    def hook(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        features = inputs[0].clone()
        for channel in channels:
            if isinstance(reduce, nn.Conv2d):
                features[:, channel] = constant[channel]
            else:
                features[..., channel] = constant[channel]
        return (features, *inputs[1:])

    reduce.register_forward_pre_hook(hook)


def channel_mean(model: Any, site: Any, frames: Sequence[Tensor]) -> Tensor:
    """Mean of each hidden channel over the frames; 0 without frames."""
    if not frames:
        return torch.zeros(model.get_submodule(site.reduce).weight.shape[1])
    return channels_last(model, site, passed(model, site.reduce, frames)[0]).mean(0)


def channels_last(model: Any, site: Any, features: Tensor) -> Tensor:
    """What enters a map, as `(positions, hidden)`."""
    weight = model.get_submodule(site.reduce).weight
    features = features.movedim(1, -1) if weight.ndim == 4 else features
    return features.reshape(-1, weight.shape[1])


def pruned(percent: int) -> Mask:
    """The stock model in which every map reads zeros for what the record of a pruning leaves out of its inputs."""

    def mask(model: Any) -> nn.Module:
        factory = PathFactory(model)
        factory.build(PathSpec.parse(f"prune={percent}%"))
        for key, kept in factory.derived.stored().items():
            module, _, axis = key.removeprefix(f"prune/{percent}%/").rpartition("/")
            if key.startswith("prune/") and axis == "in":
                weight = model.get_submodule(module).weight
                with torch.no_grad():
                    for channel in set(range(weight.shape[1])) - set(kept.tolist()):
                        weight[:, channel] = 0
        return model

    return mask


@torch.no_grad()
def kept_heads(model: Any, anatomy: Anatomy, percent: int, frames: Sequence[Tensor] = ()) -> list[set[int]]:
    """The heads that each layer keeps: the least important is cut again and again, never a layer's last."""
    importances = [head_importance(model, site, frames) for site in anatomy.attentions]
    kept = [set(range(site.heads)) for site in anatomy.attentions]
    total = sum(map(len, kept))
    while (sum(map(len, kept)) - 1) * 100 >= total * percent and any(len(heads) > 1 for heads in kept):
        choices = [(i, head) for i, heads in enumerate(kept) if len(heads) > 1 for head in heads]
        layer, head = min(choices, key=lambda choice: importances[choice[0]][choice[1]])
        kept[layer].remove(head)
    return kept


@torch.no_grad()
def head_importance(model: Any, site: Any, frames: Sequence[Tensor] = ()) -> list[float]:
    """Mean square of the loss's slope along each head, by central differences; without frames, by squared weights.

    The loss is the cross-entropy with the model's own answers.
    """
    weight = model.get_submodule(site.output).weight.double()
    columns = [weight[:, head * site.head_dim : (head + 1) * site.head_dim] for head in range(site.heads)]
    if frames:
        return [slope_of(model, site, head, frames) for head in range(site.heads)]
    values = []
    for head in range(site.heads):
        rows = 0.0
        for name, parts in site.projections.items():
            for part in model.get_submodule(name).weight.double().chunk(parts):
                rows += float(part[head * site.head_dim : (head + 1) * site.head_dim].square().sum())
        values.append(rows * float(columns[head].square().sum()))
    return [value / sum(values) for value in values]


@torch.no_grad()
def slope_of(model: Any, site: Any, head: int, frames: Sequence[Tensor], step: float = 1e-4) -> float:
    """Mean square, over frames, of the loss's derivative by a factor on one head's output."""
    double = copy.deepcopy(model).double()
    factor = torch.ones(site.heads * site.head_dim, dtype=torch.float64)
    double.get_submodule(site.output).register_forward_pre_hook(lambda _, inputs: (inputs[0] * factor, *inputs[1:]))
    part = slice(head * site.head_dim, (head + 1) * site.head_dim)

    def loss(value: float, frame: Tensor, answer: Tensor) -> float:
        factor[part] = value
        scores = scores_of(double(frame.double()))
        factor[part] = 1.0
        return float(torch.nn.functional.cross_entropy(scores, answer))

    total = 0.0
    for frame in frames:
        answer = scores_of(double(frame.double())).argmax(1)
        total += ((loss(1 + step, frame, answer) - loss(1 - step, frame, answer)) / (2 * step)) ** 2
    return total / len(frames)


def scores_of(output: Any) -> Tensor:
    """Logits with the classes along axis 1."""
    logits: Tensor = output if isinstance(output, Tensor) else output.logits
    return logits.flatten(0, 1) if logits.ndim == 3 else logits


@torch.no_grad()
def channel_importance(model: Any, site: Any, frames: Sequence[Tensor] = ()) -> list[float]:
    """Variance of what each hidden channel adds to the output; a bound from the weights without frames."""
    after = model.get_submodule(site.reduce).weight.double()
    columns = [float(after[:, channel].square().sum()) for channel in range(after.shape[1])]
    if frames:
        features, _ = passed(model, site.reduce, frames)
        variances = channels_last(model, site, features).var(dim=0, correction=0).tolist()
        return [variance * column for variance, column in zip(variances, columns, strict=True)]
    before = model.get_submodule(site.expand).weight.double()
    return [float(before[channel].square().sum()) * column for channel, column in enumerate(columns)]


def passed(model: Any, name: str, frames: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """What went into and came out of a module, in double precision, all frames together."""
    seen: list[tuple[Tensor, Tensor]] = []
    hook = model.get_submodule(name).register_forward_hook(lambda _, inputs, output: seen.append((inputs[0], output)))
    with torch.no_grad():
        for frame in frames:
            model(frame)
    hook.remove()
    ins, outs = zip(*seen, strict=True)
    return torch.cat([item.flatten(0, 1) for item in ins]).double(), torch.cat([o.flatten(0, 1) for o in outs]).double()
