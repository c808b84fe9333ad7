"""From a stock model and a few frames to measured paths: search, verify, cost, judge, draw the frontier."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from gearshift.paths.build import Path, PathFactory
from gearshift.paths.cost import FrameEnergy, count_macs, measure_costs
from gearshift.paths.frontier import pareto
from gearshift.paths.journal import Journal
from gearshift.paths.judge import Judge
from gearshift.paths.knobs import Knob
from gearshift.paths.records import EnergyRecord, LatencyRecord, PathRecord, QualityRecord
from gearshift.paths.search import Effort, Search
from gearshift.paths.spec import PathSpec
from gearshift.paths.tasks import task_of
from gearshift.profiler import Timing
from gearshift.profiler.device import synchronise
from gearshift.profiler.meters import IdlePower, Meter, measure_idle

Role = Literal["stock", "lossless", "frontier"]
LARGEST_LOSSLESS_DIFFERENCE = 1e-4
"""An exact path may differ from the stock model by this share of the largest logit, and no more."""
VERIFIED_EXAMPLES = 4
IDLE_SECONDS = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Workbench:
    """What paths of one model are searched, measured and judged with.

    Attributes:
        factory: Builds the paths.
        judge: Tells their quality.
        examples: Pixel values `(1, 3, H, W)`, on the device: costs are measured on the first, exact paths are
            verified on the first few.
        meter: Where energy is read.
        idle: Power without work, measured before.
        device: Where paths run.
        rounds: Measuring windows per path.
        window_s: Their least length.
        progress: Called with a line after each step.
    """

    factory: PathFactory
    judge: Judge
    examples: Sequence[Tensor]
    meter: Meter
    idle: IdlePower
    device: torch.device
    rounds: int = 7
    window_s: float = 0.3
    progress: Callable[[str], None] = lambda _: None

    def search(
        self, effort: Effort, journal: Journal, knobs: Sequence[Knob] | None = None
    ) -> tuple[list[PathSpec], PathSpec]:
        """Search for paths worth measuring; return them, stock and exact reference first, and that reference.

        Args:
            effort: How hard.
            journal: What an earlier search measured.
            knobs: What may be turned; all that the family offers if None.
        """
        search = Search(
            self.factory,
            self.judge,
            self.examples[0],
            effort,
            journal,
            knobs=knobs,
            progress=self.progress,
            synchronise=partial(synchronise, self.device),
        )
        found = [candidate.spec for candidate in search.run()]
        return list(dict.fromkeys([PathSpec(), search.base, *found])), search.base

    def exact_among(self, specs: Sequence[PathSpec]) -> PathSpec:
        """The first of the given paths that is exact; the stock model where none is."""
        exact = self.factory.family.base(self.factory.stock)
        return next((spec for spec in specs if spec in exact and spec != PathSpec()), PathSpec())

    def measure(self, specs: Sequence[PathSpec], lossless: PathSpec) -> list[PathRecord]:
        """Measure all paths in turn and judge each on all frames; slowest first, with their roles.

        A path without a role is beaten by another one in everything.

        Args:
            specs: What to measure.
            lossless: Which of them is the exact reference; it and the stock model are verified.
        """
        paths = {spec.id: self.factory.build(spec) for spec in specs}
        self.progress(f"measuring {len(paths)} paths in turn, {self.rounds} windows each")
        costs = self.costs(paths)
        return mark_frontier([self._record(spec, paths[spec.id], *costs[spec.id], lossless) for spec in specs])

    def costs(self, paths: Mapping[str, nn.Module]) -> dict[str, tuple[Timing, FrameEnergy]]:
        """Latency and energy of each path on the first example."""
        return measure_costs(
            paths,
            self.examples[0],
            self.meter,
            self.idle.power_w,
            rounds=self.rounds,
            window_s=self.window_s,
            synchronise=partial(synchronise, self.device),
        )

    def _record(
        self, spec: PathSpec, path: Path, timing: Timing, energy: FrameEnergy, lossless: PathSpec
    ) -> PathRecord:
        quality = self.judge.judge(path)
        self.progress(f"{spec}: {quality.metric} {quality.value:.4f}, {timing.median_ms:.1f} ms")
        exact = spec in (lossless, PathSpec())
        return PathRecord(
            transforms=spec.to_json(),
            roles=_reference_roles(spec, lossless),
            quality=QualityRecord.of(quality),
            latency=LatencyRecord.of(timing),
            energy=EnergyRecord.of(energy),
            macs=count_macs(path, self.examples[0]),
            extra_bytes=path.extra_bytes,
            largest_difference=self._verify(spec, path) if exact else None,
        )

    def _verify(self, spec: PathSpec, path: Path) -> float:
        """Largest output difference from the stock model, relative to the largest logit, on real frames.

        Raises:
            RuntimeError: It is larger than rounding explains: a fault of ours, not of the input.
        """
        traits = self.factory.family.traits(self.factory.stock)
        essence = task_of(traits.task, len(traits.classes)).essence
        worst = 0.0
        with torch.inference_mode():
            for pixels in self.examples[:VERIFIED_EXAMPLES]:
                expected = essence(self.factory.stock(pixels))
                worst = max(worst, float((essence(path(pixels)) - expected).abs().max() / expected.abs().max()))
        if worst > LARGEST_LOSSLESS_DIFFERENCE:
            raise RuntimeError(f"path {spec} should be exact but differs from the stock model by {worst:.2e}")
        return worst


def idle_power(meter: Meter) -> IdlePower:
    """Power without work; a meter that measures nothing is not waited for."""
    return measure_idle(meter, IDLE_SECONDS if meter.read().energy_j is not None else 1e-3)


def mark_frontier(records: Sequence[PathRecord]) -> list[PathRecord]:
    """Give the role `frontier` to the Pareto set of quality against latency and energy; slowest first.

    Energy counts where it is known of every path.
    """
    know_energy = all(record.energy.gross_j is not None for record in records)

    def quality(record: PathRecord) -> float:
        return record.quality.value if record.quality is not None else 0.0

    def latency(record: PathRecord) -> float:
        return record.latency.median_ms

    def energy(record: PathRecord) -> float:
        return record.energy.gross_j or 0.0 if know_energy else 0.0

    frontier = {record.id for record in pareto(records, quality, latency, energy)}
    marked = []
    for record in records:
        roles: tuple[Role, ...] = tuple(role for role in record.roles if role != "frontier")
        if record.id in frontier:
            roles = (*roles, "frontier")
        marked.append(record.model_copy(update={"roles": roles}))
    return sorted(marked, key=lambda record: -record.latency.median_ms)


def _reference_roles(spec: PathSpec, lossless: PathSpec) -> tuple[Role, ...]:
    roles: list[Role] = []
    if spec == PathSpec():
        roles.append("stock")
    if spec == lossless:
        roles.append("lossless")
    return tuple(roles)
