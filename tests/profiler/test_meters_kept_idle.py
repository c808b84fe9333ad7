"""Idle power that is only measured while nobody works, and kept with the device."""

import json
import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gearshift.profiler.device import DeviceIdentity
from gearshift.profiler.device_store import DeviceStore
from gearshift.profiler.meters import (
    BaseMeter,
    CpuTimeEstimate,
    IdlePower,
    NullMeter,
    Precision,
    Reading,
    keep_idle,
    kept_idle,
    measure_quiet_idle,
    net_energy_j,
)
from gearshift.profiler.meters.cpu_info import CpuInfo
from tests.support import Clock

HERE = DeviceIdentity(kind="cpu", name="Some CPU", threads=8, memory_bytes=2**30, torch_version="2.14.1")
MONDAY = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


class Steady(BaseMeter):
    """20 W, whatever happens."""

    def __init__(self, clock: Clock, name: str = "steady", source: str = "measured:steady") -> None:
        super().__init__(
            name=name,
            source=source,
            boundary="a device",
            precision=Precision(resolution_s=0.1, relative=0.05),
            clock=clock,
        )

    def _read(self) -> Reading:
        return Reading(time_s=self._clock(), energy_j=20.0 * self._clock())


class SteadyBoard(Steady):
    """The same on a board that says who computes there."""

    def __init__(self, clock: Clock, *processes: int) -> None:
        super().__init__(clock)
        self.processes = processes

    def compute_processes(self) -> tuple[int, ...]:
        return self.processes


def stat(root: Path, user: int, idle: int) -> None:
    (root / "proc").mkdir(exist_ok=True)
    (root / "proc/stat").write_text(f"cpu  {user} 0 0 {idle} 0 0 0 0 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\n")


class TestQuiet:
    def test_processes_on_the_board_are_named_and_nothing_is_measured(self) -> None:
        clock = Clock()
        idle = measure_quiet_idle(SteadyBoard(clock, 4321, 17), 5.0, sleep=clock.sleep)
        assert (idle.power_w, clock.now_s) == (None, 0.0)
        assert idle.reason == "processes compute on the board: 4321, 17: end them first"

    def test_this_process_does_not_stand_in_its_own_way(self) -> None:
        clock = Clock()
        assert measure_quiet_idle(SteadyBoard(clock, os.getpid()), 5.0, sleep=clock.sleep).power_w == 20.0

    @pytest.mark.parametrize(("busy_ticks", "power_w"), [(0, 20.0), (40, 20.0), (200, None)])
    def test_a_busy_machine_has_no_idle_power(self, tmp_path: Path, busy_ticks: int, power_w: float | None) -> None:
        clock = Clock()
        stat(tmp_path, user=1000, idle=5000)

        def work(seconds: float) -> None:
            clock.sleep(seconds)
            stat(tmp_path, user=1000 + busy_ticks, idle=5000 + 1000 - busy_ticks)

        idle = measure_quiet_idle(Steady(clock), 5.0, root=tmp_path, sleep=work)
        assert idle.power_w == power_w
        assert (idle.reason is None) == (power_w is not None)
        if power_w is None:
            assert "the machine was busy: 20% of its processors' time" in (idle.reason or "")

    @pytest.mark.parametrize("text", [None, "", "cpu  x y\n", "intr 1 2 3\n"])
    def test_a_system_that_does_not_tell_is_taken_as_it_is(self, tmp_path: Path, text: str | None) -> None:
        clock = Clock()
        if text is not None:
            (tmp_path / "proc").mkdir()
            (tmp_path / "proc/stat").write_text(text)
        assert measure_quiet_idle(Steady(clock), 5.0, root=tmp_path, sleep=clock.sleep).power_w == 20.0


class TestKeeping:
    def keep(self, store: DeviceStore, meter: BaseMeter, clock: Clock) -> None:
        idle = measure_quiet_idle(meter, 10.0, sleep=clock.sleep, root=store.folder)
        assert keep_idle(idle, meter, HERE, store, now=MONDAY) is None

    def test_what_is_kept_comes_back_with_its_age(self, tmp_path: Path) -> None:
        store, clock = DeviceStore(tmp_path), Clock()
        meter = Steady(clock)
        assert kept_idle(meter, HERE, store) is None
        self.keep(store, meter, clock)
        found = kept_idle(meter, HERE, store)
        assert found is not None
        assert (found.power_w, found.seconds, found.source) == (20.0, 10.0, "measured:steady")
        assert found.uncertainty_w is not None
        assert found.age_s(MONDAY + timedelta(hours=2)) == 7200.0

    def test_it_is_of_one_device_meter_and_source_only(self, tmp_path: Path) -> None:
        store, clock = DeviceStore(tmp_path), Clock()
        self.keep(store, Steady(clock), clock)
        assert kept_idle(Steady(clock), replace(HERE, threads=4), store) is None
        assert kept_idle(Steady(clock, name="other"), HERE, store) is None
        assert kept_idle(Steady(clock, source="measured:otherwise"), HERE, store) is None

    def test_meters_of_one_device_are_kept_apart(self, tmp_path: Path) -> None:
        store, clock = DeviceStore(tmp_path), Clock()
        meters = [Steady(clock, name=name) for name in ("nvml:0", "nvml:1", "rapl")]
        for meter in meters:
            self.keep(store, meter, clock)
        assert len({store.path(HERE, f"idle-{meter.name}") for meter in meters}) == 3
        assert all(kept_idle(meter, HERE, store) is not None for meter in meters)

    def test_net_energy_can_be_told_from_it(self, tmp_path: Path) -> None:
        store, clock = DeviceStore(tmp_path), Clock()
        self.keep(store, Steady(clock), clock)
        found = kept_idle(Steady(clock), HERE, store)
        assert found is not None
        assert net_energy_j(600.0, 10.0, found.to_idle_power()) == 400.0
        assert "kept since 2026-03-02T12:00:00" in found.to_idle_power().how

    def test_what_was_not_measured_is_not_kept(self, tmp_path: Path) -> None:
        store = DeviceStore(tmp_path)
        cpu = CpuInfo(model="Chip 8", sockets=1, threads=4, usable_threads=4, is_virtual=False)
        estimate, nothing = CpuTimeEstimate(cpu=cpu), NullMeter("no sensor")
        constant = measure_quiet_idle(estimate, 1.0, sleep=lambda _: None, root=tmp_path)
        assert "constant of cpu-time" in (keep_idle(constant, estimate, HERE, store) or "")
        unknown = measure_quiet_idle(nothing, 1.0, sleep=lambda _: None, root=tmp_path)
        assert keep_idle(unknown, nothing, HERE, store) == "no sensor"
        assert list(tmp_path.glob("*.json")) == []

    def test_a_folder_that_cannot_be_written_says_so(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("in the way")
        idle = IdlePower(power_w=1.0, seconds=1.0, uncertainty_w=None, source="measured:steady", how="h")
        problem = keep_idle(idle, Steady(Clock()), HERE, DeviceStore(tmp_path / "file" / "below"))
        assert (problem or "").startswith("not kept for next time")

    @pytest.mark.parametrize(
        "change",
        [
            {"power_w": "much"},
            {"power_w": None},
            {"measured_at": "yesterday"},
            {"measured_at": "2026-03-02T12:00:00"},
            {"warnings": 3},
            {"more": 1},
        ],
    )
    def test_damaged_figures_are_as_good_as_none(self, tmp_path: Path, change: dict[str, object]) -> None:
        store, clock = DeviceStore(tmp_path), Clock()
        self.keep(store, Steady(clock), clock)
        path = store.path(HERE, "idle-steady")
        document = json.loads(path.read_text())
        document["figures"].update(change)
        path.write_text(json.dumps(document))
        assert kept_idle(Steady(clock), HERE, store) is None
