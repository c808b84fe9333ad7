"""The energy of two runs together. A meter sees its whole device, whoever works on it: two runs that shared one
at the same time each report all of it, and adding them would count it twice.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from gearshift.profiler.meters import Measurement, total_energy
from gearshift.runtime.report.energy.model import EnergyReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Together:
    """A sum over runs.

    Attributes:
        energy_j: Or None.
        is_estimate: Whether any addend is an estimate.
        note: What was left out of the sum and why, or why there is none.
    """

    energy_j: float | None
    is_estimate: bool
    note: str


def together(reports: Sequence[EnergyReport]) -> Together:
    """Add up the runs, each device and interval once; devices of one name and one boundary are taken for one."""
    if any(report.run.started is None for report in reports):
        return Together(
            energy_j=None,
            is_estimate=any(report.meter.estimated for report in reports),
            note="when an older run began is not known, so that an overlap cannot be told",
        )
    found = [_measurement(report, number) for number, report in enumerate(reports)]
    total = total_energy(found)
    measured = [one for one in found if one.energy_j is not None]
    left_out = sum(one.energy_j or 0.0 for one in measured) - (total.energy_j or 0.0)
    notes = list(total.missing)
    if left_out > 0 and not notes:
        notes = ["both runs were on one device at the same time: its energy counts once"]
    return Together(
        energy_j=None if total.is_partial else total.energy_j,
        is_estimate=total.is_estimate,
        note="; ".join(notes) or "different devices, or one after the other",
    )


def _measurement(report: EnergyReport, number: int) -> Measurement:
    run, device = report.run, report.setting.device
    place = f"{device.get('name')}, {device.get('threads')} threads: {report.meter.name}, {report.meter.boundary}"
    return Measurement(
        name=f"run {'AB'[number]}",
        meter=place,
        source=report.meter.source,
        start_s=datetime.fromisoformat(run.started or "").timestamp(),
        seconds=run.seconds,
        energy_j=run.gross_j,
        power_w=run.power_w,
        uncertainty_j=None,
        samples=None,
        missing=0,
        reason=run.reason,
    )
