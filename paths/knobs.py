"""A knob: one way in which the search may make a path cheaper, with its settings from mild to strong."""

from dataclasses import dataclass

from gearshift.paths.spec import PathSpec
from gearshift.paths.transforms import Skip, Transform


@dataclass(frozen=True, slots=True)
class Knob:
    """One degree of freedom of a family's path space."""

    name: str
    settings: tuple[Transform, ...]


def turn(spec: PathSpec, setting: Transform) -> PathSpec:
    """Apply a setting to a path; skipped blocks add up, every other kind is replaced."""
    already = spec.get("skip")
    if isinstance(setting, Skip) and isinstance(already, Skip):
        setting = Skip(tuple({*already.blocks, *setting.blocks}))
    return spec.with_transform(setting)
