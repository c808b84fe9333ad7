"""Runs: what is kept of them, and that co-running processes never outlive them.

Time stands still but for what paths and the camera take; only the processes are real.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gearshift.paths.data import LabelledFrame
from gearshift.profiler.meters import NullMeter
from gearshift.profiler.meters.base import BaseMeter
from gearshift.profiler.meters.protocol import Precision, Reading
from gearshift.runtime.bench import load
from gearshift.runtime.bench.drive import Run, Served, drive
from gearshift.runtime.bench.load import CoRunners
from gearshift.runtime.bench.scenario import BudgetStep, Load, Scenario
from gearshift.runtime.budget import Budget
from gearshift.runtime.choices import Choice, Choices
from gearshift.runtime.dynamic import DynamicModel
from gearshift.runtime.stream import Pictures

FPS = 10.0
FAST, SLOW = "fast", "slow"
TAKES_S = {FAST: 0.02, SLOW: 0.06}


class Time:
    """Stands still but for sleeping and for paths."""

    def __init__(self) -> None:
        self.now_s = 500.0

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


class TimedPath(nn.Module):
    """Takes its time, and answers which path and which picture it was; may fail."""

    def __init__(self, clock: Time, name: str) -> None:
        super().__init__()
        self.clock, self.name = clock, name
        self.fails_at: float | None = None

    def forward(self, pixels: Tensor) -> Any:
        if self.fails_at is not None and self.clock.now_s >= self.fails_at:
            raise RuntimeError("out of order")
        self.clock.now_s += TAKES_S[self.name]
        marker = torch.tensor([float(self.name == SLOW), float(pixels[0, 0, 0, 0])])
        return SimpleNamespace(logits=marker)


class PlantMeter(BaseMeter):
    """Cumulative energy at a constant power, on the test's clock."""

    def __init__(self, clock: Time, watts: float) -> None:
        self.watts = watts
        precision = Precision(resolution_s=0.0, relative=0.0)
        super().__init__(name="plant", source="measured:plant", boundary="all", precision=precision, clock=clock)

    def _read(self) -> Reading:
        now = self._clock()
        return Reading(time_s=now, energy_j=self.watts * now)


class Plant:
    """A model of two paths, its camera's pictures, its meter and its clock."""

    def __init__(self, *, measured: bool = True) -> None:
        self.clock = Time()
        self.paths = {name: TimedPath(self.clock, name) for name in TAKES_S}
        self.meter = PlantMeter(self.clock, 30.0) if measured else NullMeter("no sensor", clock=self.clock)
        net = {FAST: 1.0, SLOW: 4.0} if measured else dict.fromkeys(TAKES_S)
        choices = Choices(
            paths=tuple(
                Choice(id=name, quality=0.6 if name == FAST else 0.9, latency_s=takes, spread=0.05, net_j=net[name])
                for name, takes in TAKES_S.items()
            ),
            idle_power_w=10.0 if measured else None,
        )
        self.model = DynamicModel(self.paths, choices, meter=self.meter, frame_period_s=1 / FPS, clock=self.clock)
        frames = [
            LabelledFrame(image=np.full((4, 4, 3), 60 * number, np.uint8), labels=np.zeros((4, 4), np.uint8))
            for number in range(3)
        ]
        self.pictures = Pictures(frames, torch.device("cpu"))

    def drive(self, scenario: Scenario, *, fps: float = FPS, pinned: str | None = None) -> Run:
        return drive(
            self.model,
            self.pictures,
            self.meter,
            scenario,
            fps,
            pinned=pinned,
            clock=self.clock,
            sleep=self.clock.sleep,
        )


@pytest.fixture
def plant() -> Iterator[Plant]:
    made = Plant()
    yield made
    made.model.close()


@pytest.fixture
def blind() -> Iterator[Plant]:
    made = Plant(measured=False)
    yield made
    made.model.close()


def test_every_frame_of_the_camera_is_served_once_on_one_path(blind: Plant) -> None:
    run = blind.drive(Scenario.steady(["200ms"], 1.0))
    assert [frame.index for frame in run.frames] == list(range(10))
    assert (run.camera_frames, run.seconds, run.fps) == (10, pytest.approx(1.0), FPS)
    assert {frame.path for frame in run.frames} == {SLOW}
    assert [frame.start_s for frame in run.frames] == pytest.approx([0.1 * n for n in range(10)])
    assert [frame.latency_s for frame in run.frames] == pytest.approx([TAKES_S[SLOW]] * 10)
    assert [frame.picture for frame in run.frames] == [0, 1, 2, 1, 0, 1, 2, 1, 0, 1]


def test_frames_that_nobody_fetches_are_counted_to_the_end_of_the_run(blind: Plant) -> None:
    # 60 ms a frame at 50 frames/s: every third frame is served, the last at 0.96 s, frames 49 dropped too.
    run = blind.drive(Scenario.steady(["200ms"], 1.0), fps=50.0, pinned=SLOW)
    assert [frame.index for frame in run.frames] == list(range(0, 50, 3))
    assert run.camera_frames == 50


def test_a_run_pinned_to_a_path_uses_no_other(plant: Plant) -> None:
    for name in TAKES_S:
        run = plant.drive(Scenario.steady(["20W"], 0.5), pinned=name)
        assert {frame.path for frame in run.frames} == {name}
        assert run.shortfalls == []
    free = plant.drive(Scenario.steady(["200ms"], 0.5))
    assert {frame.path for frame in free.frames} == {SLOW}, "the pin is gone"


def test_budgets_follow_the_script_and_each_frame_knows_its_own(blind: Plant) -> None:
    steps = [BudgetStep(at_s=at, budget=[text]) for at, text in ((0, "200ms"), (0.35, "30ms"), (0.75, "200ms"))]
    run = blind.drive(Scenario(seconds=1.2, budgets=steps))
    assert [str(budget) for _, budget in run.budgets] == ["p95 200 ms", "p95 30 ms", "p95 200 ms"]
    assert [start for start, _ in run.budgets] == pytest.approx([0.0, 0.4, 0.8])
    assert [frame.budget for frame in run.frames] == [0] * 4 + [1] * 4 + [2] * 4
    assert {frame.path for frame in run.frames if frame.budget == 1} == {FAST}
    assert {frame.path for frame in run.frames if frame.budget == 0} == {SLOW}


def test_before_the_first_step_nothing_is_asked(blind: Plant) -> None:
    run = blind.drive(Scenario(seconds=0.4, budgets=[BudgetStep(at_s=0.15, budget=["30ms"])]))
    assert [str(budget) for _, budget in run.budgets] == ["no limit", "p95 30 ms"]


def test_outputs_are_kept_once_for_each_picture_and_path(blind: Plant) -> None:
    run = blind.drive(Scenario.steady(["200ms"], 1.0))
    assert set(run.outputs) == {(picture, SLOW) for picture in range(3)}
    for (picture, _), output in run.outputs.items():
        assert float(output[1]) == float(blind.pictures.pixels(picture)[0, 0, 0, 0])


def test_outputs_beyond_the_room_for_them_are_let_go(blind: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gearshift.runtime.bench.drive.LARGEST_KEPT_BYTES", 20)  # two outputs of 8 bytes
    run = blind.drive(Scenario.steady(["200ms"], 1.0))
    assert len(run.outputs) == 2
    assert len(run.frames) == 10


def test_a_frame_belongs_to_the_path_that_answered_it(blind: Plant) -> None:
    blind.paths[SLOW].fails_at = blind.clock.now_s + 0.35
    run = blind.drive(Scenario.steady(["200ms"], 1.0))
    assert [frame.path for frame in run.frames] == [SLOW] * 4 + [FAST] * 6
    assert all(float(output[0]) == float(path == SLOW) for (_, path), output in run.outputs.items())


def test_what_no_path_can_meet_is_said_once_for_each_budget(blind: Plant) -> None:
    steps = [BudgetStep(at_s=at, budget=[text]) for at, text in ((0, "1ms"), (0.35, "200ms"), (0.75, "2ms"))]
    run = blind.drive(Scenario(seconds=1.2, budgets=steps))
    assert [text.partition(";")[0] for text in run.shortfalls] == ["no path meets 1 ms", "no path meets 2 ms"]
    assert run.unmet == run.shortfalls[1]
    assert {frame.path for frame in run.frames if frame.shortfall} == {FAST}


def served(*said: str) -> Run:
    """A run under one budget whose frames were answered with these shortfalls."""
    frames = [
        Served(index=n, picture=0, path=FAST, start_s=0.1 * n, latency_s=0.02, budget=0, shortfall=text)
        for n, text in enumerate(said)
    ]
    return Run(fps=FPS, camera_frames=len(said), frames=frames, budgets=[(0.0, Budget())])


def test_a_passing_shortfall_is_told_but_leaves_the_budget_met() -> None:
    run = served("", "", "needs 3", "needs 4", "")
    assert (run.shortfalls, run.unmet) == (["needs 4"], None)
    run = served("", "needs 3", "needs 4", "")
    assert run.unmet is None, "half of the frames are not most of them"
    run = served("needs 3", "needs 4", "")
    assert run.unmet == "needs 4"


def test_energy_is_that_of_the_whole_run(plant: Plant) -> None:
    run = plant.drive(Scenario.steady(["200ms"], 1.0))
    assert run.energy is not None
    assert run.energy.energy_j == pytest.approx(30.0)
    assert run.energy.seconds == pytest.approx(run.seconds)


def test_without_a_meter_the_reason_is_kept(blind: Plant) -> None:
    run = blind.drive(Scenario.steady(["200ms"], 0.5))
    assert run.energy is not None
    assert (run.energy.energy_j, run.energy.reason) == (None, "no sensor")
    assert run.powers == []


def test_power_samples_lie_within_the_run(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    from gearshift.runtime.sampler import PowerSample

    start = plant.clock.now_s
    spans = [(-0.1, 0.05), (0.05, 0.5), (0.5, 1.0), (0.9, 1.2)]
    samples = [PowerSample(n, start + one, start + two, 30.0, 1.0) for n, (one, two) in enumerate(spans)]
    monkeypatch.setattr(plant.model, "take_power_samples", lambda: samples)
    run = plant.drive(Scenario.steady(["200ms"], 1.0))
    assert [(s.start_s, s.end_s) for s in run.powers] == [pytest.approx((0.05, 0.5)), pytest.approx((0.5, 1.0))]


def test_a_run_that_fails_leaves_the_model_as_it_was(blind: Plant) -> None:
    for path in blind.paths.values():
        path.fails_at = blind.clock.now_s + 0.3
    with pytest.raises(RuntimeError, match="out of order"):
        blind.drive(Scenario.steady(["200ms"], 1.0), pinned=FAST)
    assert blind.model.listener is None
    for path in blind.paths.values():
        path.fails_at = None
    assert blind.drive(Scenario.steady(["30ms"], 0.5)).frames[-1].path == FAST


# Real processes.


def is_running(process_id: int) -> bool:
    """Whether a process computes; one that ended and was not waited for does not."""
    try:
        state = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def wait_until(condition: Callable[[], bool], seconds: float = 30.0) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


on_linux = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at /proc")


@on_linux
def test_as_many_processes_run_as_asked_for() -> None:
    with CoRunners() as others:
        seen: set[int] = set()
        for count in (2, 1, 3, 0, 1):
            others.set(count)
            assert len(others.process_ids) == count
            assert all(is_running(process_id) for process_id in others.process_ids)
            seen.update(others.process_ids)
    assert others.process_ids == []
    assert not any(Path(f"/proc/{process_id}").exists() for process_id in seen), "ended and waited for"


@on_linux
def test_processes_that_were_ended_are_waited_for_only_in_the_end() -> None:
    # `os.times` counts the processor time of children from when they are waited for: not in the midst of a run.
    with CoRunners() as others:
        others.set(1)
        [process_id] = others.process_ids
        before = os.times().children_user
        time.sleep(0.3)
        others.set(0)
        assert wait_until(lambda: not is_running(process_id))
        assert os.times().children_user == before
    assert os.times().children_user > before


@on_linux
def test_processes_end_with_the_run_even_if_it_fails(blind: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []
    monkeypatch.setattr(
        CoRunners, "set", lambda self, count, set_=CoRunners.set: (set_(self, count), started.extend(self.process_ids))
    )
    steps = [BudgetStep(at_s=0, budget=["200ms"])]
    script = Scenario(seconds=1.0, budgets=steps, loads=[Load(from_s=0.1, to_s=2.0, processes=2)])
    blind.drive(script)
    assert len(set(started)) == 2
    assert not any(is_running(process_id) for process_id in started)

    started.clear()
    for path in blind.paths.values():
        path.fails_at = blind.clock.now_s + 0.3
    with pytest.raises(RuntimeError):
        blind.drive(script)
    assert len(set(started)) == 2
    assert not any(is_running(process_id) for process_id in started)


@on_linux
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_processes_end_when_their_parent_is_killed(how: signal.Signals) -> None:
    code = (  # the file alone, as its package takes seconds to import
        "import runpy, time\n"
        f"with runpy.run_path({load.__file__!r})['CoRunners']() as others:\n"
        "    others.set(2)\n"
        "    print(*others.process_ids, flush=True)\n"
        "    time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent:
        children = [int(word) for word in parent.stdout.readline().split()]
        assert len(children) == 2
        assert all(is_running(child) for child in children)
        parent.send_signal(how)
        parent.wait()
    assert wait_until(lambda: not any(is_running(child) for child in children))


def test_a_co_runner_s_count_follows_the_script(blind: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(CoRunners, "set", lambda self, count: asked.append(count))
    script = Scenario(
        seconds=1.0,
        budgets=[BudgetStep(at_s=0, budget=["200ms"])],
        loads=[Load(from_s=0.25, to_s=0.75, processes=2)],
    )
    blind.drive(script)
    assert asked == [0] * 3 + [2] * 5 + [0] * 2 + [0]  # one for each frame, and the end
