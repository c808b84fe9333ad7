"""The search for paths worth having: sensitivities first, then greedily, then recombined.

1. The base is the fastest of the exact paths, by measurement.
2. Each knob is turned alone, mild to strong, and what it saves and gives up is measured.
3. From the base, the turn that gives up least quality per share of latency saved is taken, measured, and taken
   again, until quality falls below the floor.
4. Settings are recombined: losses (which about add) and savings (which about multiply) predict every combination;
   those predicted to be on the frontier are measured, and the prediction is drawn again with what they taught.

Latencies are ratios to the base, measured in turn with it. Every measurement goes to a journal, so that an
interrupted search goes on where it stopped.
"""

import itertools
import json
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from gearshift.errors import DataError, PathRefusedError
from gearshift.paths.build import PathFactory
from gearshift.paths.frontier import pareto, spread_out
from gearshift.paths.judge import Judge
from gearshift.paths.knobs import Knob, turn
from gearshift.paths.spec import PathSpec
from gearshift.paths.transforms import Skip, Transform
from gearshift.profiler import measure_in_turn

log = logging.getLogger(__name__)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A path as the search sees it.

    Attributes:
        spec: The path.
        quality: On the search's frames.
        latency_ratio: Least latency divided by the base's, measured in turn.
    """

    spec: PathSpec
    quality: float
    latency_ratio: float


class Journal:
    """Measurements of a search by path id, appended to a file as they are made."""

    def __init__(self, file: Path | None, fingerprint: str) -> None:
        self._file = file
        self._fingerprint = fingerprint
        self._known: dict[str, Candidate] = {}
        if file is not None and file.exists():
            self._load(file)

    def get(self, spec: PathSpec) -> Candidate | None:
        """What is known of a path."""
        return self._known.get(spec.id)

    def add(self, candidate: Candidate) -> None:
        """Remember a measurement."""
        self._known[candidate.spec.id] = candidate
        if self._file is not None:
            row = {
                "fingerprint": self._fingerprint,
                "path": candidate.spec.id,
                "quality": candidate.quality,
                "latency_ratio": candidate.latency_ratio,
            }
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with self._file.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(row) + "\n")

    def all(self) -> list[Candidate]:
        """All measurements so far."""
        return list(self._known.values())

    def _load(self, file: Path) -> None:
        for line in file.read_text(encoding="utf-8").splitlines():
            try:
                row = json.loads(line)
            except ValueError:  # the line that a kill cut short
                continue
            if row.get("fingerprint") == self._fingerprint:
                spec = PathSpec.parse(row["path"])
                self._known[spec.id] = Candidate(
                    spec=spec, quality=row["quality"], latency_ratio=row["latency_ratio"]
                )
        log.info("resuming a search: %d measurements known", len(self._known))


class Search:
    """One search over the path space of one model on one device."""

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
    ) -> None:
        self._factory = factory
        self._judge = judge
        self._frame = frame
        self._effort = effort
        self._journal = journal
        self._progress = progress
        self._synchronise = synchronise
        self._knobs = list(knobs if knobs is not None else factory.family.knobs(factory.stock))
        self.base = self._fastest_base()
        self._base_path = factory.build(self.base)

    def run(self) -> list[Candidate]:
        """Search, and return the candidates on the frontier of quality and latency, base included."""
        start = self._measure(self.base)
        if start is None:
            raise DataError(f"the base path {self.base} could not be measured")
        self._start = start
        self._alone = self._sensitivities()
        self._descend()
        self._recombine()
        frontier = pareto(self._acceptable(self._journal.all()), _quality, _latency)
        return spread_out(frontier, _latency, self._effort.keep)

    def _fastest_base(self) -> PathSpec:
        """The fastest exact path; a later one must win by 3 %, since it costs memory."""
        options = self._factory.family.base(self._factory.stock)
        if len(options) == 1:
            return options[0]
        paths = {spec.id: self._factory.build(spec) for spec in options}
        with torch.inference_mode():
            timings = measure_in_turn(
                {name: (lambda path=path: path(self._frame)) for name, path in paths.items()},  # type: ignore[misc]
                max(7, self._effort.timing_rounds),
                synchronise=self._synchronise,
            )
        best = options[0]
        for option in options[1:]:
            if timings[option.id].median_ms < 0.97 * timings[best.id].median_ms:
                best = option
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
        while True:
            moves = [
                (self._price(current.spec, setting), setting)
                for setting in self._next_settings(current.spec)
                if setting not in closed and setting in self._alone
            ]
            if not moves:
                return
            _, setting = min(moves, key=lambda move: move[0])
            candidate = self._measure(turn(current.spec, setting))
            if candidate is None or candidate.quality < self._floor:
                closed.add(setting)
            elif candidate.latency_ratio >= current.latency_ratio:
                closed.add(setting)  # it saves nothing here
            else:
                current = candidate

    def _next_settings(self, spec: PathSpec) -> Iterable[Transform]:
        """For each knob, the settings stronger than the present one."""
        for knob in self._knobs:
            present = _present(spec, knob)
            yield from knob.settings[present + 1 :]

    def _price(self, spec: PathSpec, setting: Transform) -> float:
        """Predicted loss of quality per logarithmic saving of latency, relative to what is set already."""
        before = self._predict(spec)
        after = self._predict(turn(spec, setting))
        saving = before.latency_ratio - after.latency_ratio
        return float("inf") if saving <= 0 else max(before.quality - after.quality, 1e-6) / saving

    def _predict(self, spec: PathSpec) -> Candidate:
        """Additive losses and multiplicative savings of the settings alone."""
        quality, ratio = self._start.quality, 1.0
        for knob in self._knobs:
            index = _present(spec, knob)
            if index >= 0 and knob.settings[index] in self._alone:
                alone = self._alone[knob.settings[index]]
                quality -= self._start.quality - alone.quality
                ratio *= min(alone.latency_ratio, 1.0)
        return Candidate(spec=spec, quality=quality, latency_ratio=ratio)

    def _recombine(self) -> None:
        """Measure combinations that the prediction puts on the frontier, in two passes."""
        combinations = list(self._combinations())
        for _ in range(2):
            known = self._acceptable(self._journal.all())
            unknown = [spec for spec in combinations if self._journal.get(spec) is None]
            predicted = [self._predict(spec) for spec in unknown]
            promising = [
                item for item in pareto([*known, *predicted], _quality, _latency) if item.spec in set(unknown)
            ]
            for item in spread_out(promising, _latency, max(2, self._effort.recombined // 2)):
                if item.quality >= self._floor:
                    self._measure(item.spec)
            self._correct()

    def _combinations(self) -> Iterable[PathSpec]:
        """Blocks skipped in order of sensitivity, times one setting of every other knob."""
        skips = [setting for setting in self._alone if isinstance(setting, Skip)]
        skips.sort(key=lambda setting: self._price(self.base, setting))
        prefixes: list[Transform | None] = [None]
        for count in range(1, len(skips) + 1):
            prefixes.append(Skip(tuple(block for setting in skips[:count] for block in setting.blocks)))
        others = [
            [None, *(setting for setting in knob.settings if setting in self._alone)]
            for knob in self._knobs
            if not isinstance(knob.settings[0], Skip)
        ]
        for chosen in itertools.product(prefixes, *others):
            spec = self.base
            for setting in chosen:
                if setting is not None:
                    spec = turn(spec, setting)
            yield spec

    def _correct(self) -> None:
        """Scale the settings' losses so that predictions match what combinations really lost, on average."""
        pairs = [
            (self._start.quality - self._predict(item.spec).quality, self._start.quality - item.quality)
            for item in self._journal.all()
            if len(item.spec.transforms) > len(self.base.transforms) + 1
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
        """Judge and time one path; None where the model refuses it."""
        known = self._journal.get(spec)
        if known is not None:
            return known
        try:
            path = self._factory.build(spec)
        except PathRefusedError as error:
            log.info("%s refused: %s", spec, error)
            return None
        quality = self._judge.judge(path, self._effort.judge_every)
        ratio = 1.0
        if spec != self.base:
            with torch.inference_mode():
                timings = measure_in_turn(
                    {"base": lambda: self._base_path(self._frame), "path": lambda: path(self._frame)},
                    self._effort.timing_rounds,
                    warmup=1,
                    synchronise=self._synchronise,
                )
            # The least of each: other programs only ever add time, and a few rounds do not average that away.
            ratio = timings["path"].min_ms / timings["base"].min_ms
        candidate = Candidate(spec=spec, quality=quality.value, latency_ratio=ratio)
        self._journal.add(candidate)
        self._progress(f"{spec}: {quality.metric} {quality.value:.3f}, latency x{ratio:.2f}")
        return candidate

    @property
    def _floor(self) -> float:
        return self._effort.floor * self._start.quality

    def _acceptable(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        return [candidate for candidate in candidates if candidate.quality >= self._floor]


def _present(spec: PathSpec, knob: Knob) -> int:
    """Index of the knob's setting in a path, -1 where it is not turned."""
    present = spec.get(knob.settings[0].name)
    for index, setting in enumerate(knob.settings):
        if present == setting:
            return index
        if isinstance(present, Skip) and isinstance(setting, Skip) and set(setting.blocks) <= set(present.blocks):
            return index
    return -1


def _quality(candidate: Candidate) -> float:
    return candidate.quality


def _latency(candidate: Candidate) -> float:
    return candidate.latency_ratio
