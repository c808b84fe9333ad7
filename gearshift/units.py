"""Conversions at the edge: inside Gearshift every quantity is SI, outside it carries its unit in its name."""

JOULES_PER_WATT_HOUR = 3600.0
JOULES_PER_KILOWATT_HOUR = 3.6e6


def joules_from_millijoules(energy_mj: float) -> float:
    """Convert mJ (NVML's energy counter) to J."""
    return energy_mj / 1e3


def joules_from_microjoules(energy_uj: float) -> float:
    """Convert µJ (RAPL's energy counter) to J."""
    return energy_uj / 1e6


def kilowatt_hours(energy_j: float) -> float:
    """Convert J to kWh (carbon factors)."""
    return energy_j / JOULES_PER_KILOWATT_HOUR


def watts_from_milliwatts(power_mw: float) -> float:
    """Convert mW (NVML's power reading and limits) to W."""
    return power_mw / 1e3


def watts_from_microwatts(power_uw: float) -> float:
    """Convert µW (powercap's limits) to W."""
    return power_uw / 1e6


def milliseconds(seconds: float) -> float:
    """Convert s to ms."""
    return seconds * 1e3


def format_quantity(value: float | None, unit: str, digits: int = 3) -> str:
    """Show a quantity with its unit, or "not measured": a missing value never reads as zero."""
    return "not measured" if value is None else f"{value:.{digits}g} {unit}"
