"""The least bytes that one operator call has to move between memory and processor.

Every input element is read once and every output element written once: caches are perfect and nothing is
fused with its neighbours. Real traffic is at least this. An expanded tensor (stride 0) counts what it holds
in memory, and one tensor passed twice is read once.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from math import prod
from typing import Any

import torch

from gearshift.profiler.operators import Traffic


def bytes_moved(
    operator: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    out: Any,
    traffic: Traffic,
) -> tuple[int, int]:
    """Return the bytes read and the bytes written by one call that has just run."""
    if traffic is Traffic.FREE:
        return 0, 0
    read, overwritten, updated = _split(operator, args, kwargs)
    written = _total([*tensors_in(out), *overwritten, *updated])
    match traffic:
        case Traffic.WRITTEN:
            return 0, written
        case Traffic.GATHERED:
            return _total(read[1:]) + written, written
        case Traffic.COPIED:
            return _total(read), written
        case _:
            return _total([*read, *updated]), written


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors of an argument or an output, lists and tuples included."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item)


def tensor_bytes(tensor: torch.Tensor) -> int:
    """Return the bytes that a tensor's distinct elements occupy."""
    if tensor.layout is not torch.strided or tensor.is_nested:
        return tensor.numel() * tensor.element_size()
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    elements = 0 if tensor.numel() == 0 else prod(size for size, stride in sizes if stride != 0)
    return elements * tensor.element_size()


def _split(
    operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[list[torch.Tensor], list[torch.Tensor], list[torch.Tensor]]:
    """Sort the tensors of a call into read, overwritten (`out=`) and updated in place."""
    if not _writes(operator):
        return [*tensors_in(args), *tensors_in(list(kwargs.values()))], [], []
    read: list[torch.Tensor] = []
    overwritten: list[torch.Tensor] = []
    updated: list[torch.Tensor] = []
    for position, argument in enumerate(operator._schema.arguments):
        value = args[position] if position < len(args) else kwargs.get(argument.name)
        if argument.alias_info is None or not argument.alias_info.is_write:
            read.extend(tensors_in(value))
        elif argument.is_out:
            overwritten.extend(tensors_in(value))
        else:
            updated.extend(tensors_in(value))
    return read, overwritten, updated


@cache
def _writes(operator: Any) -> bool:
    """Whether an operator writes into an argument; one that takes functions has no schema, and does not."""
    arguments = operator._schema.arguments if isinstance(operator, torch._ops.OpOverload) else ()
    return any(argument.alias_info is not None and argument.alias_info.is_write for argument in arguments)


def _total(tensors: Sequence[torch.Tensor]) -> int:
    return sum(map(tensor_bytes, {id(tensor): tensor for tensor in tensors}.values()))
