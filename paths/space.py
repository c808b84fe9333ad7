"""The path space: which knobs the search may turn, how far, and how hard it tries. Read from YAML."""

from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator
from torch import Tensor

from gearshift.config import read_config
from gearshift.errors import SpecError
from gearshift.paths.build import PathFactory
from gearshift.paths.cost import count_macs
from gearshift.paths.knobs import Knob
from gearshift.paths.lowrank.targets import NoiseTarget
from gearshift.paths.pruning.targets import Cost, Target, ratio_for
from gearshift.paths.search import Effort
from gearshift.paths.transforms import Prune, read_transform

_LISTED = ("subnet", "heads", "mlp", "prune", "lowrank", "merge", "fuse", "decoder", "size")


class Space(BaseModel):
    """Limits of a search; a key left out takes the family's own settings, an empty list removes the knob.

    Attributes:
        blocks: Whether transformer blocks may be skipped.
        subnet, heads, mlp, prune, lowrank, merge, fuse, decoder, size: Settings from mild to strong, written as in a
            path's id. `prune` also takes targets, such as `macs:60%`, `latency:50%`, `energy:70%` of the base path's,
            and `lowrank` such as `falor:5%` or `lockd:5%` of noise in the answers: see `resolve_targets`.
        floor: Share of the exact path's quality below which nothing is kept.
        keep: Paths kept in the end.
        recombined: Combinations measured in the last step.
        timing_rounds: Frames timed per candidate.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    blocks: bool = True
    subnet: list[str] | None = None
    heads: list[str] | None = None
    mlp: list[str] | None = None
    prune: list[str] | None = None
    lowrank: list[str] | None = None
    merge: list[str] | None = None
    fuse: list[str] | None = None
    decoder: list[str] | None = None
    size: list[str] | None = None
    floor: float = Field(default=0.5, gt=0, le=1)
    keep: int = Field(default=12, ge=2)
    recombined: int = Field(default=24, ge=0)
    timing_rounds: int = Field(default=7, ge=1)

    @field_validator(*_LISTED, mode="before")
    @classmethod
    def _as_texts(cls, value: object) -> object:
        return [str(item) for item in value] if isinstance(value, list) else value

    @field_validator(*_LISTED)
    @classmethod
    def _readable(cls, texts: list[str] | None, info: ValidationInfo) -> list[str] | None:
        try:
            for text in texts or ():
                if info.field_name == "prune" and Target.is_one(text):
                    Target.read(text)
                elif info.field_name == "lowrank" and NoiseTarget.is_one(text):
                    NoiseTarget.read(text)
                else:
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
        self.check(offered)
        kept, names = [], [knob.name for knob in offered]
        listed = self._settings()
        for knob in offered:
            if knob.name.startswith("block ") and not self.blocks:
                continue
            if knob.name not in listed:
                kept.append(knob)
            elif listed[knob.name]:
                kept.append(_knob(knob.name, listed[knob.name]))
        kept += [_knob(name, texts) for name, texts in listed.items() if texts and name not in names]
        return kept

    def check(self, offered: Sequence[Knob]) -> None:
        """Refuse a space that leaves nothing to turn, before anything takes long.

        Raises:
            SpecError: It does.
        """
        listed = self._settings()
        allowed = [
            knob.name
            for knob in offered
            if listed.get(knob.name) != [] and (self.blocks or not knob.name.startswith("block "))
        ]
        if not allowed and not any(listed.values()):
            raise SpecError("the path space is empty: it allows no knob; allow blocks, size or another")

    def _settings(self) -> dict[str, list[str]]:
        """What the space says itself, by kind."""
        return {name: texts for name in _LISTED if (texts := getattr(self, name)) is not None}

    def effort(self, frames: int) -> Effort:
        """How hard to search with this many frames: about 40 of them judge each candidate."""
        return Effort(
            timing_rounds=self.timing_rounds,
            judge_every=max(1, frames // 40),
            recombined=self.recombined,
            floor=self.floor,
            keep=self.keep,
        )


def _knob(name: str, texts: Sequence[str]) -> Knob:
    return Knob(name, tuple(read_transform(name, text) for text in texts))


def resolve_targets(
    space: Space,
    factory: PathFactory,
    example: Tensor,
    timer: Cost | None = None,
    meter: Cost | None = None,
) -> Space:
    """A space whose targets have become settings: percentages to prune, ranks.

    Targets of pruning are shares of the first exact path's cost.

    Args:
        space: Its other settings stay.
        factory: Builds the paths.
        example: A frame `(1, C, H, W)` on which operations are counted.
        timer: Tells a path's latency, in any unit.
        meter: Tells a path's energy per frame, in any unit.

    Raises:
        PathRefusedError: A target that cannot be reached, or a model that cannot be pruned.
        SpecError: A target of a latency or an energy that nothing here measures.
    """
    space = _ranked(space, factory)
    if not any(Target.is_one(text) for text in space.prune or ()):
        return space
    base = factory.family.base(factory.stock)[0]
    factory = PathFactory(factory.stock, calibration=factory.derived.calibration)  # what is only tried is not kept
    costs: dict[str, Cost] = {"macs": lambda path: count_macs(path, example)}
    costs |= {name: cost for name, cost in (("latency", timer), ("energy", meter)) if cost is not None}

    def resolved(text: str) -> int:
        if not Target.is_one(text):
            return Prune.read(text).percent
        target = Target.read(text)
        return ratio_for(
            target, factory.build(base), lambda percent: factory.build(base.with_transform(Prune(percent))), costs
        )

    percents = sorted({resolved(text) for text in space.prune or ()})
    return space.model_copy(update={"prune": [f"{percent}%" for percent in percents]})


def _ranked(space: Space, factory: PathFactory) -> Space:
    """With ranks in place of targets of noise."""
    if not any(NoiseTarget.is_one(text) for text in space.lowrank or ()):
        return space
    anatomy = factory.family.anatomy(factory.stock)
    texts = [
        NoiseTarget.read(text).resolved(factory.stock, anatomy, factory.derived).value()
        if NoiseTarget.is_one(text)
        else text
        for text in space.lowrank or ()
    ]
    return space.model_copy(update={"lowrank": list(dict.fromkeys(texts))})
