"""Read a bench's JSON file; what is not one is refused with one line."""

import json
from pathlib import Path
from typing import Any

from gearshift.errors import InputError
from gearshift.runtime.report.document import checked


def read_run(path: Path) -> dict[str, Any]:
    """Read and check what `runtime bench --json` wrote.

    Raises:
        InputError: The file is absent, truncated, foreign or of a newer schema, or lacks what a report needs.
    """
    document = _parse(path, _text(path))
    checked(document, str(path))
    assert isinstance(document, dict)  # checked
    return document


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise InputError(f'cannot read {path}: {reason}; give a file that "runtime bench --json" wrote') from error


def _parse(path: Path, text: str) -> Any:
    """Parse strict JSON: `NaN` and `Infinity` are not in it."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        cut = "; the file ends too early" if error.pos >= len(text.rstrip()) - 1 else ""
        raise InputError(f"{path} is not JSON: {error.msg} at {where}{cut}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON: {error}") from error


def _refuse(constant: str) -> None:
    raise ValueError(f"it holds {constant}, which strict JSON does not know")
