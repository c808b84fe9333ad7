"""Energy of power that is sampled on a thread and integrated by the trapezoid rule."""

import time
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

from gearshift.errors import MeterUnavailableError
from gearshift.profiler.meters.base import BaseMeter, Clock
from gearshift.profiler.meters.integral import PowerIntegral
from gearshift.profiler.meters.protocol import Precision, Reading

# No machine whose power is read from files or a service draws more: it is a slip of units.
CEILING_W = 2000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerSample:
    """Power at one moment.

    Attributes:
        power_w: All of it.
        parts_w: What is known of its parts; None for one that did not answer.
        fresh: Whether the sensor delivered since the sample before.
    """

    power_w: float
    parts_w: Mapping[str, float | None] = field(default_factory=dict)
    fresh: bool = True


class SampledPowerMeter(BaseMeter):
    """A meter that supplies `_sample_w`.

    Args:
        name: Short name.
        source: Label of how the figures are obtained.
        boundary: What is included and excluded.
        precision: How fine the readings are.
        max_gap_s: Samples further apart than this leave a gap.
        clock: Monotonic seconds.
        period_s: Sample this often on a thread while windows are open; None for no thread.
        notes: What a reader of the figures should know.
    """

    def __init__(
        self,
        *,
        name: str,
        source: str,
        boundary: str,
        precision: Precision,
        max_gap_s: float,
        clock: Clock = time.perf_counter,
        period_s: float | None = None,
        notes: tuple[str, ...] = (),
    ) -> None:
        self._max_gap_s = max_gap_s
        self._total = PowerIntegral(max_gap_s=max_gap_s)
        self._parts: dict[str, PowerIntegral] = {}
        self._silent: frozenset[str] = frozenset()
        self._fresh = self._missing = 0
        super().__init__(
            name=name,
            source=source,
            boundary=boundary,
            precision=precision,
            clock=clock,
            period_s=period_s,
            notes=notes,
        )

    @abstractmethod
    def _sample_w(self) -> PowerSample:
        """Read power; raises MeterUnavailableError where the sensor does not answer."""

    def _read(self) -> Reading:
        reason = None
        try:
            sample = self._sample_w()
            now_s = self._clock()
            self._add(now_s, sample)
        except MeterUnavailableError as error:
            reason, now_s = str(error), self._clock()
            self._missing += 1
        return Reading(
            time_s=now_s,
            energy_j=self._total.energy_j + self._total.gap_j if reason is None else None,
            reason=reason,
            fresh=self._fresh,
            missing=self._missing,
            gap_s=self._total.gap_s,
            parts={
                name: None if name in self._silent else part.energy_j + part.gap_j for name, part in self._parts.items()
            },
        )

    def _add(self, now_s: float, sample: PowerSample) -> None:
        self._total.add(now_s, plausible_w(sample.power_w))
        self._fresh += sample.fresh
        self._silent = frozenset(name for name, power_w in sample.parts_w.items() if power_w is None)
        for name, power_w in sample.parts_w.items():
            part = self._parts.setdefault(name, PowerIntegral(max_gap_s=self._max_gap_s))
            if power_w is not None:
                part.add(now_s, power_w)


def plausible_w(power_w: float, ceiling_w: float = CEILING_W) -> float:
    """Refuse what cannot be.

    Raises:
        MeterUnavailableError: It is below 0 or above the ceiling.
    """
    if not 0 <= power_w <= ceiling_w:
        raise MeterUnavailableError(f"implausible: {power_w:,.6g} W is not between 0 and {ceiling_w:g} W")
    return power_w
