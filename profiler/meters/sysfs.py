"""Small files of the kernel: what is missing or is no number reads as None, or as empty text."""

from pathlib import Path


def number(path: Path) -> int | None:
    """The whole number in a file, or None."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def text(path: Path) -> str:
    """The text of a file without surrounding space, or "" where it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
