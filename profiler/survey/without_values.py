"""Building modules on the meta device without initialising weights that hold no values.

Filling in place changes neither shape nor type, and on the meta device there is nothing else; but PyTorch works
out every such call in Python, which takes most of the time of building a model there.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

_FILLS = (
    "uniform_ normal_ zero_ fill_ copy_ mul_ add_ sub_ div_ clamp_ clamp_min_ clamp_max_ erfinv_ random_ exponential_"
)
_SKIPPED: frozenset[Callable[..., Any]] = frozenset(
    {getattr(torch.Tensor, name) for name in _FILLS.split()}
    | {getattr(nn.init, name) for name in dir(nn.init) if name.endswith("_") and not name.startswith("_")}
)


class WithoutValues(TorchFunctionMode):
    """Within its `with` block, filling a tensor on the meta device in place does nothing."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Hand the tensor back, or call on."""
        if func in _SKIPPED:
            tensor = args[0] if args else (kwargs or {}).get("tensor")
            if isinstance(tensor, torch.Tensor) and tensor.is_meta:
                return tensor
        return func(*args, **(kwargs or {}))
