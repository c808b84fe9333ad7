"""One run of a module under a recorder: inputs copied, composite operators seen whole, all left as found."""

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from gearshift.profiler.inputs import copied
from gearshift.profiler.preserve import as_found
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
    """Run an eager module once, in evaluation mode and without gradients, and return how long it took in ms.

    Autograd's own dispatch is left out, as in inference mode, so that composite operators are seen whole; but
    no inference tensor is made, which a model might cache and later fail to train with.
    """
    args, kwargs = copied((tuple(args), dict(kwargs)))
    with as_found(module), _flex_attention_eager(), torch._C._AutoDispatchBelowAutograd(), recorder:
        _uncompile(module)
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


def _uncompile(module: nn.Module) -> None:
    """Put the eager modules in the place of compiled ones; `as_found` puts them back.

    So operators stay visible, and nothing is traced inside the recorder.
    """
    for item in list(module.modules()):
        if item._compiled_call_impl is not None:
            item._compiled_call_impl = None
        for name, child in item._modules.items():
            if isinstance(inner := getattr(child, "_orig_mod", None), nn.Module):
                item._modules[name] = inner
