"""A knob: one way in which the search may make a path cheaper, with its settings from mild to strong."""

from dataclasses import dataclass

from gearshift.paths.anatomy import Anatomy
from gearshift.paths.spec import PathSpec
from gearshift.paths.transforms import InputSize, Skip, Transform

SIZES_PERCENT = (90, 80, 70, 60, 50, 40, 33)


@dataclass(frozen=True, slots=True)
class Knob:
    """One degree of freedom of a family's path space."""

    name: str
    settings: tuple[Transform, ...]


def turn(spec: PathSpec, setting: Transform) -> PathSpec:
    """Apply a setting to a path; skipped blocks add up, most other kinds are replaced."""
    return spec.with_transform(setting.onto(spec.get(setting.name)))


def skip_knobs(anatomy: Anatomy) -> list[Knob]:
    """One knob for each block, or for each group of blocks that are skipped together."""
    knobs = []
    for stage, blocks in enumerate(anatomy.stages):
        for first in range(0, len(blocks) - anatomy.together + 1, anatomy.together):
            group = tuple((stage, block) for block in range(first, first + anatomy.together))
            knobs.append(Knob(f"block {stage}.{first}", (Skip(group),)))
    return knobs


def size_knob() -> Knob:
    """Smaller frames."""
    return Knob("size", tuple(InputSize(percent=percent) for percent in SIZES_PERCENT))
