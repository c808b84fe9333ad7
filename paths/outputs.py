"""What models return, whether it is an output of transformers or a tensor."""

from typing import Any

from torch import Tensor


def logits_of(output: Any) -> Tensor:
    """The logits of whatever a model returns."""
    logits: Tensor = output if isinstance(output, Tensor) else output.logits
    return logits
