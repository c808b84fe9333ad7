"""Which meter is chosen for which device, and what the list of meters says."""

import json
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
import torch

from gearshift.errors import InputError, MeterUnavailableError
from gearshift.profiler.meters import METERS, Meter, Seams, discover, open_meter
from gearshift.profiler.meters.cpu_info import CpuInfo

CPU = CpuInfo(model="Chip 8", sockets=1, threads=4, usable_threads=4, is_virtual=False)
CUDA = torch.device("cuda", 0)


class Nvml:
    """Two boards with counters, or one that starts and answers nothing, or no library."""

    NVMLError = pynvml.NVMLError

    def __init__(self, boards: int = 2, *, answers: bool = True, starts: bool = True) -> None:
        self.boards, self.answers, self.starts = boards, answers, starts

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml"):
            raise AttributeError(name)

        def refuse(*_: object) -> None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

        return refuse

    def nvmlInit(self) -> None:  # noqa: N802
        if not self.starts:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    def nvmlShutdown(self) -> None: ...  # noqa: N802

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return self.boards

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        if index >= self.boards:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return index

    def nvmlDeviceGetUUID(self, board: int) -> str:  # noqa: N802
        return f"GPU-{board}"

    def nvmlDeviceGetTotalEnergyConsumption(self, board: int) -> int:  # noqa: N802
        if not self.answers:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return 1000


class NoAmd:
    """amdsmi on a machine without the driver."""

    class AmdSmiException(Exception): ...  # noqa: N818

    def amdsmi_init(self) -> None:
        raise self.AmdSmiException("driver not loaded")


@pytest.fixture
def rapl(tmp_path: Path) -> Path:
    zone = tmp_path / "powercap" / "intel-rapl:0"
    zone.mkdir(parents=True)
    for file, value in (("name", "package-0"), ("energy_uj", "1"), ("max_energy_range_uj", "262143328850")):
        (zone / file).write_text(value)
    return tmp_path / "powercap"


def seams_of(tmp_path: Path, nvml: Nvml | None = None, rapl: Path | None = None, **more: Any) -> Seams:
    return Seams(
        binding=nvml or Nvml(starts=False),
        amd=NoAmd(),
        is_hip=False,
        powercap=rapl or tmp_path / "nothing",
        root=tmp_path,
        cpu=CPU,
        environ={},
        uuid_of=lambda _: None,
        **more,
    )


class TestAutomaticChoice:
    @pytest.mark.parametrize("device", [None, torch.device("cpu")])
    def test_a_processor_is_measured_by_rapl_where_it_reads(
        self, tmp_path: Path, rapl: Path, device: torch.device | None
    ) -> None:
        assert open_meter(device=device, seams=seams_of(tmp_path, Nvml(), rapl)).source == "measured:rapl"

    def test_else_it_is_estimated_and_the_meter_says_why(self, tmp_path: Path) -> None:
        meter = open_meter(seams=seams_of(tmp_path))
        assert meter.source == "estimated:cpu-time"
        assert any(note.startswith("rapl: no RAPL domains under") for note in meter.notes)

    def test_no_estimate_is_taken_unless_allowed(self, tmp_path: Path) -> None:
        meter = open_meter(allow_estimate=False, seams=seams_of(tmp_path))
        assert meter.source == "none"
        with meter.window() as w:
            pass
        assert w.energy_j is None
        assert w.reason is not None
        assert "no RAPL domains" in w.reason
        assert "an estimate was not asked for" in w.reason

    def test_a_board_is_measured_by_its_own_meter(self, tmp_path: Path, rapl: Path) -> None:
        meter = open_meter(device=CUDA, seams=seams_of(tmp_path, Nvml(), rapl))
        assert meter.source == "measured:nvml-energy-counter"
        assert "GPU board only" in meter.boundary

    @pytest.mark.parametrize("nvml", [Nvml(starts=False), Nvml(answers=False), Nvml(boards=0)])
    def test_the_host_never_stands_in_for_a_board(self, tmp_path: Path, rapl: Path, nvml: Nvml) -> None:
        meter = open_meter(device=CUDA, seams=seams_of(tmp_path, nvml, rapl))
        assert meter.source == "none"
        with meter.window() as w:
            pass
        assert w.reason is not None
        assert w.reason.startswith("nvml: ")

    def test_a_device_without_any_meter_gets_none(self, tmp_path: Path) -> None:
        meter = open_meter(device=torch.device("mps"), seams=seams_of(tmp_path))
        assert meter.notes == ("no meter reads the energy of a mps device",)


class TestChoiceByName:
    @pytest.mark.parametrize(
        ("kind", "source"),
        [
            ("nvml", "measured:nvml-energy-counter"),
            ("rapl", "measured:rapl"),
            ("cpu-time", "estimated:cpu-time"),
            ("none", "none"),
        ],
    )
    def test_each_meter_opens_by_its_name(self, tmp_path: Path, rapl: Path, kind: Any, source: str) -> None:
        meter = open_meter(kind, seams=seams_of(tmp_path, Nvml(), rapl))
        assert isinstance(meter, Meter)
        assert meter.source == source
        assert meter.boundary

    @pytest.mark.parametrize("kind", ["nvml", "rapl"])
    def test_what_was_asked_for_by_name_is_not_replaced(self, tmp_path: Path, kind: Any) -> None:
        with pytest.raises(MeterUnavailableError):
            open_meter(kind, seams=seams_of(tmp_path))

    def test_an_unknown_name_lists_the_known(self) -> None:
        with pytest.raises(
            InputError, match=r"unknown meter 'watts': choose one of auto, nvml, amd, rapl, .*battery, cpu-time, none"
        ):
            open_meter("watts")  # type: ignore[arg-type]

    def test_nvml_does_not_measure_a_processor(self, tmp_path: Path) -> None:
        with pytest.raises(MeterUnavailableError, match="not a cpu device"):
            open_meter("nvml", device=torch.device("cpu"), seams=seams_of(tmp_path, Nvml()))


class TestWhichBoard:
    def seams(self, visible: str | None, uuid: str | None = None) -> Seams:
        environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
        return Seams(binding=Nvml(4), environ=environ, uuid_of=lambda _: uuid)

    @pytest.mark.parametrize(
        ("visible", "index", "uuid", "name"),
        [
            (None, None, None, "nvml:0"),
            (None, 2, None, "nvml:2"),
            ("3,1", 0, None, "nvml:3"),
            ("3,1", 1, None, "nvml:1"),
            ("GPU-2", 0, None, "nvml:2"),
            ("3,1", 0, "GPU-1", "nvml:1"),
        ],
    )
    def test_the_meter_follows_the_device_that_torch_uses(
        self, visible: str | None, index: int | None, uuid: str | None, name: str
    ) -> None:
        device = torch.device("cuda") if index is None else torch.device("cuda", index)
        assert open_meter("nvml", device=device, seams=self.seams(visible, uuid)).name == name

    def test_a_hidden_board_is_refused(self) -> None:
        with pytest.raises(MeterUnavailableError, match="no cuda:1"):
            open_meter("nvml", device=torch.device("cuda", 1), seams=self.seams("0"))

    def test_torch_is_asked_for_the_uuid(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(uuid="3"))
        assert open_meter("nvml", device=CUDA, seams=Seams(binding=Nvml(4), environ={})).name == "nvml:3"


class TestList:
    def test_every_known_meter_is_listed_with_what_it_measures_or_why_not(self, tmp_path: Path, rapl: Path) -> None:
        for seams in (
            seams_of(tmp_path),
            seams_of(tmp_path, Nvml(), rapl),
            seams_of(tmp_path, Nvml(answers=False)),
        ):
            found = discover(seams)
            assert {status.name.split(":")[0] for status in found} == set(METERS)
            for status in found:
                assert status.available == (status.reason is None) == (status.source is not None)
                assert (status.measures is not None) == status.available
            json.dumps([asdict(status) for status in found], allow_nan=False)

    def test_each_board_has_a_row(self, tmp_path: Path) -> None:
        names = [status.name for status in discover(seams_of(tmp_path, Nvml(3)))]
        assert names == ["nvml:0", "nvml:1", "nvml:2", "amd", "rapl", "ina3221", "jtop", "battery", "cpu-time"]

    def test_reasons_hold_the_remedy(self, tmp_path: Path, rapl: Path) -> None:
        def deny(path: Path) -> str:
            if path.name == "energy_uj":
                raise PermissionError(13, "Permission denied", str(path))
            return path.read_text()

        found = {status.name: status.reason or "" for status in discover(seams_of(tmp_path, rapl=rapl, read_text=deny))}
        assert "install the NVIDIA driver" in found["nvml"]
        assert f"sudo chmod a+r {rapl}/intel-rapl:0/energy_uj" in found["rapl"]
        assert "jtop --install-service" in found["jtop"]
        assert "in a container mount /sys" in found["ina3221"]
        assert "no battery" in found["battery"]
        assert found["cpu-time"] == ""

    def test_this_machine_can_be_listed(self) -> None:
        assert any(status.name == "cpu-time" and status.available for status in discover())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_real_board_is_measured() -> None:
    with closing(open_meter(device=CUDA)) as meter, meter.window() as w:
        x = torch.randn(4096, 4096, device=CUDA)
        for _ in range(400):
            x = torch.tanh(x @ x)
        torch.cuda.synchronize()
    assert w.source.startswith("measured:nvml")
    assert w.energy_j is not None, w.reason
    assert w.energy_j > 0
