"""amdsmi over two libraries that answer alike: a Python double, and a C one behind the real package.

The package is not among the project's dependencies; where it is not installed only the Python double is used.
"""

import ctypes
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol

import pytest
import torch

from gearshift.errors import MeterUnavailableError
from gearshift.profiler.meters import AmdMeter, MeterStatus, Seams, discover, open_meter, read_conditions
from gearshift.profiler.meters.amd_device import load_binding
from tests.support import Clock

STUB = Path(__file__).with_name("amdsmi_stub.c")
NOT_SUPPORTED, DRIVER_NOT_LOADED = 2, 34
UNKNOWN_W = 0xFFFF
CUDA = torch.device("cuda", 0)


class Library(Protocol):
    """What a test sets; `binding` is what the meter calls."""

    binding: Any

    def reset(self, boards: int = 1, init_status: int = 0) -> None: ...
    def name(self, board: int, name: str) -> None: ...
    def energy(self, board: int, units: int, resolution_uj: float = 15.5, status: int = 0) -> None: ...
    def power(self, board: int, current_w: int, average_w: int = UNKNOWN_W, socket_w: int = UNKNOWN_W) -> None: ...
    def cap(self, board: int, cap_uw: int) -> None: ...
    def hip(self, board: int, hip_id: int) -> None: ...
    def process(self, board: int, pid: int) -> None: ...
    def hotspot(self, board: int, told: int) -> None: ...


@dataclass
class Board:
    uuid: str
    hip_id: int
    market_name: str = "Stub Instinct"
    count: tuple[int, float, int] = (1000, 15.5, 0)
    watts: tuple[int, int, int] = (50, UNKNOWN_W, 50)
    cap_uw: int = 400_000_000
    pids: list[int] = field(default_factory=list)
    told: int = 61


class AmdError(Exception):
    """Says what it has to say over several lines, as the package's own does."""

    def __init__(self, status: int) -> None:
        super().__init__(f"Error code:\n\t{status} | stub")


class PythonLibrary:
    """Behaves like `amdsmi` as far as meters call it."""

    AmdSmiException = AmdError
    AmdSmiTemperatureType = SimpleNamespace(HOTSPOT=1)
    AmdSmiTemperatureMetric = SimpleNamespace(CURRENT=0)
    AmdSmiClkType = SimpleNamespace(GFX=0, MEM=4)

    def __init__(self) -> None:
        self.binding = self
        self.reset()

    def reset(self, boards: int = 1, init_status: int = 0) -> None:
        self.boards = [Board(f"GPU-{'abcd'[index]}{index}", index) for index in range(boards)]
        self.init_status = init_status

    def name(self, board: int, name: str) -> None:
        self.boards[board].market_name = name

    def energy(self, board: int, units: int, resolution_uj: float = 15.5, status: int = 0) -> None:
        self.boards[board].count = (units, resolution_uj, status)

    def power(self, board: int, current_w: int, average_w: int = UNKNOWN_W, socket_w: int = UNKNOWN_W) -> None:
        self.boards[board].watts = (current_w, average_w, socket_w)

    def cap(self, board: int, cap_uw: int) -> None:
        self.boards[board].cap_uw = cap_uw

    def hip(self, board: int, hip_id: int) -> None:
        self.boards[board].hip_id = hip_id

    def process(self, board: int, pid: int) -> None:
        self.boards[board].pids.append(pid)

    def hotspot(self, board: int, told: int) -> None:
        self.boards[board].told = told

    def amdsmi_init(self) -> None:
        self._check(self.init_status)

    def amdsmi_get_processor_handles(self) -> list[Board]:
        return self.boards

    def amdsmi_get_gpu_enumeration_info(self, board: Board) -> dict[str, Any]:
        return {"hip_id": board.hip_id, "hip_uuid": board.uuid}

    def amdsmi_get_gpu_asic_info(self, board: Board) -> dict[str, Any]:
        return {"market_name": board.market_name or "N/A"}

    def amdsmi_get_energy_count(self, board: Board) -> dict[str, Any]:
        self._check(board.count[2])
        return {"energy_accumulator": board.count[0], "counter_resolution": board.count[1], "timestamp": 0}

    def amdsmi_get_power_info(self, board: Board) -> dict[str, Any]:
        current, average, socket = ("N/A" if watts == UNKNOWN_W else watts for watts in board.watts)
        return {"current_socket_power": current, "average_socket_power": average, "socket_power": socket}

    def amdsmi_get_power_cap_info(self, board: Board) -> dict[str, Any]:
        self._check(0 if board.cap_uw else NOT_SUPPORTED)
        return {"power_cap": board.cap_uw}

    def amdsmi_get_gpu_process_list(self, board: Board) -> list[dict[str, Any]]:
        return [{"name": "python", "pid": pid} for pid in board.pids]

    def amdsmi_get_temp_metric(self, board: Board, sensor: object, metric: object) -> int:
        return board.told

    def amdsmi_get_clock_info(self, board: Board, kind: object) -> dict[str, Any]:
        return {"clk": 1700}

    def _check(self, status: int) -> None:
        if status:
            raise self.AmdSmiException(status)


class SharedLibrary:
    """The C double behind a private copy of the package, so that no other test sees it."""

    def __init__(self, folder: Path) -> None:
        self.library = ctypes.CDLL(str(folder / "lib" / "libamd_smi.so"))
        self.binding = _private_binding(folder)
        self.reset()

    def reset(self, boards: int = 1, init_status: int = 0) -> None:
        self.library.stub_reset(boards, init_status)

    def name(self, board: int, name: str) -> None:
        self.library.stub_name(board, name.encode())

    def energy(self, board: int, units: int, resolution_uj: float = 15.5, status: int = 0) -> None:
        self.library.stub_energy(board, ctypes.c_uint64(units), ctypes.c_float(resolution_uj), status)

    def power(self, board: int, current_w: int, average_w: int = UNKNOWN_W, socket_w: int = UNKNOWN_W) -> None:
        self.library.stub_power(board, current_w, average_w, ctypes.c_uint64(socket_w))

    def cap(self, board: int, cap_uw: int) -> None:
        self.library.stub_cap(board, ctypes.c_uint64(cap_uw))

    def hip(self, board: int, hip_id: int) -> None:
        self.library.stub_hip(board, hip_id)

    def process(self, board: int, pid: int) -> None:
        self.library.stub_process(board, pid)

    def hotspot(self, board: int, told: int) -> None:
        self.library.stub_hotspot(board, ctypes.c_int64(told))


def _private_binding(folder: Path) -> Any:
    package = _package()
    assert package is not None
    name = "amdsmi_of_the_stub"
    specification = importlib.util.spec_from_file_location(
        name, package / "__init__.py", submodule_search_locations=[str(package)]
    )
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROCM_PATH", str(folder))
        patch.delenv("ROCM_HOME", raising=False)
        sys.modules[name] = module
        specification.loader.exec_module(module)
    return module


def _package() -> Path | None:
    specification = importlib.util.find_spec("amdsmi")
    return None if specification is None or specification.origin is None else Path(specification.origin).parent


@pytest.fixture(scope="session")
def stub_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    package, compiler = _package(), shutil.which("gcc") or shutil.which("cc")
    if package is None or compiler is None:
        pytest.skip("needs the package amdsmi and a C compiler")
    folder = tmp_path_factory.mktemp("rocm")
    (folder / "lib").mkdir()
    wanted = set(re.findall(r"_libraries\['libamd_smi\.so'\]\.(\w+)", (package / "amdsmi_wrapper.py").read_text()))
    missing = sorted(wanted - set(re.findall(r"^int (\w+)\(", STUB.read_text(), re.MULTILINE)))
    rest = folder / "rest.c"
    rest.write_text("".join(f"int {name}(void) {{ return {NOT_SUPPORTED}; }}\n" for name in missing))
    library = folder / "lib" / "libamd_smi.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, STUB, rest], check=True)
    return folder


@pytest.fixture(params=["python", *(["shared library"] if _package() is not None else [])])
def library(request: pytest.FixtureRequest) -> Iterator[Library]:
    if request.param == "python":
        yield PythonLibrary()
    else:
        yield SharedLibrary(request.getfixturevalue("stub_folder"))
        for name in [name for name in sys.modules if name.startswith("amdsmi_of_the_stub")]:
            del sys.modules[name]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def open_board(library: Library, clock: Clock) -> Callable[..., AmdMeter]:
    def open_it(index: int | str = 0) -> AmdMeter:
        return AmdMeter(index, binding=library.binding, clock=clock, background=False)

    return open_it


class TestCounter:
    def test_units_times_resolution_become_joules(
        self, library: Library, open_board: Callable[..., AmdMeter], clock: Clock
    ) -> None:
        meter = open_board()
        with meter.window() as w:
            clock.now_s += 2.0
            library.energy(0, 1000 + 4_000_000)
        assert w.energy_j == pytest.approx(4_000_000 * 15.5e-6)
        assert (w.source, w.reason, w.samples) == ("measured:amd-energy-counter", None, 2)
        assert w.resolution_j == pytest.approx(15.5e-6)
        assert "GPU board only: Stub Instinct" in meter.boundary

    def test_a_counter_that_goes_back_spoils_one_window(
        self, library: Library, open_board: Callable[..., AmdMeter], clock: Clock
    ) -> None:
        library.energy(0, 9_000_000)
        meter = open_board()
        with meter.window() as spoilt:
            clock.now_s += 1.0
            library.energy(0, 1_000)
        with meter.window() as good:
            clock.now_s += 1.0
            library.energy(0, 2_001_000)
        assert spoilt.energy_j is None
        assert (spoilt.reason or "").startswith("counter_reset")
        assert good.energy_j == pytest.approx(31.0)

    def test_a_counter_that_disagrees_with_power_is_reported(
        self, library: Library, open_board: Callable[..., AmdMeter], clock: Clock
    ) -> None:
        library.power(0, 65)
        meter = open_board()
        with meter.window() as w:
            meter.sample()
            for step in range(1, 51):
                clock.now_s = step * 0.1
                library.energy(0, 1000 + round(187.4e6 / 15.5 * step / 50))
                meter.sample()
        assert w.energy_j == pytest.approx(187.4, rel=1e-6)
        assert [text.split(":")[0] for text in w.warnings] == ["discrepancy 73%"]

    @pytest.mark.parametrize("resolution_uj", [0.0, -1.0, 2e6])
    def test_a_counter_without_a_resolution_is_no_counter(
        self, library: Library, open_board: Callable[..., AmdMeter], resolution_uj: float
    ) -> None:
        library.energy(0, 1000, resolution_uj)
        assert open_board().source == "measured:amd-power-current"

    def test_older_releases_call_the_counter_power(self, clock: Clock) -> None:
        double = PythonLibrary()
        double.amdsmi_get_energy_count = lambda board: {  # type: ignore[method-assign]
            "power": board.count[0],
            "counter_resolution": 15.5,
        }
        meter = AmdMeter(binding=double, clock=clock, background=False)
        with meter.window() as w:
            clock.now_s += 1.0
            double.energy(0, 1_001_000)
        assert w.energy_j == pytest.approx(15.5)


class TestSampledPower:
    @pytest.mark.parametrize(
        ("watts", "source"),
        [
            ((70, UNKNOWN_W, UNKNOWN_W), "measured:amd-power-current"),
            ((UNKNOWN_W, 70, UNKNOWN_W), "measured:amd-power-average"),
            ((UNKNOWN_W, UNKNOWN_W, 70), "measured:amd-power-socket"),
            ((0xFFFFFFFF, 70, UNKNOWN_W), "measured:amd-power-average"),
        ],
    )
    def test_the_kind_of_power_is_named(
        self,
        library: Library,
        open_board: Callable[..., AmdMeter],
        clock: Clock,
        watts: tuple[int, int, int],
        source: str,
    ) -> None:
        library.energy(0, 0, status=NOT_SUPPORTED)
        library.power(0, *watts)
        meter = open_board()
        with meter.window() as w:
            for _ in range(20):
                clock.now_s += 0.1
                meter.sample()
        assert w.source == source
        assert w.energy_j == pytest.approx(70 * 2.0)

    @pytest.mark.parametrize("power_w", [12_572_969, 50_000, 1_201])
    def test_shifted_units_are_rejected(
        self, library: Library, open_board: Callable[..., AmdMeter], clock: Clock, power_w: int
    ) -> None:
        library.energy(0, 0, status=NOT_SUPPORTED)
        meter = open_board()
        with meter.window() as w:
            for step, reading_w in enumerate([50, power_w, 50], start=1):
                clock.now_s = step * 0.1
                library.power(0, reading_w)
                meter.sample()
        assert w.energy_j == pytest.approx(50 * 0.3)
        assert w.missing == 1

    @pytest.mark.parametrize(("cap", "limit_w"), [(400_000_000, 400.0), (400, 400.0), (0, None)])
    def test_a_limit_in_either_unit_bounds_readings(
        self, library: Library, open_board: Callable[..., AmdMeter], cap: int, limit_w: float | None
    ) -> None:
        library.cap(0, cap)
        board = open_board().board
        assert board.limit_w == limit_w
        assert board.ceiling_w == (3000.0 if limit_w is None else 1200.0)


class TestChoice:
    def test_a_board_that_answers_nothing_is_not_chosen(
        self, library: Library, open_board: Callable[..., AmdMeter]
    ) -> None:
        library.energy(0, 0, status=NOT_SUPPORTED)
        library.power(0, UNKNOWN_W)
        with pytest.raises(MeterUnavailableError, match=r"amdsmi lists Stub Instinct.*sensors do not answer"):
            open_board()

    def test_the_second_die_of_a_package_says_where_its_sensors_are(
        self, library: Library, open_board: Callable[..., AmdMeter]
    ) -> None:
        library.reset(boards=2)
        for board in (0, 1):
            library.name(board, "AMD Instinct MI250X")
        library.energy(1, 0, status=NOT_SUPPORTED)
        library.power(1, UNKNOWN_W)
        with pytest.raises(MeterUnavailableError, match="first die has the sensors of both"):
            open_board(1)
        assert "both dies of its package" in open_board(0).boundary

    def test_boards_are_counted_as_hip_counts_them(
        self, library: Library, open_board: Callable[..., AmdMeter], clock: Clock
    ) -> None:
        library.reset(boards=2)
        library.hip(0, 1)
        library.hip(1, 0)
        meter = open_board(0)
        with meter.window() as w:
            clock.now_s += 1.0
            library.energy(1, 1000 + 100_000)
        assert meter.name == "amd:0"
        assert w.energy_j == pytest.approx(1.55)

    def test_releases_that_do_not_tell_hip_s_index_count_by_place(self, clock: Clock) -> None:
        double = PythonLibrary()
        double.reset(boards=3)

        def fail(board: Board) -> dict[str, Any]:
            raise AmdError(NOT_SUPPORTED)

        double.amdsmi_get_gpu_enumeration_info = fail  # type: ignore[method-assign]
        assert AmdMeter(2, binding=double, clock=clock, background=False).name == "amd:2"

    @pytest.mark.parametrize(("target", "name"), [("GPU-c2", "amd:2"), ("GPU-b", "amd:1"), (3, "amd:3")])
    def test_a_board_is_found_by_index_or_uuid(
        self, library: Library, open_board: Callable[..., AmdMeter], target: int | str, name: str
    ) -> None:
        library.reset(boards=4)
        assert open_board(target).name == name

    @pytest.mark.parametrize("target", [7, "GPU-zz"])
    def test_an_unknown_board_is_refused(
        self, library: Library, open_board: Callable[..., AmdMeter], target: int | str
    ) -> None:
        with pytest.raises(MeterUnavailableError, match=r"knows no board .*lists \[0\]"):
            open_board(target)

    def test_every_board_has_a_row_and_one_may_fail(self, library: Library) -> None:
        library.reset(boards=2)
        library.energy(1, 0, status=NOT_SUPPORTED)
        library.power(1, UNKNOWN_W)
        first, second = amd_statuses(library)
        assert (first.name, first.available) == ("amd:0", True)
        assert (second.name, second.available) == ("amd:1", False)

    def test_a_driver_that_is_missing_is_told_in_one_line(self, library: Library) -> None:
        library.reset(init_status=DRIVER_NOT_LOADED)
        (found,) = amd_statuses(library)
        assert not found.available
        assert (found.reason or "").startswith("amdsmi_init: Error code: 34")
        assert "\n" not in (found.reason or "")

    def test_no_board_is_no_meter(self, library: Library) -> None:
        library.reset(boards=0)
        assert [status.reason for status in amd_statuses(library)] == ["amdsmi lists no board: check `amd-smi list`"]

    def test_processes_on_the_board_are_named(self, library: Library, open_board: Callable[..., AmdMeter]) -> None:
        library.process(0, 4321)
        assert open_board().compute_processes() == (4321,)

    def test_a_name_is_not_needed(self, library: Library, open_board: Callable[..., AmdMeter]) -> None:
        library.name(0, "")
        assert open_board().board.name == "unnamed AMD board"


class TestDevice:
    def seams(self, library: Library, tmp_path: Path, **environ: str) -> Seams:
        return Seams(amd=library.binding, is_hip=True, environ=environ, root=tmp_path, powercap=tmp_path)

    @pytest.mark.parametrize(
        ("environ", "index", "name"),
        [
            ({}, 2, "amd:2"),
            ({"HIP_VISIBLE_DEVICES": "3,1"}, 1, "amd:1"),
            ({"CUDA_VISIBLE_DEVICES": "3,1"}, 0, "amd:3"),
            ({"HIP_VISIBLE_DEVICES": "2", "CUDA_VISIBLE_DEVICES": "1"}, 0, "amd:2"),
            ({"HIP_VISIBLE_DEVICES": "GPU-b1"}, 0, "amd:1"),
            ({"ROCR_VISIBLE_DEVICES": "1,3"}, 1, "amd:3"),
            ({"ROCR_VISIBLE_DEVICES": "3,2", "HIP_VISIBLE_DEVICES": "1"}, 0, "amd:2"),
        ],
    )
    def test_torch_s_cuda_device_is_found_on_rocm(
        self, library: Library, tmp_path: Path, environ: dict[str, str], index: int, name: str
    ) -> None:
        library.reset(boards=4)
        meter = open_meter(device=torch.device("cuda", index), seams=self.seams(library, tmp_path, **environ))
        assert meter.name == name
        meter.close()

    def test_a_hidden_device_names_the_variable(self, library: Library, tmp_path: Path) -> None:
        with pytest.raises(MeterUnavailableError, match=r"HIP_VISIBLE_DEVICES='0' shows 1 device\(s\)"):
            open_meter(
                "amd", device=torch.device("cuda", 1), seams=self.seams(library, tmp_path, HIP_VISIBLE_DEVICES="0")
            )

    def test_a_torch_for_cuda_has_no_amd_board(self, library: Library) -> None:
        with pytest.raises(MeterUnavailableError, match="torch here is built for CUDA"):
            open_meter("amd", device=CUDA, seams=Seams(amd=library.binding, is_hip=False))

    @pytest.mark.parametrize(("told", "degrees"), [(61, 61.0), (61_000, 61.0)])
    def test_conditions(self, library: Library, tmp_path: Path, told: int, degrees: float) -> None:
        library.hotspot(0, told)
        found = read_conditions(CUDA, self.seams(library, tmp_path))
        assert (found.temperature_c, found.clock_mhz, found.memory_clock_mhz) == (degrees, 1700.0, 1700.0)
        assert found.power_limit_w == 400.0
        assert (found.throttle_reasons, set(found.missing)) == (None, {"throttle_reasons"})


class TestImport:
    def test_a_missing_package_says_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "amdsmi", None)
        with pytest.raises(MeterUnavailableError, match="pip install amdsmi"):
            load_binding()

    @pytest.mark.parametrize(
        ("line", "words"),
        [
            ("raise KeyError('libamd_smi.so')", "finds no libamd_smi.so"),
            ("raise AttributeError('amdsmi_new')", "of different releases"),
        ],
    )
    def test_a_package_without_its_library_is_quiet_and_says_why(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], line: str, words: str
    ) -> None:
        (tmp_path / "amdsmi.py").write_text(f"print('Unable to find libamd_smi.so')\n{line}\n")
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "amdsmi", raising=False)
        with pytest.raises(MeterUnavailableError, match=words):
            load_binding()
        assert capfd.readouterr() == ("", "")


@pytest.mark.skipif(_package() is None, reason="amdsmi is not installed: the tests above used the Python double only")
def test_the_real_package_refuses_what_its_library_refuses(stub_folder: Path) -> None:
    library = SharedLibrary(stub_folder)
    library.reset(init_status=DRIVER_NOT_LOADED)
    with pytest.raises(MeterUnavailableError, match="AMDSMI_STATUS_DRIVER_NOT_LOADED"):
        AmdMeter(binding=library.binding, background=False)


def amd_statuses(library: Library) -> list[MeterStatus]:
    found = discover(Seams(amd=library.binding, environ=os.environ))
    return [status for status in found if status.name.startswith("amd")]
