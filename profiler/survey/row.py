"""What a survey knows of one architecture."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from pydantic import TypeAdapter

from gearshift.profiler.survey.layers import Layer
from gearshift.profiler.survey.library import Facts

Status: TypeAlias = Literal["ok", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One architecture.

    Attributes:
        name: The library's name of it.
        status: `error` if it could not be built.
        reason: Why not, in one line.
        facts: What the library says of it; None where that failed.
        input_shape: Of the one input that it was run with.
        params: Parameters, shared ones once.
        layers: Its convolutions and `Linear` layers.
        macs: Multiply-accumulates of one pass at that input, by type of operator; None if it could not be run.
        macs_reason: Why not, in one line.
        uncounted: Operators that no formula knows, and how often each was called.
        assumed: How many questions about values, which there are none of, were answered with yes.
        cpu_s: CPU time that the row took.
    """

    name: str
    status: Status
    reason: str | None = None
    facts: Facts | None = None
    input_shape: tuple[int, ...] | None = None
    params: int | None = None
    layers: tuple[Layer, ...] = ()
    macs: Mapping[str, int] | None = None
    macs_reason: str | None = None
    uncounted: Mapping[str, int] = field(default_factory=dict)
    assumed: int = 0
    cpu_s: float = 0.0

    @property
    def is_ok(self) -> bool:
        """Whether the architecture could be built."""
        return self.status == "ok"

    @property
    def total_macs(self) -> int | None:
        """Multiply-accumulates of one pass, if they are known."""
        return None if self.macs is None else sum(self.macs.values())

    def count(self, kind: str) -> int:
        """How many layers of one kind there are."""
        return sum(layer.count for layer in self.layers if layer.kind == kind)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        plain: dict[str, Any] = _ROWS.dump_python(self, mode="json")
        return plain


def failed(name: str, reason: str, facts: Facts | None = None, cpu_s: float = 0.0) -> Row:
    """A row of an architecture that could not be built."""
    return Row(name=name, status="error", reason=one_line(reason), facts=facts, cpu_s=cpu_s)


def row_from(values: Any) -> Row:
    """Read a row from plain values.

    Raises:
        ValueError: They are no row of this form.
    """
    return _ROWS.validate_python(values)


def surveyed(rows: Iterable[Row]) -> list[Row]:
    """Rows of architectures that could be built."""
    return [row for row in rows if row.is_ok]


def one_line(text: str, longest: int = 300) -> str:
    """Text as one line of limited length."""
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


_ROWS = TypeAdapter(Row)
