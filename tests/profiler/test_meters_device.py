"""Device identity: what is told apart, what is not, and the round trip."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.errors import InputError
from gearshift.profiler.device import DeviceIdentity, identify, synchronise

GIB = 2**30


def board(name: str = "NVIDIA H200", memory_bytes: int = 141 * GIB) -> DeviceIdentity:
    return DeviceIdentity(
        kind="cuda", name=name, threads=16, memory_bytes=memory_bytes, torch_version="2.14.1", driver="575.51"
    )


def processor(name: str = "AMD EPYC 9654", threads: int = 8) -> DeviceIdentity:
    return DeviceIdentity(kind="cpu", name=name, threads=threads, memory_bytes=24 * GIB, torch_version="2.14.1")


@pytest.mark.parametrize(
    ("identity", "key", "line"),
    [
        (
            board(),
            "cuda:nvidia-h200:141g",
            "cuda: NVIDIA H200, 16 threads, 141.0 GiB, torch 2.14.1, driver 575.51",
        ),
        (processor(), "cpu:amd-epyc-9654:8t", "cpu: AMD EPYC 9654, 8 threads, 24.0 GiB, torch 2.14.1"),
    ],
)
def test_key_and_line(identity: DeviceIdentity, key: str, line: str) -> None:
    assert (identity.key(), identity.describe()) == (key, line)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (board(), replace(board(), torch_version="2.15", driver="600"), True),
        (board(), replace(board(), threads=2), True),
        (board(), board(memory_bytes=71 * GIB), False),
        (board(), board("NVIDIA H100"), False),
        (processor(), replace(processor(), memory_bytes=None), True),
        (processor(), processor(threads=4), False),
        (processor(), processor("AMD EPYC 7763"), False),
        (processor("NVIDIA H200"), board(), False),
    ],
)
def test_what_is_the_same_device(one: DeviceIdentity, other: DeviceIdentity, same: bool) -> None:
    assert (one.key() == other.key()) == same


@settings(deadline=None)
@given(
    kind=st.sampled_from(["cpu", "cuda"]),
    name=st.text(max_size=30),
    threads=st.integers(1, 512),
    memory_bytes=st.none() | st.integers(0, 2**50),
    driver=st.none() | st.text(max_size=10),
)
def test_it_survives_json(kind: str, name: str, threads: int, memory_bytes: int | None, driver: str | None) -> None:
    identity = DeviceIdentity(
        kind=kind, name=name, threads=threads, memory_bytes=memory_bytes, torch_version="2.14", driver=driver
    )
    assert DeviceIdentity.from_dict(json.loads(json.dumps(identity.to_dict()))) == identity
    assert "\n" not in identity.key()


@pytest.mark.parametrize("change", [{"colour": "green"}, {"name": None}])
def test_wrong_fields_are_named(change: dict[str, object]) -> None:
    values = {**processor().to_dict(), **change}
    wrong = next(iter(change))
    if values[wrong] is None:
        del values[wrong]
    with pytest.raises(InputError, match=f"check {wrong}"):
        DeviceIdentity.from_dict(values)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(InputError, match="'tpu' is not known: expected one of cpu, cuda"):
        replace(processor(), kind="tpu")


class TestIdentify:
    def root(self, tmp_path: Path, limit: str | None = None, total_kib: int = 1 << 30) -> Path:
        (tmp_path / "proc").mkdir()
        (tmp_path / "proc/cpuinfo").write_text("processor : 0\nmodel name : Chip 8\n")
        (tmp_path / "proc/meminfo").write_text(f"MemTotal:       {total_kib} kB\n")
        if limit is not None:
            (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
            (tmp_path / "sys/fs/cgroup/memory.max").write_text(limit)
        return tmp_path

    @pytest.mark.parametrize(
        ("limit", "memory_gib"), [(None, 1024), ("max\n", 1024), (f"{8 * GIB}\n", 8), (f"{2**60}\n", 1024)]
    )
    def test_memory_is_that_of_the_container(self, tmp_path: Path, limit: str | None, memory_gib: int) -> None:
        found = identify("cpu", root=self.root(tmp_path, limit))
        assert (found.kind, found.name, found.threads) == ("cpu", "Chip 8", 1)
        assert found.memory_bytes == memory_gib * GIB
        assert found.torch_version == torch.__version__

    def test_a_system_without_files_has_no_memory_figure(self, tmp_path: Path) -> None:
        found = identify("cpu", root=tmp_path)
        assert found.memory_bytes is None
        assert "GiB" not in found.describe()

    def test_this_machine_is_identified_twice_alike(self) -> None:
        assert identify().key() == identify(torch.device("cpu")).key()

    def test_a_board_is_identified_through_torch(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
        properties = SimpleNamespace(name="NVIDIA H200", total_memory=141 * GIB)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
        binding = SimpleNamespace(
            NVMLError=ZeroDivisionError,
            nvmlInit=lambda: None,
            nvmlShutdown=lambda: None,
            nvmlSystemGetDriverVersion=lambda: b"575.51",
        )
        found = identify("cuda", root=self.root(tmp_path), binding=binding)
        assert (found.key(), found.driver) == ("cuda:nvidia-h200:141g", "575.51")
        with pytest.raises(InputError, match="cuda:5 is not there"):
            identify("cuda:5", root=tmp_path, binding=binding)

    @pytest.mark.parametrize("device", ["meta", "warp drive"])
    def test_other_devices_are_refused(self, device: str) -> None:
        for function in (identify, synchronise):
            with pytest.raises(InputError, match="expected"):
                function(device)

    def test_a_processor_needs_no_waiting(self) -> None:
        synchronise("cpu")

    def test_a_board_is_waited_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        waited: list[torch.device] = []
        monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
        synchronise("cuda:1")
        assert waited == [torch.device("cuda:1")]
