"""The frontier as the controller sees it: for each path what it is worth and what it is expected to cost."""

from collections.abc import Iterable
from dataclasses import dataclass

from gearshift.paths.records import BundleRecord, PathRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One path that the controller may run.

    Attributes:
        id: The path's canonical text.
        quality: In [0, 1].
        latency_s: Expected time of a frame.
        spread: Relative deviation of that time, from its measured 95th percentile.
        net_j: Expected energy of a frame above idle; None where nothing was measured.
    """

    id: str
    quality: float
    latency_s: float
    spread: float
    net_j: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """All paths, by rising latency, and the power that flows in any case.

    Attributes:
        paths: At least one.
        idle_power_w: Power between frames; None where it is not known.
    """

    paths: tuple[Choice, ...]
    idle_power_w: float | None

    @property
    def know_energy(self) -> bool:
        """Whether power and energy can be predicted."""
        return self.idle_power_w is not None and all(path.net_j is not None for path in self.paths)

    def index(self, path_id: str) -> int:
        """Position of a path."""
        return next(index for index, path in enumerate(self.paths) if path.id == path_id)

    def power_w(self, index: int, period_s: float | None) -> float | None:
        """Expected mean power of a path, one frame every `period_s` (None: one after the other)."""
        path = self.paths[index]
        if path.net_j is None or self.idle_power_w is None:
            return None
        return self.idle_power_w + path.net_j / max(period_s or 0.0, path.latency_s)


def choices_of(record: BundleRecord) -> Choices:
    """The paths of a bundle that the controller may run."""
    return make_choices(record.paths, record.meter.idle_power_w)


def make_choices(records: Iterable[PathRecord], idle_power_w: float | None) -> Choices:
    """The frontier, and the exact reference, which no estimate may rule out for good; by rising latency."""
    kept = [record for record in records if {"frontier", "lossless"}.intersection(record.roles)]
    return Choices(
        paths=tuple(sorted(map(_choice, kept), key=lambda choice: choice.latency_s)),
        idle_power_w=idle_power_w,
    )


def mean_power_w(record: PathRecord, idle_power_w: float | None, period_s: float | None) -> float | None:
    """Mean power of a path as costed, a frame every `period_s` (None: without a pause); None if unknown."""
    if record.energy.net_j is None or idle_power_w is None:
        return None
    return idle_power_w + record.energy.net_j / max(period_s or 0.0, record.latency.median_ms / 1e3)


def _choice(record: PathRecord) -> Choice:
    median, p95 = record.latency.median_ms, record.latency.p95_ms
    net = record.energy.net_j
    return Choice(
        id=record.id,
        quality=record.quality.value if record.quality is not None else 0.0,
        latency_s=median / 1e3,
        spread=max(p95 / median - 1, 0.01) / 1.645,
        net_j=None if net is None else max(net, 0.0),
    )
