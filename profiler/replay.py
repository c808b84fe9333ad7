"""Run recorded operator calls again, one type of work at a time, without the model.

A replay makes the same calls with operands of the same shapes, strides and types: weights are the model's
own, small integer operands (indices, lengths) are kept as they were, and everything else is filled with
random numbers, since keeping all activations of a pass could need more memory than the pass itself.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map

from gearshift.errors import InputError
from gearshift.profiler.calls import Call
from gearshift.profiler.macs import OperatorType
from gearshift.profiler.preserve import as_found
from gearshift.profiler.recorder import CallRecorder
from gearshift.profiler.run import run_recorded


@dataclass(frozen=True, slots=True)
class _Like:
    """A tensor known by all but its values."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    @property
    def elements(self) -> int:
        """Elements of memory that its view spans."""
        if 0 in self.shape:
            return 0
        return 1 + sum((size - 1) * step for size, step in zip(self.shape, self.stride, strict=True))


@dataclass(frozen=True, slots=True)
class _KeptCall:
    """An operator with its arguments, where some tensors are only described."""

    operator: Any
    args: Any
    kwargs: Any


class Replay:
    """The calls of one type of work, ready to run any number of times."""

    def __init__(self, operator_type: OperatorType, kept: Sequence[_KeptCall]) -> None:
        self.operator_type = operator_type
        self.calls = len(kept)
        pool = _Pool()
        self._steps = [(call.operator, pool.filled(call.args), pool.filled(call.kwargs)) for call in kept]

    def __call__(self) -> None:
        """Make every call once, without gradients."""
        with torch.no_grad(), torch._C._AutoDispatchBelowAutograd():
            for operator, args, kwargs in self._steps:
                operator(*args, **kwargs)


class RecordedPass:
    """The operator calls of one forward pass of a module, with what is needed to make them again.

    Args:
        module: An eager module.
        args: Its positional inputs.
        kwargs: Its inputs by name.

    Raises:
        InputError: The module made no call.
    """

    def __init__(self, module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> None:
        self._weights = {
            tensor.untyped_storage()._cdata
            for tensor in (*module.parameters(), *module.buffers())
            if tensor.layout is torch.strided
        }
        self._kept: list[_KeptCall] = []
        recorder = CallRecorder(module, on_call=self._keep)
        with as_found(module):
            run_recorded(module, args, kwargs or {}, recorder)
        self.calls: tuple[Call, ...] = tuple(recorder.calls)
        if not self.calls:
            raise InputError(f"{type(module).__name__} made no operator call that could be replayed")

    @property
    def operator_types(self) -> tuple[OperatorType, ...]:
        """The types of work that there are, in order of first call."""
        return tuple(dict.fromkeys(call.operator_type for call in self.calls))

    def replay(self, operator_type: OperatorType) -> Replay:
        """Prepare the calls of one type; their operands live as long as the replay does."""
        pairs = zip(self.calls, self._kept, strict=True)
        return Replay(operator_type, [kept for call, kept in pairs if call.operator_type is operator_type])

    def _keep(self, operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self._kept.append(
            _KeptCall(operator, tree_map(self._described, tuple(args)), tree_map(self._described, kwargs))
        )

    def _described(self, leaf: Any) -> Any:
        """Keep weights and what is no plain activation; of the rest only the description."""
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if leaf.layout is not torch.strided or leaf.is_nested or leaf.is_quantized:
            return leaf
        if leaf.untyped_storage()._cdata in self._weights:
            return leaf
        if not (leaf.is_floating_point() or leaf.is_complex()):
            return leaf.detach().clone()
        return _Like(tuple(leaf.shape), leaf.stride(), leaf.dtype, leaf.device)


class _Pool:
    """Tensors made once for each description: operands of equal description share their memory."""

    def __init__(self) -> None:
        self._made: dict[tuple[_Like, int], torch.Tensor] = {}

    def filled(self, tree: Any) -> Any:
        """Put tensors in the place of descriptions; two of one call are never the same tensor."""
        used: dict[_Like, int] = {}

        def fill(leaf: Any) -> Any:
            if not isinstance(leaf, _Like):
                return leaf
            used[leaf] = used.get(leaf, 0) + 1
            return self._tensor(leaf, used[leaf])

        return tree_map(fill, tree, is_leaf=lambda leaf: isinstance(leaf, _Like))

    def _tensor(self, like: _Like, nth: int) -> torch.Tensor:
        if (like, nth) not in self._made:
            memory = torch.empty(like.elements, dtype=like.dtype, device=like.device).normal_()
            self._made[like, nth] = memory.as_strided(like.shape, like.stride)
        return self._made[like, nth]
