"""Independent references for paths that cut: the stock model with weights set to 0, ranked by plain formulas.

A head is cut where its columns of the output projection are 0, a hidden channel where its column of the second map is.
"""

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
        for site, importance in zip(anatomy.mlps, importances, strict=True):
            hidden = len(importance)
            step = 8 if hidden < 512 else 16 if hidden < 2048 else 32
            choices = [hidden, *range(hidden - hidden % step, 0, -step)]  # of two as near, the larger
            kept = min(choices, key=lambda count, wanted=hidden * percent / 100: abs(count - wanted))  # type: ignore[misc]
            worst_first = sorted(range(hidden), key=importance.__getitem__)
            with torch.no_grad():
                model.get_submodule(site.reduce).weight[:, worst_first[: hidden - kept]] = 0
        return model

    return mask


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
    """Share of each head in the square of its attention's output; of the weights' squares without frames."""
    weight = model.get_submodule(site.output).weight.double()
    columns = [weight[:, head * site.head_dim : (head + 1) * site.head_dim] for head in range(site.heads)]
    if frames:
        features, outputs = passed(model, site.output, frames)
        parts = features.reshape(-1, site.heads, site.head_dim)
        whole = float(outputs.square().sum())
        return [float((parts[:, head] @ columns[head].T).square().sum()) / whole for head in range(site.heads)]
    values = []
    for head in range(site.heads):
        rows = 0.0
        for name, parts in site.projections.items():
            for part in model.get_submodule(name).weight.double().chunk(parts):
                rows += float(part[head * site.head_dim : (head + 1) * site.head_dim].square().sum())
        values.append(rows * float(columns[head].square().sum()))
    return [value / sum(values) for value in values]


@torch.no_grad()
def channel_importance(model: Any, site: Any, frames: Sequence[Tensor] = ()) -> list[float]:
    """What each hidden channel adds to the output, squared: expected with frames, else a bound from the weights."""
    after = model.get_submodule(site.reduce).weight.double()
    columns = [float(after[:, channel].square().sum()) for channel in range(after.shape[1])]
    if frames:
        features, _ = passed(model, site.reduce, frames)
        features = features.movedim(1, -1) if after.ndim == 4 else features
        squares = features.reshape(-1, after.shape[1]).square().mean(dim=0).tolist()
        return [square * column for square, column in zip(squares, columns, strict=True)]
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
