"""Batteries in temporary `power_supply` trees: gauges, power, several of them, mains, and what is left."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.errors import MeterUnavailableError
from gearshift.profiler.meters import BatteryMeter, Seams, discover, open_meter, remaining_wh
from gearshift.profiler.meters.battery import GAUGE_PERIOD_S
from tests.support import Clock

Files = dict[str, object]


def supply(root: Path, name: str, **files: object) -> Path:
    folder = root / "sys/class/power_supply" / name
    folder.mkdir(parents=True, exist_ok=True)
    for file, value in files.items():
        (folder / file).write_text(f"{value}\n")
    return folder


def battery(root: Path, name: str = "BAT0", **files: object) -> Path:
    return supply(root, name, **{"type": "Battery", "status": "Discharging", **files})


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def open_at(tmp_path: Path, clock: Clock) -> Callable[[], BatteryMeter]:
    return lambda: BatteryMeter(tmp_path, clock=clock, background=False)


class TestGauge:
    def test_microwatt_hours_that_are_gone_become_joules(
        self, tmp_path: Path, open_at: Callable[[], BatteryMeter], clock: Clock
    ) -> None:
        # 10 W for 360 s is 1 Wh is 3600 J
        battery(tmp_path, energy_now=50_000_000)
        meter = open_at()
        with meter.window() as w:
            clock.now_s += 360.0
            battery(tmp_path, energy_now=49_000_000)
        assert (w.energy_j, w.power_w, w.reason) == (3600.0, 10.0, None)
        assert (w.source, w.resolution_j, w.period_s) == ("measured:battery-gauge", 3.6, GAUGE_PERIOD_S)
        assert "whole machine" in meter.boundary

    def test_charge_is_weighed_with_the_mean_voltage(
        self, tmp_path: Path, open_at: Callable[[], BatteryMeter], clock: Clock
    ) -> None:
        # 1 Ah at a mean of 11.5 V is 11.5 Wh
        battery(tmp_path, charge_now=5_000_000, voltage_now=12_000_000)
        meter = open_at()
        with meter.window() as w:
            clock.now_s += 3600.0
            battery(tmp_path, charge_now=4_000_000, voltage_now=11_000_000)
        assert w.energy_j == pytest.approx(11.5 * 3600)
        assert w.source == "measured:battery-gauge"

    @settings(deadline=None, max_examples=30)
    @given(steps_uwh=st.lists(st.integers(0, 100_000), min_size=1, max_size=20))
    def test_any_steps_add_up_exactly(self, tmp_path_factory: pytest.TempPathFactory, steps_uwh: list[int]) -> None:
        root, clock, left_uwh = tmp_path_factory.mktemp("battery"), Clock(), 60_000_000
        battery(root, energy_now=left_uwh)
        meter = BatteryMeter(root, clock=clock, background=False)
        w = meter.window().open()
        for step_uwh in steps_uwh:
            clock.now_s += 30.0
            left_uwh -= step_uwh
            battery(root, energy_now=left_uwh)
            meter.sample()
        w.close()
        gone_j = sum(steps_uwh) * 3600 / 1e6
        assert (w.energy_j or 0.0) == pytest.approx(gone_j)
        assert (w.energy_j is None) == (not any(steps_uwh))

    def test_several_batteries_are_added_also_where_only_one_works(
        self, tmp_path: Path, open_at: Callable[[], BatteryMeter], clock: Clock
    ) -> None:
        battery(tmp_path, "BAT0", energy_now=50_000_000)
        battery(tmp_path, "BAT1", energy_now=20_000_000, status="Unknown")
        meter = open_at()
        with meter.window() as w:
            clock.now_s += 360.0
            battery(tmp_path, "BAT0", energy_now=49_000_000)
            battery(tmp_path, "BAT1", energy_now=19_900_000, status="Not charging")
        assert w.energy_j == pytest.approx(3960.0)
        assert w.parts == pytest.approx({"BAT0": 3600.0, "BAT1": 360.0})

    def test_a_gauge_that_has_not_moved_measures_nothing(
        self, tmp_path: Path, open_at: Callable[[], BatteryMeter], clock: Clock
    ) -> None:
        battery(tmp_path, energy_now=50_000_000)
        with open_at().window() as w:
            clock.now_s += 5.0
        assert w.energy_j is None
        assert (w.reason or "").startswith("stale:")

    def test_a_window_shorter_than_the_gauge_s_period_is_flagged(
        self, tmp_path: Path, open_at: Callable[[], BatteryMeter], clock: Clock
    ) -> None:
        battery(tmp_path, energy_now=50_000_000)
        with open_at().window() as w:
            clock.now_s += 20.0
            battery(tmp_path, energy_now=49_990_000)
        assert w.warnings == ("shorter than counter update: 20 s < 30 s",)
        assert w.uncertainty_j is not None
        assert w.energy_j is not None
        assert w.uncertainty_j > w.energy_j

    def test_a_gauge_that_rises_while_discharging_spoils_one_window(
        self, tmp_path: Path, open_at: Callable[[], BatteryMeter], clock: Clock
    ) -> None:
        battery(tmp_path, energy_now=50_000_000)
        meter = open_at()
        with meter.window() as spoilt:
            clock.now_s += 60.0
            battery(tmp_path, energy_now=51_000_000)
        with meter.window() as good:
            clock.now_s += 60.0
            battery(tmp_path, energy_now=50_900_000)
        assert spoilt.energy_j is None
        assert (spoilt.reason or "").startswith("counter_reset:")
        assert good.energy_j == pytest.approx(360.0)

    def test_a_gauge_beside_power_is_checked_against_it(
        self, tmp_path: Path, open_at: Callable[[], BatteryMeter], clock: Clock
    ) -> None:
        battery(tmp_path, energy_now=50_000_000, power_now=20_000_000)
        meter = open_at()
        w = meter.window().open()
        for step in range(1, 61):
            clock.now_s = step * 6.0
            battery(tmp_path, energy_now=50_000_000 - step * 1_000_000 // 60)
            meter.sample()
        w.close()
        assert w.energy_j == pytest.approx(3600.0)
        assert [text.split(":")[0] for text in w.warnings] == ["discrepancy 100%"]


class TestPower:
    @pytest.mark.parametrize(
        "files",
        [
            {"power_now": 12_000_000},
            {"power_now": -12_000_000},
            {"current_now": 1_000_000, "voltage_now": 12_000_000},
            {"current_now": -1_000_000, "voltage_now": 12_000_000},
        ],
    )
    def test_power_or_current_times_voltage_of_either_sign_is_integrated(
        self, tmp_path: Path, open_at: Callable[[], BatteryMeter], clock: Clock, files: Files
    ) -> None:
        battery(tmp_path, **files)
        meter = open_at()
        with meter.window() as w:
            for _ in range(60):
                clock.now_s += 1.0
                meter.sample()
        assert w.energy_j == pytest.approx(720.0)
        assert (w.source, w.resolution_j) == ("measured:battery-power", None)

    def test_several_are_added(self, tmp_path: Path, open_at: Callable[[], BatteryMeter], clock: Clock) -> None:
        battery(tmp_path, "BAT0", power_now=12_000_000)
        battery(tmp_path, "BAT1", power_now=3_000_000)
        meter = open_at()
        with meter.window() as w:
            for _ in range(10):
                clock.now_s += 1.0
                meter.sample()
        assert w.energy_j == pytest.approx(150.0)

    def test_a_slip_of_units_is_rejected(
        self, tmp_path: Path, open_at: Callable[[], BatteryMeter], clock: Clock
    ) -> None:
        battery(tmp_path, power_now=12_000_000)
        meter = open_at()
        with meter.window() as w:
            for value in (12_000_000, 12_000_000_000, 12_000_000):
                clock.now_s += 1.0
                battery(tmp_path, power_now=value)
                meter.sample()
        assert (w.energy_j, w.missing) == (pytest.approx(36.0), 1)


class TestMains:
    @pytest.mark.parametrize("status", ["Charging", "Full", "Not charging", "Unknown"])
    def test_a_battery_that_does_not_discharge_is_unavailable(self, tmp_path: Path, status: str) -> None:
        battery(tmp_path, energy_now=50_000_000, status=status)
        with pytest.raises(MeterUnavailableError, match=rf"no battery is discharging \(BAT0: {status}\)"):
            BatteryMeter(tmp_path, background=False)

    @pytest.mark.parametrize("kind", ["Mains", "USB", "Wireless"])
    def test_a_supply_that_is_plugged_in_is_named(self, tmp_path: Path, kind: str) -> None:
        battery(tmp_path, energy_now=50_000_000)
        supply(tmp_path, "AC", type=kind, online=1)
        with pytest.raises(MeterUnavailableError, match=r"fed through AC .*unplug it"):
            BatteryMeter(tmp_path, background=False)
        supply(tmp_path, "AC", online=0)
        BatteryMeter(tmp_path, background=False)

    @pytest.mark.parametrize("back_again", [False, True])
    def test_a_window_during_which_the_mains_come_is_none(
        self, tmp_path: Path, open_at: Callable[[], BatteryMeter], clock: Clock, back_again: bool
    ) -> None:
        battery(tmp_path, energy_now=50_000_000)
        meter = open_at()
        w = meter.window().open()
        clock.now_s += 60.0
        battery(tmp_path, energy_now=49_900_000, status="Charging")
        meter.sample()
        if back_again:
            clock.now_s += 60.0
            battery(tmp_path, energy_now=49_800_000, status="Discharging")
        w.close()
        assert (w.energy_j, w.power_w) == (None, None)
        assert "no battery is discharging (BAT0: Charging)" in (w.reason or "")

    def test_the_next_window_on_batteries_is_measured_again(
        self, tmp_path: Path, open_at: Callable[[], BatteryMeter], clock: Clock
    ) -> None:
        battery(tmp_path, energy_now=50_000_000)
        meter = open_at()
        battery(tmp_path, energy_now=55_000_000, status="Charging")
        meter.sample()
        battery(tmp_path, energy_now=55_000_000, status="Discharging")
        clock.now_s += 60.0
        with meter.window() as w:
            clock.now_s += 60.0
            battery(tmp_path, energy_now=54_900_000)
        assert w.energy_j == pytest.approx(360.0)


class TestWhichBatteries:
    def test_those_of_mice_and_empty_bays_do_not_count(
        self, tmp_path: Path, open_at: Callable[[], BatteryMeter], clock: Clock
    ) -> None:
        battery(tmp_path, energy_now=50_000_000)
        battery(tmp_path, "hid-mouse", energy_now=1, scope="Device")
        battery(tmp_path, "BAT1", energy_now=1, present=0)
        assert "BAT0;" in open_at().boundary

    def test_none_says_where_it_was_looked_for(self, tmp_path: Path) -> None:
        with pytest.raises(MeterUnavailableError, match="no battery that feeds this machine under"):
            BatteryMeter(tmp_path, background=False)

    def test_one_that_says_nothing_is_named(self, tmp_path: Path) -> None:
        battery(tmp_path, capacity=80)
        with pytest.raises(MeterUnavailableError, match=r"BAT0 .*tell neither energy, nor charge"):
            BatteryMeter(tmp_path, background=False)

    def test_one_that_falls_silent_is_a_missing_reading(
        self, tmp_path: Path, open_at: Callable[[], BatteryMeter], clock: Clock
    ) -> None:
        folder = battery(tmp_path, energy_now=50_000_000)
        meter = open_at()
        with meter.window() as w:
            clock.now_s += 60.0
            (folder / "energy_now").unlink()
        assert (w.energy_j, w.reason, w.missing) == (None, "battery BAT0 does not tell what is left", 1)


class TestChoice:
    @pytest.mark.parametrize("allow_estimate", [False, True])
    def test_it_is_never_chosen_automatically(self, tmp_path: Path, allow_estimate: bool) -> None:
        battery(tmp_path, energy_now=50_000_000)
        meter = open_meter(allow_estimate=allow_estimate, seams=self.seams(tmp_path))
        assert meter.source == ("estimated:cpu-time" if allow_estimate else "none")
        meter.close()

    @pytest.mark.parametrize("device", [None, torch.device("cpu"), torch.device("cuda", 0)])
    def test_it_opens_by_name_for_any_device(self, tmp_path: Path, device: torch.device | None) -> None:
        battery(tmp_path, energy_now=50_000_000)
        meter = open_meter("battery", device=device, seams=self.seams(tmp_path))
        assert meter.source == "measured:battery-gauge"
        meter.close()

    def test_it_is_listed_with_its_slow_period(self, tmp_path: Path) -> None:
        battery(tmp_path, energy_now=50_000_000)
        (status,) = (status for status in discover(self.seams(tmp_path)) if status.name == "battery")
        assert (status.available, status.period_s, status.resolution_j) == (True, GAUGE_PERIOD_S, 3.6)

    def seams(self, tmp_path: Path) -> Seams:
        return Seams(root=tmp_path, powercap=tmp_path)


class TestRemaining:
    @pytest.mark.parametrize(
        ("files", "wh", "source"),
        [
            ({"energy_now": 42_000_000, "charge_now": 1, "voltage_now": 1}, 42.0, "energy_now"),
            (
                {"charge_now": 4_000_000, "voltage_now": 12_600_000, "voltage_min_design": 11_100_000},
                44.4,
                "charge_now x voltage_min_design",
            ),
            ({"charge_now": 4_000_000, "voltage_now": 12_000_000}, 48.0, "charge_now x voltage_now"),
            ({"capacity": 80, "energy_full": 50_000_000}, 40.0, "capacity x energy_full"),
            (
                {"capacity": 50, "charge_full": 4_000_000, "voltage_now": 12_000_000},
                24.0,
                "capacity x charge_full x voltage_now",
            ),
        ],
    )
    def test_what_is_left_and_where_from(self, tmp_path: Path, files: Files, wh: float, source: str) -> None:
        battery(tmp_path, **files)
        found = remaining_wh(tmp_path)
        assert found.wh == pytest.approx(wh)
        assert (found.source, found.reason) == (f"BAT0: {source}", None)

    @pytest.mark.parametrize("status", ["Discharging", "Charging", "Full"])
    def test_it_is_known_whatever_flows(self, tmp_path: Path, status: str) -> None:
        battery(tmp_path, energy_now=10_000_000, status=status)
        battery(tmp_path, "BAT1", capacity=50, energy_full=10_000_000, status=status)
        found = remaining_wh(tmp_path)
        assert found.wh == pytest.approx(15.0)
        assert found.source == "BAT0: energy_now; BAT1: capacity x energy_full"

    def test_a_battery_that_says_nothing_makes_it_unknown(self, tmp_path: Path) -> None:
        battery(tmp_path, energy_now=10_000_000)
        battery(tmp_path, "BAT1")
        found = remaining_wh(tmp_path)
        assert (found.wh, found.source) == (None, None)
        assert (found.reason or "").startswith("BAT1 tells neither")

    def test_none_is_unknown_not_zero(self, tmp_path: Path) -> None:
        found = remaining_wh(tmp_path)
        assert found.wh is None
        assert found.reason == f"no battery under {tmp_path}/sys/class/power_supply"
