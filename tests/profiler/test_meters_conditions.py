"""Conditions of a processor from temporary sysfs trees; those of boards are beside their libraries' tests."""

import json
import os
from pathlib import Path

import pytest
import torch

from gearshift.profiler.meters import Conditions, Seams, read_conditions
from gearshift.profiler.meters.conditions import FIELDS


def write(root: Path, files: dict[str, object]) -> None:
    for file, value in files.items():
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(f"{value}\n")


def read(root: Path) -> Conditions:
    return read_conditions(None, Seams(root=root, powercap=root / "powercap"))


def usable() -> list[int]:
    return sorted(os.sched_getaffinity(0))


class TestClock:
    def test_the_mean_over_the_processors_that_may_be_used(self, tmp_path: Path) -> None:
        folder = "sys/devices/system/cpu"
        clocks = {index: 1_000_000 + 250_000 * position for position, index in enumerate(usable())}
        stranger = max(clocks) + 1
        clocks_and_stranger = {**clocks, stranger: 9_000_000}
        write(tmp_path, {f"{folder}/cpu{i}/cpufreq/scaling_cur_freq": khz for i, khz in clocks_and_stranger.items()})
        assert read(tmp_path).clock_mhz == pytest.approx(sum(clocks.values()) / len(clocks) / 1e3)

    def test_else_what_cpuinfo_says(self, tmp_path: Path) -> None:
        write(tmp_path, {"proc/cpuinfo": "processor : 0\ncpu MHz\t\t: 2000.5\n\nprocessor : 1\ncpu MHz\t\t: 3000.5"})
        assert read(tmp_path).clock_mhz == pytest.approx(2500.5)


class TestTemperature:
    @pytest.mark.parametrize(
        "kind", ["x86_pkg_temp", "cpu-thermal", "CPU-therm", "TCPU", "soc_thermal", "cpu0_thermal"]
    )
    def test_the_processor_s_zone_whatever_it_is_called(self, tmp_path: Path, kind: str) -> None:
        zones = "sys/class/thermal"
        write(
            tmp_path,
            {
                f"{zones}/thermal_zone0/type": "acpitz",
                f"{zones}/thermal_zone0/temp": 99_000,
                f"{zones}/thermal_zone1/type": kind,
                f"{zones}/thermal_zone1/temp": 54_250,
            },
        )
        assert read(tmp_path).temperature_c == 54.25

    @pytest.mark.parametrize("driver", ["coretemp", "k10temp"])
    def test_else_the_hottest_of_its_sensors(self, tmp_path: Path, driver: str) -> None:
        hwmon = "sys/class/hwmon"
        write(
            tmp_path,
            {
                f"{hwmon}/hwmon0/name": "nvme",
                f"{hwmon}/hwmon0/temp1_input": 80_000,
                f"{hwmon}/hwmon1/name": driver,
                f"{hwmon}/hwmon1/temp1_input": 51_000,
                f"{hwmon}/hwmon1/temp2_input": 62_500,
                f"{hwmon}/hwmon1/temp3_input": "broken",
            },
        )
        assert read(tmp_path).temperature_c == 62.5


class TestPowerLimit:
    def zone(self, root: Path, folder: str, name: str, watts: float, constraint: str = "long_term") -> None:
        write(
            root / "powercap" / folder,
            {
                "name": name,
                "constraint_0_name": constraint,
                "constraint_0_power_limit_uw": round(watts * 1e6),
                "constraint_1_name": "short_term",
                "constraint_1_power_limit_uw": 999_000_000,
            },
        )

    def test_packages_are_added_and_the_counters_need_not_be_readable(self, tmp_path: Path) -> None:
        self.zone(tmp_path, "intel-rapl:0", "package-0", 125.0)
        self.zone(tmp_path, "intel-rapl:1", "package-1", 100.0)
        self.zone(tmp_path, "intel-rapl:0:0", "core", 77.0)
        self.zone(tmp_path, "intel-rapl:2", "psys", 500.0)
        assert read(tmp_path).power_limit_w == 225.0

    def test_of_two_providers_of_one_package_the_lower_limit_holds(self, tmp_path: Path) -> None:
        self.zone(tmp_path, "intel-rapl:0", "package-0", 125.0)
        self.zone(tmp_path, "intel-rapl-mmio:0", "package-0", 45.0)
        assert read(tmp_path).power_limit_w == 45.0

    def test_no_long_term_limit_is_unknown(self, tmp_path: Path) -> None:
        self.zone(tmp_path, "intel-rapl:0", "package-0", 125.0, constraint="peak_power")
        found = read(tmp_path)
        assert found.power_limit_w is None
        assert "no package with a power limit" in found.missing["power_limit_w"]


class TestThrottling:
    COUNTER = "sys/devices/system/cpu/cpu{}/thermal_throttle/{}_throttle_count"

    def counts(self, root: Path, core: int, package: int) -> None:
        for cpu in (0, 1):
            write(root, {self.COUNTER.format(cpu, "core"): core, self.COUNTER.format(cpu, "package"): package})

    def test_counters_tell_from_the_second_look_on(self, tmp_path: Path) -> None:
        self.counts(tmp_path, core=7, package=3)
        first = read(tmp_path)
        assert first.throttle_reasons is None
        assert "from this first look on" in first.missing["throttle_reasons"]
        assert read(tmp_path).throttle_reasons == ()
        self.counts(tmp_path, core=8, package=3)
        assert read(tmp_path).throttle_reasons == ("core_thermal",)
        self.counts(tmp_path, core=8, package=4)
        assert read(tmp_path).throttle_reasons == ("core_thermal", "package_thermal")

    def test_a_look_does_not_take_an_event_from_the_next(self, tmp_path: Path) -> None:
        self.counts(tmp_path, core=7, package=3)
        read(tmp_path)
        self.counts(tmp_path, core=8, package=3)
        assert [read(tmp_path).throttle_reasons for _ in range(3)] == [("core_thermal",)] * 3

    @pytest.mark.parametrize(("state", "reasons"), [(0, ()), (3, ("passive_cooling",))])
    def test_passive_cooling_is_told_at_once(self, tmp_path: Path, state: int, reasons: tuple[str, ...]) -> None:
        cooling = "sys/class/thermal"
        write(
            tmp_path,
            {
                f"{cooling}/cooling_device0/type": "Processor",
                f"{cooling}/cooling_device0/cur_state": state,
                f"{cooling}/cooling_device1/type": "Fan",
                f"{cooling}/cooling_device1/cur_state": 5,
            },
        )
        assert read(tmp_path).throttle_reasons == reasons


class TestNothingThere:
    def test_every_field_is_unknown_with_a_reason(self, tmp_path: Path) -> None:
        found = read(tmp_path)
        assert [getattr(found, name) for name in FIELDS] == [None] * len(FIELDS)
        assert set(found.missing) == set(FIELDS)
        assert all(found.missing.values())

    @pytest.mark.parametrize("kind", ["mps", "meta", "xpu"])
    def test_other_devices_are_no_exception(self, kind: str) -> None:
        found = read_conditions(torch.device(kind))
        assert set(found.missing) == set(FIELDS)
        assert kind in found.missing["clock_mhz"]

    @pytest.mark.parametrize("device", [None, torch.device("cpu"), torch.device("cuda", 0), torch.device("cuda", 99)])
    def test_this_machine_never_raises(self, device: torch.device | None) -> None:
        found = read_conditions(device)
        assert {name for name in FIELDS if getattr(found, name) is None} == set(found.missing)

    def test_it_goes_into_json(self, tmp_path: Path) -> None:
        document = json.loads(json.dumps(read(tmp_path).to_dict(), allow_nan=False))
        assert set(document) == {*FIELDS, "missing"}
