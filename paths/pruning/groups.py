"""Which channels go together: groups told by torch-pruning's dependency graph, and heads told by the anatomy.

The library is used for its graph and its importance alone. Its pruners round down to nothing and then leave the layer
uncut without a word, mix up the heads of window attention, and keep default arguments that one model leaves behind for
the next.

A group is left alone where a cut would change more than the channels that go, or where that cannot be told:

* a layer or group norm takes its statistics over the channels (the residual stream of a transformer);
* it starts within an attention: heads are cut whole, and only where the anatomy describes them;
* a convolution in groups, or a module that is neither a map nor a batch norm, takes part;
* it reaches the outputs of the model or of a `fixed` module.
"""

import copy
import importlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from gearshift.errors import PathRefusedError
from gearshift.paths.anatomy import Anatomy
from gearshift.paths.cutting import by_importance, rounded
from gearshift.paths.pruning.places import IN, OUT, is_depthwise
from gearshift.paths.sharing import clone_structure

UNIT = 8
"""Channels left are a multiple of this, where a layer has as many."""

_HEAD_COUNTS = ("num_heads", "num_attention_heads", "n_heads")


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """Channels of one group that go.

    Attributes:
        root: The module that makes them.
        places: Indices that go, by place (see `places`).
    """

    root: str
    places: Mapping[str, frozenset[int]]


def head_removals(anatomy: Anatomy, importances: Sequence[Tensor], percent: int) -> list[Removal]:
    """The least important heads of each attention: `percent` of them rounded down, so that one at least stays."""
    removals = []
    for site, importance in zip(anatomy.attentions, importances, strict=True):
        heads = by_importance(importance).tolist()[site.heads - site.heads * percent // 100 :]
        channels = [head * site.head_dim + channel for head in heads for channel in range(site.head_dim)]
        width = site.heads * site.head_dim
        places = {f"{site.output}/{IN}": frozenset(channels)}
        for name, parts in site.projections.items():
            places[f"{name}/{OUT}"] = frozenset(part * width + channel for part in range(parts) for channel in channels)
        for name, axis in site.per_head.items():
            places[f"{name}/{axis}"] = frozenset(heads)
        if heads:
            removals.append(Removal(root=site.name, places=places))
    return removals


def channel_removals(stock: nn.Module, anatomy: Anatomy, example: Tensor, percent: int) -> list[Removal]:
    """The least important channels of each group, `percent` of them but for rounding, by tracing a frame.

    Raises:
        PathRefusedError: torch-pruning is not installed.
    """
    tp = _torch_pruning()
    model = copy.deepcopy(clone_structure(stock)).eval()
    for parameter in model.parameters():
        parameter.requires_grad_(parameter.is_floating_point())  # the trace follows gradients: a frozen model has none
    graph: Any = tp.DependencyGraph()
    with torch.inference_mode(mode=False), torch.enable_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of parameters that are no module's weight, which are dealt with here
        graph.build_dependency(model, (example.clone(),), output_transform=_tensors_of, verbose=False)
        reader = _Reader(model, anatomy, graph)
        importance = tp.importance.GroupMagnitudeImportance(p=2)
        return [removal for group in reader.groups() if (removal := reader.removal(group, importance, percent))]


class _Reader:
    """Reads a dependency graph in terms of places."""

    def __init__(self, model: nn.Module, anatomy: Anatomy, graph: Any) -> None:
        self.graph = graph
        self.names = {module: name for name, module in model.named_modules()}
        self.parameters = {id(parameter): name for name, parameter in model.named_parameters()}
        self.axes = {id(item.parameters): item.pruning_dim for item in graph.unwrapped_parameters}
        self.fixed = {part for name in anatomy.fixed for part in model.get_submodule(name).modules()}
        self.sites = {f"{name}/{OUT}" for site in anatomy.attentions for name in site.projections}
        self.sites |= {f"{site.output}/{IN}" for site in anatomy.attentions}
        self.attentions = [f"{name}." for name, module in model.named_modules() if _is_attention(module)]

    def groups(self) -> list[Any]:
        """The groups that can be cut, each with all its channels."""
        groups, seen = [], set[nn.Module]()
        for module in [part for part in self.graph.module2node if self._makes_channels(part)]:
            if module in seen:
                continue
            pruner = self.graph.get_pruner_of_module(module)
            channels = list(range(pruner.get_out_channels(module)))
            group = self.graph.get_pruning_group(module, pruner.prune_out_channels, channels)
            seen |= {dep.target.module for dep, _ in group if self._is_output(dep)}
            if self._can_be_cut(group):
                groups.append(group)
        return groups

    def removal(self, group: Any, importance: Any, percent: int) -> Removal | None:
        """What goes of a group; None where rounding leaves all of it."""
        channels, scores = len(group[0].idxs), importance(group)
        going = channels - rounded(channels, 1 - percent / 100, UNIT)
        if scores is None or not going:
            return None
        least = by_importance(scores.double()).tolist()[channels - going :]
        root = group[0].dep
        places: dict[str, frozenset[int]] = {}
        for dep, indices in self.graph.get_pruning_group(root.target.module, root.handler, sorted(least)):
            if (place := self._place(dep)) is not None:
                places[place] = places.get(place, frozenset()) | frozenset(indices)
        return Removal(root=self.names[root.target.module], places=places)

    def _makes_channels(self, module: Any) -> bool:
        """Whether a group may start here: not within an attention, whose reshapes the graph cannot follow."""
        if not isinstance(module, _ConvNd | nn.Linear) or is_depthwise(module) or not _is_known(module):
            return False
        name = self.names.get(module, "")
        inside = next((attention for attention in self.attentions if name.startswith(attention)), None)
        return inside is None or self._leaves(module, inside)

    def _leaves(self, module: nn.Module, attention: str) -> bool:
        """Whether what a map within an attention makes goes out of it without another map there."""
        waiting, seen = [self.graph.module2node[module]], set()
        while waiting:
            for node in waiting.pop().outputs:
                name = None if isinstance(node.module, nn.Parameter) else self.names.get(node.module)
                if name is not None and not name.startswith(attention):
                    return True
                if node not in seen and not isinstance(node.module, _ConvNd | nn.Linear):
                    waiting.append(node)
                seen.add(node)
        return False

    def _can_be_cut(self, group: Any) -> bool:
        for dep, _ in group:
            module = dep.target.module
            if isinstance(module, nn.Parameter):
                if id(module) not in self.axes:
                    return False
            elif module in self.names:
                if not _is_known(module) or (module in self.fixed and self._is_output(dep)):
                    return False
                if self._place(dep) in self.sites:
                    return False
            elif type(module).__name__ == "_OutputOp":
                return False
        return True

    def _place(self, dep: Any) -> str | None:
        module = dep.target.module
        if isinstance(module, nn.Parameter):
            return f"{self.parameters[id(module)]}/{self.axes[id(module)]}"
        if module not in self.names:  # an operation between modules
            return None
        return f"{self.names[module]}/{OUT if self._is_output(dep) else IN}"

    def _is_output(self, dep: Any) -> bool:
        return is_depthwise(dep.target.module) or bool(self.graph.is_out_channel_pruning_fn(dep.handler))


def _is_known(module: nn.Module) -> bool:
    if isinstance(module, _ConvNd) and not isinstance(module, _ConvTransposeNd):
        return module.groups == 1 or is_depthwise(module)
    return isinstance(module, nn.Linear | _BatchNorm)


def _is_attention(module: nn.Module) -> bool:
    """Whether it counts heads, and nothing within it does (a block may repeat the number of its attention)."""
    return [part for part in module.modules() if any(hasattr(part, name) for name in _HEAD_COUNTS)] == [module]


def _tensors_of(output: Any) -> list[Tensor]:
    return list(_flat(output))


def _flat(output: Any) -> Iterator[Tensor]:
    if isinstance(output, Tensor):
        if output.grad_fn is not None:
            yield output
    elif isinstance(output, Mapping):
        for value in output.values():
            yield from _flat(value)
    elif isinstance(output, list | tuple):
        for value in output:
            yield from _flat(value)


def _torch_pruning() -> Any:
    try:
        return importlib.import_module("torch_pruning")
    except ImportError as error:
        raise PathRefusedError(
            "prune asks torch-pruning which channels go together, and it is not installed; pip install "
            "'gearshift[prune]' (a bundle that holds the path needs it no more)"
        ) from error
