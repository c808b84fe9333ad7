"""The search for paths worth having: sensitivities first, then greedily, then recombined.

1. The base is the fastest of the exact paths, by measurement.
2. Each knob is turned alone, mild to strong, and what it saves and gives up is measured.
3. From the base, the turn that gives up least quality per share of latency saved is taken, measured, and
   taken again, until quality falls below the floor.
4. Settings are recombined: losses (which about add) and savings (which about multiply) predict every
   combination; those predicted to be on the frontier are measured, and the prediction is drawn again with
   what they taught. Of knobs that share a kind (blocks to skip, parts of a subnet) only one series is combined
   with the others: turned one after the other, the cheapest first.

Latencies are ratios to the base, measured in turn with it. Every measurement goes to a journal, so that an
interrupted search goes on where it stopped.
"""

import logging
import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from gearshift.errors import DataError, PathRefusedError
from gearshift.paths.build import PathFactory
from gearshift.paths.frontier import pareto, spread_out
from gearshift.paths.journal import Candidate, Journal
from gearshift.paths.judge import Judge
from gearshift.paths.knobs import Knob, turn
from gearshift.paths.spec import PathSpec
from gearshift.paths.transforms import Transform
from gearshift.profiler import measure_in_turn

__all__ = ["Candidate", "Effort", "Journal", "Search", "Timer", "frame_timer"]

log = logging.getLogger(__name__)

Timer = Callable[[Mapping[str, nn.Module], int], Mapping[str, float]]
"""Times modules in turn for a number of rounds: the least time of a frame in ms, by name."""

BASE_ROUNDS = 7
"""Least number of frames timed to choose the base, on which every ratio rests."""
MOST_COMBINATIONS = 10_000
"""More are thinned out to the frontier that the prediction sees."""
LEAST_GAIN = 0.97
"""A later base option must be at least this much faster, since it costs memory."""


def frame_timer(frame: Tensor, synchronise: Callable[[], None] | None = None) -> Timer:
    """Time modules on one frame `(1, 3, H, W)`, as they are served."""

    def time_paths(paths: Mapping[str, nn.Module], rounds: int) -> dict[str, float]:
        calls = {name: partial(path, frame) for name, path in paths.items()}
        with torch.inference_mode():
            timings = measure_in_turn(calls, rounds, warmup=1, synchronise=synchronise)
        # The least: other programs only ever add time, and a few rounds do not average that away.
        return {name: timing.min_ms for name, timing in timings.items()}

    return time_paths


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How hard to search.

    Attributes:
        timing_rounds: Frames timed per candidate, in turn with the base.
        judge_every: Judge on every n-th frame while searching (the frontier is judged on all).
        recombined: Combinations measured in the last step.
        floor: Share of the base's quality below which nothing is kept.
        keep: Paths kept in the end.
    """

    timing_rounds: int = 5
    judge_every: int = 1
    recombined: int = 24
    floor: float = 0.5
    keep: int = 12


class Search:
    """One search over the path space of one model on one device.

    Args:
        factory: Builds the paths; its family offers the bases and, unless given, the knobs.
        judge: Tells a path's quality.
        frame: What paths are timed on.
        effort: How hard to search.
        journal: What an earlier run measured, and where this one's measurements go.
        knobs: What may be turned; all that the family offers if None.
        progress: Called with a line after each measurement.
        synchronise: Waits for the device.
        timer: Times paths; on `frame` if None.
    """

    def __init__(
        self,
        factory: PathFactory,
        judge: Judge,
        frame: Tensor,
        effort: Effort,
        journal: Journal,
        *,
        knobs: Sequence[Knob] | None = None,
        progress: Callable[[str], None] = lambda _: None,
        synchronise: Callable[[], None] | None = None,
        timer: Timer | None = None,
    ) -> None:
        self._factory = factory
        self._judge = judge
        self._effort = effort
        self._journal = journal
        self._progress = progress
        self._time = timer or frame_timer(frame, synchronise)
        self._knobs = list(knobs if knobs is not None else factory.family.knobs(factory.stock, factory.derived))
        self._measured: dict[PathSpec, Candidate] = {}
        self.base = self._fastest_base()
        self._base_path = factory.build(self.base)

    def run(self) -> list[Candidate]:
        """Search, and return the frontier of quality and latency with the base, slowest first."""
        start = self._measure(self.base)
        if start is None:
            raise DataError(f"the base path {self.base} could not be measured")
        self._start = start
        self._alone = self._sensitivities()
        self._descend()
        self._recombine()
        found = {item.spec: item for item in pareto(self._acceptable(), _quality, _latency)}
        found[self.base] = start
        ordered = sorted(found.values(), key=lambda item: (-item.latency_ratio, -item.quality))
        return spread_out(ordered, _latency, self._effort.keep, always=[start])

    def _fastest_base(self) -> PathSpec:
        """The fastest exact path; a resumed search keeps the one that its latencies are relative to."""
        options = self._factory.family.base(self._factory.stock)
        if self._journal.base in options:
            return self._journal.base
        best = options[0]
        if len(options) > 1:
            paths = {spec.id: self._factory.build(spec) for spec in options}
            times = self._time(paths, max(BASE_ROUNDS, self._effort.timing_rounds))
            for option in options[1:]:
                if times[option.id] < LEAST_GAIN * times[best.id]:
                    best = option
        self._journal.set_base(best)
        return best

    def _sensitivities(self) -> dict[Transform, Candidate]:
        """Each knob's settings alone, from mild to strong, until quality falls below the floor."""
        alone: dict[Transform, Candidate] = {}
        for knob in self._knobs:
            for setting in knob.settings:
                candidate = self._measure(turn(self.base, setting))
                if candidate is None:
                    continue
                alone[setting] = candidate
                if candidate.quality < self._floor:
                    break
        return alone

    def _descend(self) -> None:
        """Greedy descent by quality given up per share of latency saved."""
        current, closed = self._start, set[Transform]()
        while (setting := self._cheapest(current.spec, self._knobs, closed)) is not None:
            candidate = self._measure(turn(current.spec, setting))
            if candidate is None or candidate.quality < self._floor:
                closed.add(setting)
            elif candidate.latency_ratio >= current.latency_ratio:
                closed.add(setting)  # it saves nothing here
            else:
                current = candidate

    def _cheapest(
        self, spec: PathSpec, knobs: Iterable[Knob], closed: Container[Transform] = frozenset()
    ) -> Transform | None:
        """The setting stronger than the present one of its knob that is predicted to give up least for its saving."""
        moves = [
            (self._price(spec, setting), setting)
            for knob in knobs
            for setting in knob.settings[_present(spec, knob) + 1 :]
            if setting not in closed and setting in self._alone
        ]
        price, setting = min(moves, key=lambda move: move[0], default=(math.inf, None))
        return None if price == math.inf else setting

    def _price(self, spec: PathSpec, setting: Transform) -> float:
        """Predicted loss of quality per logarithmic saving of latency, relative to what is set already."""
        before = self._predict(spec)
        after = self._predict(turn(spec, setting))
        saving = math.log(before.latency_ratio / after.latency_ratio)
        return math.inf if saving <= 0 else max(before.quality - after.quality, 1e-6) / saving

    def _predict(self, spec: PathSpec) -> Candidate:
        """Additive losses and multiplicative savings of the settings alone."""
        quality, ratio = self._start.quality, 1.0
        for knob in self._knobs:
            index = _present(spec, knob)
            if index >= 0 and knob.settings[index] in self._alone:
                alone = self._alone[knob.settings[index]]
                quality -= self._start.quality - alone.quality
                ratio *= alone.latency_ratio
        return Candidate(spec=spec, quality=quality, latency_ratio=ratio)

    def _recombine(self) -> None:
        """Measure combinations that the prediction puts on the frontier, in two passes."""
        combinations = self._combinations()
        first = (self._effort.recombined + 1) // 2
        for limit in (first, self._effort.recombined - first):
            predicted = [self._predict(spec) for spec in combinations if spec not in self._measured]
            hopeful = [item for item in predicted if item.quality >= self._floor]
            frontier = pareto([*self._acceptable(), *hopeful], _quality, _latency)
            promising = [item for item in frontier if item.spec not in self._measured]
            for item in spread_out(promising, _latency, limit)[:limit]:
                self._measure(item.spec)
            self._correct()

    def _combinations(self) -> list[PathSpec]:
        """One choice of every kind of setting with each of the others; the promising ones where they are too many."""
        combined = [self.base]
        for choices in self._choices():
            combined = [spec if setting is None else turn(spec, setting) for spec in combined for setting in choices]
            if len(combined) > MOST_COMBINATIONS:
                predicted = [item for item in map(self._predict, combined) if item.quality >= self._floor]
                promising = spread_out(pareto(predicted, _quality, _latency), _latency, MOST_COMBINATIONS)
                combined = [item.spec for item in promising]
        return combined

    def _choices(self) -> Iterator[list[Transform | None]]:
        """By kind: nothing, or one setting of its knob; where several knobs share it, their settings cumulated."""
        kinds: dict[str, list[Knob]] = {}
        for knob in self._knobs:
            kinds.setdefault(knob.settings[0].name, []).append(knob)
        for knobs in kinds.values():
            single = (setting for setting in knobs[0].settings if setting in self._alone)
            yield [None, *(single if len(knobs) == 1 else self._cumulated(knobs))]

    def _cumulated(self, knobs: Sequence[Knob]) -> Iterator[Transform | None]:
        """What a path holds after each turn of these knobs, taken one by one in order of price."""
        spec = self.base
        while (setting := self._cheapest(spec, knobs)) is not None:
            spec = turn(spec, setting)
            yield spec.get(setting.name)

    def _correct(self) -> None:
        """Scale the settings' losses so that predictions match what combinations really lost, on average."""
        pairs = [
            (self._start.quality - self._predict(item.spec).quality, self._start.quality - item.quality)
            for item in self._measured.values()
            if sum(_present(item.spec, knob) >= 0 for knob in self._knobs) > 1
        ]
        predicted, real = sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)
        if predicted <= 0 or real <= 0:
            return
        factor = real / predicted
        self._alone = {
            setting: Candidate(
                spec=item.spec,
                quality=self._start.quality - factor * (self._start.quality - item.quality),
                latency_ratio=item.latency_ratio,
            )
            for setting, item in self._alone.items()
        }

    def _measure(self, spec: PathSpec) -> Candidate | None:
        """Judge and time one path, or recall that from the journal; None where the model refuses it."""
        candidate = self._measured.get(spec) or self._journal.get(spec) or self._judge_and_time(spec)
        if candidate is not None:
            self._measured[spec] = candidate
        return candidate

    def _judge_and_time(self, spec: PathSpec) -> Candidate | None:
        try:
            path = self._factory.build(spec)
        except PathRefusedError as error:
            log.info("%s refused: %s", spec, error)
            return None
        quality = self._judge.judge(path, self._effort.judge_every)
        ratio = 1.0
        if spec != self.base:
            times = self._time({"base": self._base_path, "path": path}, self._effort.timing_rounds)
            ratio = times["path"] / times["base"]
        candidate = Candidate(spec=spec, quality=quality.value, latency_ratio=ratio)
        self._journal.add(candidate)
        self._progress(f"{spec}: {quality.metric} {quality.value:.3f}, latency x{ratio:.2f}")
        return candidate

    @property
    def _floor(self) -> float:
        return self._effort.floor * self._start.quality

    def _acceptable(self) -> list[Candidate]:
        return [candidate for candidate in self._measured.values() if candidate.quality >= self._floor]


def _present(spec: PathSpec, knob: Knob) -> int:
    """Index of the knob's strongest setting that a path holds, -1 where it is not turned."""
    present = spec.get(knob.settings[0].name)
    return max((index for index, setting in enumerate(knob.settings) if setting.within(present)), default=-1)


def _quality(candidate: Candidate) -> float:
    return candidate.quality


def _latency(candidate: Candidate) -> float:
    return candidate.latency_ratio
