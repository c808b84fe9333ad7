"""The batteries that feed this machine, and what they say, from `sys/class/power_supply`.

Files hold µWh, µAh, µV, µA and µW; drivers differ in which they have and in the sign of a current. Batteries of
mice and headsets (`scope` Device) feed something else and are left out.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gearshift.profiler.meters import sysfs

FOLDER = Path("sys/class/power_supply")
_MAINS = ("Mains", "USB", "Wireless")


@dataclass(frozen=True, slots=True)
class Battery:
    """One battery, read anew at every call; a figure that its driver lacks is None."""

    path: Path

    @property
    def name(self) -> str:
        """`BAT0`."""
        return self.path.name

    @property
    def status(self) -> str:
        """`Discharging`, `Charging`, `Full`, `Not charging` or `Unknown`."""
        return sysfs.text(self.path / "status") or "Unknown"

    def energy_uwh(self) -> int | None:
        """What is left, in µWh, where the gauge counts energy."""
        return self._number("energy_now")

    def charge_uah(self) -> int | None:
        """What is left, in µAh, where the gauge counts charge."""
        return self._number("charge_now")

    def voltage_uv(self) -> int | None:
        """Voltage at the terminals just now."""
        return self._number("voltage_now")

    def power_w(self) -> float | None:
        """Power that flows, in either direction."""
        power_uw = self._number("power_now")
        if power_uw is not None:
            return abs(power_uw) / 1e6
        current_ua, voltage_uv = self._number("current_now"), self.voltage_uv()
        return None if current_ua is None or voltage_uv is None else abs(current_ua) * voltage_uv / 1e12

    def left_wh(self) -> tuple[float, str] | None:
        """What is left in Wh, and which files say so; the best first."""
        for files, read in self._ways():
            value = read()
            if value is not None:
                return value, files
        return None

    def _ways(self) -> tuple[tuple[str, Callable[[], float | None]], ...]:
        return (
            ("energy_now", lambda: _scaled(1e-6, self.energy_uwh())),
            # What a cell gives until it is empty flows at its nominal voltage, not at that of the moment.
            ("charge_now x voltage_min_design", lambda: _scaled(1e-12, self.charge_uah(), self._design_uv())),
            ("charge_now x voltage_now", lambda: _scaled(1e-12, self.charge_uah(), self.voltage_uv())),
            ("capacity x energy_full", lambda: _scaled(1e-8, self._number("capacity"), self._number("energy_full"))),
            (
                "capacity x charge_full x voltage_now",
                lambda: _scaled(1e-14, self._number("capacity"), self._number("charge_full"), self.voltage_uv()),
            ),
        )

    def _design_uv(self) -> int | None:
        return self._number("voltage_min_design") or None

    def _number(self, file: str) -> int | None:
        return sysfs.number(self.path / file)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemainingEnergy:
    """What is left in this machine's batteries.

    Attributes:
        wh: Watt-hours, or None.
        source: Which batteries and files say so; None where nothing does.
        reason: Why `wh` is None; None otherwise.
    """

    wh: float | None
    source: str | None = None
    reason: str | None = None


def remaining_wh(root: Path = Path("/")) -> RemainingEnergy:
    """Add up what is left in the batteries of this machine; a battery that does not say makes the sum unknown."""
    found = batteries(root)
    if not found:
        return RemainingEnergy(wh=None, reason=f"no battery under {root / FOLDER}")
    left = {battery.name: battery.left_wh() for battery in found}
    silent = sorted(name for name, value in left.items() if value is None)
    if silent:
        return RemainingEnergy(wh=None, reason=f"{', '.join(silent)} tells neither energy, charge nor capacity")
    known = {name: value for name, value in left.items() if value is not None}
    return RemainingEnergy(
        wh=sum(wh for wh, _ in known.values()),
        source="; ".join(f"{name}: {files}" for name, (_, files) in known.items()),
    )


def batteries(root: Path) -> tuple[Battery, ...]:
    """Find the batteries that are present and feed this machine."""
    return tuple(
        Battery(path)
        for path in sorted((root / FOLDER).glob("*"))
        if sysfs.text(path / "type") == "Battery"
        and sysfs.text(path / "scope") != "Device"
        and sysfs.text(path / "present") != "0"
    )


def mains_online(root: Path) -> str | None:
    """Name a supply from outside that is plugged in; None where there is none."""
    for path in sorted((root / FOLDER).glob("*")):
        if sysfs.text(path / "type") in _MAINS and sysfs.text(path / "online") not in ("", "0"):
            return path.name
    return None


def _scaled(unit: float, *factors: int | None) -> float | None:
    product = 1.0
    for factor in factors:
        if factor is None:
            return None
        product *= factor
    return product * unit
