"""Independent reference for low rank: the stock model with dense layers of low rank, from an SVD of all its outputs.

The layer's outputs over all frames are laid out as one matrix, centred, and decomposed by numpy; its weights and bias
are then those of the affine map onto the leading right singular vectors.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gearshift.paths.build import family_of

Mask = Callable[[Any], nn.Module]


def outputs_of(model: nn.Module, names: Sequence[str], frames: Sequence[Tensor]) -> dict[str, np.ndarray]:
    """What these layers give on all frames: `(positions, channels)` each, in double precision."""
    seen: dict[str, list[np.ndarray]] = {name: [] for name in names}

    def keep(name: str) -> Any:
        def hook(module: nn.Module, _: Any, output: Tensor) -> None:
            channels_last = output.movedim(1, -1) if isinstance(module, nn.Conv2d) else output
            seen[name].append(channels_last.detach().flatten(0, -2).double().numpy())

        return hook

    handles = [model.get_submodule(name).register_forward_hook(keep(name)) for name in names]
    with torch.no_grad():
        for frame in frames:
            model(frame)
    for handle in handles:
        handle.remove()
    return {name: np.concatenate(parts) for name, parts in seen.items()}


def of_low_rank(ranks: Mapping[int, int], frames: Sequence[Tensor]) -> Mask:
    """The stock model with these layers (numbers in `anatomy.linears`) mapped onto so many directions."""

    def mask(model: Any) -> nn.Module:
        linears = family_of(model).anatomy(model).linears
        names = {linears[number]: rank for number, rank in ranks.items()}
        for name, outputs in outputs_of(model, list(names), frames).items():
            flatten(model.get_submodule(name), outputs, names[name])
        return model

    return mask


def flatten(layer: Any, outputs: np.ndarray, rank: int) -> None:
    """Make a layer's weights and bias those of the best affine map of a rank."""
    mean = outputs.mean(0)
    directions = np.linalg.svd(outputs - mean, full_matrices=False)[2][:rank]
    projection = torch.from_numpy(directions.T @ directions)
    centre = torch.from_numpy(mean)
    with torch.no_grad():
        bias = torch.zeros_like(centre) if layer.bias is None else layer.bias.double()
        layer.weight.copy_((projection @ layer.weight.double().flatten(1)).view_as(layer.weight))
        layer.bias = nn.Parameter((centre + projection @ (bias - centre)).to(layer.weight.dtype))
