"""What `runtime profile` says: first the findings, a line each, then the tables."""

from collections.abc import Iterator, Sequence

from rich.table import Table

from gearshift.profiler import Count, Profile, Row
from gearshift.profiler.operator_energy import OperatorEnergy
from gearshift.profiler.roofline import RankCorrelation, Roofline
from gearshift.units import format_quantity

COUNTS = {"macs": "MACs", "bytes": "bytes", "roofline_ms": "roofline time"}


def operations_line(count: Count) -> str:
    """What dominates the operations."""
    total = f"operations: {_giga(count.macs)} GMAC" + (" at least" if count.is_lower_bound else "")
    rows = [row for row in count.table() if row.macs]
    if not rows:
        return f"{total}; nothing here multiplies and adds"
    parts = ", ".join(f"{row.name} {row.macs_share:.1%}" for row in rows[:3])
    name, macs = max(_own_macs(count).items(), key=lambda item: item[1])
    largest = f"; largest single module: {name or 'the root'}, {macs / count.macs:.1%}"
    return f"{total}: {parts}{largest}"


def time_line(profile: Profile, asked: int = 1) -> str:
    """What dominates time, and how much of the time is accounted for; `asked` passes were wanted."""
    timing = profile.timing
    parts = ", ".join(f"{row.name} {row.time_share or 0:.1%}" for row in profile.table()[:3])
    spread = f"median of {timing.n}, IQR {timing.iqr_ms:.3g}" if timing.n > 1 else "one pass"
    if timing.n < asked:
        spread += "; more with --seconds 30"
    return (
        f"time: {timing.median_ms:.4g} ms ({spread}): {parts}; operators' own times sum to {profile.own_share:.1%} "
        f"of it, profiling takes {profile.overhead_ratio:.2f} x as long"
    )


def warning_lines(profile: Profile) -> list[str]:
    """What makes the times doubtful."""
    return [
        f"WARNING: {text}: other work on this machine? Profile again while it is idle." for text in profile.warnings
    ]


def launch_line(profile: Profile) -> str | None:
    """What passes between a GPU's kernels; None where there is no GPU."""
    found = profile.launches
    if found is None:
        return None
    graph = f"not captured: {found.graph_reason}" if found.graph_ms is None else f"{found.graph_ms:.4g} ms"
    bound = "launch-bound: " if found.is_launch_bound else ""
    return (
        f"launches: {bound}{found.kernels} kernels keep the device busy for {found.busy_ms:.4g} ms; gaps are "
        f"{found.gap_share:.1%} of the time; as one CUDA graph {graph}"
    )


def correlation_line(roofline: Roofline) -> str:
    """How well counts predict time, and why not better."""
    known = [item for item in roofline.correlations if item.kendall_tau is not None]
    if not known:
        return "counts against time: too few modules to order"
    parts = ", ".join(f"{COUNTS[item.of]} {_tau(item)}" for item in known)
    memory = sum(row.time_ms for row in roofline.rows if row.limit == "memory")
    whole = sum(row.time_ms for row in roofline.rows) or 1.0
    return (
        f"counts against time over {known[0].modules} modules (Kendall's tau): {parts}; "
        f"{memory / whole:.0%} of the time goes to types of work that memory limits, which MACs do not see"
    )


def energy_line(energy: OperatorEnergy) -> str:
    """What a pass takes, and how much of it the types of work explain."""
    if energy.whole is None or energy.whole.net_j is None:
        return f"energy: not measured ({energy.reason or (energy.whole.reason if energy.whole else 'no window')})"
    explained = "unknown" if energy.explained is None else f"{energy.explained:.0%}"
    return (
        f"energy: {energy.whole.net_j * 1e3:.4g} mJ a pass above {energy.idle_power_w:.4g} W idle ({energy.source}); "
        f"types of work, replayed alone, explain {explained} of it"
    )


def type_table(
    title: str,
    rows: Sequence[Row],
    *,
    timed: bool,
    roofline: Roofline | None = None,
    energy: OperatorEnergy | None = None,
) -> Table:
    """One row per type of work or per module; columns that nobody measured are left out."""
    table = Table(title=title)
    for heading in _headings(timed, roofline, energy):
        table.add_column(heading, justify="left" if heading in ("name", "limit") else "right")
    bounds = {} if roofline is None else {row.name: row for row in roofline.rows}
    joules = {} if energy is None else {row.name: row for row in energy.rows}
    for row in rows:
        cells = [
            row.name or "(whole)",
            str(row.calls),
            _giga(row.macs),
            f"{row.macs_share:.1%}",
            _giga(row.elementwise_flops),
            f"{(row.bytes_read + row.bytes_written) / 1e6:.1f}",
        ]
        if timed:
            cells += [format_quantity(row.time_ms, "ms", 4), _percent(row.time_share)]
        if roofline is not None:
            bound = bounds.get(row.name)
            cells += [_percent(None if bound is None else bound.achieved), (bound and bound.limit) or "-"]
        if energy is not None and energy.rows:
            found = joules.get(row.name)
            net_j = None if found is None else found.net_j
            cells += ["-" if net_j is None else f"{net_j * 1e3:.4g}"]
        table.add_row(*cells)
    return table


def peaks_line(roofline: Roofline) -> str:
    """What the bounds are taken from."""
    peaks = roofline.peaks
    largest, smallest = max(peaks.bandwidth_gbs), min(peaks.bandwidth_gbs)
    return (
        f"bounds: {peaks.gflops:.4g} GFLOP/s ({peaks.dtype}), {peaks.memory_gbs:.4g} GB/s from memory, "
        f"{peaks.bandwidth_gbs[smallest]:.4g} GB/s within caches ({smallest / 1e3:.0f} kB; {largest / 1e6:.0f} MB is "
        f"taken for memory); measured {peaks.measured_at}, --fresh-peaks measures again. More than 100 % of a memory "
        "bound means that operands were still in a cache."
        + ("" if peaks.is_steady else " The device was busy with other work while its peaks were taken: too low.")
    )


def uncounted_line(found: Count) -> str | None:
    """Operators that no rule knows; None where all are known."""
    if not found.uncounted:
        return None
    named = ", ".join(f"{name} x{calls}" for name, calls in found.uncounted.items())
    return f"uncounted (the operations are a lower bound): {named}"


def _headings(timed: bool, roofline: Roofline | None, energy: OperatorEnergy | None) -> Iterator[str]:
    yield from ("name", "calls", "GMAC", "share", "other GFLOP", "MB moved")
    if timed:
        yield from ("ms", "share of time")
    if roofline is not None:
        yield from ("of its bound", "limit")
    if energy is not None and energy.rows:
        yield "mJ net"


def _own_macs(count: Count) -> dict[str, int]:
    own: dict[str, int] = {}
    for call in count.calls:
        own[call.module] = own.get(call.module, 0) + call.macs
    return own


def _tau(item: RankCorrelation) -> str:
    return "-" if item.kendall_tau is None else f"{item.kendall_tau:.2f}"


def _giga(value: int) -> str:
    return f"{value / 1e9:.3f}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"
