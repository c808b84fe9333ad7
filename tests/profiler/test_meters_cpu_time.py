"""The estimate from processor time: its arithmetic, its constants, and that it never looks measured."""

import ast
import logging
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.errors import InputError
from gearshift.profiler.meters import CpuTimeEstimate, is_estimate
from gearshift.profiler.meters.cpu_info import CpuInfo, read_cpu
from gearshift.profiler.meters.cpu_power import (
    UNKNOWN_THREAD_W,
    find_model,
    load_table,
    table_path,
    thread_power,
)
from gearshift.profiler.meters.cpu_time import process_cpu_s


class Clock:
    def __init__(self) -> None:
        self.now_s = 50.0

    def __call__(self) -> float:
        return self.now_s


def cpu(
    model: str = "Chip 8", *, sockets: int = 1, threads: int = 4, usable: int = 4, virtual: bool = False
) -> CpuInfo:
    return CpuInfo(model=model, sockets=sockets, threads=threads, usable_threads=usable, is_virtual=virtual)


def estimate_of(clock: Clock, busy: Clock, info: CpuInfo, chip_w: float | None = 100.0) -> CpuTimeEstimate:
    table = {} if chip_w is None else {"Chip 8": chip_w}
    return CpuTimeEstimate(clock=clock, cpu_clock=busy, cpu=info, table=table)


class TestFormula:
    @pytest.mark.parametrize(
        ("seconds", "cpu_s", "energy_j"),
        [
            (10.0, 0.0, 0.1 * 100 * 10),  # idle: 10 % of 100 W
            (10.0, 40.0, 100.0 * 10),  # all four threads busy: the specified power
            (10.0, 10.0, 0.1 * 100 * 10 + 0.9 * 25 * 10),  # one of four threads busy
        ],
    )
    def test_idle_and_active_power_add_up(self, seconds: float, cpu_s: float, energy_j: float) -> None:
        clock, busy = Clock(), Clock()
        with estimate_of(clock, busy, cpu()).window() as w:
            clock.now_s += seconds
            busy.now_s += cpu_s
        assert w.energy_j == pytest.approx(energy_j)
        assert w.power_w == pytest.approx(energy_j / seconds)
        assert w.uncertainty_j == pytest.approx(0.5 * energy_j)
        assert sum(part or 0.0 for part in w.parts.values()) == pytest.approx(energy_j)

    @settings(deadline=None)
    @given(
        seconds=st.floats(0.0, 1e4),
        shares=st.lists(st.floats(0.0, 1.0), min_size=1, max_size=5),
        idle=st.floats(0, 1),
    )
    def test_power_lies_between_idle_and_specified(self, seconds: float, shares: list[float], idle: float) -> None:
        clock, busy = Clock(), Clock()
        meter = CpuTimeEstimate(clock=clock, cpu_clock=busy, cpu=cpu(), table={"Chip 8": 100.0}, idle_share=idle)
        with meter.window() as w:
            for share in shares:
                clock.now_s += seconds
                busy.now_s += 4 * share * seconds
        assert w.energy_j is not None
        assert w.seconds is not None
        slack_j = 1e-6 * (1 + w.seconds)
        assert idle * 100 * w.seconds - slack_j <= w.energy_j <= 100 * w.seconds + slack_j

    def test_it_always_calls_itself_an_estimate(self) -> None:
        meter = estimate_of(Clock(), Clock(), cpu())
        with meter.window() as w:
            pass
        assert meter.source == w.source == "estimated:cpu-time"
        assert is_estimate(w.source)
        assert w.measurement is not None
        assert w.measurement.is_estimate
        assert (w.samples, w.power_w) == (None, None)
        assert "estimate" in meter.boundary
        assert meter.basis in meter.notes

    @pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
    def test_the_idle_share_is_a_share(self, share: float) -> None:
        with pytest.raises(InputError, match="between 0 and 1"):
            CpuTimeEstimate(cpu=cpu(), table={}, idle_share=share)


class TestConstants:
    def test_a_known_chip_is_divided_by_its_threads(self) -> None:
        found = thread_power(cpu(sockets=2, threads=16), {"Chip 8": 120.0})
        assert found.thread_w == 2 * 120.0 / 16
        assert found.basis == "cpu 'Chip 8': 120 W x 2 socket(s) / 16 threads"

    def test_threads_that_we_may_not_use_are_not_charged(self) -> None:
        meter = estimate_of(Clock(), Clock(), cpu(threads=8, usable=2), chip_w=80.0)
        assert meter.idle_w == pytest.approx(0.1 * 2 * 10.0)
        assert "x 2 usable threads = 20 W; idle 10% of that" in meter.basis

    @pytest.mark.parametrize(
        ("info", "why"),
        [
            (cpu("Unheard Of 9"), "not in codecarbon's table"),
            (cpu(virtual=True), "virtual machine, its share of the chip is unknown"),
        ],
    )
    def test_an_unknown_chip_gets_the_constant_and_says_so(self, info: CpuInfo, why: str) -> None:
        found = thread_power(info, {"Chip 8": 120.0})
        assert found.thread_w == 4.0
        assert found.basis == f"cpu {info.model!r} ({why}): 4 W per thread"

    def test_the_constant_is_codecarbons(self) -> None:
        path = table_path()
        assert path is not None
        tree = ast.parse(path.parents[2].joinpath("core", "cpu.py").read_text())
        constants = {
            node.targets[0].id: node.value.value
            for node in tree.body
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and isinstance(node.value, ast.Constant)
        }
        assert constants["DEFAULT_POWER_PER_CORE"] == UNKNOWN_THREAD_W

    @pytest.mark.parametrize(
        ("model", "name", "watts"),
        [
            ("11th Gen Intel(R) Core(TM) i7-1165G7 @ 2.80GHz", "Intel Core i7-1165G7", 28.0),
            ("AMD Ryzen 9 7950X 16-Core Processor", "AMD Ryzen 9 7950X", 170.0),
            ("AMD EPYC 9654 96-Core Processor", "AMD EPYC 9654", 360.0),
            ("Intel(R) Xeon(R) Platinum 8375C CPU @ 2.90GHz", "Intel Xeon Platinum 8375C", 300.0),
        ],
    )
    def test_models_are_found_as_the_system_spells_them(self, model: str, name: str, watts: float) -> None:
        assert find_model(model, load_table()) == (name, watts)

    @pytest.mark.parametrize("model", ["AMD EPYC", "Intel(R) Xeon(R) CPU @ 2.80GHz", "aarch64", "", "unknown", "6378"])
    def test_a_family_is_not_a_model(self, model: str) -> None:
        assert find_model(model, load_table()) is None

    def test_the_most_specific_name_wins(self) -> None:
        table = {"Intel Xeon E5-2630": 95.0, "Intel Xeon E5-2630 v4": 85.0}
        assert find_model("Intel(R) Xeon(R) CPU E5-2630 v4 @ 2.20GHz", table) == (
            "Intel Xeon E5-2630 v4",
            85.0,
        )
        assert find_model("Intel(R) Xeon(R) CPU E5-2630 0 @ 2.30GHz", table) == ("Intel Xeon E5-2630", 95.0)

    def test_names_that_disagree_are_not_used(self) -> None:
        assert find_model("Chip 8 A1", {"Chip A1": 10.0, "8 A1": 20.0}) is None

    def test_every_name_in_the_table_finds_its_own_power(self) -> None:
        table = load_table()
        assert len(table) > 4000
        wrong = [name for name in list(table)[::40] if (found := find_model(name, table)) and found[1] != table[name]]
        assert wrong == []

    def test_without_codecarbon_the_table_is_empty(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        assert table_path() is None


class TestProcessor:
    def test_a_system_is_read_from_its_files(self, tmp_path: Path) -> None:
        blocks = [
            f"processor\t: {n}\nmodel name\t: Chip 8\nphysical id\t: {n // 2}\nflags\t: fpu hypervisor sse\n"
            for n in range(4)
        ]
        (tmp_path / "proc").mkdir()
        (tmp_path / "proc" / "cpuinfo").write_text("\n".join(blocks))
        found = read_cpu(tmp_path)
        assert (found.model, found.sockets, found.threads, found.is_virtual) == ("Chip 8", 2, 4, True)
        assert 1 <= found.usable_threads <= 4

    @pytest.mark.parametrize("content", [None, "", "processor : 0\nBogoMIPS : 50\nFeatures : fp asimd\n"])
    def test_a_system_that_says_little_is_no_error(self, tmp_path: Path, content: str | None) -> None:
        if content is not None:
            (tmp_path / "proc").mkdir()
            (tmp_path / "proc" / "cpuinfo").write_text(content)
        found = read_cpu(tmp_path)
        assert found.model
        assert found.threads >= 1
        assert not found.is_virtual

    def test_processor_time_holds_this_process_and_its_ended_children(self) -> None:
        before_s = process_cpu_s()
        subprocess.run([sys.executable, "-c", "sum(range(3_000_000))"], check=True)
        between_s = process_cpu_s()
        sum(range(300_000))
        assert before_s < between_s < process_cpu_s()


def test_it_is_quiet_and_offline_and_imports_no_tracker(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("a socket was opened"))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: pytest.fail("a name was looked up"))
    loaded = "codecarbon" in sys.modules
    load_table.cache_clear()
    with caplog.at_level(logging.DEBUG), CpuTimeEstimate() as meter, meter.window() as w:
        pass
    assert w.reason is None
    assert capfd.readouterr() == ("", "")
    assert caplog.records == []
    assert ("codecarbon" in sys.modules) == loaded
