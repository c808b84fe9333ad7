"""NVML over two libraries that answer alike: a Python double, and a C one behind the real nvidia-ml-py."""

import ctypes
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

import pynvml
import pytest
import torch
from torch import nn

from gearshift.errors import MeterUnavailableError
from gearshift.profiler import OperatorType, register_operator
from gearshift.profiler.meters import (
    MeterStatus,
    NvmlMeter,
    Seams,
    discover,
    open_meter,
    read_conditions,
    visible_board,
)
from gearshift.profiler.meters.conditions import FIELDS
from gearshift.profiler.meters.nvml_conditions import throttle_reasons
from gearshift.profiler.meters.nvml_device import as_text, driver_version
from gearshift.profiler.operator_energy import measure_operator_energy
from tests.support import Clock

STUB = Path(__file__).with_name("nvml_stub.c")
NOT_SUPPORTED, LIBRARY_NOT_FOUND, UNKNOWN, NOT_READY, DRIVER_NOT_LOADED, GPU_IS_LOST = 3, 12, 999, 27, 9, 15
USAGE, AVERAGE, INSTANT = range(3)
CUDA = torch.device("cuda", 0)


class Library(Protocol):
    """What a test sets; `binding` is what the meter calls."""

    binding: Any

    def reset(self, boards: int = 1, init_status: int = 0) -> None: ...
    def name(self, board: int, name: bytes) -> None: ...
    def limit(self, board: int, limit_mw: int) -> None: ...
    def energy(self, board: int, energy_mj: int, status: int = 0) -> None: ...
    def power(self, board: int, kind: int, power_mw: int, status: int = 0) -> None: ...
    def slice(self, board: int, place: int, uuid: bytes) -> None: ...
    def process(self, board: int, pid: int) -> None: ...
    def throttle(self, board: int, bits: int) -> None: ...
    def conditions(self, board: int, status: int) -> None: ...
    def users(self) -> int: ...


@dataclass
class Board:
    uuid: str
    name: bytes = b"Stub Board"
    limit_mw: int = 400_000
    energy: tuple[int, int] = (1_000_000, 0)
    power: list[tuple[int, int]] = field(default_factory=lambda: [(50_000, 0)] * 3)
    slices: dict[int, "Board"] = field(default_factory=dict)
    pids: list[int] = field(default_factory=list)
    throttle: int = 0
    conditions: int = 0


class PythonLibrary:
    """Behaves like `pynvml` as far as meters call it."""

    def __init__(self) -> None:
        self.binding = self
        self.reset()

    def reset(self, boards: int = 1, init_status: int = 0) -> None:
        uuids = ("GPU-aaaa-0", "GPU-bbbb-1", "GPU-cccc-2", "GPU-dddd-3")
        self.boards = [Board(uuid) for uuid in uuids[:boards]]
        self.init_status, self.open = init_status, 0

    def name(self, board: int, name: bytes) -> None:
        self.boards[board].name = name

    def limit(self, board: int, limit_mw: int) -> None:
        self.boards[board].limit_mw = limit_mw

    def energy(self, board: int, energy_mj: int, status: int = 0) -> None:
        self.boards[board].energy = (energy_mj, status)

    def power(self, board: int, kind: int, power_mw: int, status: int = 0) -> None:
        self.boards[board].power[kind] = (power_mw, status)

    def slice(self, board: int, place: int, uuid: bytes) -> None:
        self.boards[board].slices[place] = Board(uuid.decode())

    def process(self, board: int, pid: int) -> None:
        self.boards[board].pids.append(pid)

    def throttle(self, board: int, bits: int) -> None:
        self.boards[board].throttle = bits

    def conditions(self, board: int, status: int) -> None:
        self.boards[board].conditions = status

    def users(self) -> int:
        return self.open

    NVMLError = pynvml.NVMLError
    NVML_FI_DEV_POWER_AVERAGE, NVML_FI_DEV_POWER_INSTANT = 185, 186

    def nvmlInit(self) -> None:  # noqa: N802
        self._check(self.init_status)
        self.open += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.open -= 1

    def nvmlErrorString(self, status: int) -> bytes:  # noqa: N802
        return b"Not Supported" if status == NOT_SUPPORTED else b"Stub Error"

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802
        return "575.51"

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.boards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Board:  # noqa: N802
        self._check(0 if index < len(self.boards) else 2)
        return self.boards[index]

    def nvmlDeviceGetName(self, board: Board) -> str:  # noqa: N802
        return board.name.decode()

    def nvmlDeviceGetUUID(self, board: Board) -> str:  # noqa: N802
        return board.uuid

    def nvmlDeviceGetEnforcedPowerLimit(self, board: Board) -> int:  # noqa: N802
        self._check(0 if board.limit_mw else NOT_SUPPORTED)
        return board.limit_mw

    def nvmlDeviceGetTotalEnergyConsumption(self, board: Board) -> int:  # noqa: N802
        self._check(board.energy[1])
        return board.energy[0]

    def nvmlDeviceGetPowerUsage(self, board: Board) -> int:  # noqa: N802
        self._check(board.power[USAGE][1])
        return board.power[USAGE][0]

    def nvmlDeviceGetFieldValues(self, board: Board, fields: list[int]) -> list[SimpleNamespace]:  # noqa: N802
        readings = [board.power[AVERAGE if identifier == 185 else INSTANT] for identifier in fields]
        return [SimpleNamespace(nvmlReturn=s, value=SimpleNamespace(uiVal=mw)) for mw, s in readings]

    def nvmlDeviceGetMigMode(self, board: Board) -> list[int]:  # noqa: N802
        return [int(bool(board.slices)), 0]

    def nvmlDeviceGetMaxMigDeviceCount(self, board: Board) -> int:  # noqa: N802
        return 3

    def nvmlDeviceGetMigDeviceHandleByIndex(self, board: Board, place: int) -> Board:  # noqa: N802
        self._check(0 if place in board.slices else 6)
        return board.slices[place]

    def nvmlDeviceGetComputeRunningProcesses(self, board: Board) -> list[SimpleNamespace]:  # noqa: N802
        return [SimpleNamespace(pid=pid) for pid in board.pids]

    def nvmlDeviceGetTemperature(self, board: Board, sensor: int) -> int:  # noqa: N802
        self._check(board.conditions)
        return {0: 61}[sensor]

    def nvmlDeviceGetClockInfo(self, board: Board, kind: int) -> int:  # noqa: N802
        self._check(board.conditions)
        return {1: 1410, 2: 1593}[kind]

    def nvmlDeviceGetCurrentClocksEventReasons(self, board: Board) -> int:  # noqa: N802
        self._check(board.conditions)
        return board.throttle

    def _check(self, status: int) -> None:
        if status:
            raise pynvml.NVMLError(status)


class SharedLibrary:
    """The C double behind a private copy of nvidia-ml-py, so that no other test sees it."""

    def __init__(self, path: Path) -> None:
        self.library = ctypes.CDLL(str(path))
        self.binding = _private_binding()
        self.binding.nvmlLib = self.library
        self.kept: list[bytes] = []
        self.reset()

    def reset(self, boards: int = 1, init_status: int = 0) -> None:
        self.library.stub_reset(boards, init_status)

    def name(self, board: int, name: bytes) -> None:
        self.kept.append(name)
        self.library.stub_name(board, ctypes.c_char_p(name))

    def limit(self, board: int, limit_mw: int) -> None:
        self.library.stub_limit(board, limit_mw)

    def energy(self, board: int, energy_mj: int, status: int = 0) -> None:
        self.library.stub_energy(board, ctypes.c_ulonglong(energy_mj), status)

    def power(self, board: int, kind: int, power_mw: int, status: int = 0) -> None:
        self.library.stub_power(board, kind, power_mw, status)

    def slice(self, board: int, place: int, uuid: bytes) -> None:
        self.kept.append(uuid)
        self.library.stub_slice(board, place, ctypes.c_char_p(uuid))

    def process(self, board: int, pid: int) -> None:
        self.library.stub_process(board, pid)

    def throttle(self, board: int, bits: int) -> None:
        self.library.stub_throttle(board, ctypes.c_ulonglong(bits))

    def conditions(self, board: int, status: int) -> None:
        self.library.stub_conditions_status(board, status)

    def users(self) -> int:
        return int(self.library.stub_users())


def _private_binding() -> Any:
    specification = importlib.util.spec_from_file_location("pynvml_of_the_stub", pynvml.__file__)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module  # it looks its own error classes up there
    specification.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def stub_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here to build the stand-in for libnvidia-ml.so.1")
    folder = tmp_path_factory.mktemp("nvml")
    options = ["-shared", "-fPIC", "-O1"]
    for name, more in (("libnvidia-ml.so.1", ["-Wl,-soname,libnvidia-ml.so.1"]), ("private.so", [])):
        subprocess.run([compiler, *options, *more, "-o", folder / name, STUB], check=True)
    return folder


@pytest.fixture(params=["python", "shared library"])
def library(request: pytest.FixtureRequest) -> Iterator[Library]:
    if request.param == "python":
        yield PythonLibrary()
    else:
        yield SharedLibrary(request.getfixturevalue("stub_path") / "private.so")
        sys.modules.pop("pynvml_of_the_stub")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def open_board(library: Library, clock: Clock) -> Callable[..., NvmlMeter]:
    def open_it(index: int | str = 0) -> NvmlMeter:
        return NvmlMeter(index, binding=library.binding, clock=clock, background=False)

    return open_it


def without_counter(library: Library, board: int = 0) -> None:
    library.energy(board, 0, NOT_SUPPORTED)


class TestCounter:
    def test_millijoules_become_joules(
        self, library: Library, open_board: Callable[..., NvmlMeter], clock: Clock
    ) -> None:
        meter = open_board()
        with meter.window() as w:
            clock.now_s += 2.0
            library.energy(0, 1_000_000 + 123_456)
        assert (w.energy_j, w.power_w, w.samples) == (123.456, 61.728, 2)
        assert (w.source, w.reason, w.warnings) == ("measured:nvml-energy-counter", None, ())
        assert "GPU board only" in meter.boundary
        assert "host excluded" in meter.boundary

    def test_scripted_power_gives_the_scripted_energy(
        self, library: Library, open_board: Callable[..., NvmlMeter], clock: Clock
    ) -> None:
        # 70, 30, 30 W for 100 ms each: 7, 3, 3 J
        meter, counter_mj, found = open_board(), 1_000_000, []
        for power_w in (70, 30, 30):
            with meter.window() as w:
                clock.now_s += 0.1
                counter_mj += power_w * 100
                library.energy(0, counter_mj)
            found.append(w.energy_j)
        assert found == pytest.approx([7.0, 3.0, 3.0])

    def test_a_counter_that_goes_back_spoils_one_window(
        self, library: Library, open_board: Callable[..., NvmlMeter], clock: Clock
    ) -> None:
        library.energy(0, 5_000_000)
        meter = open_board()
        with meter.window() as spoilt:
            clock.now_s += 1.0
            library.energy(0, 1_000)
        with meter.window() as good:
            clock.now_s += 1.0
            library.energy(0, 51_000)
        assert spoilt.energy_j is None
        assert spoilt.power_w is None
        assert spoilt.reason is not None
        assert spoilt.reason.startswith("counter_reset: the counter went back from 5000000 to 1000")
        assert good.energy_j == 50.0

    def test_a_window_shorter_than_the_update_is_flagged(
        self, library: Library, open_board: Callable[..., NvmlMeter], clock: Clock
    ) -> None:
        meter = open_board()
        with meter.window() as moved:
            clock.now_s += 0.02
            library.energy(0, 1_007_000)
        with meter.window() as still:
            clock.now_s += 0.02
        assert moved.energy_j == 7.0
        assert moved.warnings == ("shorter than counter update: 0.02 s < 0.1 s",)
        assert moved.uncertainty_j is not None
        assert moved.uncertainty_j >= moved.energy_j
        assert still.energy_j is None
        assert still.reason == "stale: no fresh reading within the window (0.02 s)"

    def test_a_jump_that_no_board_can_draw_is_rejected(
        self, library: Library, open_board: Callable[..., NvmlMeter], clock: Clock
    ) -> None:
        meter = open_board()
        with meter.window() as w:
            clock.now_s += 1.0
            library.energy(0, 1_000_000 + 12_572_969_000)
        assert w.energy_j is None
        assert w.reason is not None
        assert w.reason.startswith("implausible")

    def test_a_counter_that_disagrees_with_power_is_reported(
        self, library: Library, open_board: Callable[..., NvmlMeter], clock: Clock
    ) -> None:
        library.power(0, AVERAGE, 65_300)
        meter = open_board()
        with meter.window() as w:
            meter.sample()
            for step in range(1, 51):
                clock.now_s = step * 0.1
                library.energy(0, 1_000_000 + round(187_400 * step / 50))
                meter.sample()
        assert w.energy_j == pytest.approx(187.4)
        assert w.samples == 51
        assert [text.split(":")[0] for text in w.warnings] == ["discrepancy 74%"]

    def test_power_that_fails_beside_a_counter_costs_only_the_check(
        self, library: Library, open_board: Callable[..., NvmlMeter], clock: Clock
    ) -> None:
        meter = open_board()
        library.power(0, AVERAGE, 0, UNKNOWN)
        with meter.window() as w:
            for step in range(1, 101):
                clock.now_s = step * 0.1
                library.energy(0, 1_000_000 + 6_000 * step)
                meter.sample()
        assert (w.energy_j, w.missing, w.warnings) == (600.0, 0, ())


class TestSampledPower:
    @pytest.mark.parametrize(
        ("failing", "source", "resolution_s"),
        [
            ([], "measured:nvml-power-average", 1.0),
            ([AVERAGE], "measured:nvml-power-instant", 0.1),
            ([AVERAGE, INSTANT], "measured:nvml-power-usage", 1.0),
        ],
    )
    def test_the_kind_of_power_is_named(
        self,
        library: Library,
        open_board: Callable[..., NvmlMeter],
        failing: list[int],
        source: str,
        resolution_s: float,
    ) -> None:
        without_counter(library)
        for kind in failing:
            library.power(0, kind, 0, NOT_SUPPORTED)
        meter = open_board()
        assert meter.source == source
        assert meter.precision.resolution_s == resolution_s

    def test_power_is_integrated_by_trapezoids(
        self, library: Library, open_board: Callable[..., NvmlMeter], clock: Clock
    ) -> None:
        without_counter(library)
        powers_w = [50.0, 60.0, 80.0, 80.0, 40.0, 50.0]
        meter = open_board()
        w = meter.window()
        for step, power_w in enumerate(powers_w):
            clock.now_s = 10.0 + step * 0.5
            library.power(0, AVERAGE, int(power_w * 1000))
            (w.open if step == 0 else meter.sample)()
        w.close()
        assert w.energy_j == pytest.approx(0.5 * (sum(powers_w) - (powers_w[0] + powers_w[-1]) / 2))
        assert w.seconds == 2.5

    @pytest.mark.parametrize("status", [UNKNOWN, NOT_READY, NOT_SUPPORTED])
    def test_errors_during_a_run_are_missing_samples(
        self, library: Library, open_board: Callable[..., NvmlMeter], clock: Clock, status: int
    ) -> None:
        # samples 3 to 5 of 10 fail
        without_counter(library)
        meter = open_board()
        w = meter.window()
        for sample in range(1, 11):
            clock.now_s = sample * 0.1
            library.power(0, AVERAGE, 50_000, status if 3 <= sample <= 5 else 0)
            {1: w.open, 10: w.close}.get(sample, meter.sample)()
        assert (w.samples, w.missing) == (7, 3)
        assert w.energy_j == pytest.approx(50.0 * 0.9)
        assert w.warnings[1:] == ("missing readings: 3 failed or were rejected",)

    @pytest.mark.parametrize("power_mw", [12_572_969_000 % 2**32, 0, 1_200_001])
    def test_what_no_powered_board_draws_is_rejected(
        self, library: Library, open_board: Callable[..., NvmlMeter], clock: Clock, power_mw: int
    ) -> None:
        without_counter(library)
        meter = open_board()
        with meter.window() as w:
            for step, reading_mw in enumerate([50_000, power_mw, 50_000], start=1):
                clock.now_s = step * 0.1
                library.power(0, AVERAGE, reading_mw)
                meter.sample()
        assert w.energy_j == pytest.approx(50.0 * 0.3)
        assert w.missing == 1

    def test_a_window_shorter_than_the_averaging_time_is_flagged(
        self, library: Library, open_board: Callable[..., NvmlMeter], clock: Clock
    ) -> None:
        without_counter(library)
        with open_board().window() as w:
            clock.now_s += 0.2
        assert w.warnings == ("shorter than sensor averaging: 0.2 s < 1 s",)

    def test_a_counter_that_stands_at_zero_is_not_trusted(
        self, library: Library, open_board: Callable[..., NvmlMeter]
    ) -> None:
        library.energy(0, 0)
        assert open_board().source == "measured:nvml-power-average"

    def test_a_sampling_thread_that_lapsed_leaves_a_gap(
        self, library: Library, open_board: Callable[..., NvmlMeter], clock: Clock
    ) -> None:
        without_counter(library)
        meter = open_board()
        clock.now_s = 100.0  # before the window: not its gap
        with meter.window() as w:
            clock.now_s = 110.0
        assert w.energy_j is None
        assert w.reason == "gap: no samples for 10 s of 10 s"


class TestChoice:
    def test_a_board_that_answers_nothing_is_not_chosen(
        self, library: Library, open_board: Callable[..., NvmlMeter]
    ) -> None:
        without_counter(library)
        for kind in (USAGE, AVERAGE, INSTANT):
            library.power(0, kind, 0, NOT_SUPPORTED)
        with pytest.raises(MeterUnavailableError, match=r"its sensors do not answer.*Not Supported"):
            open_board()
        assert library.users() == 0

    def test_one_of_two_boards_may_fail(self, library: Library, clock: Clock) -> None:
        library.reset(boards=2)
        without_counter(library, 1)
        for kind in (USAGE, AVERAGE, INSTANT):
            library.power(1, kind, 0, NOT_SUPPORTED)
        first, second = nvml_statuses(library)
        assert (first.name, first.available, first.period_s) == ("nvml:0", True, 0.1)
        assert (second.name, second.available, second.source) == ("nvml:1", False, None)
        assert library.users() == 0

    @pytest.mark.parametrize(
        ("status", "words"),
        [
            (LIBRARY_NOT_FOUND, "Library Not Found: install the NVIDIA driver"),
            (DRIVER_NOT_LOADED, "sudo modprobe"),
        ],
    )
    def test_a_library_that_does_not_start_says_why_and_what_helps(
        self, library: Library, open_board: Callable[..., NvmlMeter], status: int, words: str
    ) -> None:
        library.reset(init_status=status)
        (found,) = nvml_statuses(library)
        assert not found.available
        assert found.reason is not None
        assert words in found.reason
        with pytest.raises(MeterUnavailableError, match=words):
            open_board()

    def test_no_board_is_no_meter(self, library: Library, open_board: Callable[..., NvmlMeter]) -> None:
        library.reset(boards=0)
        assert [status.available for status in nvml_statuses(library)] == [False]
        with pytest.raises(MeterUnavailableError, match="nvmlDeviceGetHandleByIndex"):
            open_board()
        assert library.users() == 0

    def test_a_missing_package_says_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "pynvml", None)
        with pytest.raises(MeterUnavailableError, match="pip install nvidia-ml-py"):
            NvmlMeter()
        assert driver_version() is None

    @pytest.mark.parametrize("target", ["GPU-cccc-2", "GPU-c", 2])
    def test_a_board_is_found_by_index_uuid_or_prefix(
        self, library: Library, open_board: Callable[..., NvmlMeter], target: int | str
    ) -> None:
        library.reset(boards=4)
        assert open_board(target).name == "nvml:2"

    def test_an_unknown_uuid_is_refused(self, library: Library, open_board: Callable[..., NvmlMeter]) -> None:
        with pytest.raises(MeterUnavailableError, match="knows no board or MIG slice with UUID 'GPU-zzzz'"):
            open_board("GPU-zzzz")

    def test_closing_gives_the_library_back(
        self, library: Library, open_board: Callable[..., NvmlMeter], clock: Clock
    ) -> None:
        meter = open_board()
        assert library.users() == 1
        meter.close()
        meter.close()
        assert library.users() == 0
        assert meter.read().energy_j is None

    def test_an_unknown_limit_still_bounds_readings(
        self, library: Library, open_board: Callable[..., NvmlMeter]
    ) -> None:
        library.limit(0, 0)
        meter = open_board()
        assert meter.board.limit_w is None
        assert meter.board.ceiling_w == 3000.0

    def test_a_board_lost_in_mid_run_costs_its_window_and_says_what_helps(
        self, library: Library, open_board: Callable[..., NvmlMeter], clock: Clock
    ) -> None:
        library.reset(boards=2)
        lost, good = open_board(0), open_board(1)
        with lost.window() as first, good.window() as second:
            clock.now_s += 1.0
            library.energy(0, 0, GPU_IS_LOST)
            library.energy(1, 1_030_000)
        assert first.energy_j is None
        assert "the board fell off the bus: reboot" in (first.reason or "")
        assert second.energy_j == 30.0

    def test_processes_on_the_board_are_named(self, library: Library, open_board: Callable[..., NvmlMeter]) -> None:
        assert open_board().compute_processes() == ()
        library.process(0, 4321)
        library.process(0, 17)
        assert open_board().compute_processes() == (4321, 17)

    def test_a_counter_states_its_period_and_step(
        self, library: Library, open_board: Callable[..., NvmlMeter], clock: Clock
    ) -> None:
        with open_board().window() as w:
            clock.now_s += 1.0
            library.energy(0, 1_001_000)
        assert w.measurement is not None
        assert (w.measurement.period_s, w.measurement.resolution_s, w.measurement.resolution_j) == (0.1, 0.1, 0.001)
        assert (w.period_s, w.resolution_s, w.resolution_j) == (0.1, 0.1, 0.001)


class TestSlices:
    """A MIG slice has no meter: the board's is taken, and both say so."""

    @pytest.fixture(autouse=True)
    def two_boards(self, library: Library) -> None:
        library.reset(boards=2)
        library.slice(1, 0, b"MIG-1111-2222")
        library.slice(1, 2, b"MIG-3333-4444")

    @pytest.mark.parametrize(
        "target", ["MIG-3333-4444", "MIG-1111", "GPU-3333-4444", "MIG-GPU-bbbb-1/7/0", "MIG-GPU-bbbb-1/8/0"]
    )
    def test_the_board_of_a_slice_is_measured(
        self, library: Library, open_board: Callable[..., NvmlMeter], clock: Clock, target: str
    ) -> None:
        meter = open_board(target)
        with meter.window() as w:
            clock.now_s += 1.0
            library.energy(1, 1_050_000)
        assert (meter.name, w.energy_j) == ("nvml:1", 50.0)
        assert meter.boundary.endswith("split into MIG slices, all of them included")
        assert "is a MIG slice without a meter of its own: this is the energy of its whole board" in meter.notes[0]

    def test_a_board_named_itself_has_no_such_note(self, open_board: Callable[..., NvmlMeter]) -> None:
        assert open_board("GPU-bbbb-1").notes == ()
        assert open_board(0).boundary.endswith("other boards)")

    @pytest.mark.parametrize("target", ["MIG-9999", "MIG-GPU-zzzz/1/0"])
    def test_an_unknown_slice_is_refused(
        self, library: Library, open_board: Callable[..., NvmlMeter], target: str
    ) -> None:
        with pytest.raises(MeterUnavailableError, match=f"no board or MIG slice with UUID '{target}'"):
            open_board(target)
        assert library.users() == 0

    @pytest.mark.parametrize(
        ("visible", "uuid"),
        [("MIG-3333-4444", None), ("0,MIG-1111-2222", None), ("MIG-3333-4444", "GPU-3333-4444")],
    )
    def test_a_slice_in_cuda_visible_devices_is_followed_to_its_board(
        self, library: Library, visible: str, uuid: str | None
    ) -> None:
        seams = Seams(
            binding=library.binding,
            is_hip=False,
            environ={"CUDA_VISIBLE_DEVICES": visible},
            uuid_of=lambda _: uuid,
        )
        meter = open_meter("nvml", device=torch.device("cuda", visible.count(",")), seams=seams)
        assert meter.name == "nvml:1"
        meter.close()


class TestConditions:
    def seams(self, library: Library, tmp_path: Path) -> Seams:
        return Seams(binding=library.binding, is_hip=False, environ={}, uuid_of=lambda _: None, root=tmp_path)

    def test_all_of_them(self, library: Library, tmp_path: Path) -> None:
        found = read_conditions(CUDA, self.seams(library, tmp_path))
        assert (found.temperature_c, found.clock_mhz, found.memory_clock_mhz) == (61.0, 1410.0, 1593.0)
        assert (found.power_limit_w, found.throttle_reasons, found.missing) == (400.0, (), {})
        assert library.users() == 0

    @pytest.mark.parametrize(
        ("bits", "names"),
        [
            (0x0, ()),
            (0x1, ()),
            (0x4, ("sw_power_cap",)),
            (0x1 | 0x20 | 0x40, ("sw_thermal_slowdown", "hw_thermal_slowdown")),
            (0x8 | 0x80, ("hw_slowdown", "hw_power_brake_slowdown")),
            (0x4 | 0x8000, ("sw_power_cap", "unknown_0x8000")),
        ],
    )
    def test_throttle_reasons_have_names(
        self, library: Library, tmp_path: Path, bits: int, names: tuple[str, ...]
    ) -> None:
        library.throttle(0, bits)
        assert read_conditions(CUDA, self.seams(library, tmp_path)).throttle_reasons == names

    def test_every_reason_of_the_real_binding_has_a_name(self) -> None:
        bits = {
            getattr(pynvml, name) for name in dir(pynvml) if re.match("nvmlClocks(Event|Throttle)Reason[A-Z]", name)
        }
        singles = [bit for bit in bits if bit.bit_count() == 1 and bit != 1]
        assert len(singles) >= 10
        assert not [name for bit in singles for name in throttle_reasons(bit) if name.startswith("unknown")]

    def test_an_older_driver_tells_reasons_by_the_older_name(self, tmp_path: Path) -> None:
        double = PythonLibrary()

        def unknown(board: Board) -> int:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)

        double.nvmlDeviceGetCurrentClocksEventReasons = unknown  # type: ignore[method-assign]
        double.nvmlDeviceGetCurrentClocksThrottleReasons = lambda board: 0x4  # type: ignore[attr-defined]
        assert read_conditions(CUDA, self.seams(double, tmp_path)).throttle_reasons == ("sw_power_cap",)

    def test_what_is_not_supported_is_unknown_with_the_reason(self, library: Library, tmp_path: Path) -> None:
        library.conditions(0, NOT_SUPPORTED)
        found = read_conditions(CUDA, self.seams(library, tmp_path))
        assert (found.temperature_c, found.throttle_reasons, found.power_limit_w) == (None, None, 400.0)
        assert set(found.missing) == {"temperature_c", "clock_mhz", "memory_clock_mhz", "throttle_reasons"}
        assert all("Not Supported" in why for why in found.missing.values())

    def test_a_library_that_does_not_start_is_no_exception(self, library: Library, tmp_path: Path) -> None:
        library.reset(init_status=LIBRARY_NOT_FOUND)
        found = read_conditions(CUDA, self.seams(library, tmp_path))
        assert set(found.missing) == set(FIELDS)
        assert "install the NVIDIA driver" in found.missing["clock_mhz"]

    def test_sysfs_tells_what_a_jetson_s_nvml_does_not(self, library: Library, tmp_path: Path) -> None:
        library.conditions(0, NOT_SUPPORTED)
        for file, value in (
            ("sys/class/thermal/thermal_zone0/type", "gpu-thermal"),
            ("sys/class/thermal/thermal_zone0/temp", "48500"),
            ("sys/class/devfreq/17000000.gpu/cur_freq", "918000000"),
        ):
            (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / file).write_text(value)
        found = read_conditions(CUDA, self.seams(library, tmp_path))
        assert (found.temperature_c, found.clock_mhz) == (48.5, 918.0)
        assert set(found.missing) == {"memory_clock_mhz", "throttle_reasons"}


class TestNames:
    @pytest.mark.parametrize(
        ("raw", "shown"), [(b"Card", "Card"), (b"\xf8bad", "\ufffdbad"), (b"Karte \xc3\xbc", "Karte ü")]
    )
    def test_a_broken_name_never_stops_the_meter(
        self, library: Library, open_board: Callable[..., NvmlMeter], raw: bytes, shown: str
    ) -> None:
        library.name(0, raw)
        meter = open_board()
        assert meter.board.name == shown
        assert shown in json.loads(json.dumps(asdict(nvml_statuses(library)[0])))["measures"]

    @pytest.mark.parametrize(
        ("value", "text"),
        [(None, None), (b"Card", "Card"), ("Card", "Card"), ("\udcf8", "?"), (b"\xff", "\ufffd")],
    )
    def test_text_of_every_kind_is_accepted(self, value: str | bytes | None, text: str | None) -> None:
        assert as_text(value) == text

    def test_the_driver_is_known(self, library: Library) -> None:
        assert driver_version(library.binding) == "575.51"
        assert library.users() == 0

    def test_the_retired_package_is_named(self, clock: Clock) -> None:
        double = PythonLibrary()
        double.__path__ = []  # type: ignore[attr-defined]
        assert "pip uninstall pynvml" in NvmlMeter(binding=double, clock=clock, background=False).notes[0]


class TestThread:
    def test_the_thread_samples_the_counter_and_the_power(self, clock: Clock) -> None:
        double, sampled = PythonLibrary(), threading.Event()
        meter = NvmlMeter(binding=double, clock=clock)
        read = double.nvmlDeviceGetFieldValues

        def read_and_tell(board: Board, fields: list[int]) -> list[SimpleNamespace]:
            sampled.set()
            return read(board, fields)

        double.nvmlDeviceGetFieldValues = read_and_tell  # type: ignore[method-assign]
        with meter.window():
            assert sampled.wait(30.0)
        meter.close()
        assert double.users() == 0

    def test_a_meter_can_be_made_in_a_worker_thread(self, clock: Clock) -> None:
        found = []

        def work() -> None:
            with NvmlMeter(binding=PythonLibrary(), clock=clock) as meter, meter.window() as w:
                clock.now_s += 1.0
            found.append(w.seconds)

        worker = threading.Thread(target=work)
        worker.start()
        worker.join()
        assert found == [1.0]


class TestVisibleBoards:
    @pytest.mark.parametrize(
        ("visible", "cuda_index", "board"),
        [
            (None, 0, 0),
            (None, 3, 3),
            ("2", 0, 2),
            ("2,0", 1, 0),
            (" 1 , 3 ", 1, 3),
            ("GPU-bbbb-1", 0, "GPU-bbbb-1"),
            ("0,GPU-cccc", 1, "GPU-cccc"),
            ("1,-1,2", 0, 1),
            ("MIG-1111-2222", 0, "MIG-1111-2222"),
            ("1,MIG-GPU-bbbb-1/7/0", 1, "MIG-GPU-bbbb-1/7/0"),
        ],
    )
    def test_the_board_behind_a_cuda_device(self, visible: str | None, cuda_index: int, board: int | str) -> None:
        assert visible_board(cuda_index, visible) == board

    @pytest.mark.parametrize(
        ("visible", "cuda_index"),
        [("", 0), ("-1", 0), ("0", 1), ("1,-1,2", 1), ("none", 0), ("0,x,1", 1), ("0", -1)],
    )
    def test_a_hidden_device_is_refused(self, visible: str, cuda_index: int) -> None:
        with pytest.raises(MeterUnavailableError, match=f"there is no cuda:{cuda_index}"):
            visible_board(cuda_index, visible)


def test_the_real_binding_finds_the_library_by_its_name(stub_path: Path) -> None:
    """In a process of its own, since a loaded library stays."""
    code = (
        "from gearshift.profiler.meters import NvmlMeter, discover\n"
        "meter = NvmlMeter(1)\n"
        "print(meter.name, meter.source, *[s.name for s in discover() if s.available and 'nvml' in s.name])\n"
    )
    root = Path(__file__).parents[2]
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(stub_path),
        "NVML_STUB_BOARDS": "2",
        "PYTHONPATH": str(root),
    }
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stdout.split() == ["nvml:1", "measured:nvml-energy-counter", "nvml:0", "nvml:1"], run.stderr


def nvml_statuses(library: Library) -> list[MeterStatus]:
    return [status for status in discover(Seams(binding=library.binding)) if status.name.startswith("nvml")]


SPEND: list[Callable[[float], None]] = []


@torch.library.custom_op("gearshift_nvml::burn", mutates_args=())
def burn(x: torch.Tensor, joules: float) -> torch.Tensor:
    SPEND[-1](joules)
    return x.clone()


@torch.library.custom_op("gearshift_nvml::glow", mutates_args=())
def glow(x: torch.Tensor, joules: float) -> torch.Tensor:
    SPEND[-1](joules)
    return x.clone()


class BurnAndGlow(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return glow(burn(glow(x, 0.25), 3.0), 0.25)


class TestEnergyByTypeOfWork:
    def test_a_boards_counter_tells_types_of_work_apart(
        self, library: Library, open_board: Callable[..., NvmlMeter], clock: Clock
    ) -> None:
        """Every operator of this plant takes 10 ms and its own joules; idle is 20 W, read from the counter too."""
        spent_j = 0.0

        def pass_time(seconds: float, joules: float = 0.0) -> None:
            nonlocal spent_j
            spent_j += joules + 20.0 * seconds
            clock.now_s += seconds
            library.energy(0, 1_000_000 + round(spent_j * 1000))

        SPEND.append(lambda joules: pass_time(0.01, joules))
        register_operator("gearshift_nvml::burn", OperatorType.CONVOLUTION)
        register_operator("gearshift_nvml::glow", OperatorType.NORM)
        found = measure_operator_energy(BurnAndGlow(), torch.ones(1), meter=open_board(), clock=clock, sleep=pass_time)
        assert found.source == "measured:nvml-energy-counter"
        assert found.idle_power_w == pytest.approx(20.0, rel=1e-3)
        assert {row.name: row.net_j for row in found.rows} == {
            "convolution": pytest.approx(3.0, rel=1e-2),
            "norm": pytest.approx(0.5, rel=1e-2),
        }
        assert found.explained == pytest.approx(1.0, rel=1e-2)
