"""Truth values on the meta device, where tensors hold none.

Some models ask whether a mask is full, or check their inputs, before they go on. A mask that nobody gave is full,
and checks of inputs of the right size hold, so the answer is yes; every such answer is counted, and a row says how
many it rests on.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_ASKS = frozenset({torch.Tensor.__bool__, torch.Tensor.item})


class TruthAssumed(TorchFunctionMode):
    """Within its `with` block, a tensor of truth on the meta device is true."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = 0

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Answer, or call on."""
        if func in _ASKS and _is_unknown_truth(args[0]):
            self.answers += 1
            return True
        return func(*args, **(kwargs or {}))


def _is_unknown_truth(tensor: torch.Tensor) -> bool:
    return tensor.is_meta and tensor.dtype is torch.bool
