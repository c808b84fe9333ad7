"""Run a module for measuring and leave it, and the random state, exactly as found."""

import random
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch._subclasses import FakeTensor

Restore = Callable[[], None]


@contextmanager
def as_found(module: nn.Module) -> Iterator[None]:
    """Put every sub-module into evaluation mode without gradients, and undo every change on the way out.

    Restored, whether the block succeeds or raises: the training flag of every sub-module, its attributes and
    hooks, what is in its dictionaries, lists, sets and queues, the values of its tensors (registered or not,
    parameters too, since a forward may write into them), and the random state of Python, NumPy and PyTorch.
    Objects of other classes that a module holds are not looked into. The flags are set directly, since some
    modules do more than that in `train()`. Meanwhile there is a copy of every tensor, on its own device.
    """
    modules = list(module.modules())
    memory = _Memory()
    with torch.no_grad():
        for item in modules:
            memory.keep(vars(item))
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
        with torch.no_grad():
            memory.restore()


class _Memory:
    """What containers held and tensors were, however deep; put back is what differs, and only that.

    Other threads may be reading a model while it is restored.
    """

    def __init__(self) -> None:
        self._restores: list[Restore] = []
        self._kept: dict[int, Any] = {}  # by identity; the objects too, so that none is used again

    def keep(self, value: Any) -> None:
        """Remember a container or a tensor and all within it; of other objects, the reference alone."""
        if id(value) in self._kept:
            return
        if isinstance(value, torch.Tensor):
            self._kept[id(value)] = value
            if _has_values(value):
                self._restores.append(partial(_restore_tensor, value, value.detach().clone()))
            return
        restore = next((make for kind, make in _CONTAINERS.items() if isinstance(value, kind)), None)
        if restore is None and not isinstance(value, tuple):
            return
        self._kept[id(value)] = value
        if restore is not None:
            self._restores.append(partial(restore, value, value.copy()))
        for item in list(value.values() if isinstance(value, dict) else value):
            self.keep(item)

    def restore(self) -> None:
        """Put everything back."""
        for restore in self._restores:
            restore()


def _restore_dict(live: dict[Any, Any], found: dict[Any, Any]) -> None:
    for key in live.keys() - found.keys():
        del live[key]
    for key, value in found.items():
        if key not in live or live[key] is not value:
            live[key] = value


def _restore_list(live: list[Any], found: list[Any]) -> None:
    if len(live) != len(found) or any(one is not other for one, other in zip(live, found, strict=True)):
        live[:] = found


def _restore_set(live: set[Any], found: set[Any]) -> None:
    if live != found:
        live.intersection_update(found)
        live.update(found)


def _restore_queue(live: deque[Any], found: deque[Any]) -> None:
    if len(live) != len(found) or any(one is not other for one, other in zip(live, found, strict=True)):
        live.clear()
        live.extend(found)


_CONTAINERS: dict[type, Callable[[Any, Any], None]] = {
    dict: _restore_dict,
    list: _restore_list,
    set: _restore_set,
    deque: _restore_queue,
}


def _restore_tensor(live: torch.Tensor, found: torch.Tensor) -> None:
    if live.shape != found.shape or live.dtype != found.dtype or live.device != found.device:
        live.data = found
    elif not torch.equal(live, found):
        live.copy_(found)


def _has_values(tensor: torch.Tensor) -> bool:
    """Whether there is plain memory behind a tensor: not the meta device, nor a stand-in, nor a sparse layout."""
    return (
        not tensor.is_meta
        and not isinstance(tensor, FakeTensor)
        and tensor.layout is torch.strided
        and not tensor.is_nested
    )


def _tensors(module: nn.Module) -> Iterator[torch.Tensor]:
    yield from module.parameters()
    yield from module.buffers()
