"""Places where channels are cut: a module's outputs (`layer1.conv1/out`), its inputs (`fc/in`), a parameter's axis.

A record says for each place which indices are kept. The same record cuts a clone, or silences a reference model, in
which every reader of a channel that is cut reads zeros.
"""

from collections.abc import Iterator, Mapping
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from gearshift.paths.anatomy import Anatomy, present
from gearshift.paths.cutting import count_again, put
from gearshift.paths.sharing import DerivedTensors

OUT, IN = "out", "in"

Kept = Mapping[str, Tensor]
"""Indices kept, by place."""


def is_depthwise(module: nn.Module) -> bool:
    """Whether each channel is convolved alone: its outputs are its inputs."""
    return isinstance(module, _ConvNd) and module.groups == module.in_channels == module.out_channels > 1


def length_of(model: nn.Module, place: str) -> int:
    """How many channels a place has."""
    name, axis = next(_tensors(model, place))
    return int(_tensor(model, name).shape[axis])


def cut(model: nn.Module, anatomy: Anatomy, kept: Kept, key: str, derived: DerivedTensors) -> None:
    """Cut a clone to what is kept; modules that are gone are passed over. Cut weights are shared under `key`."""
    axes: dict[str, dict[int, Tensor]] = {}
    for place, indices in kept.items():
        if present(model, _owner(place)):
            for name, axis in _tensors(model, place):
                axes.setdefault(name, {})[axis] = indices
    for name, by_axis in axes.items():
        full = _tensor(model, name)
        put(model, name, derived.get(f"{key}/{name}", partial(_selected, full, by_axis), stored=False))
    for place in kept:
        if present(model, _owner(place)):
            count_again(model.get_submodule(_owner(place)))
    for site in anatomy.attentions:
        if f"{site.output}/{IN}" in kept and present(model, site.name):
            channels = len(kept[f"{site.output}/{IN}"])
            for attribute, meaning in site.attributes.items():
                value = channels if meaning == "channels" else channels // site.head_dim
                setattr(model.get_submodule(site.name), attribute, value)


def silence(model: nn.Module, kept: Kept) -> None:
    """Make every map read zeros in the place of channels that are cut. The model's own tensors are written."""
    with torch.no_grad():
        for place, indices in kept.items():
            module, _, axis = place.rpartition("/")
            if axis == IN:
                weight = _tensor(model, f"{module}.weight")
                gone = torch.ones(weight.shape[1], dtype=torch.bool, device=weight.device)
                gone[indices.long()] = False
                weight[:, gone] = 0


def _owner(place: str) -> str:
    """The module that holds a place's tensors."""
    name, _, axis = place.rpartition("/")
    return name if axis in (OUT, IN) else name.rpartition(".")[0]


def _tensors(model: nn.Module, place: str) -> Iterator[tuple[str, int]]:
    """The parameters and buffers of a place, each with the axis on which it lies."""
    name, _, axis = place.rpartition("/")
    if axis == IN:
        yield f"{name}.weight", 1
    elif axis == OUT:
        module = model.get_submodule(name)
        for kind, tensor in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)):
            if tensor.ndim:  # a count of batches has no channels
                yield f"{name}.{kind}", 0
    else:
        yield name, int(axis)


def _tensor(model: nn.Module, name: str) -> Tensor:
    owner, _, attribute = name.rpartition(".")
    tensor: Tensor = getattr(model.get_submodule(owner), attribute)
    return tensor


def _selected(full: Tensor, by_axis: Mapping[int, Tensor]) -> Tensor:
    for axis, indices in by_axis.items():
        full = full.index_select(axis, indices.to(full.device))
    return full
