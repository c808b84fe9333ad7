"""What a processor (or the GPU of a system on a chip) runs at just now, from sysfs.

Clock      mean of `cpufreq/scaling_cur_freq` over the processors that this process may use, else `cpu MHz`
Heat       the hottest thermal zone of the package, else the hottest sensor of the processor's hwmon driver
Limit      the long-term limits of the RAPL packages, added up; each the lower of its providers' (readable by all)
Throttle   active cooling states, and thermal events of any processor since this process first looked
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from gearshift.errors import MeterUnavailableError
from gearshift.profiler.meters import sysfs
from gearshift.profiler.meters.rapl_domains import ReadText, package_limits_w

_CPU_ZONE = re.compile(r"x86_pkg_temp|tcpu|cpu.*therm|soc.*therm", re.IGNORECASE)
_GPU_ZONE = re.compile(r"gpu.*therm", re.IGNORECASE)
_CPU_HWMON = ("coretemp", "k10temp", "zenpower", "cpu_thermal")
_COUNTERS = {"core_throttle_count": "core_thermal", "package_throttle_count": "package_thermal"}
_COOLING = re.compile(r"processor|cpu", re.IGNORECASE)
# By tree: what its counters stood at when this process first looked. Written once, so that one reader's look
# does not hide an event from another.
_FIRST_COUNTS: dict[Path, Mapping[str, int]] = {}


def processor_conditions(root: Path, powercap: Path, read_text: ReadText) -> Mapping[str, Callable[[], object]]:
    """Give, for each field of `Conditions`, the call that reads it; each may raise MeterUnavailableError."""
    return {
        "temperature_c": lambda: _cpu_temperature_c(root),
        "clock_mhz": lambda: _cpu_clock_mhz(root),
        "memory_clock_mhz": _no_memory_clock,
        "power_limit_w": lambda: _package_limit_w(powercap, read_text),
        "throttle_reasons": lambda: _throttle_reasons(root),
    }


def embedded_gpu_conditions(root: Path) -> Mapping[str, Callable[[], object]]:
    """The same for a GPU beside the processor, whose NVML answers little (Jetson): what sysfs has."""
    return {"temperature_c": lambda: _gpu_temperature_c(root), "clock_mhz": lambda: _gpu_clock_mhz(root)}


def _cpu_temperature_c(root: Path) -> float:
    zones_c = _zones_c(root, _CPU_ZONE)
    return _hottest(zones_c or _hwmon_c(root), f"no thermal zone or hwmon sensor of the processor under {root / 'sys'}")


def _gpu_temperature_c(root: Path) -> float:
    return _hottest(_zones_c(root, _GPU_ZONE), f"no thermal zone of a GPU under {root / 'sys/class/thermal'}")


def _hottest(found_c: list[float], otherwise: str) -> float:
    if not found_c:
        raise MeterUnavailableError(otherwise)
    return max(found_c)


def _zones_c(root: Path, wanted: re.Pattern[str]) -> list[float]:
    zones = sorted((root / "sys/class/thermal").glob("thermal_zone*"))
    return _thousandths(zone / "temp" for zone in zones if wanted.search(sysfs.text(zone / "type")))


def _hwmon_c(root: Path) -> list[float]:
    drivers = sorted((root / "sys/class/hwmon").glob("hwmon*"))
    return _thousandths(path for d in drivers if sysfs.text(d / "name") in _CPU_HWMON for path in d.glob("temp*_input"))


def _thousandths(paths: Iterable[Path]) -> list[float]:
    return [value / 1e3 for value in map(sysfs.number, paths) if value is not None]


def _cpu_clock_mhz(root: Path) -> float:
    folder = root / "sys/devices/system/cpu"
    clocks = [sysfs.number(folder / f"cpu{index}" / "cpufreq/scaling_cur_freq") for index in _usable()]
    known_mhz = [khz / 1e3 for khz in clocks if khz is not None] or _cpuinfo_mhz(root)
    if not known_mhz:
        raise MeterUnavailableError(f"neither {folder}/cpu*/cpufreq nor {root / 'proc/cpuinfo'} gives a clock rate")
    return sum(known_mhz) / len(known_mhz)


def _usable() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _cpuinfo_mhz(root: Path) -> list[float]:
    return [float(mhz) for mhz in re.findall(r"(?m)^cpu MHz\s*:\s*([\d.]+)$", sysfs.text(root / "proc/cpuinfo"))]


def _gpu_clock_mhz(root: Path) -> float:
    folder = root / "sys/class/devfreq"
    for device in sorted(folder.glob("*")):
        hertz = sysfs.number(device / "cur_freq")
        if hertz is not None and re.search(r"gpu|gv11b|ga10b|gp10b|gm20b", device.name):
            return hertz / 1e6
    raise MeterUnavailableError(f"no GPU under {folder}")


def _no_memory_clock() -> float:
    raise MeterUnavailableError("the kernel does not tell the clock of a processor's memory")


def _package_limit_w(powercap: Path, read_text: ReadText) -> float:
    limits_w = package_limits_w(powercap, read_text)
    if not limits_w:
        raise MeterUnavailableError(f"no package with a power limit under {powercap}")
    return sum(limits_w.values())


def _throttle_reasons(root: Path) -> tuple[str, ...]:
    """What slows the processor down.

    Counters say that something happened since boot; what counts here is what happened since this process first
    looked, hence nothing can be said from them the first time.
    """
    states = _cooling_states(root)
    counts = _counts(root)
    first = _FIRST_COUNTS.setdefault(root, counts)
    if not states and not counts:
        raise MeterUnavailableError(
            f"neither thermal counters nor cooling states of the processor under {root / 'sys'}"
        )
    if not states and counts is first:
        raise MeterUnavailableError("thermal events are counted from this first look on")
    cooling = ("passive_cooling",) if any(states) else ()
    return (*cooling, *(name for name, count in counts.items() if count > first.get(name, 0)))


def _counts(root: Path) -> Mapping[str, int]:
    folders = sorted((root / "sys/devices/system/cpu").glob("cpu[0-9]*/thermal_throttle"))
    found = {name: [sysfs.number(folder / file) for folder in folders] for file, name in _COUNTERS.items()}
    known = {name: [count for count in counts if count is not None] for name, counts in found.items()}
    return {name: sum(counts) for name, counts in known.items() if counts}


def _cooling_states(root: Path) -> list[int]:
    devices = sorted((root / "sys/class/thermal").glob("cooling_device*"))
    states = [sysfs.number(device / "cur_state") for device in devices if _COOLING.search(sysfs.text(device / "type"))]
    return [state for state in states if state is not None]
