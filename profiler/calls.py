"""What one operator call cost, and sums of many.

`Call` is one row as recorded; `Totals` is a sum; the functions group calls by operator, by operator type and
by module. A module's total includes its children's.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from gearshift.profiler.macs import OperatorType

Key = TypeVar("Key")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One operator call.

    Attributes:
        operator: Qualified name, such as `aten::addmm`.
        operator_type: The type of work; of a fused kernel, the type it is named after.
        module: Dotted name of the innermost module that was running; "" is the root.
        macs: Multiply-accumulates.
        macs_by_type: The same, split, for fused kernels that do work of several types; otherwise empty.
        elementwise_flops: Floating-point operations beside the multiply-accumulates, none of which `macs` holds.
        bytes_read: Least bytes read.
        bytes_written: Least bytes written.
        input_shapes: Shapes of the tensor arguments, in order.
        is_counted: False when no rule knows the operator's work; then `macs` and `elementwise_flops` are 0 and
            mean nothing.
    """

    operator: str
    operator_type: OperatorType
    module: str
    macs: int
    macs_by_type: Mapping[OperatorType, int] = field(default_factory=dict)
    elementwise_flops: int = 0
    bytes_read: int
    bytes_written: int
    input_shapes: tuple[tuple[int, ...], ...]
    is_counted: bool = True

    def shares(self) -> Iterator[tuple[OperatorType, float]]:
        """Yield the types of work in this call and each one's share of it (by MACs where it is a mixture)."""
        if not self.macs:
            yield self.operator_type, 1.0
            return
        for operator_type, macs in (self.macs_by_type or {self.operator_type: self.macs}).items():
            yield operator_type, macs / self.macs


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Sums over calls; `elementwise_flops` is apart from `macs` and from `flops`."""

    calls: int = 0
    macs: int = 0
    elementwise_flops: int = 0
    bytes_read: int = 0
    bytes_written: int = 0

    @property
    def flops(self) -> int:
        """Floating-point operations of multiply-adds, `2 * macs`."""
        return 2 * self.macs

    @property
    def bytes_moved(self) -> int:
        """Bytes read and written."""
        return self.bytes_read + self.bytes_written

    def __add__(self, other: "Totals") -> "Totals":
        return Totals(
            calls=self.calls + other.calls,
            macs=self.macs + other.macs,
            elementwise_flops=self.elementwise_flops + other.elementwise_flops,
            bytes_read=self.bytes_read + other.bytes_read,
            bytes_written=self.bytes_written + other.bytes_written,
        )


def totals_by_operator(calls: Iterable[Call]) -> dict[str, Totals]:
    """Sum calls under their operator's name, dearest first."""
    return _ranked(_grouped((call.operator, _totals(call)) for call in calls))


def totals_by_type(calls: Iterable[Call]) -> dict[OperatorType, Totals]:
    """Sum calls under their operator type, dearest first; fused kernels split their MACs."""
    return _ranked(_grouped(part for call in calls for part in _parts(call)))


def totals_by_module(calls: Sequence[Call]) -> dict[str, Totals]:
    """Sum calls under every module that they belong to, "" being the root, in order of first call."""
    return _grouped((name, _totals(call)) for call in calls for name in enclosing(call.module))


def enclosing(module: str) -> Iterator[str]:
    """Yield "" and every prefix of a dotted module name, itself last."""
    yield ""
    if not module:
        return
    start = 0
    while (dot := module.find(".", start)) >= 0:
        yield module[:dot]
        start = dot + 1
    yield module


def _parts(call: Call) -> Iterator[tuple[OperatorType, Totals]]:
    own = call.macs_by_type.get(call.operator_type, 0) if call.macs_by_type else call.macs
    yield call.operator_type, replace(_totals(call), macs=own)
    for operator_type, macs in call.macs_by_type.items():
        if operator_type is not call.operator_type:
            yield operator_type, Totals(macs=macs)


def _totals(call: Call) -> Totals:
    return Totals(
        calls=1,
        macs=call.macs,
        elementwise_flops=call.elementwise_flops,
        bytes_read=call.bytes_read,
        bytes_written=call.bytes_written,
    )


def _grouped(pairs: Iterable[tuple[Key, Totals]]) -> dict[Key, Totals]:
    sums: dict[Key, Totals] = {}
    for key, totals in pairs:
        sums[key] = sums.get(key, Totals()) + totals
    return sums


def _ranked(sums: dict[Key, Totals]) -> dict[Key, Totals]:
    return dict(sorted(sums.items(), key=lambda item: (-item[1].macs, -item[1].bytes_moved)))
