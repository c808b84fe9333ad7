"""Cutting a model thinner: how many units stay, which ones, and modules over fewer of their channels.

What many paths cut is derived once, sorted by importance, so that each of them takes a prefix of it: a view.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn

from gearshift.paths.sharing import DerivedTensors, clone_structure

MOST_FRAMES = 64
"""Calibration frames that importances are measured on."""


def rounded(channels: int, share: float, unit: int) -> int:
    """Channels kept: what is nearest to `share` of them, a multiple of `unit` (halves up) or all; one unit at least."""
    wanted = channels * share
    nearest = max(unit, int(wanted / unit + 0.5) * unit)
    return channels if channels - wanted <= abs(nearest - wanted) else min(channels, nearest)


def by_importance(importance: Tensor) -> Tensor:
    """Indices with the most important first; of equals, the first first."""
    return importance.argsort(descending=True, stable=True)


def put(model: nn.Module, name: str, tensor: Tensor) -> None:
    """Put `tensor` in the place of a parameter or buffer of a clone; whether it is trained stays as it was."""
    owner, _, attribute = name.rpartition(".")
    module = model.get_submodule(owner)
    old = getattr(module, attribute)
    if isinstance(old, nn.Parameter):
        setattr(module, attribute, nn.Parameter(tensor, requires_grad=old.requires_grad))
    else:
        module.register_buffer(attribute, tensor, persistent=attribute not in module._non_persistent_buffers_set)


def count_again(module: nn.Module) -> None:
    """Make a module's numbers of channels those of its weight."""
    weight = getattr(module, "weight", None)
    if not isinstance(weight, Tensor):
        return
    counts: dict[str, Any] = {"out_features": weight.shape[0], "num_features": weight.shape[0]}
    if weight.ndim == 2:
        counts["in_features"] = weight.shape[1]
    if weight.ndim > 2:
        depthwise = weight.shape[1] == 1 and getattr(module, "groups", 1) > 1
        groups = weight.shape[0] if depthwise else getattr(module, "groups", 1)
        counts |= {"groups": groups, "out_channels": weight.shape[0], "in_channels": weight.shape[1] * groups}
    for name, count in counts.items():
        if hasattr(module, name):
            setattr(module, name, count)


def recorded(
    derived: DerivedTensors, keys: Sequence[str], make: Callable[[], Mapping[str, Tensor]]
) -> dict[str, Tensor]:
    """Tensors that are made all at once, and only if one of them is not there yet."""
    made = cache(make)
    return {key: derived.get(key, partial(lambda key: made()[key], key)) for key in keys}


def observe(
    stock: nn.Module, frames: Sequence[Tensor], observers: Mapping[str, Callable[[Tensor, Tensor], None]]
) -> None:
    """Run frames through a model and show each observer the input and output of its module.

    The model itself is not touched: it is a clone over the same tensors that runs, in evaluation mode.
    """
    model = clone_structure(stock).eval()
    for name, observer in observers.items():
        model.get_submodule(name).register_forward_hook(partial(_shown, observer))
    parameter = next(model.parameters())
    with torch.inference_mode():
        for frame in frames[:MOST_FRAMES]:
            model(frame.to(parameter.device, parameter.dtype))


def _shown(
    observer: Callable[[Tensor, Tensor], None], _: nn.Module, inputs: tuple[Tensor, ...], output: Tensor
) -> None:
    observer(inputs[0], output)
