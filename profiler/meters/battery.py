"""Energy of the whole machine while it runs on batteries.

Best first, decided for all batteries together:

    measured:battery-gauge   what the gauges say is left has fallen: `energy_now`, or `charge_now` times the mean
                             voltage between two reads
    measured:battery-power   `power_now`, or `current_now x voltage_now`, sampled and integrated

It is slow: gauges update every few seconds to half a minute (30 s is stated until `observe_period` has looked),
in steps of 1 mWh or 1 mAh. With a gauge, sampled power is the check where the driver gives it. On mains, or
while a battery charges, what flows out of the batteries is not what the machine draws: nothing is measured
then, nor in a window during which that changed. It is never chosen automatically: it serves long runs in the
field, not the seconds that a controller looks at. Gauges are taken to be within 10 %: our assumption.
"""

import time
from collections.abc import Hashable
from pathlib import Path

from gearshift.errors import MeterUnavailableError
from gearshift.profiler.meters.base import BaseMeter, Clock
from gearshift.profiler.meters.counter import CounterTrack
from gearshift.profiler.meters.integral import PowerIntegral
from gearshift.profiler.meters.power_supply import FOLDER, Battery, batteries, mains_online
from gearshift.profiler.meters.protocol import Precision, Reading
from gearshift.profiler.meters.sampled import plausible_w

GAUGE_PERIOD_S, POWER_PERIOD_S, POLL_S = 30.0, 5.0, 1.0
RELATIVE_ERROR = 0.1
MAX_GAP_S = 10.0
CEILING_W = 2000.0
# A gauge that updates rarely delivers the energy of a minute at once.
SLACK_S = 60.0
_UJ_PER_UWH = 3600


class BatteryMeter(BaseMeter):
    """The energy that flows out of the batteries; `window.parts` gives it battery by battery.

    Args:
        root: Where `sys` lies.
        clock: Monotonic seconds.
        background: Read on a thread while windows are open. Without it call `sample` yourself.

    Raises:
        MeterUnavailableError: There is no battery, it says nothing, or it does not discharge.
    """

    def __init__(self, root: Path = Path("/"), *, clock: Clock = time.perf_counter, background: bool = True) -> None:
        self._root = root
        self._batteries = batteries(root)
        self._has_gauges, self._has_power = _ways(root, self._batteries)
        obstacle = self._obstacle()
        if obstacle is not None:
            raise MeterUnavailableError(obstacle)
        self._gauges = {battery.name: _Gauge(battery) for battery in self._batteries} if self._has_gauges else {}
        self._power = PowerIntegral(max_gap_s=MAX_GAP_S)
        self._missing = self._interruptions = 0
        self._interruption: str | None = None
        self._was_obstructed = False
        super().__init__(
            name="battery",
            source=f"measured:battery-{'gauge' if self._has_gauges else 'power'}",
            boundary=(
                f"whole machine, as it flows out of {' + '.join(battery.name for battery in self._batteries)}; "
                "excluded: what is fed from elsewhere"
            ),
            precision=self._precision(),
            clock=clock,
            period_s=POLL_S if background else None,
        )
        self.read()

    def sensor_value(self) -> Hashable:
        """What the gauges say, or power where there are none."""
        if self._has_gauges:
            return tuple((battery.energy_uwh(), battery.charge_uah()) for battery in self._batteries)
        return self._power_w()

    def _read(self) -> Reading:
        reason = self._watch() or self._take()
        now_s = self._clock()
        tracks = [gauge.track for gauge in self._gauges.values()]
        energy_j = sum(track.total_j for track in tracks) if tracks else self._power.energy_j + self._power.gap_j
        return Reading(
            time_s=now_s,
            energy_j=energy_j if reason is None else None,
            reason=reason,
            epoch=self._interruptions + sum(track.epoch for track in tracks),
            break_reason=self._break_reason(tracks),
            fresh=sum(track.fresh for track in tracks) if tracks else self._power.samples,
            missing=self._missing,
            gap_s=0.0 if tracks else self._power.gap_s,
            check_j=self._power.energy_j if tracks and self._has_power else None,
            check_s=self._power.seconds if tracks else 0.0,
            parts={name: gauge.track.total_j for name, gauge in self._gauges.items()},
        )

    def _watch(self) -> str | None:
        """Note whether the machine still runs on its batteries alone; an interruption begins a new epoch."""
        obstacle = self._obstacle()
        if obstacle is not None and not self._was_obstructed:
            self._interruptions += 1
            self._interruption = f"interrupted: {obstacle}"
        self._was_obstructed = obstacle is not None
        return obstacle

    def _take(self) -> str | None:
        """Read every battery; a failure is counted and its reason returned."""
        try:
            for gauge in self._gauges.values():
                gauge.update(self._clock())
            if self._has_power:
                power_w = plausible_w(self._power_w(), CEILING_W)
                self._power.add(self._clock(), power_w)
        except MeterUnavailableError as error:
            self._missing += 1
            return str(error)
        return None

    def _power_w(self) -> float:
        powers = {battery.name: battery.power_w() for battery in self._batteries if battery.status == "Discharging"}
        silent = sorted(name for name, power_w in powers.items() if power_w is None)
        if silent or not powers:
            raise MeterUnavailableError(f"battery {', '.join(silent) or 'of this machine'} tells no power")
        return sum(power_w for power_w in powers.values() if power_w is not None)

    def _obstacle(self) -> str | None:
        states = {battery.name: battery.status for battery in self._batteries}
        told = ", ".join(f"{name}: {state}" for name, state in states.items())
        plugged = mains_online(self._root)
        if plugged is not None:
            return f"the machine is fed through {plugged} ({told}): unplug it to measure what the batteries give"
        if "Charging" in states.values() or "Discharging" not in states.values():
            return f"no battery is discharging ({told}): only what flows out of batteries alone is measured"
        return None

    def _break_reason(self, tracks: list[CounterTrack]) -> str | None:
        reasons = [self._interruption, *(track.break_reason for track in tracks)]
        return "; ".join(reason for reason in reasons if reason) or None

    def _precision(self) -> Precision:
        period_s = GAUGE_PERIOD_S if self._has_gauges else POWER_PERIOD_S
        return Precision(
            resolution_s=period_s,
            relative=RELATIVE_ERROR,
            what="counter update",
            period_s=period_s,
            resolution_j=sum(gauge.step_j() for gauge in self._gauges.values()) or None,
        )


class _Gauge:
    """One battery's gauge as a counter of µJ that have flowed out."""

    def __init__(self, battery: Battery) -> None:
        self.track = CounterTrack(units_per_joule=1_000_000, ceiling_w=CEILING_W, slack_s=SLACK_S)
        self._battery = battery
        self._counts_energy = battery.energy_uwh() is not None
        self._drawn_uj = 0
        self._last: tuple[int, int] | None = None

    def step_j(self) -> float:
        """Energy of one step: ACPI counts whole mWh or mAh."""
        if self._counts_energy:
            return 1000 * _UJ_PER_UWH / 1e6
        return 1000 * _UJ_PER_UWH * (self._battery.voltage_uv() or 0) / 1e12

    def update(self, now_s: float) -> None:
        """Take in what the gauge says.

        Raises:
            MeterUnavailableError: It says nothing.
        """
        self.track.update(self._energy_uj() if self._counts_energy else self._charge_uj(), now_s)

    def _energy_uj(self) -> int:
        return -self._told(self._battery.energy_uwh()) * _UJ_PER_UWH

    def _charge_uj(self) -> int:
        charge_uah, voltage_uv = self._told(self._battery.charge_uah()), self._told(self._battery.voltage_uv())
        last_uah, last_uv = self._last or (charge_uah, voltage_uv)
        self._last = (charge_uah, voltage_uv)
        self._drawn_uj += round((last_uah - charge_uah) * _UJ_PER_UWH * (last_uv + voltage_uv) / 2e6)
        return self._drawn_uj

    def _told(self, value: int | None) -> int:
        if value is None:
            raise MeterUnavailableError(f"battery {self._battery.name} does not tell what is left")
        return value


def _ways(root: Path, found: tuple[Battery, ...]) -> tuple[bool, bool]:
    """Tell whether all batteries have a gauge, and whether all tell power.

    Raises:
        MeterUnavailableError: There is no battery, or neither holds.
    """
    if not found:
        raise MeterUnavailableError(f"no battery that feeds this machine under {root / FOLDER}")
    gauges = all(
        battery.energy_uwh() is not None or (battery.charge_uah() is not None and battery.voltage_uv() is not None)
        for battery in found
    )
    power = all(battery.power_w() is not None for battery in found)
    if not gauges and not power:
        raise MeterUnavailableError(
            f"{', '.join(battery.name for battery in found)} under {root / FOLDER} tell neither energy, nor charge "
            "and voltage, nor power: there is nothing to measure with"
        )
    return gauges, power
