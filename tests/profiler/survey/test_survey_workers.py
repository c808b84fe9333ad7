"""A survey over code that fails in every way: one architecture never ends it, and nothing is downloaded."""

import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from gearshift.errors import InputError, OutputError
from gearshift.profiler.survey import Row, survey
from gearshift.profiler.survey import workers as workers_module
from gearshift.profiler.survey.libraries import Installed
from tests.profiler.survey.stand_in import BUILT, GOOD, TROUBLE

STAND_IN = Installed(name="timm", opener="tests.profiler.survey.stand_in:StandIn")
LIMIT_S = 5.0  # one of these takes milliseconds, or sleeps for a minute


def rows_of(**options: object) -> dict[str, Row]:
    found = survey(STAND_IN, **{"workers": 1, "limit_s": LIMIT_S, **options})  # type: ignore[arg-type]
    return {row.name: replace(row, cpu_s=0.0) for row in found.rows}


@pytest.fixture(scope="module")
def troubled() -> dict[str, Row]:
    """All architectures, surveyed by two workers."""
    return rows_of(workers=2)


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where every build is noted; workers must be told, so this is for surveys in processes of their own."""
    file = tmp_path / "built.txt"
    file.touch()
    monkeypatch.setenv(BUILT, str(file))
    return file


def test_every_architecture_has_a_row_in_the_library_s_order(troubled: dict[str, Row]) -> None:
    assert list(troubled) == [*GOOD, "needy", *TROUBLE]
    assert [name for name, row in troubled.items() if not row.is_ok] == list(TROUBLE)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("raises", "RuntimeError: no such layer"),
        ("exits", "ended with exit code 3"),
        ("leaves", "ended with exit code 7"),
        ("is killed", "ended by SIGKILL; memory may be short"),
        ("crashes", "ended by SIGSEGV"),
        ("hangs", "took longer than 5 s"),
        ("connects", "wants to download something, which a survey never does"),
        ("looks up", "wants to download something, which a survey never does"),
        ("downloads", "wants to download something, which a survey never does"),
    ],
)
def test_a_failure_is_told_in_one_line(name: str, said: str, troubled: dict[str, Row]) -> None:
    row = troubled[name]
    assert said in str(row.reason)
    assert len(str(row.reason).splitlines()) == 1
    assert (row.layers, row.macs, row.params) == ((), None, None)


def test_what_cannot_be_run_still_has_a_row(troubled: dict[str, Row]) -> None:
    row = troubled["needy"]
    assert row.is_ok
    assert row.macs is None
    assert "meta" in str(row.macs_reason)


def test_neighbours_of_a_failure_are_counted_as_ever(troubled: dict[str, Row]) -> None:
    for number, name in enumerate(GOOD):
        width, row = 4 + 2 * number, troubled[name]
        positions = 4 * 4  # 8x8 at stride 2
        macs = positions * (9 * 3 * width + 25 * width + width * 2 * width // 2)
        assert row.macs == {"convolution": macs, "linear": 2 * width * 16 * 10}
        assert row.count("Conv2d") == 3
        assert row.params == 27 * width + (25 + 1) * width + (width // 2 + 1) * 2 * width + (2 * width * 16 + 1) * 10


def test_workers_that_retire_change_nothing(monkeypatch: pytest.MonkeyPatch, troubled: dict[str, Row]) -> None:
    monkeypatch.setattr(workers_module, "TASKS_OF_A_WORKER", 2)
    assert rows_of(pattern="net*") == {name: troubled[name] for name in GOOD}


def test_no_worker_is_left_behind() -> None:
    import multiprocessing

    rows_of(pattern="net[01]")
    assert multiprocessing.active_children() == []


# Going on.


def test_a_second_survey_takes_the_rows_of_the_first(tmp_path: Path) -> None:
    journal = tmp_path / "rows.jsonl"
    told: list[tuple[int, int, str | None]] = []
    options = {"journal": journal, "workers": 1}
    first = survey(STAND_IN, pattern="net[0-2]", **options)  # type: ignore[arg-type]
    second = survey(
        STAND_IN, pattern="net*", progress=lambda *it: told.append((*it[:2], it[2] and it[2].name)), **options
    )  # type: ignore[arg-type]
    assert (first.resumed, second.resumed) == (0, 3)
    assert second.rows[:3] == first.rows, "to the digit, CPU time included: they were not taken again"
    assert told == [(3, 6, None), (4, 6, "net3"), (5, 6, "net4"), (6, 6, "net5")]


def test_fresh_begins_anew(tmp_path: Path) -> None:
    journal = tmp_path / "rows.jsonl"
    rows_of(pattern="net[01]", journal=journal)
    anew = survey(STAND_IN, pattern="net0", journal=journal, fresh=True, workers=1)
    assert anew.resumed == 0
    assert len(journal.read_text().splitlines()) == 1


def test_failures_are_tried_again(tmp_path: Path) -> None:
    journal = tmp_path / "rows.jsonl"
    assert not rows_of(pattern="raises", journal=journal)["raises"].is_ok
    again = survey(STAND_IN, pattern="raises", journal=journal, workers=1)
    assert again.resumed == 0
    assert len(journal.read_text().splitlines()) == 2
    assert len(again.rows) == 1


def test_an_interrupted_survey_goes_on_and_ends_like_any_other(tmp_path: Path, troubled: dict[str, Row]) -> None:
    journal = tmp_path / "rows.jsonl"

    def interrupt(done: int, of: int, row: Row | None) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rows_of(pattern="net*", journal=journal, progress=interrupt)
    assert len(journal.read_text().splitlines()) == 2
    assert rows_of(pattern="net*", journal=journal) == {name: troubled[name] for name in GOOD}


def test_a_killed_survey_goes_on_and_builds_nothing_twice(tmp_path: Path, built: Path) -> None:
    journal = tmp_path / "rows.jsonl"
    process = started(tmp_path, "[nh]*[0-9s]", journal)
    until(lambda: "hangs" in built.read_text(), process)
    process.kill()
    gone(process)
    finished = len(journal.read_text().splitlines())
    assert finished == len(GOOD)
    found = survey(STAND_IN, pattern="net*", journal=journal, workers=1)
    assert found.resumed == len(GOOD)
    assert built.read_text().split() == [*GOOD, "hangs"]


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT])
def test_workers_end_with_the_process_that_holds_the_survey(by: signal.Signals, tmp_path: Path, built: Path) -> None:
    process = started(tmp_path, "hangs", tmp_path / "rows.jsonl")
    until(lambda: "hangs" in built.read_text(), process)
    process.send_signal(by)  # to it alone, as `kill` does, while its worker has most of a minute to go
    gone(process)


def gone(process: subprocess.Popen[bytes]) -> None:
    """Wait, for less than what hangs takes, until nobody has its stderr open: not it, and none that it started."""
    process.communicate(timeout=30)
    assert process.returncode != 0


def started(folder: Path, pattern: str, journal: Path) -> subprocess.Popen[bytes]:
    """A survey by one worker in a process of its own."""
    code = f"""
from pathlib import Path
from gearshift.profiler.survey import survey
from gearshift.profiler.survey.libraries import Installed
if __name__ == "__main__":
    place = Installed(name="timm", opener={STAND_IN.opener!r})
    survey(place, pattern={pattern!r}, journal=Path({str(journal)!r}), workers=1)
"""
    script = folder / "run.py"
    script.write_text(code)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen([sys.executable, "-W", "ignore", str(script)], env=environment, stderr=subprocess.PIPE)


def until(is_so: object, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():  # type: ignore[operator]
        assert process.poll() is None, "it ended by itself"
        assert time.monotonic() < deadline
        time.sleep(0.05)


# What is refused.


def test_nothing_matches() -> None:
    with pytest.raises(InputError, match=r'no architecture of timm .* matches "alexnet"'):
        survey(STAND_IN, pattern="alexnet")


def test_an_unknown_library() -> None:
    with pytest.raises(InputError, match='no library "keras" can be surveyed; known: timm, transformers'):
        survey("keras")


def test_a_library_that_is_not_installed() -> None:
    nowhere = Installed(name="no-such-library", opener="nowhere:Nothing", extra="some")
    with pytest.raises(InputError, match=r"no-such-library is not installed; run pip install 'gearshift\[some\]'"):
        survey(nowhere)


def test_a_journal_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match=r"cannot use .*; choose a folder that you may write to"):
        survey(STAND_IN, pattern="net0", journal=tmp_path / "file" / "rows.jsonl")


def test_timm_is_surveyed_without_any_network(monkeypatch: pytest.MonkeyPatch) -> None:
    connect = socket.socket.connect

    def refuse(this: socket.socket, address: object) -> None:
        if this.family != socket.AF_UNIX:  # which the workers' own pipes use
            raise OSError("tests have no network")
        connect(this, address)  # type: ignore[arg-type]

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.delattr(socket, "getaddrinfo")
    found = survey("timm", pattern="resnet1[08][td]", workers=1)
    assert [row.name for row in found.rows] == ["resnet10t", "resnet18d"]
    assert not found.failed
