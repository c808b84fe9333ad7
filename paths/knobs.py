"""A knob: one way in which the search may make a path cheaper, with its settings from mild to strong."""

from dataclasses import dataclass

from gearshift.paths.anatomy import Anatomy
from gearshift.paths.spec import PathSpec
from gearshift.paths.transforms import Heads, InputSize, Mlp, Skip, Transform

SIZES_PERCENT = (90, 80, 70, 60, 50, 40, 33)
SHARES_PERCENT = (90, 80, 70, 60, 50, 40, 30)


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


def heads_knob(anatomy: Anatomy) -> Knob:
    """Fewer attention heads; settings that would cut as many as a milder one are left out."""
    total, layers = sum(site.heads for site in anatomy.attentions), len(anatomy.attentions)
    settings: dict[int, Transform] = {}
    for percent in SHARES_PERCENT:
        kept = max(layers, -(-total * percent // 100))
        if kept < total:
            settings.setdefault(kept, Heads(percent))
    return Knob("heads", tuple(settings.values()))


def mlp_knob(anatomy: Anatomy) -> Knob:
    """Fewer hidden channels; without a setting where there are no feed-forward parts."""
    return Knob("mlp", tuple(Mlp(percent) for percent in SHARES_PERCENT if anatomy.mlps))


def size_knob() -> Knob:
    """Smaller frames."""
    return Knob("size", tuple(InputSize(percent=percent) for percent in SIZES_PERCENT))
