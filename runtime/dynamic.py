"""`DynamicModel`: a model that holds a budget. Call it as you would the stock model."""

import logging
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gearshift.errors import BudgetError, InputError
from gearshift.paths.bundle import read_bundle
from gearshift.paths.records import PathRecord
from gearshift.paths.search import Effort
from gearshift.paths.spec import PathSpec
from gearshift.profiler.device import identify, synchronise
from gearshift.profiler.meters import Meter, open_meter
from gearshift.runtime.budget import Budget
from gearshift.runtime.choices import Choices, make_choices, mean_power_w
from gearshift.runtime.controller import Decision, FrameReading, Settings, State, decide
from gearshift.runtime.measured import measure_paths
from gearshift.runtime.quarantine import Quarantine
from gearshift.runtime.sampler import PowerSample, PowerSampler, Tally

log = logging.getLogger(__name__)

RHYTHM_TOLERANCE = 0.05
"""Share by which the time between frames must differ before a budget in per cent is worked out anew."""


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
    """Runs each call on one of several paths, chosen so that the budget holds at the best quality.

    All methods may be called from any thread. Each call runs on exactly one path from beginning to end,
    whatever happens to the budget meanwhile. No gradient is recorded; use a path of `paths` itself for
    training.

    Attributes:
        paths: The paths by id, all resident, all over the same weights.
        choices: What the controller knows of them.
        listener: Called after each call, on the thread of that call; None for nobody.
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
            stock_power_w: The stock model's mean power for frames that come every so many seconds (None:
                without a pause), for budgets given as a share of it.
            settings: How the controller behaves; by default it allows for the meter's resolution.
            frame_period_s: Time between frames where it is known; learnt otherwise.
            clock: Seconds that never jump.
        """
        missing = [choice.id for choice in choices.paths if choice.id not in paths]
        if missing:
            raise InputError(f"no module for path {missing[0]}; give one for every choice")
        self.paths = dict(paths)
        self.choices = choices
        self.listener: Callable[[Frame], None] | None = None
        self._order = [choice.id for choice in choices.paths]
        self._settings = settings or Settings(sensor_s=meter.precision.resolution_s)
        self._synchronise = partial(synchronise, device or torch.device("cpu"))
        self._stock_power_w = stock_power_w
        self._clock = clock
        self._lock = threading.Lock()
        self._sampler = PowerSampler(meter)
        weakref.finalize(self, self._sampler.end)
        self._meter = meter
        self._tally = Tally()
        self._last_start_s: float | None = None
        self._frames_by_path = dict.fromkeys(self.paths, 0)
        self._frames = 0
        self._last_path: str | None = None
        self._switches = 0
        self._failures = 0
        self._quarantine = Quarantine(self._order, list(self.paths))
        self._pinned: str | None = None
        self._period_s = frame_period_s
        self._rate_is_declared = frame_period_s is not None
        self._budget = Budget()
        self._resolved = Budget()
        self._decision = self._redecide(State.start(choices, frame_period_s))

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
        return cls._of_records(
            {path.id: factory.build(path.spec) for path in record.paths},
            record.paths,
            record.meter.idle_power_w,
            torch.zeros(1, 3, record.input_height, record.input_width, device=place),
            meter=meter or open_meter("auto", device=place),
            settings=settings,
            frame_period_s=frame_period_s,
        )

    @classmethod
    def build(
        cls,
        module: nn.Module,
        example: Tensor,
        *,
        specs: Sequence[PathSpec] | None = None,
        effort: Effort | None = None,
        meter: Meter | None = None,
        settings: Settings | None = None,
        frame_period_s: float | None = None,
        rounds: int = 5,
        window_s: float = 0.3,
        progress: Callable[[str], None] = lambda _: None,
    ) -> "DynamicModel":
        """Find, measure and load paths of a stock model where it is, without a file; takes minutes.

        Quality is the share of pixels on which a path agrees with the stock model: give frames like those
        that will come. `runtime build` does the same with labelled frames, and keeps the result.

        Args:
            module: A stock model that a family of paths knows.
            example: Normalised frames `(N, 3, H, W)`; a handful judges well enough, one will do.
            specs: The paths to take, stock added; searched for if None. All of them become resident, and the
                controller chooses among those that no other beats.
            effort: How hard to search.
            meter: Where power is read; the best that works for the device if None.
            settings: How the controller behaves.
            frame_period_s: Time between frames where it is known; learnt otherwise.
            rounds: Measuring windows per path.
            window_s: Their least length.
            progress: Called with a line after each step.

        Raises:
            ModelError: No family knows the module.
            InputError: The example is no batch of frames.
            PathRefusedError: One of `specs` does not fit the model.
        """
        used = meter or open_meter("auto", device=example.device)
        measured = measure_paths(
            module,
            example,
            used,
            specs=specs,
            effort=effort,
            rounds=rounds,
            window_s=window_s,
            progress=progress,
        )
        return cls._of_records(
            measured.paths,
            measured.records,
            measured.idle_power_w,
            example[:1],
            meter=used,
            settings=settings,
            frame_period_s=frame_period_s,
        )

    @classmethod
    def _of_records(
        cls,
        paths: Mapping[str, nn.Module],
        records: Sequence[PathRecord],
        idle_power_w: float | None,
        frame: Tensor,
        *,
        meter: Meter,
        settings: Settings | None,
        frame_period_s: float | None,
    ) -> "DynamicModel":
        """Run every path once, so that none is cold, and make the model."""
        with torch.no_grad():
            for path in paths.values():
                path(frame)
        stock = next(record for record in records if "stock" in record.roles)
        return cls(
            paths,
            make_choices(records, idle_power_w),
            meter=meter,
            device=frame.device,
            stock_power_w=partial(mean_power_w, stock, idle_power_w),
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
        if budget.needs_energy:
            self._refuse_blindness(budget)
        with self._lock:
            resolved = budget.with_stock_power(self._stock_power_w(self._period_s))
            self._budget, self._resolved = budget, resolved
            self._decision = self._redecide(self._decision.state)
        if budget.needs_energy:
            self._sampler.start()

    @property
    def resolved_budget(self) -> Budget:
        """The budget with a share of the stock model's power turned into watts, for frames as they come."""
        return self._resolved

    @property
    def active(self) -> Any:
        """The path that the next call will run on."""
        with self._lock:
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
        call_start = self._clock()
        with self._lock:
            path_id = self._next_id()
        failed: list[str] = []
        while True:
            start = self._clock()
            try:
                output = self._run(path_id, pixel_values, arguments)
                break
            except InputError:
                raise  # the frames are wrong: no other path would take them
            except Exception as error:
                failed.append(path_id)
                log.warning("path %s failed (%s: %s); it is put aside", path_id, type(error).__name__, error)
                other = self._set_aside(failed)
                if other is None:
                    raise
                path_id = other
        end = self._clock()
        self._account(path_id, call_start, end - start)
        listener = self.listener
        if listener is not None:
            listener(Frame(path=path_id, start_s=call_start, latency_s=end - call_start, output=output))
        return output

    def stats(self) -> Stats:
        """How the budget is being held so far."""
        newest = self._sampler.newest
        with self._lock:
            state = self._decision.state
            return Stats(
                frames=self._frames,
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

    def _run(self, path_id: str, pixel_values: Tensor, arguments: dict[str, Any]) -> Any:
        with torch.no_grad():
            output = self.paths[path_id](pixel_values, **arguments)
        self._synchronise()
        return output

    def _refuse_blindness(self, budget: Budget) -> None:
        reason = self._meter.read().reason
        if reason is None and not self.choices.know_energy:
            reason = "the paths were costed without one; measure them again where there is one"
        if reason is not None:
            raise BudgetError(
                f"a budget of {budget} needs an energy meter, and there is none: {reason}; "
                "see `runtime devices`, or give a latency budget"
            )

    def _set_aside(self, failed: Sequence[str]) -> str | None:
        """Quarantine the newest failure; the path to try next on these frames, or None."""
        with self._lock:
            self._failures += 1
            return self._quarantine.put_aside(failed, self._frames)

    def _next_id(self) -> str:
        """The path for the next call; to be called with the lock held."""
        return self._quarantine.route(self._pinned or self._order[self._decision.path], self._frames)

    def _account(self, path_id: str, start_s: float, latency_s: float) -> None:
        """Count the call, and let the controller learn from it."""
        tally = self._sampler.tally
        with self._lock:
            period = self._count(path_id, start_s)
            if path_id not in self._order:
                return  # pinned to a reference that is no choice: nothing to learn from
            power = tally.power_since(self._tally)
            if power is not None:
                self._tally = tally
            reading = FrameReading(path=self._order.index(path_id), latency_s=latency_s, period_s=period, power_w=power)
            before = self._decision
            self._decision = decide(before.state, reading, self._resolved, self.choices, self._settings)
            self._follow_rhythm()
            decision = self._decision
        # Before the second frame it is not known how often frames come, hence what power they take.
        if before.met and not decision.met and period is not None:
            log.warning("%s", decision.shortfall)

    def _count(self, path_id: str, start_s: float) -> float | None:
        """Count a call; the time since the one before began, where there was one."""
        self._frames += 1
        self._frames_by_path[path_id] += 1
        if self._last_path is not None and path_id != self._last_path:
            self._switches += 1
        self._last_path = path_id
        before = self._last_start_s
        self._last_start_s = start_s if before is None else max(before, start_s)
        return None if before is None else self._last_start_s - before

    def _follow_rhythm(self) -> None:
        """Work out a share of the stock model's power anew when frames turn out to come at another rate.

        A rate that was declared stands: frames that are late because the device is busy must not lower the budget.
        """
        if self._budget.power_share is None or self._rate_is_declared:
            return
        now = self._decision.state.rhythm.camera_period_s
        if abs((now or 0.0) - (self._period_s or 0.0)) > RHYTHM_TOLERANCE * (now or self._period_s or 0.0):
            self._period_s = now
            self._resolved = self._budget.with_stock_power(self._stock_power_w(now))
            self._decision = self._redecide(self._decision.state)

    def _redecide(self, state: State) -> Decision:
        return decide(state, None, self._resolved, self.choices, self._settings)
