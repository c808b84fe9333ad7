"""Run a stream through a model, and keep what happened, frame by frame."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

from gearshift.profiler.meters import Measurement, Meter
from gearshift.runtime.bench.load import CoRunners
from gearshift.runtime.bench.scenario import Scenario
from gearshift.runtime.budget import Budget
from gearshift.runtime.dynamic import DynamicModel, Frame
from gearshift.runtime.sampler import PowerSample
from gearshift.runtime.stream import Pictures, camera

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
    """

    index: int
    picture: int
    path: str
    start_s: float
    latency_s: float
    budget: int


@dataclass(slots=True, kw_only=True)
class Run:
    """What happened during a run.

    Attributes:
        fps: Of the camera.
        seconds: How long the run lasted.
        frames: In order.
        budgets: Moments at which the budget changed, with the budget in watts.
        powers: Power samples, their times from the run's start.
        energy: The whole run's window of the meter.
        outputs: Logits by (picture, path).
        shortfalls: What the controller said when no path could meet the budget, each once, in order.
    """

    fps: float
    seconds: float = 0.0
    frames: list[Served] = field(default_factory=list)
    budgets: list[tuple[float, Budget]] = field(default_factory=list)
    powers: list[PowerSample] = field(default_factory=list)
    energy: Measurement | None = None
    outputs: dict[tuple[int, str], Tensor] = field(default_factory=dict)
    shortfalls: list[str] = field(default_factory=list)


def drive(
    model: DynamicModel,
    pictures: Pictures,
    meter: Meter,
    scenario: Scenario,
    fps: float,
    *,
    pinned: str | None = None,
    progress: Callable[[float], None] = lambda _: None,
    clock: Callable[[], float] = time.perf_counter,
) -> Run:
    """Run a scenario; with `pinned`, on that path alone, whatever the budgets."""
    run = Run(fps=fps)
    told: list[Frame] = []
    model.pin(pinned)
    model.listener = told.append
    model.start_sampling()
    try:
        with CoRunners() as others, meter.window() as window:
            start = clock()
            model.take_power_samples()
            for shot in camera(pictures, fps, scenario.seconds, clock=clock):
                now = clock() - start
                others.set(scenario.processes_at(now))
                _set_budget(model, scenario, now, run)
                output = model(shot.pixels)
                frame = told.pop()
                _keep(run, shot.picture, frame.path, output.logits)
                run.frames.append(
                    Served(
                        index=shot.index,
                        picture=shot.picture,
                        path=frame.path,
                        start_s=frame.start_s - start,
                        latency_s=frame.latency_s,
                        budget=len(run.budgets) - 1,
                    )
                )
                if pinned is None:
                    _note_shortfall(model, run)
                progress(now)
            run.seconds = clock() - start
    finally:
        model.listener = None
        model.pin(None)
    run.energy = window.measurement
    run.powers = [
        PowerSample(item.number, item.start_s - start, item.end_s - start, item.power_w, item.energy_j)
        for item in model.take_power_samples()
        if item.start_s >= start
    ]
    return run


def _set_budget(model: DynamicModel, scenario: Scenario, now: float, run: Run) -> None:
    wanted = scenario.budget_at(now)
    if not run.budgets or wanted != model.budget:
        model.budget = wanted
        run.budgets.append((0.0 if not run.budgets else now, model.resolved_budget))


def _keep(run: Run, picture: int, path: str, logits: Tensor) -> None:
    """Keep an output the first time a path runs a picture; the same path gives the same output every time."""
    if (picture, path) in run.outputs:
        return
    size = logits.numel() * logits.element_size()
    if (len(run.outputs) + 1) * size <= LARGEST_KEPT_BYTES:
        run.outputs[picture, path] = logits.cpu()


def _note_shortfall(model: DynamicModel, run: Run) -> None:
    shortfall = model.shortfall
    if shortfall and (not run.shortfalls or run.shortfalls[-1] != shortfall):
        run.shortfalls.append(shortfall)
