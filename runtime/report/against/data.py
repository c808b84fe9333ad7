"""Two reports as one value: every headline figure with both values and their ratio, and what forbids comparing."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from gearshift.runtime.report.against.comparable import Trait, notes, traits, warnings
from gearshift.runtime.report.against.ratios import Ratio, energy_ratio, percentile_ratio, plain_ratio
from gearshift.runtime.report.against.together import Together, together
from gearshift.runtime.report.document import RunDocument, checked
from gearshift.runtime.report.energy.footprint import NO_GRID
from gearshift.runtime.report.energy.model import EnergyFigure, EnergyReport, RunEnergy
from gearshift.runtime.report.energy.older import energy_report_of
from gearshift.runtime.report.words import NOT_MEASURED

Interval = tuple[float, float]
SCHEMA = 1
RUN = "this run"
CO2E = "CO2e per 1000 frames"
NO_SPREAD = "no spread is known of it"
PERCENTILES = (("Latency p50", 50.0, "p50_ms"), ("Latency p95", 95.0, "p95_ms"), ("Latency p99", 99.0, "p99_ms"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One figure of both reports.

    Attributes:
        run: Of which run: this run, or a fixed path.
        name: Of the figure.
        unit: Of both values; an empty text for a plain number.
        a, b: The values; None where not measured, or not worked out.
        ratio: b / a.
        a_interval, b_interval: 95 % interval of each, where it has one.
        a_missing, b_missing: What stands in place of a value that is None.
    """

    run: str
    name: str
    unit: str
    a: float | None
    b: float | None
    ratio: Ratio
    a_interval: Interval | None = None
    b_interval: Interval | None = None
    a_missing: str = NOT_MEASURED
    b_missing: str = NOT_MEASURED


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two reports side by side.

    Attributes:
        names: Of the files.
        reports: A and B.
        figures: All of both.
        traits: What both are, side by side.
        warnings: Why they may not be compared; empty where they may.
        notes: What else differs.
        together: The energy of both runs.
    """

    names: tuple[str, str]
    reports: tuple[EnergyReport, EnergyReport]
    figures: tuple[Compared, ...]
    traits: tuple[Trait, ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    together: Together

    def to_dict(self) -> dict[str, Any]:
        """Give it as plain values, ready for JSON."""
        return {
            "report": "runtime report --against",
            "schema_version": SCHEMA,
            "a": {"file": self.names[0], "created": self.reports[0].created},
            "b": {"file": self.names[1], "created": self.reports[1].created},
            "comparable": not self.warnings,
            "warnings": list(self.warnings),
            "notes": list(self.notes),
            "figures": [_flat(figure) for figure in self.figures],
            "traits": [asdict(trait) for trait in self.traits],
            "together": asdict(self.together),
        }


def comparison(a: Mapping[str, Any], b: Mapping[str, Any], *, names: tuple[str, str] = ("A", "B")) -> Comparison:
    """Compare two documents of a bench.

    Raises:
        InputError: One is not what a bench returns.
    """
    documents = tuple(checked(document, name) for document, name in zip((a, b), names, strict=True))
    reports = tuple(map(energy_report_of, documents))
    first, second = reports
    figures = _figures(RUN, first.run, second.run, (documents[0], documents[1]))
    for name, run in first.baselines.items():
        if name in second.baselines:
            figures += _figures(name, run, second.baselines[name], None)
    return Comparison(
        names=names,
        reports=(first, second),
        figures=tuple(figures),
        traits=tuple(traits(first, second)),
        warnings=tuple(warnings(first, second)),
        notes=tuple(notes(first, second)),
        together=together(reports),
    )


def _flat(figure: Compared) -> dict[str, Any]:
    ratio = figure.ratio
    return {
        "run": figure.run,
        "name": figure.name,
        "unit": figure.unit,
        "a": figure.a,
        "b": figure.b,
        "a_missing": figure.a_missing if figure.a is None else None,
        "b_missing": figure.b_missing if figure.b is None else None,
        "a_ci95": figure.a_interval,
        "b_ci95": figure.b_interval,
        "ratio": ratio.value,
        "ratio_ci95": None if ratio.low is None else (ratio.low, ratio.high),
        "interval": ratio.how,
        "reason": ratio.reason,
    }


def _figures(run: str, a: RunEnergy, b: RunEnergy, traced: tuple[RunDocument, RunDocument] | None) -> list[Compared]:
    """All figures of one run; `traced` where the frames of both are known one by one."""
    return [
        _per_frame(run, "Gross energy per frame", a.gross_j_per_frame, b.gross_j_per_frame),
        _per_frame(run, "Net energy per frame", a.net_j_per_frame, b.net_j_per_frame),
        Compared(
            run=run,
            name="Quality",
            unit="",
            a=a.quality.value,
            b=b.quality.value,
            ratio=plain_ratio(a.quality.value, b.quality.value, "both are of the same pictures, hence not independent"),
            a_interval=_pair(a.quality.ci95_low, a.quality.ci95_high),
            b_interval=_pair(b.quality.ci95_low, b.quality.ci95_high),
        ),
        *(_latency(run, a, b, traced, *which) for which in PERCENTILES),
        *(_plain(run, name, unit, of(a), of(b)) for name, unit, of in _PLAIN),
        *(_plain(run, name, unit, of(a), of(b)) for name, unit, of in (_OF_CHANGES if run == RUN else ())),
        *([] if a.co2e is None and b.co2e is None else [_emissions(run, a, b)]),
    ]


def _per_frame(run: str, name: str, a: EnergyFigure, b: EnergyFigure) -> Compared:
    return Compared(
        run=run,
        name=name,
        unit="J",
        a=a.value_j,
        b=b.value_j,
        ratio=energy_ratio(a, b),
        a_interval=_interval(a),
        b_interval=_interval(b),
    )


def _latency(
    run: str,
    a: RunEnergy,
    b: RunEnergy,
    traced: tuple[RunDocument, RunDocument] | None,
    name: str,
    percentile: float,
    field: str,
) -> Compared:
    first, second = getattr(a.latency, field), getattr(b.latency, field)
    if traced is not None and first is not None and second is not None:
        ratio = percentile_ratio(traced[0].trace.latency_ms, traced[1].trace.latency_ms, percentile)
    else:
        ratio = plain_ratio(first, second, "frames of fixed paths are not recorded one by one")
    return Compared(run=run, name=name, unit="ms", a=first, b=second, ratio=ratio)


def _plain(run: str, name: str, unit: str, a: float | None, b: float | None) -> Compared:
    return Compared(run=run, name=name, unit=unit, a=a, b=b, ratio=plain_ratio(a, b, NO_SPREAD))


def _emissions(run: str, a: RunEnergy, b: RunEnergy) -> Compared:
    """Where no grid was named there are none, whether or not energy was measured."""
    found = _plain(run, CO2E, "g", _grams(a), _grams(b))
    unnamed = [name for name, one in (("A", a), ("B", b)) if one.co2e is None]
    if not unnamed:
        return found
    return replace(
        found,
        ratio=Ratio(value=None, reason=f"no grid was named for {' and '.join(unnamed)}"),
        a_missing=NO_GRID if a.co2e is None else NOT_MEASURED,
        b_missing=NO_GRID if b.co2e is None else NOT_MEASURED,
    )


def _interval(figure: EnergyFigure) -> Interval | None:
    return _pair(figure.ci95_low_j, figure.ci95_high_j)


def _pair(low: float | None, high: float | None) -> Interval | None:
    return None if low is None or high is None else (low, high)


def _grams(run: RunEnergy) -> float | None:
    return None if run.co2e is None else run.co2e.g_per_1000_frames


def _share_late(run: RunEnergy) -> float | None:
    found = run.deadlines
    return None if found.misses is None or not found.n_frames else 100 * found.misses / found.n_frames


def _share_dropped(run: RunEnergy) -> float | None:
    due = run.frames + run.deadlines.dropped
    return 100 * run.deadlines.dropped / due if due else None


_PLAIN: tuple[tuple[str, str, Callable[[RunEnergy], float | None]], ...] = (
    ("Mean power", "W", lambda run: run.power_w),
    ("Frames per Wh", "", lambda run: run.frames_per_wh),
    ("Frames per second", "", lambda run: run.fps),
    ("Deadline misses", "%", _share_late),
    ("Frames dropped", "%", _share_dropped),
)
_OF_CHANGES: tuple[tuple[str, str, Callable[[RunEnergy], float | None]], ...] = (
    ("Changes of path", "", lambda run: run.switches.count),
    ("Energy of a change", "J", lambda run: run.switches.energy.value_j),
)
