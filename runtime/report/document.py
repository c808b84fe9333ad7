"""What the report reads of a bench's document, as checked values; keys that it does not read may be there."""

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from gearshift.config import check_config
from gearshift.errors import InputError
from gearshift.runtime.report.energy.model import EnergyReport
from gearshift.runtime.report.values import Number

NAME = "runtime bench"
SCHEMA = 2
"""The newest schema that is known here. From 2 on documents hold an energy report."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class Latency(_Part):
    """Of a run, in ms."""

    p50: Number
    p95: Number
    p99: Number
    max: Number
    reason: str | None = None


class Energy(_Part):
    """Of a run; what a path's record in a frontier holds has other names."""

    gross_j: Number = None
    seconds: Number = None
    gross_j_per_frame: Number
    net_j_per_frame: Number
    power_w: Number
    source: str | None
    reason: str | None = None
    spread_j_per_frame: Number = None
    uncertainty_j: Number = None
    idle_power_w: Number = None
    worst_1s_window_w: Number = None
    warnings: tuple[str, ...] = ()


class Quality(_Part):
    """Of a run, over its frames as answered."""

    metric: str | None
    value: Number
    frames: int
    not_judged: int = 0
    reason: str | None = None


class PathUse(_Part):
    """What a run used one path for."""

    path: str
    frames: int
    share_of_frames: float
    share_of_time: float
    median_ms: Number


class Limit(_Part):
    """One limit of a budget, and what was achieved under it."""

    kind: str
    unit: str
    limit: float = Field(gt=0)
    mean: Number
    worst_1s_window: Number = None
    windows: int | None = None
    windows_in_violation: Number = None
    held_on_average: bool | None = None
    achieved: Number = None
    worst_frame: Number = None
    frames_in_violation: Number = None
    held: bool | None = None
    reason: str | None = None


class Stretch(_Part):
    """A part of a run under one budget."""

    budget: str
    from_s: float
    to_s: float
    limits: tuple[Limit, ...]


class Run(_Part):
    """A run, under budgets or on a fixed path."""

    seconds: float
    camera_fps: float
    frames: int
    dropped: int
    fps: Number
    latency_ms: Latency
    energy: Energy
    quality: Quality
    paths: tuple[PathUse, ...]
    switches: int
    budgets: tuple[Stretch, ...]
    shortfalls: tuple[str, ...] = ()


class FixedRun(Run):
    """The same stream on one path."""

    path: str


class PathQuality(_Part):
    """A path's quality, as judged when the bundle was built."""

    metric: str
    value: Number
    images: int | None = None


class PathLatency(_Part):
    """One frame in to result out, alone."""

    median_ms: float
    p95_ms: Number = None
    iqr_ms: Number = None
    n: int | None = None
    source: str = ""


class PathEnergy(_Part):
    """Energy of a frame, frames following each other without a pause."""

    gross_j: Number
    net_j: Number
    spread_j: Number = None
    windows: int | None = None
    source: str = ""
    reason: str | None = None


class Path(_Part):
    """One path of the frontier."""

    path: str
    roles: tuple[str, ...]
    quality: PathQuality | None
    latency: PathLatency
    energy: PathEnergy
    macs: int
    extra_bytes: int
    largest_difference: Number = None


class Mix(_Part):
    """A path's part of a predicted mix."""

    path: str
    share_of_frames: float


class Predicted(_Part):
    """What another budget would give."""

    budget: str
    power_limit_w: Number
    latency_limit_ms: Number
    met: bool
    quality: Number
    power_w: Number
    paths: tuple[Mix, ...]


class TypeCost(_Part):
    """What one type of operator costs."""

    name: str
    macs: int
    time_ms: Number
    macs_share: Number
    time_share: Number


class Cost(_Part):
    """Where the cost of a path goes."""

    path: str
    macs: int
    by_type: tuple[TypeCost, ...]
    wall_ms: Number = None
    source: str = ""
    overhead_ratio: Number = None


class Load(_Part):
    """Other programs that computed during the run."""

    from_s: float
    to_s: float
    processes: int


class Scenario(_Part):
    """The run's script."""

    seconds: float
    loads: tuple[Load, ...] = ()


class Model(_Part):
    """Whose weights ran."""

    reference: str
    weights_sha256: str
    trained: bool


class Meter(_Part):
    """How energy was obtained."""

    name: str
    source: str
    boundary: str
    notes: tuple[str, ...] = ()
    idle_power_w: Number = None
    idle_how: str = ""


class Trace(_Part):
    """The run frame by frame (`start_s`, `latency_ms`, `path`) and power sample by power sample."""

    paths: tuple[str, ...]
    start_s: tuple[float, ...]
    latency_ms: tuple[float, ...]
    path: tuple[int, ...]
    power_end_s: tuple[float, ...]
    power_w: tuple[Number, ...]

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if not len(self.start_s) == len(self.latency_ms) == len(self.path):
            raise ValueError("start_s, latency_ms and path must be of one length, one entry a frame")
        if len(self.power_end_s) != len(self.power_w):
            raise ValueError("power_end_s and power_w must be of one length, one entry a sample")
        if any(not 0 <= index < len(self.paths) for index in self.path):
            raise ValueError(f"path must hold indices into the {len(self.paths)} entries of paths")
        return self


class Binding(_Part):
    """Whether the budget keeps the best path from running all the time."""

    binds: bool
    text: str


class RunDocument(_Part):
    """A bench's document."""

    schema_version: int
    created: str
    bundle: str
    model: Model
    device: dict[str, str | float | int | None]
    versions: dict[str, str | None]
    threads: int
    input_shape: tuple[int, ...]
    frames_from: str
    pictures: int
    seed: int | None = None
    meter: Meter
    costs: str
    scenario: Scenario
    budget: str
    binds: Binding
    shortfall: str | None = None
    run: Run
    baselines: dict[str, FixedRun]
    other_budgets: tuple[Predicted, ...]
    frontier: tuple[Path, ...]
    where_cost_goes: dict[str, Cost]
    trace: Trace
    energy_report: EnergyReport | None = None

    @model_validator(mode="after")
    def _holds_an_energy_report(self) -> Self:
        if self.schema_version > 1 and self.energy_report is None:
            raise ValueError(f'key "energy_report" is missing; documents of schema {self.schema_version} hold one')
        return self

    @property
    def estimated(self) -> bool:
        """Whether energy comes from an estimate, not from a meter."""
        return self.energy_source.startswith("estimated")

    @property
    def energy_source(self) -> str:
        """Where the run's energy comes from."""
        return self.run.energy.source or self.meter.source


def checked(document: Any, where: str) -> RunDocument:
    """Check a document; `where` names it in messages.

    Raises:
        InputError: It is no bench's document, is of a newer schema, or lacks something; one line.
    """
    name = document.get("report") if isinstance(document, dict) else None
    if name != NAME:
        found = "no report" if name is None else f"the report {name!r}"
        raise InputError(f'{where} holds {found}; give a file that "runtime bench --json" wrote')
    schema = document.get("schema_version")
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise InputError(f"{where} has the schema version {schema!r}; known are whole numbers from 1 to {SCHEMA}")
    if schema > SCHEMA:
        raise InputError(
            f"{where} has the schema version {schema}, newer than {SCHEMA}; read it with a newer Gearshift"
        )
    return check_config(document, RunDocument, where)
