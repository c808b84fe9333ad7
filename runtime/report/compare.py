"""The run beside the same stream on fixed paths."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gearshift.runtime.report.document import Run, RunDocument
from gearshift.runtime.report.words import NOT_MEASURED, number, scale

THIS_RUN = "this run"
REFERENCES = ("stock", "lossless")


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One of the compared runs; `path` is None for the run under budgets."""

    name: str
    path: str | None
    run: Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One line of the comparison."""

    name: str
    texts: tuple[str, ...]
    divides: bool = False


def columns(document: RunDocument) -> list[Column]:
    """This run first, then the fixed paths."""
    fixed = [Column(name=name, path=run.path, run=run) for name, run in document.baselines.items()]
    return [Column(name=THIS_RUN, path=None, run=document.run), *fixed]


def measures(document: RunDocument) -> list[Measure]:
    """All lines of the comparison, one text a column."""
    shown = columns(document)
    runs = [column.run for column in shown]
    rows = [
        Measure(name=f"Quality ({metric(document)})", texts=_plain(runs, lambda run: run.quality.value)),
        _energy_row("Energy per frame, gross", runs, gross_j, uncertain=True),
        _energy_row("Energy per frame, net", runs, net_j),
    ]
    for reference in REFERENCES:
        if reference in document.baselines:
            base = document.baselines[reference]
            rows.append(_saved(f"Gross energy against {reference}", shown, base, gross_j))
            rows.append(_saved(f"Net energy against {reference}", shown, base, net_j))
    return [
        *rows,
        _scaled("Mean power", "W", runs, lambda run: run.energy.power_w, divides=True),
        _scaled("Worst window of 1 s", "W", runs, lambda run: run.energy.worst_1s_window_w),
        _scaled("Latency p50", "ms", runs, lambda run: run.latency_ms.p50, divides=True),
        _scaled("Latency p95", "ms", runs, lambda run: run.latency_ms.p95),
        _scaled("Latency p99", "ms", runs, lambda run: run.latency_ms.p99),
        Measure(name="Frames per second", texts=_plain(runs, lambda run: run.fps), divides=True),
        Measure(name="Frames served", texts=tuple(str(run.frames) for run in runs)),
        Measure(name="Frames dropped", texts=tuple(str(run.dropped) for run in runs)),
    ]


def metric(document: RunDocument) -> str:
    """The quality's name; "agreement" says with what."""
    name = document.run.quality.metric
    return {"agreement": "agreement with stock", None: "not judged"}.get(name, name or "")


def gross_j(run: Run) -> float | None:
    """All energy of the run, per frame."""
    return run.energy.gross_j_per_frame


def net_j(run: Run) -> float | None:
    """Energy above idle, per frame."""
    return run.energy.net_j_per_frame


def saved(value: float | None, reference: float | None) -> float | None:
    """Share that is saved against a reference; negative where more is spent."""
    return None if value is None or reference is None or reference <= 0 else 1 - value / reference


def saved_text(share: float | None) -> str:
    """A saving as a signed change: −57.6 %."""
    if share is None:
        return NOT_MEASURED
    sign = "" if share == 0 else "−" if share > 0 else "+"
    return f"{sign}{number(abs(share) * 100)} %"


def missing(document: RunDocument) -> list[str]:
    """Why figures of the comparison were not measured, each reason once."""
    found: list[str] = []
    for column in columns(document):
        for part in (column.run.energy, column.run.quality, column.run.latency_ms):
            if part.reason and part.reason not in found:
                found.append(part.reason)
    return found


def _plain(runs: Sequence[Run], value: Callable[[Run], float | None]) -> tuple[str, ...]:
    return tuple(NOT_MEASURED if found is None else number(found) for found in map(value, runs))


def _scaled(
    name: str, unit: str, runs: Sequence[Run], value: Callable[[Run], float | None], *, divides: bool = False
) -> Measure:
    """A row in one unit, chosen by its largest entry."""
    values = [value(run) for run in runs]
    factor, unit = scale(unit, values)
    texts = tuple(NOT_MEASURED if found is None else number(found * factor) for found in values)
    return Measure(name=f"{name}, {unit}", texts=texts, divides=divides)


def _energy_row(
    name: str, runs: Sequence[Run], value: Callable[[Run], float | None], *, uncertain: bool = False
) -> Measure:
    row = _scaled(name, "J", runs, value, divides=uncertain)
    if not uncertain:
        return row
    factor, _ = scale("J", map(value, runs))
    texts = tuple(f"{text}{_plus_minus(run, factor)}" for text, run in zip(row.texts, runs, strict=True))
    return Measure(name=row.name, texts=texts, divides=True)


def _plus_minus(run: Run, factor: float) -> str:
    """The meter's uncertainty, per frame."""
    uncertainty = run.energy.uncertainty_j
    if uncertainty is None or gross_j(run) is None or not run.frames:
        return ""
    return f" ± {number(uncertainty / run.frames * factor, 2)}"


def _saved(name: str, shown: Sequence[Column], base: Run, value: Callable[[Run], float | None]) -> Measure:
    texts = tuple("–" if column.run is base else saved_text(saved(value(column.run), value(base))) for column in shown)
    return Measure(name=name, texts=texts)
