"""Emissions in an energy report: worked out once an intensity is given, and anew with another one."""

from gearshift.runtime.carbon import GridIntensity, co2e_g
from gearshift.runtime.report.energy.model import EnergyReport, Footprint, GridRecord, RunEnergy

NO_GRID = "no grid named"
"""In place of a figure."""
WHY_NO_GRID = "no grid was named: --country FRA, or --grid-intensity in g/kWh"
COVERS = "operation only, from gross energy within the meter's boundary; nothing embodied in the hardware"


def with_grid(report: EnergyReport, grid: GridIntensity | None) -> EnergyReport:
    """The report with the emissions that a grid intensity makes of its energy; None leaves it as it is."""
    if grid is None:
        return report
    return report.model_copy(
        update={
            "grid": GridRecord(
                g_per_kwh=grid.g_per_kwh,
                source=grid.source,
                basis=grid.basis,
                dataset=grid.dataset,
                country=grid.country,
                country_name=grid.country_name,
                year=grid.year,
                covers=COVERS,
            ),
            "run": _run(report.run, grid, report.meter.estimated),
            "baselines": {name: _run(run, grid, report.meter.estimated) for name, run in report.baselines.items()},
        }
    )


def _run(run: RunEnergy, grid: GridIntensity, estimated: bool) -> RunEnergy:
    per_frame_j = run.gross_j_per_frame.value_j
    footprint = Footprint(
        g_total=co2e_g(run.gross_j, grid),
        g_per_1000_frames=None if per_frame_j is None else co2e_g(1000 * per_frame_j, grid),
        estimated=estimated,
        reason=run.gross_j_per_frame.reason,
    )
    return run.model_copy(update={"co2e": footprint})
