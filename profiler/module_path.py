"""Which module of a tree is running now, without touching the tree.

The hooks are PyTorch's process-wide ones, not hooks on the modules: modules with hooks of their own leave
their fused fast paths (`nn.TransformerEncoderLayer` does), and measuring must not change what it measures.
"""

import threading
from collections.abc import Iterator
from typing import Any, Self

from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook


class ModulePath:
    """Follow the calls of one thread through a module tree, for the duration of a `with` block.

    A module that is registered in several places is named by the place nearest to its caller. Modules outside
    the tree, and calls in other threads, leave the path as it is.
    """

    def __init__(self, root: nn.Module) -> None:
        self._names = module_names(root)
        self._thread = threading.get_ident()
        self._running: list[tuple[nn.Module, str]] = []

    @property
    def name(self) -> str:
        """Dotted name of the innermost running module; "" for the root."""
        return self._running[-1][1] if self._running else ""

    @property
    def module(self) -> nn.Module | None:
        """The innermost running module."""
        return self._running[-1][0] if self._running else None

    def __enter__(self) -> Self:
        self._thread = threading.get_ident()
        self._handles = (
            register_module_forward_pre_hook(self._enter),
            register_module_forward_hook(self._leave, always_call=True),
        )
        return self

    def __exit__(self, *exception: object) -> None:
        for handle in self._handles:
            handle.remove()
        self._running.clear()

    def _enter(self, module: nn.Module, args: Any) -> None:
        names = self._names.get(id(module))
        if names and threading.get_ident() == self._thread:
            caller = self.name
            nearest = max(names, key=lambda name: _shared_depth(name, caller))
            self._running.append((module, nearest))

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        if self._running and self._running[-1][0] is module and threading.get_ident() == self._thread:
            self._running.pop()


def module_names(root: nn.Module) -> dict[int, list[str]]:
    """Return every dotted name of every module, by its `id`; compiled wrappers leave no trace in names."""
    names: dict[int, list[str]] = {}
    for name, module in _walk(root, "", frozenset()):
        names.setdefault(id(module), []).append(name)
    return names


def _walk(module: nn.Module, name: str, above: frozenset[int]) -> Iterator[tuple[str, nn.Module]]:
    if id(module) in above:  # a child that points back to its parent
        return
    yield name, module
    for child_name, child in module._modules.items():
        if child is not None:
            yield from _walk(child, _joined(name, child_name), above | {id(module)})


def _joined(name: str, child: str) -> str:
    if child == "_orig_mod":
        return name
    return f"{name}.{child}" if name else child


def _shared_depth(name: str, other: str) -> int:
    depth = 0
    for part, other_part in zip(name.split("."), other.split("."), strict=False):
        if part != other_part:
            break
        depth += 1
    return depth
