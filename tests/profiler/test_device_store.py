"""What is kept by device comes back for that device, and only for it."""

from dataclasses import replace
from pathlib import Path

from gearshift.profiler.device import DeviceIdentity
from gearshift.profiler.device_store import DeviceStore, cache_folder

HERE = DeviceIdentity(kind="cpu", name="Some CPU (8 cores)", threads=8, memory_bytes=2**30, torch_version="2.14.1")


def test_figures_come_back_for_the_device_they_were_taken_on(tmp_path: Path) -> None:
    store = DeviceStore(tmp_path / "made" / "when needed")
    assert store.load(HERE, "peaks") is None
    assert store.save(HERE, "peaks", {"gflops": 12.5}) is None
    assert store.load(HERE, "peaks") == {"gflops": 12.5}
    assert store.load(replace(HERE, torch_version="2.13.0"), "peaks") == {"gflops": 12.5}
    assert store.load(HERE, "idle") is None
    assert store.load(replace(HERE, threads=4), "peaks") is None


def test_a_file_moved_from_another_device_is_as_good_as_absent(tmp_path: Path) -> None:
    store, other = DeviceStore(tmp_path), replace(HERE, name="Another CPU")
    store.save(HERE, "peaks", {"gflops": 12.5})
    store.path(HERE, "peaks").rename(store.path(other, "peaks"))
    assert store.load(other, "peaks") is None


def test_a_damaged_file_is_as_good_as_absent_and_is_replaced(tmp_path: Path) -> None:
    store = DeviceStore(tmp_path)
    for damage in (b"", b"{", b"[]", b"\xff\xfe", b'{"figures": 3}'):
        store.path(HERE, "peaks").write_bytes(damage)
        assert store.load(HERE, "peaks") is None
    store.save(HERE, "peaks", {"gflops": 1.0})
    assert store.load(HERE, "peaks") == {"gflops": 1.0}


def test_a_folder_that_cannot_be_written_costs_only_the_keeping(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    reason = DeviceStore(tmp_path / "file" / "below").save(HERE, "peaks", {"gflops": 1.0})
    assert reason is not None
    assert "not kept" in reason


def test_the_folder_follows_the_environment(tmp_path: Path) -> None:
    assert cache_folder({"GEARSHIFT_CACHE": str(tmp_path), "XDG_CACHE_HOME": "/elsewhere"}) == tmp_path
    assert cache_folder({"XDG_CACHE_HOME": str(tmp_path)}) == tmp_path / "gearshift"
    assert cache_folder({}) == Path.home() / ".cache" / "gearshift"
