"""Which forward call a backward call belongs to, without hooks on modules or tensors.

Autograd numbers its nodes as the forward pass makes them, one thread at a time, and makes a call's node before
it runs the call. So the newest number, read while a call runs, is that call's node, and the number of the node
that is running in a backward pass leads back to it. Of several calls that share a number the first made the
node; the others need no gradient. Functions with a backward of their own run their forward without gradients,
so whether gradients are on says nothing. What accumulates gradients has no number, and belongs to no module.
"""

from dataclasses import dataclass

import torch

from gearshift.profiler.macs import OperatorType


@dataclass(frozen=True, slots=True)
class Origin:
    """The module and the type of a forward call."""

    module: str
    operator_type: OperatorType


class Origins:
    """Forward calls by the number of their autograd node, as far as they were noted."""

    def __init__(self) -> None:
        self._first = 0
        self._by_number: dict[int, Origin] = {}

    def begin(self) -> None:
        """Take nodes that exist already to be nobody's."""
        self._first = _next_number()

    def note(self, module: str, operator_type: OperatorType) -> None:
        """Note the forward call that is running now, if it has a node of its own."""
        number = _next_number() - 1
        if number >= self._first and number not in self._by_number:
            self._by_number[number] = Origin(module, operator_type)

    def current(self) -> Origin | None:
        """Return where the autograd node that is running now comes from; None outside a backward pass."""
        node = torch._C._current_autograd_node()
        return None if node is None else self._by_number.get(node._sequence_nr())


def _next_number() -> int:
    number: int = torch.autograd._get_sequence_nr()  # type: ignore[attr-defined]  # not listed
    return number
