"""The year of an architecture, from the papers that the library's own documentation cites.

arXiv's identifiers begin with year and month. What is nearest to the architecture counts:

    own documentation       the docstring of the function or class that makes it cites a paper
    named by a title        a paper in its file's docstring opens with its name: "`EVA-02: A Visual ..." and eva02_...
    only year of its file   the papers that its file's docstring cites are all of one year
    first paper of its file they are of several years; then the first of them, which is the family's, may be older

Papers that weights refer to (`paper_ids` in timm) are left out: those are often about training, years later.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

OWN, TITLE, ONLY, FIRST = (
    "own documentation",
    "named by a title",
    "only year of its file",
    "first paper of its file",
)
_ID = r"(?:arxiv\.org/(?:abs|pdf)/|arXiv:\s?)(\d{2})(\d{2})\.\d{4,5}"
_PAPER = re.compile(_ID, re.IGNORECASE)
_TITLED = re.compile(rf"`([^`:]+)(?::[^`]*)?`\s*-\s*https?://{_ID}", re.IGNORECASE)
_NEXT_VERSION = re.compile(r"v\d")
_SHORTEST_NAME = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Year:
    """A year and where it was found."""

    year: int
    found_in: str


def year_of(name: str, own: str | None, file: str | None) -> Year | None:
    """Find the year of an architecture.

    Args:
        name: Of the architecture.
        own: The docstring of what makes it.
        file: The docstring of its file.
    """
    if cited := _years(own):
        return Year(year=min(cited), found_in=OWN)
    if named := _named(name, file):
        return Year(year=named, found_in=TITLE)
    cited = _years(file)
    if not cited:
        return None
    return Year(year=min(cited), found_in=ONLY if len(set(cited)) == 1 else FIRST)


def _years(text: str | None) -> list[int]:
    return [_century(year) for year, _ in _PAPER.findall(text or "")]


def _named(name: str, text: str | None) -> int | None:
    """The year of the paper whose title opens with the longest part of the architecture's name."""
    found = [(len(opening), -year) for opening, year in _titles(text) if _opens(opening, name)]
    return -max(found)[1] if found else None


def _titles(text: str | None) -> Iterator[tuple[str, int]]:
    for title, year, _ in _TITLED.findall(text or ""):
        yield re.sub(r"[^a-z0-9]", "", title.lower()), _century(year)


def _opens(opening: str, name: str) -> bool:
    """Whether a title's opening begins a part of a name; `mobilevit` does not name `mobilevitv2`."""
    if len(opening) < _SHORTEST_NAME:
        return False
    rests = [part.removeprefix(opening) for part in name.lower().split("_") if part.startswith(opening)]
    return any(_NEXT_VERSION.match(rest) is None for rest in rests)


def _century(year: str) -> int:
    """Identifiers of this form began in 2007."""
    return 2000 + int(year)
