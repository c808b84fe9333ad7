"""What a module is called with: described, and copied."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any, TypeAlias, TypeVar

import torch
from torch import nn
from torch.utils._pytree import tree_map

from gearshift.errors import InputError

Tree = TypeVar("Tree")
Arguments: TypeAlias = torch.Tensor | Sequence[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSpec:
    """One tensor that a module was called with; `name` is the forward's own name for it."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    device: str

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {"name": self.name, "shape": list(self.shape), "dtype": self.dtype, "device": self.device}


def positional(args: Arguments) -> Sequence[Any]:
    """Return positional inputs as a sequence; a single tensor stands for itself.

    Raises:
        InputError: They are neither a tensor nor a tuple or list.
    """
    if isinstance(args, torch.Tensor):
        return (args,)
    if not isinstance(args, tuple | list):
        raise InputError(f"cannot call a module with a {type(args).__name__}; pass a tensor, or a tuple of arguments")
    return tuple(args)


def copied(inputs: Tree) -> Tree:
    """Copy every tensor of nested inputs, since some modules write into theirs."""
    return map_tensors(lambda tensor: tensor.detach().clone(), inputs)


def map_tensors(change: Callable[[torch.Tensor], torch.Tensor], inputs: Tree) -> Tree:
    """Change every tensor of nested inputs; one that is given twice stays one, as self-attention expects."""
    changed: dict[int, torch.Tensor] = {}

    def change_once(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if id(leaf) not in changed:
            changed[id(leaf)] = change(leaf)
        return changed[id(leaf)]

    result: Tree = tree_map(change_once, inputs)
    return result


def input_specs(module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[InputSpec]:
    """Describe every tensor that `module(*args, **kwargs)` is given."""
    try:
        bound = signature(module.forward).bind_partial(*args, **kwargs).arguments
    except (TypeError, ValueError):
        bound = {**{str(index): value for index, value in enumerate(args)}, **kwargs}
    for name, value in bound.items():
        yield from _named_tensors(name, value)


def _named_tensors(name: str, value: Any) -> Iterator[InputSpec]:
    if isinstance(value, torch.Tensor):
        yield InputSpec(
            name=name,
            shape=tuple(value.shape),
            dtype=str(value.dtype).removeprefix("torch."),
            device=str(value.device),
        )
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _named_tensors(f"{name}.{key}", item)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _named_tensors(f"{name}.{index}", item)
