"""What tests of several files use as it is: a clock that moves only when told to, and what a command leaves behind."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


class Clock:
    """Seconds that stand still until a test, or a sleeper, moves them."""

    def __init__(self, now_s: float = 0.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@dataclass(frozen=True)
class Outcome:
    """What a command left on the terminal."""

    code: int
    out: str
    err: str


Run = Callable[..., Outcome]
"""Runs a command as the shell does; the fixture `run`."""
Refused = Callable[..., str]
"""Runs a command that must be refused, and returns the one line of it; the fixture `refused`."""


def files_of(folder: Path) -> dict[str, bytes | None]:
    """Every file below a folder with its bytes, and every folder."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}
