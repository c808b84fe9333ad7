"""A plant for the controller: paths that take time and energy, frames that come, a meter. No clock runs."""

import bisect
import itertools
import math
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import settings

from gearshift.runtime.budget import Budget
from gearshift.runtime.choices import Choice, Choices
from gearshift.runtime.cli import main
from gearshift.runtime.controller import Decision, FrameReading, Settings, State, decide
from tests.support import Outcome, Refused, Run, files_of


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """Run a command as the shell does; whatever writes to the two streams is seen."""

    def run_it(*arguments: str | Path) -> Outcome:
        capfd.readouterr()
        code = main([str(argument) for argument in arguments])
        return Outcome(code, *capfd.readouterr())

    return run_it


@pytest.fixture
def refused(run: Run, tmp_path: Path) -> Refused:
    """Run a command that must be refused: exit 2, one line on stderr, nothing else, no file touched."""

    def run_it(*arguments: str | Path) -> str:
        before = files_of(tmp_path)
        outcome = run(*arguments)
        assert outcome.code == 2, outcome.err
        assert outcome.out == ""
        [line] = outcome.err.splitlines()
        assert line.startswith("error: ")
        assert "Traceback" not in line
        assert "fault of Gearshift" not in line
        assert files_of(tmp_path) == before
        return line

    return run_it


# How long one example takes says something of the machine only.
settings.register_profile("unhurried", deadline=None, derandomize=True)
settings.load_profile("unhurried")


@dataclass(frozen=True, kw_only=True)
class World:
    """How the device, the camera and the meter behave.

    Attributes:
        fps: Of a camera that keeps its newest frame until it is fetched; None for frames one after the other.
        seconds: How long to run.
        noise: Relative deviation of latencies.
        tail: Share of frames that take `tail_factor` times as long.
        slowdown: By time and path.
        hunger: Net energy of a frame over that costed, by time and path.
        sensor_every_s: Between two power readings.
        sensor_average_s: Over which the sensor averages; 0 for a counter.
        sensor_noise: Relative deviation of power readings.
        gap_s: Time between a frame and the next that belongs to neither.
        seed: Of all noise.
    """

    fps: float | None = 30.0
    seconds: float = 20.0
    noise: float = 0.0
    tail: float = 0.0
    tail_factor: float = 2.0
    slowdown: Callable[[float, int], float] = lambda _, __: 1.0
    hunger: Callable[[float, int], float] = lambda _, __: 1.0
    sensor_every_s: float = 0.1
    sensor_average_s: float = 0.0
    sensor_noise: float = 0.0
    gap_s: float = 0.0
    seed: int = 0


class Meter:
    """Cumulative energy over time: idle power always, and a frame's net energy evenly while it runs."""

    def __init__(self, idle_w: float) -> None:
        self.idle_w = idle_w
        self.times, self.net = [0.0], [0.0]

    def add(self, start_s: float, end_s: float, net_j: float) -> None:
        self.times += [start_s, end_s]
        self.net += [self.net[-1], self.net[-1] + net_j]

    def energy_j(self, time_s: float) -> float:
        at = min(max(bisect.bisect_right(self.times, time_s), 1), len(self.times) - 1)
        before, after = self.times[at - 1], self.times[at]
        share = min(max((time_s - before) / (after - before), 0.0), 1.0) if after > before else 1.0
        return self.idle_w * time_s + self.net[at - 1] + share * (self.net[at] - self.net[at - 1])

    def power_w(self, start_s: float, end_s: float) -> float:
        return (self.energy_j(end_s) - self.energy_j(start_s)) / (end_s - start_s)

    def shown_w(self, start_s: float, end_s: float, average_s: float) -> float:
        """What an averaging sensor shows, as a mean over a stretch in which it is read every 20 ms."""
        count = max(1, round((end_s - start_s) / 0.02))
        moments = [end_s - (end_s - start_s) * step / count for step in range(count)]
        return sum(self.power_w(moment - average_s, moment) for moment in moments) / count


@dataclass(kw_only=True)
class Log:
    """What happened."""

    choices: Choices
    meter: Meter
    paths: list[int] = field(default_factory=list)
    starts: list[float] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)

    @property
    def end_s(self) -> float:
        """Start of the last frame: up to there every period is whole."""
        return self.starts[-1]

    def since(self, time_s: float) -> list[int]:
        """Paths of the frames that began at or after a moment."""
        return [path for path, start in zip(self.paths, self.starts, strict=True) if start >= time_s]

    def quality(self, since_s: float = 0.0) -> float:
        run = self.since(since_s)
        return sum(self.choices.paths[path].quality for path in run) / len(run)

    def power_w(self, since_s: float = 0.0) -> float:
        return self.meter.power_w(since_s, self.end_s)

    def worst_window_w(self, since_s: float = 0.0, window_s: float = 1.0) -> float:
        count = int((self.end_s - window_s - since_s) / 0.02)
        starts = [since_s + 0.02 * index for index in range(max(count, 1))]
        return max(self.meter.power_w(start, start + window_s) for start in starts)

    def switches(self, since_s: float = 0.0) -> int:
        run = self.since(since_s)
        return sum(one != other for one, other in itertools.pairwise(run))

    def late_share(self, limit_s: float, since_s: float = 0.0) -> float:
        seen = [x for x, start in zip(self.latencies, self.starts, strict=True) if start >= since_s]
        return sum(latency > limit_s for latency in seen) / len(seen)

    def stays(self) -> list[tuple[int, int]]:
        """Pairs of (path, frames in a row)."""
        runs: list[tuple[int, int]] = []
        for path in self.paths:
            if runs and runs[-1][0] == path:
                runs[-1] = (path, runs[-1][1] + 1)
            else:
                runs.append((path, 1))
        return runs


def run_plant(
    choices: Choices,
    budget: Budget | Callable[[float], Budget],
    world: World,
    settings: Settings | None = None,
    *,
    know_fps: bool = False,
    pinned: int | None = None,
) -> Log:
    """Serve frames under a budget, or under what it is at each moment."""
    rng = random.Random(world.seed)
    asked = budget if callable(budget) else (lambda _: budget)
    how = settings or Settings(sensor_s=world.sensor_average_s)
    log = Log(choices=choices, meter=Meter(choices.idle_power_w or 0.0))
    period = 1 / world.fps if know_fps and world.fps else None
    decision = decide(State.start(choices, period), None, asked(0.0), choices, how)
    now, read_at, due = 0.0, 0.0, 0
    while now < world.seconds:
        start = now + world.gap_s
        if world.fps:
            start = max(start, due / world.fps)
            due = max(due + 1, math.floor(start * world.fps + 1e-9) + 1)
        index = decision.path if pinned is None else pinned
        path = choices.paths[index]
        latency = path.latency_s * world.slowdown(start, index) * math.exp(rng.gauss(0, world.noise))
        if world.tail and rng.random() < world.tail:
            latency *= world.tail_factor
        last_start = log.starts[-1] if log.starts else None
        now = start + latency
        log.meter.add(start, now, (path.net_j or 0.0) * world.hunger(start, index))
        power = None
        if now - read_at >= world.sensor_every_s:
            power = _shown_w(log.meter, read_at, now, world) * math.exp(rng.gauss(0, world.sensor_noise))
            read_at = now
        log.paths.append(index)
        log.starts.append(start)
        log.latencies.append(latency)
        reading = FrameReading(
            path=index,
            latency_s=latency,
            period_s=None if last_start is None else start - last_start,
            power_w=power,
        )
        decision = decide(decision.state, reading, asked(now), choices, how)
        log.decisions.append(decision)
    return log


def _shown_w(meter: Meter, start_s: float, end_s: float, world: World) -> float:
    if world.sensor_average_s:
        return meter.shown_w(start_s, end_s, world.sensor_average_s)
    return meter.power_w(start_s, end_s)


def paths_of_power(
    watts: Sequence[float], qualities: Sequence[float], *, fps: float = 10.0, idle_w: float = 10.0
) -> Choices:
    """Paths whose mean power at `fps` is as given, all fast enough for it; sorted as choices are."""
    rising = sorted(zip(watts, qualities, strict=True))
    return Choices(
        paths=tuple(
            Choice(
                id=f"{power:g}W",
                quality=quality,
                latency_s=(0.3 + 0.05 * position) / fps,
                spread=0.02,
                net_j=(power - idle_w) / fps,
            )
            for position, (power, quality) in enumerate(rising)
        ),
        idle_power_w=idle_w,
    )


@pytest.fixture(scope="session")
def plant() -> Any:
    """This module: `plant.run_plant`, `plant.World`, `plant.paths_of_power`."""
    return sys.modules[__name__]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
