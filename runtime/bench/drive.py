"""Run a stream through a model, and keep what happened, frame by frame."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from gearshift.paths.outputs import logits_of
from gearshift.profiler.meters import Measurement, Meter
from gearshift.runtime.bench.load import CoRunners
from gearshift.runtime.bench.scenario import Scenario
from gearshift.runtime.budget import Budget
from gearshift.runtime.dynamic import DynamicModel, Frame
from gearshift.runtime.sampler import PowerSample
from gearshift.runtime.stream import Pictures, Shot, camera, camera_frames

LARGEST_KEPT_BYTES = 1 << 30
"""Outputs are kept for judging up to this size; each picture's output on each path only once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """One frame as it was served.

    Attributes:
        index: Of the camera's frames.
        picture: Which picture it showed.
        path: Which path ran it.
        start_s: From the run's start.
        latency_s: How long the call took.
        budget: Number of the budget in force (see `Run.budgets`).
        shortfall: What the controller said afterwards if no path could meet that budget; else an empty text.
    """

    index: int
    picture: int
    path: str
    start_s: float
    latency_s: float
    budget: int
    shortfall: str = ""


@dataclass(slots=True, kw_only=True)
class Run:
    """What happened during a run.

    Attributes:
        fps: Of the camera.
        camera_frames: How many frames came due.
        seconds: How long the run lasted.
        frames: Those that were served, in order.
        budgets: Moments at which the budget changed, with the budget in watts.
        powers: Power samples, their times from the run's start.
        energy: The whole run's window of the meter.
        outputs: What is judged of an output (logits, mostly), by (picture, path).
    """

    fps: float
    camera_frames: int
    seconds: float = 0.0
    frames: list[Served] = field(default_factory=list)
    budgets: list[tuple[float, Budget]] = field(default_factory=list)
    powers: list[PowerSample] = field(default_factory=list)
    energy: Measurement | None = None
    outputs: dict[tuple[int, str], Tensor] = field(default_factory=dict)

    @property
    def shortfalls(self) -> list[str]:
        """What the controller said last under each budget that no path could meet, in order."""
        said = {frame.budget: frame.shortfall for frame in self.frames if frame.shortfall}
        return list(said.values())

    @property
    def unmet(self) -> str | None:
        """The same of the last budget unmet for most of its frames; None where all budgets could be met."""
        found = None
        for number in range(len(self.budgets)):
            said = [frame.shortfall for frame in self.frames if frame.budget == number]
            short = [text for text in said if text]
            if 2 * len(short) > len(said):
                found = short[-1]
        return found


def drive(
    model: DynamicModel,
    pictures: Pictures,
    meter: Meter,
    scenario: Scenario,
    fps: float,
    *,
    essence: Callable[[Any], Tensor] = logits_of,
    pinned: str | None = None,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> Run:
    """Run a scenario; with `pinned`, on that path alone, whatever the budgets.

    `essence` says what of an output is kept for judging.
    """
    run = Run(fps=fps, camera_frames=camera_frames(fps, scenario.seconds))
    told: list[Frame] = []
    model.pin(pinned)
    model.listener = told.append
    model.start_sampling()
    try:
        with CoRunners() as others, meter.window() as window:
            start = clock()
            for shot in camera(pictures, fps, scenario.seconds, clock=clock, sleep=sleep):
                now = clock() - start
                others.set(scenario.processes_at(now))
                _set_budget(model, scenario, now, run)
                output = model(shot.pixels)
                shortfall = model.shortfall if pinned is None else ""
                _keep(run, shot, told.pop(), output, essence, start, shortfall)
            run.seconds = clock() - start
    finally:
        model.listener = None
        model.pin(None)
    run.energy = window.measurement
    run.powers = _within(model.take_power_samples(), start, start + run.seconds)
    return run


def _set_budget(model: DynamicModel, scenario: Scenario, now: float, run: Run) -> None:
    wanted = scenario.budget_at(now)
    if not run.budgets or wanted != model.budget:
        model.budget = wanted
        run.budgets.append((0.0 if not run.budgets else now, model.resolved_budget))


def _keep(
    run: Run, shot: Shot, frame: Frame, output: Any, essence: Callable[[Any], Tensor], start_s: float, shortfall: str
) -> None:
    """Enter a frame, and its output the first time a path runs a picture: later ones would be the same."""
    run.frames.append(
        Served(
            index=shot.index,
            picture=shot.picture,
            path=frame.path,
            start_s=frame.start_s - start_s,
            latency_s=frame.latency_s,
            budget=len(run.budgets) - 1,
            shortfall=shortfall,
        )
    )
    key, judged = (shot.picture, frame.path), essence(output)
    size = judged.numel() * judged.element_size()
    if key not in run.outputs and (len(run.outputs) + 1) * size <= LARGEST_KEPT_BYTES:
        run.outputs[key] = judged.cpu()


def _within(samples: list[PowerSample], start_s: float, end_s: float) -> list[PowerSample]:
    """Return the samples that lie wholly between two moments, their times from the first."""
    return [
        PowerSample(item.number, item.start_s - start_s, item.end_s - start_s, item.power_w, item.energy_j)
        for item in samples
        if item.start_s >= start_s and item.end_s <= end_s
    ]
