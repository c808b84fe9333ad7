"""Files that are whole or absent: atomic writes, strict JSON, checksums.

Every file that Gearshift leaves behind goes through here, so that an interrupted run never leaves half a file
and no report holds `NaN`, which other parsers reject.
"""

import hashlib
import json
import math
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gearshift.errors import OutputError


def write_atomic(path: Path, write: Callable[[Path], None]) -> None:
    """Call `write` with a temporary sibling of `path`, then move it into place.

    Raises:
        OutputError: The folder cannot be written; `path` is untouched.
    """
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(handle)
        temporary = Path(name)
        write(temporary)
        temporary.chmod(0o644)
        temporary.replace(path)
    except OSError as error:
        raise OutputError(
            f"cannot write {path}: {error.strerror or error}; choose a folder that you may write to"
        ) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


def check_writable(path: Path) -> None:
    """Refuse a file that could not be written, before long work and without a trace.

    Raises:
        OutputError: It is a folder, or no file can be made there.
    """
    if path.is_dir():
        raise OutputError(f"cannot write {path}: it is a folder; give the name of a file")
    above = next(folder for folder in path.absolute().parents if os.path.exists(folder))
    if not above.is_dir():
        raise OutputError(f"cannot write {path}: {above} is a file, not a folder; choose another folder")
    if not os.access(above, os.W_OK | os.X_OK):
        raise OutputError(f"cannot write {path}: {above} is read-only; choose a folder that you may write to")


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path` in UTF-8, wholly or not at all."""
    write_atomic(path, lambda temporary: _write_text(temporary, text))


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def to_json(value: Any) -> str:
    """Serialise `value` as JSON that any parser reads: not-a-number and infinities become null."""
    return json.dumps(_finite(value), indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def write_json(path: Path, value: Any) -> None:
    """Write `value` as strict JSON, wholly or not at all."""
    write_text(path, to_json(value))


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
