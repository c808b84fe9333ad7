"""The energy report, as checked values: the shape of `configs/schemas/energy-report.schema.json`.

    EnergyReport     one bench: how energy was obtained, the setting, the run, the same stream on fixed paths
    RunEnergy        one run: energy per frame, conditions, latency, quality, deadlines, changes of path
    EnergyFigure     gross or net joules of a frame, with its spread over windows and the sensor's uncertainty

Every figure carries its unit in its name. What was not measured is null, and a reason stands beside it; null is
never 0. Keys that are not known are refused.
"""

from typing import Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from gearshift.runtime.report.values import Number

SCHEMA: Final = 1
"""The newest schema that is known here."""
CONDITIONS = ("temperature_c", "clock_mhz", "memory_clock_mhz", "power_limit_w", "throttle_reasons")


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


def _either(value: object, reason: str | None, name: str) -> None:
    if (value is None) != (reason is not None):
        raise ValueError(f"{name} is null exactly where a reason says why")


class EnergyFigure(_Part):
    """Energy of a frame of a whole run, and its interval from the windows within it."""

    value_j: Number
    """Energy of the whole run over its frames: the figure that the interval is of."""
    reason: str | None = None
    """Why `value_j` is null."""
    sensor_uncertainty_j: Number = None
    """Half-width that the meter itself allows for; the spread says nothing of it. Of net energy an upper bound:
    the errors of both readings are taken as independent."""
    sensor_uncertainty_relative: Number = None
    """The same, as a share of `value_j`."""
    n_windows: int = Field(default=0, ge=0)
    n_effective: Number = None
    """Windows that would tell as much if they were independent: fewer where neighbours are alike."""
    windows_j: Number = None
    """Energy of all windows over their frames. `value_j` is also of the frames at the edges of the run, which no window
    holds. Null in older documents."""
    standard_error_j: Number = None
    """Of `value_j`: that of `windows_j`, by linearisation of the ratio of sums, with `n_effective` windows; of gross
    energy the share of the figure that it is of `windows_j`. Null in older documents."""
    mean_j: Number = None
    """Mean over the windows; each window counts alike, however many frames it holds. Not what `value_j` is."""
    std_j: Number = None
    """Sample deviation of the windows, each counting alike."""
    ci95_low_j: Number = None
    """Of `value_j`, which lies within: Student's t with `n_effective` - 1 degrees of freedom, of gross energy on the
    logarithm and so above 0. In older documents, those with a null `interval_method`, of `mean_j`."""
    ci95_high_j: Number = None
    interval_method: str | None = None
    """How the interval was obtained; null without one, and in older documents."""
    neighbour_correlation: Number = None
    """Autocorrelation at lag 1 of the windows' residuals, energy less `windows_j` times their frames; in older
    documents of their energies per frame."""
    spread_reason: str | None = None
    """Why there is no interval."""

    @model_validator(mode="after")
    def _says_why(self) -> Self:
        _either(self.value_j, self.reason, "value_j")
        _either(self.ci95_low_j, self.spread_reason, "ci95_low_j")
        _either(self.ci95_high_j, self.spread_reason, "ci95_high_j")
        return self


class Windows(_Part):
    """The windows that a run was cut into, for the spread."""

    how: str
    least_s: float
    """Asked for."""
    n: int = Field(ge=0)
    shortest_s: Number
    longest_s: Number
    meter_periods: Number
    """How many times the meter's `resolution_s` the shortest window lasts; null for a meter that reads
    continuously, or without windows."""
    too_short: bool | None
    """Whether a window holds fewer than 10 meter periods, so that the sensor's steps enter the spread."""
    independent: bool | None
    """Whether neighbours are no more alike than chance allows; null with too few windows to tell."""
    note: str


class Domain(_Part):
    """What a meter says of one rail or domain, over the whole run."""

    name: str
    energy_j: Number
    reason: str | None = None

    @model_validator(mode="after")
    def _says_why(self) -> Self:
        _either(self.energy_j, self.reason, "energy_j")
        return self


class ConditionsRecord(_Part):
    """What the device ran at; null with a reason in `missing` where it could not be read."""

    temperature_c: Number
    clock_mhz: Number
    memory_clock_mhz: Number
    power_limit_w: Number
    throttle_reasons: tuple[str, ...] | None
    """What held the clocks down; empty where nothing did."""
    missing: dict[str, str] = {}

    @model_validator(mode="after")
    def _says_why(self) -> Self:
        for name in CONDITIONS:
            _either(getattr(self, name), self.missing.get(name), name)
        return self


class LatencyFigures(_Part):
    """One frame in to result out."""

    n: int = Field(ge=0)
    p50_ms: Number
    p95_ms: Number
    p99_ms: Number
    max_ms: Number
    reason: str | None = None


class QualityFigure(_Part):
    """Quality of the frames as they were answered."""

    metric: str | None
    value: Number
    reason: str | None = None
    ci95_low: Number = None
    """Bootstrap over pictures: those of one drive resemble each other, so that it is rather too narrow."""
    ci95_high: Number = None
    ci_reason: str | None = None
    data: str
    n_frames: int = Field(ge=0)
    n_pictures: int | None = None

    @model_validator(mode="after")
    def _says_why(self) -> Self:
        _either(self.value, self.reason, "value")
        _either(self.ci95_low, self.ci_reason, "ci95_low")
        _either(self.ci95_high, self.ci_reason, "ci95_high")
        return self


class Deadlines(_Part):
    """Frames that came late."""

    what: str
    """Which deadline: the latency limit of the budget where there is one, else the camera's period."""
    deadline_ms: Number
    """Null where it changed during the run."""
    n_frames: int = Field(ge=0)
    misses: int | None
    dropped: int
    """Frames of the camera that were not served at all; not among the misses."""
    reason: str | None = None
    """Why `misses` is null."""

    @model_validator(mode="after")
    def _says_why(self) -> Self:
        _either(self.misses, self.reason, "misses")
        return self


class SwitchEnergy(_Part):
    """Gross energy of one change of path, beyond what the paths themselves cost."""

    value_j: Number
    """Null also where its interval holds 0: the meter does not resolve it."""
    reason: str | None = None
    ci95_low_j: Number = None
    ci95_high_j: Number = None
    n: int = Field(default=0, ge=0)
    """Rounds that were measured."""
    all_switches_j: Number = None
    """Of all changes of the run."""
    source: str
    method: str

    @model_validator(mode="after")
    def _says_why(self) -> Self:
        _either(self.value_j, self.reason, "value_j")
        return self


class SwitchTime(_Part):
    """Time that a frame takes longer for following a change of path; a negative one means shorter."""

    value_ms: Number
    reason: str | None = None
    ci95_low_ms: Number = None
    ci95_high_ms: Number = None
    n: int = Field(default=0, ge=0)
    method: str

    @model_validator(mode="after")
    def _says_why(self) -> Self:
        _either(self.value_ms, self.reason, "value_ms")
        return self


class Switches(_Part):
    """Changes of path between two frames."""

    count: int = Field(ge=0)
    energy: SwitchEnergy
    time: SwitchTime


class Footprint(_Part):
    """Emissions of a run's gross energy."""

    g_total: Number
    g_per_1000_frames: Number
    estimated: bool
    """Whether the energy is an estimate; then so is this."""
    reason: str | None = None

    @model_validator(mode="after")
    def _says_why(self) -> Self:
        missing = self.g_total is None or self.g_per_1000_frames is None
        _either(None if missing else 0, self.reason, "g_total or g_per_1000_frames")
        return self


class RunEnergy(_Part):
    """One run."""

    path: str | None
    """The path that it was fixed to; null for the run under budgets."""
    started: str | None
    """UTC, to tell runs of one device that overlap; null in older documents."""
    seconds: float
    frames: int = Field(ge=0)
    camera_fps: float
    fps: Number
    source: str | None
    """How the energy was obtained."""
    gross_j: Number
    """Of the whole run; of everything on the device, whoever it worked for."""
    gross_kwh: Number
    reason: str | None = None
    """Why there is no energy."""
    power_w: Number
    """Mean; null where `gross_j` is, or the run has no length."""
    gross_j_per_frame: EnergyFigure
    net_j_per_frame: EnergyFigure
    frames_per_wh: Number
    """Null where gross energy per frame is null or 0."""
    windows: Windows
    domains: tuple[Domain, ...]
    """By rail or domain, for information; some lie within others and do not add up."""
    warnings: tuple[str, ...] = ()
    conditions_before: ConditionsRecord
    conditions_after: ConditionsRecord
    latency: LatencyFigures
    quality: QualityFigure
    deadlines: Deadlines
    switches: Switches
    co2e: Footprint | None = None
    """Null unless a grid intensity was given."""

    @model_validator(mode="after")
    def _says_why(self) -> Self:
        _either(self.gross_j, self.reason, "gross_j")
        return self


class EnergyMeter(_Part):
    """How energy was obtained."""

    name: str
    source: str
    method: Literal["counter", "integral", "estimate", "none"] | None
    """Difference of a counter, sampled power integrated, a formula, or nothing; null in older documents."""
    estimated: bool
    boundary: str
    """What the energy includes and what it excludes."""
    period_s: Number
    """Between fresh readings; null where they are continuous, or it is not known."""
    resolution_s: Number
    """The shortest window that it resolves: its period or the time over which it averages, the longer; 0 where
    readings are continuous."""
    resolution_is: str
    """What `resolution_s` is."""
    resolution_j: Number
    """The smallest step of energy that it tells; null where power is sampled, or it is not known."""
    relative_uncertainty: Number
    """Systematic error of the sensor, as a share; an assumption that the meter states."""
    reason: str | None = None
    """Why `resolution_s` and `relative_uncertainty` are null."""
    notes: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _says_why(self) -> Self:
        _either(self.resolution_s, self.reason, "resolution_s")
        _either(self.relative_uncertainty, self.reason, "relative_uncertainty")
        return self


class Idle(_Part):
    """Power without our work, which net energy leaves out."""

    power_w: Number
    uncertainty_w: Number = None
    seconds: Number = None
    """How long it was measured; 0 for a constant."""
    source: str | None = None
    how: str
    reason: str | None = None
    warnings: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _says_why(self) -> Self:
        _either(self.power_w, self.reason, "power_w")
        return self


class Setting(_Part):
    """What ran, where, on what."""

    device: dict[str, str | float | int | None]
    versions: dict[str, str | None]
    threads: int
    dtype: str | None
    """Of the stock model's weights; null in older documents."""
    input_shape: tuple[int, ...]
    model: str
    weights_sha256: str
    trained: bool
    data: str
    pictures: int
    seed: int | None = None
    budget: str


class GridRecord(_Part):
    """Whose figure emissions are worked out with."""

    g_per_kwh: float
    source: str
    basis: str
    dataset: str | None
    country: str | None
    country_name: str | None
    year: int | None
    covers: str
    """Which emissions are in it."""


class EnergyReport(_Part):
    """Energy of a bench's runs, and all that must be known to compare it with another's."""

    schema_version: Literal[1]
    created: str
    """UTC."""
    meter: EnergyMeter
    idle: Idle
    setting: Setting
    grid: GridRecord | None = None
    """Null unless a grid intensity was given."""
    run: RunEnergy
    baselines: dict[str, RunEnergy]
    """The same stream on fixed paths."""
