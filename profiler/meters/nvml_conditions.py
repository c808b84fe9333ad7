"""What an NVIDIA board runs at just now: temperature, clocks, limit, and what holds its clocks down."""

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from gearshift.errors import MeterUnavailableError
from gearshift.profiler.meters.nvml_device import NvmlDevice
from gearshift.units import watts_from_milliwatts

_CORE_SENSOR, _SM_CLOCK, _MEMORY_CLOCK = 0, 1, 2  # NVML_TEMPERATURE_GPU, NVML_CLOCK_SM, NVML_CLOCK_MEM
# nvmlClocksEventReason*: names as `nvidia-smi -q` has them. The bit for an idle board is no brake.
_GPU_IDLE = 0x1
_REASONS = {
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
    0x200: "board_limit",
    0x400: "reliability",
}


def board_conditions(board: NvmlDevice) -> Mapping[str, Callable[[], object]]:
    """Give, for each field of `Conditions`, the call that reads it; each may raise MeterUnavailableError."""
    return {
        "temperature_c": lambda: _temperature_c(board),
        "clock_mhz": lambda: float(board.ask("nvmlDeviceGetClockInfo", _SM_CLOCK)),
        "memory_clock_mhz": lambda: float(board.ask("nvmlDeviceGetClockInfo", _MEMORY_CLOCK)),
        "power_limit_w": lambda: watts_from_milliwatts(board.ask("nvmlDeviceGetEnforcedPowerLimit")),
        "throttle_reasons": lambda: throttle_reasons(_throttle_bits(board)),
    }


def throttle_reasons(bits: int) -> tuple[str, ...]:
    """Decode NVML's mask; bits that this table lacks are shown as numbers rather than dropped."""
    named = tuple(name for bit, name in _REASONS.items() if bits & bit)
    unknown = bits & ~(_GPU_IDLE | sum(_REASONS))
    return (*named, f"unknown_0x{unknown:x}") if unknown else named


def _temperature_c(board: NvmlDevice) -> float:
    # the first is to go with CUDA 14
    return float(_either(board, "nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureV", _CORE_SENSOR))


def _throttle_bits(board: NvmlDevice) -> int:
    # drivers before 535 know only the second
    newer, older = "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"
    return int(_either(board, newer, older))


def _either(board: NvmlDevice, first: str, second: str, *arguments: object) -> Any:
    """Call the first function, or the second where that fails; the first one's reason is the one given."""
    try:
        return board.ask(first, *arguments)
    except MeterUnavailableError as error:
        with contextlib.suppress(MeterUnavailableError):
            return board.ask(second, *arguments)
        raise error
