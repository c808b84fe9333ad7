"""Short names for paths: `stock`, `lossless`, then P1, P2, ... from the fastest to the slowest."""

from collections.abc import Iterator
from dataclasses import dataclass

from gearshift.runtime.report.document import Path, RunDocument
from gearshift.runtime.report.words import shortened

ROLES = ("stock", "lossless")
LONGEST_ID = 34


@dataclass(frozen=True, slots=True, kw_only=True)
class Name:
    """What a path is called here.

    Attributes:
        short: Unique in the document.
        id: As the bundle calls it.
        colour: Cheap paths blue, dear ones green, alike in light and in the dark.
    """

    short: str
    id: str
    colour: str

    @property
    def long(self) -> str:
        """Short name and id; where both are the same, once."""
        return self.id if self.short == self.id else f"{self.short} {shortened(self.id, LONGEST_ID)}"


def names(document: RunDocument) -> dict[str, Name]:
    """Names of all paths that a document speaks of, from the fastest to the slowest."""
    measured = sorted(document.frontier, key=lambda path: path.latency.median_ms)
    ids = list(dict.fromkeys([*(path.path for path in measured), *_mentioned(document)]))
    shorts = _shorts(ids, measured)
    return {
        path: Name(short=shorts[path], id=path, colour=_colour(index / max(len(ids) - 1, 1)))
        for index, path in enumerate(ids)
    }


def _mentioned(document: RunDocument) -> Iterator[str]:
    yield from document.trace.paths
    for run in (document.run, *document.baselines.values()):
        yield from (use.path for use in run.paths)
    yield from (run.path for run in document.baselines.values())
    for row in document.other_budgets:
        yield from (mix.path for mix in row.paths)


def _shorts(ids: list[str], measured: list[Path]) -> dict[str, str]:
    roles: dict[str, str] = {}
    for role in ROLES:
        held = [path.path for path in measured if role in path.roles and path.path not in roles]
        if held:
            roles[held[0]] = role
    others = [path for path in ids if path not in roles]
    return roles | {path: path if path in ROLES else f"P{place}" for place, path in enumerate(others, start=1)}


_SCALE = ((59, 111, 196), (38, 148, 160), (76, 175, 100))


def _colour(place: float) -> str:
    """Of a scale whose ends and middle stand out from white and from near-black."""
    scaled = place * (len(_SCALE) - 1)
    left = min(int(scaled), len(_SCALE) - 2)
    part = scaled - left
    red, green, blue = (round(a + (b - a) * part) for a, b in zip(_SCALE[left], _SCALE[left + 1], strict=True))
    return f"#{red:02x}{green:02x}{blue:02x}"
