"""What a bundle says, as checked values: the shape of `bundle.json`, unknown keys refused."""

from dataclasses import fields
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from gearshift.paths.cost import FrameEnergy
from gearshift.paths.data.preprocess import Interpolation, Preprocessing
from gearshift.paths.family import TaskName
from gearshift.paths.quality import Quality
from gearshift.paths.spec import PathSpec
from gearshift.profiler import Timing

SCHEMA = 2
"""2: task and preprocessing; older bundles, which lack them, are of segmentation models and read all the same."""


class Record(BaseModel):
    """Base of everything read from a bundle."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class LatencyRecord(Record):
    """One frame in to result out, in ms."""

    median_ms: float = Field(gt=0)
    p95_ms: float = Field(gt=0)
    min_ms: float = Field(gt=0)
    iqr_ms: float = Field(ge=0)
    n: int = Field(gt=0)
    first_call_ms: float = Field(ge=0)
    source: str

    @classmethod
    def of(cls, timing: Timing) -> "LatencyRecord":
        """Keep the summary of a timing."""
        return cls(**timing.to_dict())


class EnergyRecord(Record):
    """Energy of a frame, frames following each other without a pause; null with a reason where not measured."""

    gross_j: float | None = Field(ge=0)
    net_j: float | None
    spread_j: float | None
    power_w: float | None
    windows: int = Field(ge=0)
    source: str
    reason: str | None = None

    @classmethod
    def of(cls, energy: FrameEnergy) -> "EnergyRecord":
        """Take over what was measured."""
        return cls(**{name: getattr(energy, name) for name in cls.model_fields})


class QualityRecord(Record):
    """A figure of merit in [0, 1], and which one it is."""

    metric: Literal["mIoU", "top-1", "agreement"]
    value: float = Field(ge=0, le=1)
    per_class: tuple[float | None, ...] = ()
    images: int = Field(gt=0)

    @classmethod
    def of(cls, quality: Quality) -> "QualityRecord":
        """Take over what was judged."""
        return cls(**{name: getattr(quality, name) for name in cls.model_fields})


class PathRecord(Record):
    """One path of a bundle.

    Attributes:
        transforms: The path's `PathSpec`.
        roles: `stock`, `lossless` (the exact reference) or `frontier`; a path may have several.
        largest_difference: Of exact paths, the largest output difference from the stock model relative to the
            largest logit, on real frames.
    """

    transforms: list[dict[str, str | None]]
    roles: tuple[Literal["stock", "lossless", "frontier"], ...]
    quality: QualityRecord | None
    latency: LatencyRecord
    energy: EnergyRecord
    macs: int = Field(gt=0)
    extra_bytes: int = Field(ge=0)
    largest_difference: float | None = None

    @property
    def spec(self) -> PathSpec:
        """The path."""
        return PathSpec.from_json(self.transforms)

    @property
    def id(self) -> str:
        """The path's canonical text."""
        return self.spec.id


class CheckpointRecord(Record):
    """Where the weights are: a model reference, in which `@/` stands for the bundle's own folder."""

    reference: str
    weights_sha256: str
    trained: bool


class DataRecord(Record):
    """What quality was judged on; null where the model's weights are random."""

    name: str
    images: int = Field(gt=0)
    labelled: bool


class MeterRecord(Record):
    """How energy was obtained."""

    name: str
    source: str
    boundary: str
    notes: tuple[str, ...] = ()
    idle_power_w: float | None
    idle_how: str


class BundleRecord(Record):
    """The whole of `bundle.json`, checksum aside."""

    schema_version: int = SCHEMA
    gearshift: str
    created: str
    family: str
    task: TaskName = "segmentation"
    checkpoint: CheckpointRecord
    classes: tuple[str, ...]
    input_height: int = Field(gt=0)
    input_width: int = Field(gt=0)
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    resize: int | None = None
    crop: tuple[int, int] | None = None
    size: tuple[int, int] | None = None
    interpolation: Interpolation = "bilinear"
    data: DataRecord | None
    device: dict[str, str | int | None]
    versions: dict[str, str]
    meter: MeterRecord
    files: dict[str, str] = Field(description="SHA-256 of every other file, by name inside the bundle")
    paths: tuple[PathRecord, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _has_references(self) -> "BundleRecord":
        for role in ("stock", "lossless"):
            if not any(role in path.roles for path in self.paths):
                raise ValueError(f"no path has the role {role}, against which all others are compared")
        return self

    @property
    def preprocessing(self) -> Preprocessing:
        """What the model expects of images."""
        return Preprocessing(**{item.name: getattr(self, item.name) for item in fields(Preprocessing)})

    def with_role(self, role: str) -> PathRecord:
        """The first path of a role."""
        return next(record for record in self.paths if role in record.roles)
