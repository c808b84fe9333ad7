"""`runtime devices` on a machine of temporary files: periods, steps, idle power and its age."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gearshift.profiler.meters import METERS, Seams
from gearshift.runtime.cli import devices as command
from gearshift.runtime.cli import main

Run = Callable[..., tuple[int, str, str]]


class NoLibrary:
    """A vendor's package on a machine without its boards."""

    class NVMLError(Exception): ...

    AmdSmiException = NVMLError


@pytest.fixture
def rail(tmp_path: Path) -> Path:
    """A Jetson's input rail at 10 W."""
    folder = tmp_path / "machine/sys/bus/i2c/drivers/ina3221/1-0040/hwmon/hwmon0"
    folder.mkdir(parents=True)
    for file, value in (("in1_label", "VDD_IN"), ("in1_input", "5000"), ("curr1_input", "2000")):
        (folder / file).write_text(value)
    return folder


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    root = tmp_path / "machine"
    seams = Seams(binding=NoLibrary(), amd=NoLibrary(), root=root, powercap=root / "powercap")
    monkeypatch.setattr(command, "Seams", lambda: seams)
    monkeypatch.setattr(command, "PERIOD_SECONDS", 0.2)
    monkeypatch.setenv("GEARSHIFT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")

    def run_it(*arguments: str) -> tuple[int, str, str]:
        code = main(["devices", *arguments])
        return code, *capfd.readouterr()

    return run_it


def meter_of(out: str, name: str) -> dict[str, Any]:
    (found,) = (meter for meter in json.loads(out)["meters"] if meter["name"] == name)
    return dict(found)


class TestList:
    def test_every_meter_is_there_with_its_period_and_step(self, run: Run, rail: Path) -> None:
        code, out, err = run("--json", "-")
        assert (code, err) == (0, "")
        assert {meter["name"] for meter in json.loads(out)["meters"]} == set(METERS)
        found = meter_of(out, "ina3221")
        assert (found["available"], found["period_s"], found["resolution_s"], found["resolution_j"]) == (
            True,
            0.05,
            0.05,
            None,
        )
        assert (found["idle"], found["observed"]) == (None, None)
        assert meter_of(out, "rapl")["period_s"] is None

    def test_the_table_says_the_same(self, run: Run, rail: Path) -> None:
        _, out, _ = run()
        assert "50 ms" in out
        assert "whole board as seen by VDD_IN" in out


class TestIdle:
    def test_it_is_measured_kept_and_shown_with_its_age(self, run: Run, rail: Path) -> None:
        code, out, err = run("--idle", "0.2", "--json", "-")
        assert (code, err) == (0, "measuring idle power with ina3221 for 0.2 s\n")
        kept = meter_of(out, "ina3221")["idle"]
        assert kept["power_w"] == pytest.approx(10.0)
        assert kept["source"] == "measured:ina3221"
        assert 0 <= kept["age_s"] < 600
        (rail / "curr1_input").write_text("4000")
        assert meter_of(run("--json", "-")[1], "ina3221")["idle"]["power_w"] == pytest.approx(10.0)
        _, table, _ = run()
        assert "10 W" in table
        assert "just now" in table

    def test_a_device_without_a_sensor_says_so(self, run: Run) -> None:
        code, out, err = run("--idle", "0.2", "--json", "-")
        assert (code, err) == (0, "no meter here has a sensor: there is no idle power to measure\n")
        assert meter_of(out, "cpu-time")["idle"] is None

    def test_a_busy_machine_s_is_not_kept(self, run: Run, rail: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        ticks = iter([(0, 0), (90, 100)])
        monkeypatch.setattr("gearshift.profiler.meters.quiet_idle._ticks", lambda root: next(ticks))
        code, out, err = run("--idle", "0.1", "--json", "-")
        assert code == 0
        assert "idle power of ina3221 is not kept: the machine was busy: 90%" in err
        assert meter_of(out, "ina3221")["idle"] is None

    @pytest.mark.parametrize("seconds", ["0", "-1", "inf", "nan"])
    def test_no_time_is_refused_in_one_line(self, run: Run, seconds: str) -> None:
        code, out, err = run(f"--idle={seconds}")
        assert (code, out) == (2, "")
        assert "--idle takes a time above 0 s" in err
        assert err.count("\n") == 1


class TestCheck:
    def test_a_sensor_that_stands_still_is_told(self, run: Run, rail: Path) -> None:
        code, out, err = run("--check", "--json", "-")
        assert (code, err) == (0, "watching ina3221\n")
        observed = meter_of(out, "ina3221")["observed"]
        assert (observed["period_s"], observed["specified_s"], observed["changes"]) == (None, 0.05, 0)
        assert "not seen" in run("--check")[1]

    def test_a_period_that_was_seen_is_shown(self, run: Run, rail: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        looks = iter(range(10_000))
        monkeypatch.setattr("gearshift.profiler.meters.ina3221.Ina3221Meter.sensor_value", lambda self: next(looks))
        _, out, _ = run("--check", "--json", "-")
        observed = meter_of(out, "ina3221")["observed"]
        assert 0 < observed["shortest_s"] <= observed["period_s"] <= observed["longest_s"]
        _, table, _ = run("--check")
        assert "seen " in table


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.0, "just now"), (125.0, "2 min old"), (7300.0, "2 h old"), (400_000.0, "5 days old")]
)
def test_ages(seconds: float, words: str) -> None:
    assert command._age(seconds) == words
