"""Energy reports in words, a text for each run: shared by the page and the comparison of two reports."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from gearshift.runtime.report.energy.footprint import NO_GRID, WHY_NO_GRID
from gearshift.runtime.report.energy.model import (
    ConditionsRecord,
    EnergyFigure,
    EnergyReport,
    Footprint,
    GridRecord,
    RunEnergy,
)
from gearshift.runtime.report.words import NOT_MEASURED, count, number, percent, quantity, scale, trimmed

OLDER = "of the mean over windows, each counting alike, by Student's t: as recorded, it may leave out the figure"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A figure, what is said in small below it (a part a line), and why it is missing if it is."""

    text: str
    below: str = ""
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One figure of all runs; `divides` begins a new group."""

    name: str
    cells: tuple[Cell, ...]
    divides: bool = False


def lines_of(report: EnergyReport) -> list[Line]:
    """Every figure of the report, this run first, then the fixed paths."""
    runs = [report.run, *report.baselines.values()]
    return [
        _per_frame("Gross energy per frame", runs, lambda run: run.gross_j_per_frame),
        _per_frame("Net energy per frame", runs, lambda run: run.net_j_per_frame),
        _line("Frames per Wh", runs, _frames_per_wh),
        _line("Gross energy of the run", runs, lambda run: _quantity(run.gross_j, "J", run.reason, _over(run))),
        *(_domain_lines(runs)),
        *(_footprint_lines(runs) if report.grid is not None else []),
        _line("Windows for the intervals", runs, _windows, divides=True),
        _line("Quality", runs, _quality, divides=True),
        _line("Latency p50 / p95 / p99", runs, _latency),
        _line("Deadline misses", runs, _deadlines),
        _line("Changes of path", runs, lambda run: Cell(text=str(run.switches.count)), divides=True),
        _line("Energy of a change", runs, _switch_energy),
        _line("Time of a change", runs, _switch_time),
        _condition("Temperature before → after", "°C", runs, "temperature_c", divides=True),
        _condition("Clock", "MHz", runs, "clock_mhz"),
        _condition("Memory clock", "MHz", runs, "memory_clock_mhz"),
        _condition("Power limit", "W", runs, "power_limit_w"),
        _line("Held down by", runs, _throttling),
    ]


def meter_rows(report: EnergyReport) -> list[tuple[str, str]]:
    """How energy was obtained, as terms with their texts."""
    meter, idle = report.meter, report.idle
    kind = {None: "", "none": "", "estimate": "an estimate"}.get(meter.method, f"{meter.method}")
    rows = [
        ("Meter", ", ".join(part for part in (meter.name, meter.source, kind) if part)),
        ("Boundary", meter.boundary),
        ("Resolution", _resolution(report)),
        ("Sensor", _sensor(report)),
        ("Idle power", _idle(report)),
        ("Window", f"{report.run.windows.how}; at least {trimmed(report.run.windows.least_s)} s"),
        *interval_rows(report.run),
        ("Independence", report.run.windows.note),
        ("Deadline", report.run.deadlines.what),
        ("Weights", ", ".join(part for part in (report.setting.dtype or "", report.setting.model) if part)),
    ]
    rows += [("Idle, warning", warning) for warning in idle.warnings]
    if report.run.switches.energy.n or report.run.switches.time.n:
        rows.append(("A change of path", report.run.switches.energy.method))
    if report.grid is not None:
        rows.append(("CO2e", grid_text(report.grid)))
    return rows


def grid_text(grid: GridRecord) -> str:
    """Where emissions come from, in one line."""
    place = "" if grid.country is None else f"{grid.country_name} ({grid.country})"
    year = "" if grid.year is None else f"{grid.year}"
    parts = [f"{number(grid.g_per_kwh)} g/kWh", grid.source, place, grid.basis, year, grid.dataset or "", grid.covers]
    return ", ".join(part for part in parts if part)


def interval_text(figure: EnergyFigure, factor: float) -> str:
    """The interval of energy per frame, from n windows: 95 %: 400 to 442, n = 20."""
    if figure.ci95_low_j is None or figure.ci95_high_j is None:
        return ""
    low, high = (number(bound * factor) for bound in (figure.ci95_low_j, figure.ci95_high_j))
    return f"95 %: {low} to {high}, n = {figure.n_windows}"


def interval_rows(run: RunEnergy) -> list[tuple[str, str]]:
    """How intervals of energy per frame were obtained; of an older document that they may leave out the figure."""
    figures = (("Interval, gross", run.gross_j_per_frame), ("Interval, net", run.net_j_per_frame))
    return [(name, figure.interval_method or OLDER) for name, figure in figures if figure.ci95_low_j is not None]


def missing_reasons(report: EnergyReport) -> list[str]:
    """Why figures are missing, each reason once, with the figures that lack it."""
    found: dict[str, list[str]] = {}
    for line in lines_of(report):
        for cell in line.cells:
            if cell.reason and line.name not in found.setdefault(cell.reason, []):
                found[cell.reason].append(line.name)
    return [f"{', '.join(names)}: {reason}" for reason, names in found.items()]


def _line(name: str, runs: Sequence[RunEnergy], cell: Callable[[RunEnergy], Cell], *, divides: bool = False) -> Line:
    return Line(name=name, cells=tuple(map(cell, runs)), divides=divides)


def _per_frame(name: str, runs: Sequence[RunEnergy], of: Callable[[RunEnergy], EnergyFigure]) -> Line:
    factor, unit = scale("J", [of(run).value_j for run in runs])
    return _line(f"{name}, {unit}", runs, lambda run: _figure(of(run), factor))


def _figure(figure: EnergyFigure, factor: float) -> Cell:
    if figure.value_j is None:
        return Cell(text=NOT_MEASURED, reason=figure.reason)
    interval = interval_text(figure, factor) or f"no interval: {figure.spread_reason}"
    sensor = figure.sensor_uncertainty_j
    meter = "" if sensor is None else f"sensor ± {number(sensor * factor, 2)}"
    return Cell(text=number(figure.value_j * factor), below=_small(interval, meter))


def _small(*parts: str) -> str:
    """Small print, a part a line."""
    return "\n".join(part for part in parts if part)


def _quantity(found: float | None, unit: str, reason: str | None, below: str = "") -> Cell:
    return Cell(text=quantity(found, unit), below="" if found is None else below, reason=reason)


def _frames_per_wh(run: RunEnergy) -> Cell:
    frames = run.frames_per_wh
    return Cell(text=NOT_MEASURED if frames is None else number(frames), reason=run.gross_j_per_frame.reason)


def _over(run: RunEnergy) -> str:
    return f"{count(run.frames, 'frame')} in {number(run.seconds)} s"


def _domain_lines(runs: Sequence[RunEnergy]) -> list[Line]:
    """A line for every rail or domain that the meter tells apart."""
    names = dict.fromkeys(domain.name for run in runs for domain in run.domains)
    return [_line(f"Domain {name}", runs, partial(_domain, name)) for name in names]


def _domain(name: str, run: RunEnergy) -> Cell:
    for domain in run.domains:
        if domain.name == name:
            return _quantity(domain.energy_j, "J", domain.reason)
    return Cell(text=NOT_MEASURED, reason="not among the meter's domains in this run")


def _footprint_lines(runs: Sequence[RunEnergy]) -> list[Line]:
    return [
        _line("CO2e per 1000 frames", runs, partial(_footprint, lambda found: found.g_per_1000_frames)),
        _line("CO2e of the run", runs, partial(_footprint, lambda found: found.g_total)),
    ]


def _footprint(grams: Callable[[Footprint], float | None], run: RunEnergy) -> Cell:
    if run.co2e is None:
        return Cell(text=NO_GRID, reason=WHY_NO_GRID)
    found = grams(run.co2e)
    below = "estimated" if run.co2e.estimated else ""
    return _quantity(found, "g", run.co2e.reason if found is None else None, below)


def _windows(run: RunEnergy) -> Cell:
    found = run.windows
    if not found.n:
        return Cell(text="none", below=run.gross_j_per_frame.spread_reason or "")
    lengths = dict.fromkeys(number(length) for length in (found.shortest_s, found.longest_s) if length is not None)
    periods = "" if found.meter_periods is None else f"{number(found.meter_periods)} meter periods or more"
    short = "; fewer than 10" if found.too_short else ""
    return Cell(text=f"{found.n} of {' to '.join(lengths)} s", below=_small(periods + short))


def _quality(run: RunEnergy) -> Cell:
    found = run.quality
    if found.value is None:
        return Cell(text=NOT_MEASURED, reason=found.reason)
    of = f"{found.metric}, {count(found.n_frames, 'frame')}"
    if found.ci95_low is None or found.ci95_high is None:
        return Cell(text=number(found.value), below=of)
    interval = f"95 %: {number(found.ci95_low)} to {number(found.ci95_high)}"
    return Cell(text=number(found.value), below=_small(interval, f"{of} of {count(found.n_pictures or 0, 'picture')}"))


def _latency(run: RunEnergy) -> Cell:
    found = run.latency
    values = [found.p50_ms, found.p95_ms, found.p99_ms]
    known = [number(ms) if ms is not None else NOT_MEASURED for ms in values]
    if all(ms is None for ms in values):
        return Cell(text=NOT_MEASURED, reason=found.reason)
    return Cell(text=f"{' / '.join(known)} ms", below=f"n = {found.n}")


def _deadlines(run: RunEnergy) -> Cell:
    found = run.deadlines
    if found.misses is None:
        return Cell(text=NOT_MEASURED, reason=found.reason)
    share = found.misses / found.n_frames if found.n_frames else None
    bound = "" if found.deadline_ms is None else f"{quantity(found.deadline_ms, 'ms', exact=True)}; "
    text = f"{found.misses} of {found.n_frames}{'' if share is None else f' ({percent(share)})'}"
    return Cell(text=text, below=f"{bound}{found.dropped} dropped besides")


def _switch_energy(run: RunEnergy) -> Cell:
    found = run.switches.energy
    return (
        Cell(text="–")
        if not run.switches.count
        else _resolved(found.value_j, "J", found.reason, (found.ci95_low_j, found.ci95_high_j), found.n)
    )


def _switch_time(run: RunEnergy) -> Cell:
    found = run.switches.time
    return (
        Cell(text="–")
        if not run.switches.count
        else _resolved(found.value_ms, "ms", found.reason, (found.ci95_low_ms, found.ci95_high_ms), found.n)
    )


def _resolved(
    found: float | None, unit: str, reason: str | None, bounds: tuple[float | None, float | None], n: int
) -> Cell:
    """What a change costs; where the interval holds 0, the interval alone."""
    below = ""
    if bounds[0] is not None and bounds[1] is not None:
        factor, scaled = scale(unit, bounds)
        low, high = (number(bound * factor, 2) for bound in bounds if bound is not None)
        below = f"95 %: {low} to {high} {scaled}, n = {n}"
    text = "not resolved" if found is None and below else quantity(found, unit)
    return Cell(text=text, below=below, reason=reason)


def _condition(name: str, unit: str, runs: Sequence[RunEnergy], field: str, *, divides: bool = False) -> Line:
    return _line(f"{name}, {unit}", runs, lambda run: _before_after(run, field), divides=divides)


def _before_after(run: RunEnergy, field: str) -> Cell:
    pair = (run.conditions_before, run.conditions_after)
    values = [getattr(one, field) for one in pair]
    if all(found is None for found in values):
        return Cell(text=NOT_MEASURED, reason=pair[0].missing.get(field))
    return Cell(text=" → ".join(NOT_MEASURED if found is None else number(found) for found in values))


def _throttling(run: RunEnergy) -> Cell:
    pair = (run.conditions_before, run.conditions_after)
    if all(one.throttle_reasons is None for one in pair):
        return Cell(text=NOT_MEASURED, reason=pair[0].missing.get("throttle_reasons"))
    said = list(dict.fromkeys(map(_reasons, pair)))
    return Cell(text=" → ".join(said))


def _reasons(conditions: ConditionsRecord) -> str:
    found = conditions.throttle_reasons
    return NOT_MEASURED if found is None else ", ".join(found) or "nothing"


def _resolution(report: EnergyReport) -> str:
    meter = report.meter
    if meter.resolution_s is None:
        return f"{NOT_MEASURED} ({meter.reason})"
    parts = [
        f"{trimmed(meter.resolution_s)} s ({meter.resolution_is})" if meter.resolution_s else meter.resolution_is,
        "" if meter.period_s is None else f"a fresh reading every {trimmed(meter.period_s)} s",
        "" if meter.resolution_j is None else f"steps of {quantity(meter.resolution_j, 'J', exact=True)}",
    ]
    return ", ".join(part for part in parts if part)


def _sensor(report: EnergyReport) -> str:
    share = report.meter.relative_uncertainty
    if share is None:
        return f"systematic error {NOT_MEASURED} ({report.meter.reason})"
    return f"± {percent(share)} systematic error, as the meter states; not part of the intervals, shared by all runs"


def _idle(report: EnergyReport) -> str:
    idle = report.idle
    if idle.power_w is None:
        return f"{NOT_MEASURED} ({idle.reason})"
    error = "" if idle.uncertainty_w is None else f" ± {quantity(idle.uncertainty_w, 'W')}"
    return f"{quantity(idle.power_w, 'W')}{error}{f', {idle.how}' if idle.how else ''}"
