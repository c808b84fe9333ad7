"""What an AMD board runs at just now, as far as amdsmi's releases agree on it."""

from collections.abc import Callable, Mapping

from gearshift.errors import MeterUnavailableError
from gearshift.profiler.meters.amd_device import AmdDevice

# Releases differ between degrees and thousandths of a degree; no board runs at this many degrees.
_HOTTEST_C = 500


def amd_conditions(board: AmdDevice) -> Mapping[str, Callable[[], object]]:
    """Give, for each field of `Conditions`, the call that reads it; each may raise MeterUnavailableError."""
    return {
        "temperature_c": lambda: _hotspot_c(board),
        "clock_mhz": lambda: _clock_mhz(board, "GFX"),
        "memory_clock_mhz": lambda: _clock_mhz(board, "MEM"),
        "power_limit_w": lambda: _limit_w(board),
        "throttle_reasons": _no_reasons,
    }


def _hotspot_c(board: AmdDevice) -> float:
    sensor = _member(board, "AmdSmiTemperatureType", "HOTSPOT")
    metric = _member(board, "AmdSmiTemperatureMetric", "CURRENT")
    told = board.ask("amdsmi_get_temp_metric", sensor, metric)
    return told / 1e3 if told > _HOTTEST_C else float(told)


def _clock_mhz(board: AmdDevice, kind: str) -> float:
    told = board.ask("amdsmi_get_clock_info", _member(board, "AmdSmiClkType", kind)).get("clk")
    if not isinstance(told, int | float):
        raise MeterUnavailableError(f"amdsmi_get_clock_info: the {kind} clock is {told!r} on this board")
    return float(told)


def _limit_w(board: AmdDevice) -> float:
    if board.limit_w is None:
        raise MeterUnavailableError("amdsmi_get_power_cap_info tells no limit of this board")
    return board.limit_w


def _no_reasons() -> tuple[str, ...]:
    raise MeterUnavailableError("amdsmi tells violations as shares of a time of its own: they are not read here")


def _member(board: AmdDevice, enumeration: str, member: str) -> object:
    try:
        return getattr(getattr(board.binding, enumeration), member)
    except AttributeError as error:
        raise MeterUnavailableError(f"{enumeration}.{member} is unknown to this amdsmi: {error}") from error
