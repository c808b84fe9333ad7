"""A Jetson's rails in temporary sysfs trees of every layout: units, what is the total, what is left out."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from gearshift.errors import MeterUnavailableError
from gearshift.profiler.meters import Ina3221Meter, Seams, discover, open_meter
from gearshift.profiler.meters.ina3221_rails import find_rails
from tests.support import Clock

DRIVERS = "sys/bus/i2c/drivers"
NEW = f"{DRIVERS}/ina3221/1-0040/hwmon/hwmon3"
BETWEEN = f"{DRIVERS}/ina3221x/1-0040/hwmon3"
OLD = f"{DRIVERS}/ina3221x/6-0040/iio:device0"
LAYOUTS = [NEW, NEW.replace("ina3221", "ina3221x"), BETWEEN, BETWEEN.replace("ina3221x", "ina3221"), OLD]
Channel = tuple[str, int, int]


def write(root: Path, folder: str, channels: dict[int, Channel]) -> Path:
    """Rails by channel as (label, mV, mA), in the files that the folder's layout has."""
    place = root / folder
    place.mkdir(parents=True, exist_ok=True)
    for channel, (label, mv, ma) in channels.items():
        if "iio:device" in folder:
            names = (f"rail_name_{channel}", f"in_voltage{channel}_input", f"in_current{channel}_input")
        else:
            names = (f"in{channel}_label", f"in{channel}_input", f"curr{channel}_input")
        for name, value in zip(names, (label, mv, ma), strict=True):
            (place / name).write_text(f"{value}\n")
    return place


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def open_at(tmp_path: Path, clock: Clock) -> Callable[[], Ina3221Meter]:
    return lambda: Ina3221Meter(tmp_path, clock=clock, background=False)


class TestLayouts:
    @pytest.mark.parametrize("folder", LAYOUTS)
    def test_millivolts_times_milliamperes_in_every_layout(
        self, tmp_path: Path, open_at: Callable[[], Ina3221Meter], clock: Clock, folder: str
    ) -> None:
        write(tmp_path, folder, {0 if "iio" in folder else 1: ("VDD_IN", 5000, 1200)})
        meter = open_at()
        with meter.window() as w:
            for _ in range(10):
                clock.now_s += 0.05
                meter.sample()
        assert w.power_w == pytest.approx(6.0)
        assert w.energy_j == pytest.approx(3.0)
        assert w.source == "measured:ina3221"

    def test_power_files_are_milliwatts_in_the_old_layout(self, tmp_path: Path) -> None:
        place = write(tmp_path, OLD, {0: ("VDD_IN", 5000, 1200)})
        (place / "in_power0_input").write_text("7000\n")
        (rail,) = find_rails(tmp_path).total
        assert rail.read_w() == pytest.approx(7.0)

    def test_power_files_are_microwatts_in_the_new_one(self, tmp_path: Path) -> None:
        place = write(tmp_path, NEW, {1: ("VDD_IN", 5000, 0)})
        (place / "curr1_input").unlink()
        (place / "power1_input").write_text("7000000\n")
        (rail,) = find_rails(tmp_path).total
        assert rail.read_w() == pytest.approx(7.0)

    def test_one_monitor_seen_under_both_names_is_one(self, tmp_path: Path) -> None:
        write(tmp_path, NEW, {1: ("GPU", 5000, 1000)})
        other = tmp_path / DRIVERS / "ina3221x"
        other.mkdir()
        (other / "1-0040").symlink_to(tmp_path / DRIVERS / "ina3221" / "1-0040")
        assert [rail.label for rail in find_rails(tmp_path).total] == ["GPU"]

    def test_rails_of_one_name_on_two_monitors_are_two(self, tmp_path: Path) -> None:
        write(tmp_path, NEW, {1: ("GPU", 5000, 1000)})
        write(tmp_path, NEW.replace("1-0040", "1-0041"), {1: ("GPU", 5000, 1000)})
        labels = [rail.label for rail in find_rails(tmp_path).total]
        assert len(set(labels)) == 2

    def test_thor_s_input_has_a_monitor_of_its_own_kind(self, tmp_path: Path) -> None:
        write(tmp_path, NEW, {1: ("VDD_GPU", 5000, 1000)})
        place = tmp_path / DRIVERS / "ina238" / "2-0044" / "hwmon" / "hwmon5"
        place.mkdir(parents=True)
        (place / "power1_input").write_text("61500000\n")
        board = find_rails(tmp_path)
        assert [(rail.label, rail.read_w()) for rail in board.total] == [("VIN", pytest.approx(61.5))]
        assert [rail.label for rail in board.parts] == ["VDD_GPU"]


class TestTotal:
    @pytest.mark.parametrize("label", ["VDD_IN", "POM_5V_IN", "VDD_MUX"])
    def test_the_input_rail_is_the_total_and_parts_are_not_added(
        self, tmp_path: Path, open_at: Callable[[], Ina3221Meter], clock: Clock, label: str
    ) -> None:
        write(tmp_path, NEW, {1: (label, 5000, 2000), 2: ("GPU", 5000, 800), 3: ("CPU", 5000, 400)})
        meter = open_at()
        with meter.window() as w:
            clock.now_s += 0.5
        assert w.energy_j == pytest.approx(5.0)
        assert w.parts == pytest.approx({label: 5.0, "GPU": 2.0, "CPU": 1.0})
        assert meter.notes == ()
        assert meter.boundary.startswith(f"whole board as seen by {label},")

    def test_without_an_input_rail_the_sum_is_named_partial(
        self, tmp_path: Path, open_at: Callable[[], Ina3221Meter], clock: Clock
    ) -> None:
        write(
            tmp_path, NEW, {1: ("VDD_GPU_SOC", 5000, 800), 2: ("VDD_CPU_CV", 5000, 400), 3: ("VIN_SYS_5V0", 5000, 600)}
        )
        meter = open_at()
        with meter.window() as w:
            clock.now_s += 0.5
        assert w.energy_j == pytest.approx(4.5)
        assert "no input rail" in meter.notes[0]

    @pytest.mark.parametrize("labels", [("GPU",), ("GPU", "CPU"), ("VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0")])
    @pytest.mark.parametrize("unreadable", [None, "VDD_IN"])
    def test_without_an_input_rail_the_boundary_is_only_those_rails(
        self, tmp_path: Path, open_at: Callable[[], Ina3221Meter], labels: tuple[str, ...], unreadable: str | None
    ) -> None:
        write(tmp_path, NEW, {channel: (label, 5000, 800) for channel, label in enumerate(labels, 1)})
        if unreadable is not None:
            place = write(tmp_path, NEW.replace("1-0040", "1-0041"), {1: (unreadable, 5000, 2000)})
            (place / "curr1_input").write_text("\n")
        boundary = open_at().boundary
        rails = "rail" if len(labels) == 1 else "rails"
        assert boundary.startswith(f"only the {rails} {' + '.join(labels)}, not the whole board,")
        assert "excluded" in boundary

    def test_what_is_no_rail_is_left_out(self, tmp_path: Path) -> None:
        place = write(
            tmp_path,
            NEW,
            {
                1: ("GPU", 5000, 800),
                2: ("NC", 5000, 700),
                3: ("CPU", 5000, 400),
                7: ("sum of shunt voltages", 12, 99),
            },
        )
        (place / "in3_enable").write_text("0\n")
        assert [rail.label for rail in find_rails(tmp_path).total] == ["GPU"]

    def test_a_rail_that_cannot_be_read_is_named_and_left_out(self, tmp_path: Path) -> None:
        place = write(tmp_path, NEW, {1: ("GPU", 5000, 800), 2: ("CPU", 5000, 700)})
        (place / "curr2_input").write_text("\n")
        board = find_rails(tmp_path)
        assert [rail.label for rail in board.total] == ["GPU"]
        assert board.notes[0].startswith("left out: rail CPU")


class TestFailures:
    def test_no_tree_says_where_it_was_looked_for(self, tmp_path: Path) -> None:
        with pytest.raises(MeterUnavailableError, match=f"no power rails under {tmp_path}/{DRIVERS}/ina3221"):
            Ina3221Meter(tmp_path, background=False)

    def test_an_input_rail_that_fails_is_a_missing_sample(
        self, tmp_path: Path, open_at: Callable[[], Ina3221Meter], clock: Clock
    ) -> None:
        place = write(tmp_path, NEW, {1: ("VDD_IN", 5000, 2000)})
        meter = open_at()
        w = meter.window().open()
        for step in range(1, 11):
            clock.now_s = step * 0.05
            (place / "curr1_input").write_text("x" if 3 <= step <= 5 else "2000")
            meter.sample()
        w.close()
        assert w.missing == 3
        assert w.energy_j == pytest.approx(5.0)
        assert [text.split(":")[0] for text in w.warnings] == ["missing readings"]

    def test_a_part_that_fails_costs_only_itself(
        self, tmp_path: Path, open_at: Callable[[], Ina3221Meter], clock: Clock
    ) -> None:
        place = write(tmp_path, NEW, {1: ("VDD_IN", 5000, 2000), 2: ("GPU", 5000, 800)})
        meter = open_at()
        with meter.window() as w:
            clock.now_s += 0.5
            (place / "curr2_input").unlink()
        assert w.energy_j == pytest.approx(5.0)
        assert w.parts["GPU"] is None
        assert w.warnings == ("partial: GPU could not be read",)

    def test_a_slip_of_units_is_rejected(
        self, tmp_path: Path, open_at: Callable[[], Ina3221Meter], clock: Clock
    ) -> None:
        place = write(tmp_path, NEW, {1: ("VDD_IN", 5000, 2000)})
        meter = open_at()
        with meter.window() as w:
            clock.now_s += 0.25
            (place / "curr1_input").write_text("2000000")
            meter.sample()
            clock.now_s += 0.25
            (place / "curr1_input").write_text("2000")
        assert (w.energy_j, w.missing) == (pytest.approx(5.0), 1)

    def test_the_thread_samples_while_a_window_is_open(self, tmp_path: Path) -> None:
        write(tmp_path, NEW, {1: ("VDD_IN", 5000, 2000)})
        with Ina3221Meter(tmp_path) as meter, meter.window() as w:
            first = meter.read().fresh or 0
            while (meter.read().fresh or 0) < first + 5:
                pass
        assert w.power_w == pytest.approx(10.0)


class Nvml:
    """Starts, lists one board and answers nothing, as on a Jetson."""

    class NVMLError(Exception): ...

    def __getattr__(self, name: str) -> Callable[..., int]:
        if not name.startswith("nvml"):
            raise AttributeError(name)

        def answer(*_: object) -> int:
            if name in ("nvmlInit", "nvmlShutdown", "nvmlDeviceGetHandleByIndex"):
                return 0
            if name == "nvmlDeviceGetCount":
                return 1
            raise self.NVMLError("Not Supported")

        return answer


class TestChoice:
    @pytest.mark.parametrize("device", [None, torch.device("cpu"), torch.device("cuda", 0)])
    def test_a_jetson_whose_nvml_answers_nothing_is_measured_by_its_rails(
        self, tmp_path: Path, device: torch.device | None
    ) -> None:
        write(tmp_path, NEW, {1: ("VDD_IN", 5000, 2000)})
        meter = open_meter(device=device, seams=self.seams(tmp_path))
        assert meter.source == "measured:ina3221"
        meter.close()

    def test_without_rails_nothing_stands_in_for_the_board(self, tmp_path: Path) -> None:
        meter = open_meter(device=torch.device("cuda", 0), seams=self.seams(tmp_path))
        assert meter.source == "none"
        assert [name in meter.notes[0] for name in ("nvml:", "amd:", "ina3221:", "jtop:")] == [True] * 4

    def test_it_is_listed_with_its_period(self, tmp_path: Path) -> None:
        write(tmp_path, NEW, {1: ("VDD_IN", 5000, 2000)})
        (status,) = (status for status in discover(self.seams(tmp_path)) if status.name == "ina3221")
        assert (status.available, status.period_s, status.resolution_j) == (True, 0.05, None)

    def seams(self, tmp_path: Path) -> Seams:
        return Seams(binding=Nvml(), is_hip=False, root=tmp_path, powercap=tmp_path, environ={}, uuid_of=lambda _: None)
