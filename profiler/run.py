"""One run of a module under a recorder: inputs copied, compiled parts run eagerly, composite operators seen whole."""

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from gearshift.profiler.inputs import copied
from gearshift.profiler.recorder import CallRecorder
from gearshift.profiler.timing import Clock, Synchronise, timed_ms


def run_recorded(
    module: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    recorder: CallRecorder,
    *,
    synchronise: Synchronise | None = None,
    clock: Clock = time.perf_counter,
) -> float:
    """Run an eager module once, within `as_found`, and return how long it took in ms.

    Autograd's own dispatch is left out, as in inference mode, so that composite operators are seen whole; but
    no inference tensor is made, which a model might cache and later fail to train with.
    """
    args, kwargs = copied((tuple(args), dict(kwargs)))
    with _uncompiled(module), _flex_attention_eager(), torch._C._AutoDispatchBelowAutograd(), recorder:
        return timed_ms(lambda: module(*args, **kwargs), synchronise, clock)


@contextmanager
def _flex_attention_eager() -> Iterator[None]:
    """Let flex attention reach the recorder as one operator.

    It compiles itself when called, which PyTorch refuses while operators are recorded; this is its own switch
    for debugging, read at every call. A model that uses it has imported it, and the import is slow.
    """
    flex_attention: Any = sys.modules.get("torch.nn.attention.flex_attention")
    found = getattr(flex_attention, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", None)
    if found is None:
        yield
        return
    flex_attention._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = True
    try:
        yield
    finally:
        flex_attention._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = found


def is_compiled(module: nn.Module) -> bool:
    """Whether the module or a part of it is compiled."""
    return any(hasattr(item, "_orig_mod") or item._compiled_call_impl is not None for item in module.modules())


@contextmanager
def _uncompiled(module: nn.Module) -> Iterator[None]:
    """Put the eager modules in the place of compiled ones meanwhile.

    So operators stay visible, and nothing is traced inside the recorder.
    """
    calls = [(item, item._compiled_call_impl) for item in module.modules() if item._compiled_call_impl is not None]
    parts = [
        (item, name, child, inner)
        for item in module.modules()
        for name, child in item._modules.items()
        if isinstance(inner := getattr(child, "_orig_mod", None), nn.Module)
    ]
    try:
        for item, _ in calls:
            item._compiled_call_impl = None
        for item, name, _, inner in parts:
            item._modules[name] = inner
        yield
    finally:
        for item, call in calls:
            item._compiled_call_impl = call
        for item, name, child, _ in parts:
            item._modules[name] = child
