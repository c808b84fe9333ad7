"""Rows of the cost tables: by operator type and by module, with time where it was measured."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gearshift.profiler.calls import (
    Call,
    Totals,
    enclosing,
    totals_by_module,
    totals_by_operator,
    totals_by_type,
)
from gearshift.profiler.macs import OperatorType


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of a cost table; times are None where not measured, `params` where they do not apply."""

    name: str
    calls: int
    macs: int
    macs_share: float
    elementwise_flops: int
    bytes_read: int
    bytes_written: int
    params: int | None = None
    time_ms: float | None = None
    time_share: float | None = None

    @property
    def flops(self) -> int:
        """Floating-point operations of multiply-adds, `2 * macs`."""
        return 2 * self.macs

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {
            "name": self.name,
            "calls": self.calls,
            "macs": self.macs,
            "flops": self.flops,
            "macs_share": self.macs_share,
            "elementwise_flops": self.elementwise_flops,
            "bytes_read": self.bytes_read,
            "bytes_written": self.bytes_written,
            "params": self.params,
            "time_ms": self.time_ms,
            "time_share": self.time_share,
        }


def type_rows(calls: Sequence[Call], times_ms: Sequence[float] | None = None) -> tuple[Row, ...]:
    """Return one row per operator type; by time if it was measured, else by MACs, dearest first."""
    pairs = [] if times_ms is None else _type_times(calls, times_ms)
    return _ranked(_rows(calls, totals_by_type(calls), times_ms, pairs))


def operator_rows(calls: Sequence[Call], times_ms: Sequence[float] | None = None) -> tuple[Row, ...]:
    """Return one row per operator; by time if it was measured, else by MACs, dearest first."""
    named = [] if times_ms is None else zip((call.operator for call in calls), times_ms, strict=True)
    return _ranked(_rows(calls, totals_by_operator(calls), times_ms, named))


def module_rows(
    calls: Sequence[Call],
    params: Mapping[str, int],
    depth: int,
    times_ms: Sequence[float] | None = None,
) -> tuple[Row, ...]:
    """Return one row per module that ran, down to `depth` names, in the order of the model's definition."""
    pairs = [] if times_ms is None else _module_times(calls, times_ms)
    rows = {row.name: row for row in _rows(calls, totals_by_module(calls), times_ms, pairs)}
    return tuple(replace(rows[name], params=params[name]) for name in params if name in rows and _depth(name) <= depth)


def _type_times(calls: Sequence[Call], times_ms: Sequence[float]) -> Iterator[tuple[str, float]]:
    for call, time_ms in zip(calls, times_ms, strict=True):
        for operator_type, share in call.shares():
            yield operator_type, share * time_ms


def _module_times(calls: Sequence[Call], times_ms: Sequence[float]) -> Iterator[tuple[str, float]]:
    for call, time_ms in zip(calls, times_ms, strict=True):
        for name in enclosing(call.module):
            yield name, time_ms


def _rows(
    calls: Sequence[Call],
    totals: Mapping[OperatorType, Totals] | Mapping[str, Totals],
    times_ms: Sequence[float] | None,
    named_times_ms: Iterable[tuple[str, float]],
) -> tuple[Row, ...]:
    """Join totals with times; shares are of the whole model."""
    all_macs, all_ms = sum(call.macs for call in calls), sum(times_ms or ())
    times: dict[str, float] = {}
    for name, time_ms in named_times_ms:
        times[name] = times.get(name, 0.0) + time_ms
    return tuple(
        Row(
            name=str(name),
            calls=total.calls,
            macs=total.macs,
            macs_share=_share(total.macs, all_macs),
            elementwise_flops=total.elementwise_flops,
            bytes_read=total.bytes_read,
            bytes_written=total.bytes_written,
            time_ms=None if times_ms is None else times.get(name, 0.0),
            time_share=None if times_ms is None else _share(times.get(name, 0.0), all_ms),
        )
        for name, total in totals.items()
    )


def _ranked(rows: tuple[Row, ...]) -> tuple[Row, ...]:
    return tuple(sorted(rows, key=lambda row: -(row.time_ms or 0.0)))  # stable: untimed rows keep their order


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _depth(name: str) -> int:
    return len(name.split(".")) if name else 0
