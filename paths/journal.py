"""What a search has measured, appended to a file at once, so that an interrupted search can go on."""

import json
import logging
from dataclasses import dataclass
from pathlib import Path

from gearshift.errors import SpecError
from gearshift.paths.spec import PathSpec

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A path as the search sees it.

    Attributes:
        spec: The path.
        quality: On the search's frames.
        latency_ratio: Least latency divided by the base's, measured in turn.
    """

    spec: PathSpec
    quality: float
    latency_ratio: float


class Journal:
    """Measurements of a search by path id, all relative to one base path.

    Args:
        file: Where to, one JSON object a line; None keeps them in memory only.
        fingerprint: What the measurements depend on (weights, device, frames); others are passed over.
    """

    def __init__(self, file: Path | None, fingerprint: str) -> None:
        self._file = file
        self._fingerprint = fingerprint
        self._known: dict[str, Candidate] = {}
        self.base: PathSpec | None = None
        if file is not None and file.exists():
            self._load(file)

    def set_base(self, base: PathSpec) -> None:
        """Say what latencies are relative to; measurements relative to another base are dropped."""
        if base != self.base:
            self._known.clear()
            self.base = base
            self._append({"base": base.id})

    def get(self, spec: PathSpec) -> Candidate | None:
        """Return what is known of a path."""
        return self._known.get(spec.id)

    def add(self, candidate: Candidate) -> None:
        """Remember a measurement."""
        self._known[candidate.spec.id] = candidate
        self._append(
            {
                "path": candidate.spec.id,
                "quality": candidate.quality,
                "latency_ratio": candidate.latency_ratio,
            }
        )

    def _append(self, row: dict[str, str | float]) -> None:
        if self._file is not None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with self._file.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps({"fingerprint": self._fingerprint, **row}) + "\n")

    def _load(self, file: Path) -> None:
        text = file.read_text(encoding="utf-8", errors="replace")
        for line in text.splitlines():
            try:
                self._take(json.loads(line))
            except (ValueError, TypeError, KeyError, SpecError):  # the line that a kill cut short
                log.info("passing over an unreadable line of %s", file)
        if text and not text.endswith("\n"):  # what is added next needs a line of its own
            with file.open("a", encoding="utf-8") as stream:
                stream.write("\n")
        log.info("resuming a search: %d measurements known", len(self._known))

    def _take(self, row: dict[str, str | float]) -> None:
        if row["fingerprint"] != self._fingerprint:
            return
        if "base" in row:
            self.base = PathSpec.parse(str(row["base"]))
            self._known.clear()
            return
        candidate = Candidate(
            spec=PathSpec.parse(str(row["path"])),
            quality=float(row["quality"]),
            latency_ratio=float(row["latency_ratio"]),
        )
        self._known[candidate.spec.id] = candidate
