"""What every meter promises, and the values that pass between a meter and its windows.

    Meter         the seam: `read`, `window`, `close`, and four words about itself
    Reading       one pair of time and cumulative energy, taken together
    Precision     how fine a meter's readings are, hence how far a window's energy may be off
    Measurement   what a window found: energy and time, how they were obtained, or why not
    MeterStatus   whether a meter works on this machine, what it measures, or why not and the remedy

A source label says how a figure came about: `measured:...` by a sensor, `estimated:...` by a formula. What
was not measured is None with a reason, never 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from gearshift.errors import InputError

if TYPE_CHECKING:
    from gearshift.profiler.meters.window import Window


@runtime_checkable
class Meter(Protocol):
    """Something that knows how much energy flowed since it was made.

    Reading never raises because a sensor failed: the reading is then empty and says why. All methods may be
    called from any thread. The base class `BaseMeter` gives `window`, `close` and the locking.
    """

    @property
    def name(self) -> str:
        """Short name, unique on this machine: `nvml:0`, `rapl`, `cpu-time`, `none`."""

    @property
    def source(self) -> str:
        """How its figures are obtained: `measured:nvml-energy-counter`, `estimated:cpu-time`."""

    @property
    def boundary(self) -> str:
        """What the energy includes and what it excludes, in one sentence."""

    @property
    def precision(self) -> "Precision":
        """How fine the readings are; a controller waits `precision.resolution_s` after a change."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the figures should know: domains missing, why no better meter was taken."""

    def read(self) -> "Reading":
        """Take the time and the cumulative energy, as one pair."""

    def window(self, name: str | None = None, *, restart: bool = False) -> "Window":
        """Make a window over this meter: `with meter.window() as w: ...`."""

    def close(self) -> None:
        """Give back threads and handles; later readings are empty with the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """How fine a meter's readings are.

    Attributes:
        resolution_s: Time between fresh readings, or over which the sensor averages, whichever is longer.
            Windows shorter than this are flagged. 0 where readings are continuous.
        relative: Systematic error of the sensor as a share of the energy (our assumption, stated per meter).
        what: What `resolution_s` is, for the warning: "counter update" or "sensor averaging".
        period_s: Time between fresh readings as specified, or as `observe_period` saw it; None where readings
            are continuous or nothing is known.
        resolution_j: The smallest step of energy that the sensor tells (1 mJ, one unit of a counter); None
            where power is sampled, or nothing is known.
    """

    resolution_s: float
    relative: float
    what: str = "counter update"
    period_s: float | None = None
    resolution_j: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One pair of time and cumulative energy.

    Attributes:
        time_s: Monotonic time at which the energy was read; only differences mean anything.
        energy_j: Joules since the meter was made, or None.
        reason: Why `energy_j` is None; None otherwise.
        epoch: Grows whenever the counter lost its thread (driver reload, a lapse longer than its range
            lasts). Readings of different epochs must not be subtracted.
        break_reason: Why the present epoch began; None in the first.
        fresh: Fresh sensor readings so far, or None where there is no sensor (an estimate).
        missing: Sensor readings that failed or were rejected so far.
        gap_s: Seconds so far over which the energy was bridged because samples were missing.
        check_j: Energy by a second sensor so far, over the `check_s` seconds that it covered; None without
            one.
        check_s: See `check_j`.
        parts: Joules so far by domain, for information; a domain that cannot be read is None.
    """

    time_s: float
    energy_j: float | None
    reason: str | None = None
    epoch: int = 0
    break_reason: str | None = None
    fresh: int | None = None
    missing: int = 0
    gap_s: float = 0.0
    check_j: float | None = None
    check_s: float = 0.0
    parts: Mapping[str, float | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.energy_j is None) == (self.reason is None):
            raise InputError(
                f"a Reading has either energy_j or a reason, got energy_j={self.energy_j!r} and "
                f"reason={self.reason!r}: give the reason exactly where nothing was measured"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What a window found.

    Attributes:
        name: The window's name.
        meter: The meter's name; windows of one meter overlap rather than add up.
        source: How the energy was obtained.
        start_s: Monotonic time at which the window opened.
        seconds: Its length.
        energy_j: Gross energy, or None.
        power_w: Mean power, or None where the energy is None or the window has no length.
        uncertainty_j: Half-width: sensor error, energy of one resolution step and of bridged gaps, in
            quadrature. It says nothing about the spread between repeats.
        period_s: Time between the sensor's fresh readings, as specified or observed; None where continuous.
        resolution_s: The shortest window that the meter resolves: period or averaging time, the longer.
        resolution_j: The smallest step of energy that the sensor tells; None where unknown.
        samples: Fresh sensor readings from opening to closing, or None for an estimate.
        missing: Readings that failed or were rejected meanwhile.
        reason: Why `energy_j` is None; None otherwise. It begins with a word to match on where there is one:
            `counter_reset:`, `not_watched:`, `implausible:`, `stale:`, `gap:`.
        warnings: What makes the energy doubtful although there is one.
        parts: Joules by domain; what is not part of `energy_j` (such as `psys`) is only here.
    """

    name: str
    meter: str
    source: str
    start_s: float
    seconds: float
    energy_j: float | None
    power_w: float | None
    uncertainty_j: float | None
    samples: int | None
    missing: int
    reason: str | None
    warnings: tuple[str, ...] = ()
    parts: Mapping[str, float | None] = field(default_factory=dict)
    period_s: float | None = None
    resolution_s: float = 0.0
    resolution_j: float | None = None

    @property
    def is_estimate(self) -> bool:
        """Whether a formula rather than a sensor gave the energy."""
        return is_estimate(self.source)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeterStatus:
    """Whether a meter works on this machine.

    Attributes:
        name: The meter's name.
        available: Whether a trial reading worked.
        source: How its figures would be obtained; None where unavailable.
        measures: What its energy includes and excludes; None where unavailable.
        period_s: Seconds between fresh readings, or None where unavailable or continuous.
        resolution_s: The shortest window that it resolves; None where unavailable or continuous.
        resolution_j: The smallest step of energy that it tells, or None where unavailable or unknown.
        reason: Why it is unavailable and the exact remedy; None where available.
        notes: What a reader of its figures should know.
    """

    name: str
    available: bool
    source: str | None = None
    measures: str | None = None
    period_s: float | None = None
    reason: str | None = None
    notes: tuple[str, ...] = ()
    resolution_s: float | None = None
    resolution_j: float | None = None


def is_estimate(source: str) -> bool:
    """Tell an estimate from a measurement by its label; estimates steer no controller unless asked to."""
    return source.startswith("estimated:")


def status_of(meter: Meter) -> MeterStatus:
    """Describe a meter whose trial reading worked."""
    return MeterStatus(
        name=meter.name,
        available=True,
        source=meter.source,
        measures=meter.boundary,
        period_s=meter.precision.period_s,
        notes=meter.notes,
        resolution_s=meter.precision.resolution_s or None,
        resolution_j=meter.precision.resolution_j,
    )
