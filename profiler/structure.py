"""Copies of modules and inputs on the meta device: shapes without memory, costs without computing."""

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from gearshift.errors import ModelError
from gearshift.profiler.inputs import Tree, map_tensors


def meta_copy(module: nn.Module) -> nn.Module:
    """Return a copy of the structure of a module, with every tensor on the meta device.

    The original is not touched. Tied parameters stay tied.

    Raises:
        ModelError: The module holds something that cannot be copied.
    """
    memo: dict[int, Any] = {id(tensor): _on_meta(tensor) for tensor in _tensors(module)}
    try:
        return copy.deepcopy(module, memo)
    except (TypeError, RuntimeError) as error:
        raise ModelError(
            f"cannot copy {type(module).__name__} to the meta device ({error}); "
            "count it where it is instead, with on_meta=False"
        ) from error


def meta_inputs(inputs: Tree) -> Tree:
    """Return nested inputs with every tensor replaced by its like on the meta device."""
    return map_tensors(_on_meta, inputs)


def _tensors(module: nn.Module) -> Iterator[torch.Tensor]:
    """Yield every tensor that the module holds, registered or kept as a plain attribute."""
    for item in module.modules():
        for leaf in tree_leaves(dict(vars(item))):
            if isinstance(leaf, torch.Tensor):
                yield leaf


def _on_meta(tensor: torch.Tensor) -> torch.Tensor:
    empty = torch.empty_like(tensor, device="meta", requires_grad=False)
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(empty, requires_grad=tensor.requires_grad)
    return empty
