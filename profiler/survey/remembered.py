"""Shapes of results on the meta device, remembered by operator and arguments.

A network repeats its blocks, and PyTorch works the shapes of many operators out in Python. A result there is a
matter of shapes, strides and types of the arguments, so a call that was seen before needs no second look. Views
and calls that write into their arguments always run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

LONGEST_MEMORY = 20_000
"""Calls; then everything is forgotten, so that memory stays small."""


@dataclass(frozen=True, slots=True)
class _Like:
    """A tensor on the meta device, to be made again."""

    shape: torch.Size
    stride: tuple[int, ...]
    dtype: torch.dtype

    def make(self) -> torch.Tensor:
        return torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device="meta")


class RememberedShapes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within its `with` block, results of calls that were seen before are made from memory.

    Enter it before a `CallRecorder`, which then records every call as ever.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._known: dict[Any, tuple[_Like, ...] | _Like] = {}
        self.hits = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Make the result from memory, or run the call and remember it."""
        kwargs = kwargs or {}
        key = (func, _key(args), _key(tuple(kwargs.items()))) if _is_fresh(func) else None
        try:
            known = None if key is None else self._known.get(key)
        except TypeError:  # an argument that is not hashable
            key = known = None
        if known is not None:
            self.hits += 1
            return known.make() if isinstance(known, _Like) else tuple(like.make() for like in known)
        out = func(*args, **kwargs)
        if key is not None and (like := _like(out)) is not None:
            self._remember(key, like)
        return out

    def _remember(self, key: Any, like: tuple[_Like, ...] | _Like) -> None:
        if len(self._known) >= LONGEST_MEMORY:
            self._known.clear()
        self._known[key] = like


@cache
def _is_fresh(operator: Any) -> bool:
    """Whether the operator only makes new tensors."""
    if not isinstance(operator, torch._ops.OpOverload):
        return False
    schema = operator._schema
    return all(item.alias_info is None for item in (*schema.arguments, *schema.returns))


def _key(value: Any) -> Any:
    """What a result can depend on; the types of numbers too, since 1 == 1.0."""
    if isinstance(value, torch.Tensor):
        if not value.is_meta or value.layout is not torch.strided:
            return [value]  # not hashable, hence never remembered
        return value.shape, value.stride(), value.dtype
    if isinstance(value, list | tuple):
        return tuple(map(_key, value))
    return type(value), value


def _like(out: Any) -> tuple[_Like, ...] | _Like | None:
    """What is needed to make a result again; None where it is no plain tensor on the meta device, or tensors."""
    if isinstance(out, torch.Tensor):
        is_plain = type(out) is torch.Tensor and out.is_meta and out.layout is torch.strided
        return _Like(out.shape, out.stride(), out.dtype) if is_plain else None
    if not isinstance(out, tuple):
        return None
    parts = [_like(part) for part in out]
    return tuple(part for part in parts if isinstance(part, _Like)) if all(map(_is_like, parts)) else None


def _is_like(part: Any) -> bool:
    return isinstance(part, _Like)
