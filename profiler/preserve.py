"""Run a module for measuring and leave it, and the random state, exactly as found."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn
from torch._subclasses import FakeTensor


@contextmanager
def as_found(module: nn.Module) -> Iterator[None]:
    """Put every sub-module into evaluation mode without gradients, and undo every change on the way out.

    Restored, whether the block succeeds or raises: the training flag of every sub-module, attributes, hooks
    and registered tensors, the values of buffers, and the random state of Python, NumPy and PyTorch. The
    flags are set directly, since some modules do more than that in `train()`. Values are cloned for buffers
    only: parameters are safe without gradients.
    """
    modules = list(module.modules())
    attributes = [_Attributes(item) for item in modules]
    buffers = [(buffer, buffer.detach().clone()) for buffer in module.buffers() if _holds_values(buffer)]
    devices = sorted({t.device.index or 0 for t in _tensors(module) if t.device.type == "cuda"})
    python_state, numpy_state = random.getstate(), np.random.get_state()  # noqa: NPY002 - the state models draw from
    try:
        with torch.random.fork_rng(devices=devices), torch.no_grad():
            for item in modules:
                if item.training:
                    item.training = False
            yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)  # noqa: NPY002
        for attribute in attributes:
            attribute.restore()
        with torch.no_grad():
            for buffer, value in buffers:
                if not torch.equal(buffer, value):
                    buffer.copy_(value)


class _Attributes:
    """The attributes of one module, and the items of those that are dictionaries, such as its hooks."""

    def __init__(self, module: nn.Module) -> None:
        self._live = vars(module)
        self._found = dict(self._live)
        self._items = [(value, dict(value)) for value in self._found.values() if isinstance(value, dict)]

    def restore(self) -> None:
        """Put back what differs, and only that: other threads may be reading."""
        _restore(self._live, self._found)
        for live, found in self._items:
            _restore(live, found)


def _restore(live: dict[Any, Any], found: dict[Any, Any]) -> None:
    for key in live.keys() - found.keys():
        del live[key]
    for key, value in found.items():
        if key not in live or live[key] is not value:
            live[key] = value


def _holds_values(tensor: torch.Tensor) -> bool:
    """Whether there is memory behind a tensor: neither on the meta device nor PyTorch's stand-in for another."""
    return not tensor.is_meta and not isinstance(tensor, FakeTensor)


def _tensors(module: nn.Module) -> Iterator[torch.Tensor]:
    yield from module.parameters()
    yield from module.buffers()
