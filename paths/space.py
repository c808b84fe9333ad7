"""The path space: which knobs the search may turn, how far, and how hard it tries. Read from YAML."""

from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from gearshift.config import read_config
from gearshift.errors import SpecError
from gearshift.paths.knobs import Knob
from gearshift.paths.search import Effort
from gearshift.paths.transforms import read_transform

_LISTED = ("fuse", "decoder", "size")


class Space(BaseModel):
    """Limits of a search; a key left out takes the family's own settings, an empty list removes the knob.

    Attributes:
        blocks: Whether transformer blocks may be skipped.
        fuse, decoder, size: Settings from mild to strong, written as in a path's id.
        floor: Share of the exact path's quality below which nothing is kept.
        keep: Paths kept in the end.
        recombined: Combinations measured in the last step.
        timing_rounds: Frames timed per candidate.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    blocks: bool = True
    fuse: list[str] | None = None
    decoder: list[str] | None = None
    size: list[str] | None = None
    floor: float = Field(default=0.5, gt=0, le=1)
    keep: int = Field(default=12, ge=2)
    recombined: int = Field(default=24, ge=0)
    timing_rounds: int = Field(default=7, ge=1)

    @field_validator("fuse", "decoder", "size", mode="before")
    @classmethod
    def _as_texts(cls, value: object) -> object:
        return [str(item) for item in value] if isinstance(value, list) else value

    @field_validator("fuse", "decoder", "size")
    @classmethod
    def _readable(cls, texts: list[str] | None, info: ValidationInfo) -> list[str] | None:
        try:
            for text in texts or ():
                read_transform(str(info.field_name), text)
        except SpecError as error:  # as a value error, so that file and key are named
            raise ValueError(str(error)) from error
        return texts

    @staticmethod
    def read(file: Path) -> "Space":
        """Read and check a space; a `ConfigError` names file, key and the nearest known key."""
        return read_config(file, Space)

    def knobs(self, offered: Sequence[Knob]) -> list[Knob]:
        """The family's knobs, limited to this space.

        Raises:
            SpecError: Nothing is left to turn.
        """
        kept = []
        for knob in offered:
            if knob.name.startswith("block ") and not self.blocks:
                continue
            listed = getattr(self, knob.name) if knob.name in _LISTED else None
            if listed is None:
                kept.append(knob)
            elif listed:
                kept.append(Knob(knob.name, tuple(read_transform(knob.name, text) for text in listed)))
        if not kept:
            raise SpecError("the path space is empty: it allows no knob; allow blocks, fuse, decoder or size")
        return kept

    def effort(self, frames: int) -> Effort:
        """How hard to search with this many frames: about 40 of them judge each candidate."""
        return Effort(
            timing_rounds=self.timing_rounds,
            judge_every=max(1, frames // 40),
            recombined=self.recombined,
            floor=self.floor,
            keep=self.keep,
        )
