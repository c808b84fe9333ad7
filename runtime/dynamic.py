"""`DynamicModel`: a model that holds a budget. Call it as you would the stock model."""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gearshift.errors import BudgetError, InputError
from gearshift.paths.bundle import read_bundle
from gearshift.profiler.device import identify, synchronise
from gearshift.profiler.meters import Meter, open_meter
from gearshift.runtime.budget import Budget
from gearshift.runtime.choices import Choices, choices_of
from gearshift.runtime.controller import Decision, FrameReading, Settings, State, decide
from gearshift.runtime.sampler import PowerSample, PowerSampler

log = logging.getLogger(__name__)

QUARANTINE_FRAMES = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """How the budget is being held.

    Attributes:
        frames: Calls answered.
        frames_by_path: Of these, by the path that answered.
        switches: Changes of path between calls.
        failures: Calls in which a path raised and another one answered.
        met: Whether, as far as is known, the budget can be met at present.
        shortfall: If not, what would be needed.
        slowdown: How much slower than measured the device is now.
        hunger: How much more energy above idle a frame takes than measured.
        power_w: Newest mean power; None where no meter gives one.
        power_source: How that is obtained.
    """

    frames: int
    frames_by_path: Mapping[str, int]
    switches: int
    failures: int
    met: bool
    shortfall: str
    slowdown: float
    hunger: float
    power_w: float | None
    power_source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What is told to a listener after each call.

    Attributes:
        path: Id of the path that answered.
        start_s: When the call began, on the clock of `time.perf_counter`.
        latency_s: How long the path took.
        output: What it returned.
    """

    path: str
    start_s: float
    latency_s: float
    output: Any


class DynamicModel:
    """Runs each call on one path of a bundle, chosen so that the budget holds at the best quality.

    All methods may be called from any thread. Each call runs on exactly one path from beginning to end, whatever
    happens to the budget meanwhile. No gradient is recorded; use a path of `paths` itself for training.

    Attributes:
        paths: The paths by id, all resident, all over the same weights.
        choices: What the controller knows of them.
    """

    def __init__(
        self,
        paths: Mapping[str, nn.Module],
        choices: Choices,
        *,
        meter: Meter,
        device: torch.device | None = None,
        stock_power_w: Callable[[float | None], float | None] = lambda _: None,
        settings: Settings | None = None,
        frame_period_s: float | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Take paths and what is known of them; most users call `load` or `build`.

        Args:
            paths: Modules by id; every path of `choices` must be among them.
            choices: Expected quality, latency and energy.
            meter: Where power is read while serving.
            device: Where the paths run.
            stock_power_w: The stock model's mean power for frames that come every so many seconds (None: without
                a pause), for budgets given as a share of it.
            settings: How the controller behaves.
            frame_period_s: Time between frames where it is known; learnt otherwise.
            clock: Seconds that never jump.
        """
        missing = [choice.id for choice in choices.paths if choice.id not in paths]
        if missing:
            raise InputError(f"no module for path {missing[0]}; give one for every choice")
        self.paths = dict(paths)
        self.choices = choices
        self._order = [choice.id for choice in choices.paths]
        self._settings = settings or Settings()
        self._synchronise = partial(synchronise, device or torch.device("cpu"))
        self._stock_power_w = stock_power_w
        self._period_s = frame_period_s
        self._clock = clock
        self._lock = threading.Lock()
        self._sampler = PowerSampler(meter)
        self._meter = meter
        self._sample_number = 0
        self._last_start_s: float | None = None
        self._frames_by_path = dict.fromkeys(self.paths, 0)
        self._last_path: str | None = None
        self._switches = 0
        self._failures = 0
        self._quarantined: dict[str, int] = {}
        self._pinned: str | None = None
        self._budget = Budget()
        self._resolved = Budget()
        self._decision = self._redecide(State.start(choices, frame_period_s))
        self.listener: Callable[[Frame], None] | None = None

    @classmethod
    def load(
        cls,
        bundle: str | Path,
        *,
        checkpoint: str | None = None,
        device: str | torch.device = "cpu",
        meter: Meter | None = None,
        settings: Settings | None = None,
        frame_period_s: float | None = None,
    ) -> "DynamicModel":
        """Load a bundle; all its paths become resident and are run once, so that no switch is a cold start.

        Args:
            bundle: Folder that `runtime build` wrote.
            checkpoint: Another place of its weights, where they have moved.
            device: Where to run.
            meter: Where power is read; the best that works for the device if None.
            settings: How the controller behaves.
            frame_period_s: Time between frames where it is known; learnt otherwise.

        Raises:
            BundleError: It is damaged, incomplete, or of a newer schema.
        """
        found = read_bundle(Path(bundle))
        place = torch.device(device)
        foreign = found.foreign_to(identify(place))
        if foreign is not None:
            log.warning("%s", foreign)
        factory = found.load(checkpoint)
        factory.to(place)
        record = found.record
        paths = {path.id: factory.build(path.spec) for path in record.paths}
        frame = torch.zeros(1, 3, record.input_height, record.input_width, device=place)
        with torch.no_grad():
            for path in paths.values():
                path(frame)
        stock = record.with_role("stock")

        def stock_power_w(period_s: float | None) -> float | None:
            if stock.energy.net_j is None or record.meter.idle_power_w is None:
                return None
            seconds = max(period_s or 0.0, stock.latency.median_ms / 1e3)
            return record.meter.idle_power_w + stock.energy.net_j / seconds

        return cls(
            paths,
            choices_of(record),
            meter=meter or open_meter("auto", device=place),
            device=place,
            stock_power_w=stock_power_w,
            settings=settings,
            frame_period_s=frame_period_s,
        )

    @property
    def budget(self) -> Budget:
        """What must hold; may be set at any time, from any thread, and counts from the next call on.

        Raises:
            BudgetError: On setting a power or energy budget where nothing measures or estimates energy.
        """
        return self._budget

    @budget.setter
    def budget(self, budget: Budget) -> None:
        if budget.needs_energy and not self.choices.know_energy:
            reason = self._meter.read().reason or "the bundle holds no energy figures"
            raise BudgetError(f"a budget of {budget} needs an energy meter, and there is none: {reason}")
        resolved = budget.with_stock_power(self._stock_power_w(self._period_s))
        with self._lock:
            self._budget, self._resolved = budget, resolved
            self._decision = self._redecide(self._decision.state)
        if budget.needs_energy:
            self._sampler.start()

    @property
    def resolved_budget(self) -> Budget:
        """The budget with a share of the stock model's power turned into watts."""
        return self._resolved

    @property
    def active(self) -> Any:
        """The path that the next call will run on."""
        return self.paths[self._next_id()]

    @property
    def shortfall(self) -> str:
        """What would be needed, while no path can meet the budget; an empty text otherwise."""
        return self._decision.shortfall

    def start_sampling(self) -> None:
        """Read the meter also while no budget needs it, for records of a run."""
        self._sampler.start()

    def take_power_samples(self) -> list[PowerSample]:
        """Power samples since the last call, for records of a run."""
        return self._sampler.take()

    def pin(self, path_id: str | None) -> None:
        """Run every call on one path, whatever the budget; None hands the choice back to the controller."""
        if path_id is not None and path_id not in self.paths:
            raise InputError(f'no path "{path_id}"; there are: {", ".join(self.paths)}')
        with self._lock:
            self._pinned = path_id

    def __call__(self, pixel_values: Tensor, **arguments: Any) -> Any:
        """Run frames `(B, 3, H, W)` on the path chosen; returns what the stock model returns.

        Raises:
            InputError: The frames do not fit the model.
            Exception: What the last path raised, if every path failed on these frames.
        """
        start = self._clock()
        with self._lock:
            path_id = self._next_id()
        output, path_id = self._run(path_id, pixel_values, arguments)
        latency = self._clock() - start
        self._account(path_id, start, latency)
        listener = self.listener
        if listener is not None:
            listener(Frame(path=path_id, start_s=start, latency_s=latency, output=output))
        return output

    def stats(self) -> Stats:
        """How the budget is being held so far."""
        newest = self._sampler.newest
        with self._lock:
            state = self._decision.state
            return Stats(
                frames=sum(self._frames_by_path.values()),
                frames_by_path={name: count for name, count in self._frames_by_path.items() if count},
                switches=self._switches,
                failures=self._failures,
                met=self._decision.met,
                shortfall=self._decision.shortfall,
                slowdown=state.slowdown.ratio,
                hunger=state.hunger.ratio,
                power_w=newest.power_w if newest is not None else None,
                power_source=self._meter.source,
            )

    def close(self) -> None:
        """Stop reading the meter and give it back; the model still answers calls afterwards."""
        self._sampler.stop()
        self._meter.close()

    def __enter__(self) -> "DynamicModel":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, path_id: str, pixel_values: Tensor, arguments: dict[str, Any]) -> tuple[Any, str]:
        """Run one path; where it fails, put it aside and answer the same frames with the next."""
        failed: list[str] = []
        while True:
            try:
                with torch.no_grad():
                    output = self.paths[path_id](pixel_values, **arguments)
                self._synchronise()
                return output, path_id
            except InputError:
                raise  # the frames are wrong: no other path would take them
            except Exception as error:
                failed.append(path_id)
                log.warning("path %s failed (%s: %s); it is put aside", path_id, type(error).__name__, error)
                remaining = self._set_aside(failed)
                if remaining is None:
                    raise
                path_id = remaining

    def _set_aside(self, failed: Sequence[str]) -> str | None:
        """Quarantine the newest failure; the best path that has not failed on these frames, or None."""
        with self._lock:
            self._failures += 1
            self._quarantined[failed[-1]] = sum(self._frames_by_path.values()) + QUARANTINE_FRAMES
            left = [choice for choice in self.choices.paths if choice.id not in failed]
            if left:
                return max(left, key=lambda choice: choice.quality).id
            return next((name for name in self.paths if name not in failed), None)

    def _next_id(self) -> str:
        if self._pinned is not None:
            return self._pinned
        chosen = self._order[self._decision.path]
        if not self._quarantined:
            return chosen
        frames = sum(self._frames_by_path.values())
        self._quarantined = {name: until for name, until in self._quarantined.items() if until > frames}
        if chosen not in self._quarantined:
            return chosen
        # The next cheaper path that works, or failing that the next dearer one.
        position = self._order.index(chosen)
        candidates = [*self._order[:position][::-1], *self._order[position + 1 :]]
        return next((name for name in candidates if name not in self._quarantined), chosen)

    def _account(self, path_id: str, start_s: float, latency_s: float) -> None:
        sample = self._sampler.newest
        with self._lock:
            self._frames_by_path[path_id] += 1
            if self._last_path is not None and path_id != self._last_path:
                self._switches += 1
            self._last_path = path_id
            period = None if self._last_start_s is None else start_s - self._last_start_s
            self._last_start_s = start_s
            if path_id not in self._order:
                return  # pinned to a reference that is no choice: nothing to learn from
            power = None
            if sample is not None and sample.number != self._sample_number:
                self._sample_number, power = sample.number, sample.power_w
            reading = FrameReading(
                path=self._order.index(path_id), latency_s=latency_s, period_s=period, power_w=power
            )
            before = self._decision
            self._decision = decide(before.state, reading, self._resolved, self.choices, self._settings)
        if before.met and not self._decision.met:
            log.warning("%s", self._decision.shortfall)

    def _redecide(self, state: State) -> Decision:
        return decide(state, None, self._resolved, self.choices, self._settings)


