"""From two readings to a measurement: the only place where energies are subtracted. Pure functions."""

import math

from gearshift.profiler.meters.protocol import Measurement, Meter, Reading

# A window of which more than this share was bridged between samples is not measured.
MAX_GAP_SHARE = 0.5
# Two sensors that differ by more than this share are reported. A one-second mean lags by half a second at
# each edge, which over CHECK_SECONDS alone explains up to a tenth.
CHECK_TOLERANCE = 0.25
CHECK_SECONDS = 5.0
CHECK_COVERAGE = 0.8


def measure(start: Reading, end: Reading, *, name: str, meter: Meter) -> Measurement:
    """Subtract the opening reading from the closing one.

    The energy is None, with the reason, when either reading is empty, when the counter lost its thread in
    between, when it gave no fresh reading, or when most of the window was bridged.
    """
    seconds = end.time_s - start.time_s
    reason = _why_not(start, end, seconds)
    energy_j = None if reason else _difference(start.energy_j, end.energy_j)
    power_w = energy_j / seconds if energy_j is not None and seconds > 0 else None
    gap_s = end.gap_s - start.gap_s
    return Measurement(
        name=name,
        meter=meter.name,
        source=meter.source,
        start_s=start.time_s,
        seconds=seconds,
        energy_j=energy_j,
        power_w=power_w,
        uncertainty_j=_uncertainty_j(energy_j, power_w, gap_s, meter),
        samples=_samples(start, end),
        missing=end.missing - start.missing,
        reason=reason,
        warnings=tuple(_warnings(start, end, seconds, gap_s, meter)),
        parts=_parts(start, end),
        period_s=meter.precision.period_s,
        resolution_s=meter.precision.resolution_s,
        resolution_j=meter.precision.resolution_j,
    )


def _why_not(start: Reading, end: Reading, seconds: float) -> str | None:
    if start.reason is not None:
        return start.reason
    if end.reason is not None:
        return end.reason
    if start.epoch != end.epoch:
        return end.break_reason or "counter_reset: the counter lost its thread inside the window"
    if start.fresh is not None and end.fresh == start.fresh:
        return f"stale: no fresh reading within the window ({seconds:.3g} s)"
    if end.gap_s - start.gap_s > MAX_GAP_SHARE * seconds:
        return f"gap: no samples for {end.gap_s - start.gap_s:.3g} s of {seconds:.3g} s"
    return None


def _difference(start_j: float | None, end_j: float | None) -> float | None:
    return None if start_j is None or end_j is None else end_j - start_j


def _samples(start: Reading, end: Reading) -> int | None:
    if start.fresh is None or end.fresh is None:
        return None
    return end.fresh - start.fresh + (start.reason is None)


def _parts(start: Reading, end: Reading) -> dict[str, float | None]:
    if start.epoch != end.epoch:
        return dict.fromkeys(end.parts)
    return {domain: _difference(start.parts.get(domain), end.parts[domain]) for domain in end.parts}


def _uncertainty_j(energy_j: float | None, power_w: float | None, gap_s: float, meter: Meter) -> float | None:
    if energy_j is None:
        return None
    precision = meter.precision
    edge_j = max((power_w or 0.0) * precision.resolution_s, precision.resolution_j or 0.0)
    return math.hypot(precision.relative * energy_j, edge_j, (power_w or 0.0) * gap_s)


def _warnings(start: Reading, end: Reading, seconds: float, gap_s: float, meter: Meter) -> list[str]:
    found = []
    precision = meter.precision
    if seconds < precision.resolution_s:
        found.append(f"shorter than {precision.what}: {seconds:.3g} s < {precision.resolution_s:.3g} s")
    if end.missing > start.missing:
        found.append(f"missing readings: {end.missing - start.missing} failed or were rejected")
    if gap_s > 0:
        found.append(f"bridged: {gap_s:.3g} s of {seconds:.3g} s lie between samples too far apart")
    found += [f"partial: {domain} could not be read" for domain, part in end.parts.items() if part is None]
    found += _disagreement(start, end, seconds)
    return found


def _disagreement(start: Reading, end: Reading, seconds: float) -> list[str]:
    energy_j, check_j = _difference(start.energy_j, end.energy_j), _difference(start.check_j, end.check_j)
    check_s = end.check_s - start.check_s
    comparable = seconds >= CHECK_SECONDS and check_s >= CHECK_COVERAGE * seconds and start.epoch == end.epoch
    if not comparable or not energy_j or check_j is None:
        return []
    other_j = check_j / check_s * seconds
    share = abs(other_j - energy_j) / energy_j
    if share <= CHECK_TOLERANCE:
        return []
    return [f"discrepancy {share:.0%}: the counter says {energy_j:.4g} J, sampled power {other_j:.4g} J"]
