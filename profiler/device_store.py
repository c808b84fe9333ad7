"""Figures that are measured once for a device and kept: its peaks, its idle power.

One small JSON file per device and kind of figure, in the user's cache folder
(`$GEARSHIFT_CACHE`, else `$XDG_CACHE_HOME/gearshift`, else `~/.cache/gearshift`). A file that is damaged, or
of another device, is as good as absent: what it held is measured again.
"""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gearshift.errors import OutputError
from gearshift.files import write_json
from gearshift.profiler.device import DeviceIdentity


class DeviceStore:
    """Figures kept by device.

    Args:
        folder: Where they lie; None takes the user's cache folder.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = cache_folder() if folder is None else folder

    def load(self, device: DeviceIdentity, kind: str) -> dict[str, Any] | None:
        """Return the figures of one kind for a device, or None where none are kept."""
        try:
            document = json.loads(self.path(device, kind).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        if not isinstance(document, dict) or document.get("device_key") != device.key():
            return None
        figures = document.get("figures")
        return figures if isinstance(figures, dict) else None

    def save(self, device: DeviceIdentity, kind: str, figures: Mapping[str, Any]) -> str | None:
        """Keep figures; where the folder cannot be written, return why (what was measured is still good)."""
        document = {"device_key": device.key(), "device": device.to_dict(), "figures": dict(figures)}
        try:
            write_json(self.path(device, kind), document)
        except OutputError as error:
            return f"not kept for next time: {error}"
        return None

    def path(self, device: DeviceIdentity, kind: str) -> Path:
        """The file of one kind of figures for a device."""
        return self.folder / f"{_slug(device.key())}.{_slug(kind)}.json"


def cache_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Where figures of devices are kept for this user."""
    if chosen := environ.get("GEARSHIFT_CACHE"):
        return Path(chosen)
    base = environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "gearshift"


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
