"""How much power a processor is specified for, from the table that codecarbon ships.

Only the file is read: no tracker is started, nothing is logged, no network is used, and codecarbon is not
imported. Where we differ from codecarbon: a name must contain every word of the table's name (its fuzzy match
may take a near relative), and on a virtual machine the table is not used, since the share of the chip that we
see is not known.
"""

import csv
import functools
import importlib.util
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gearshift.profiler.meters.cpu_info import CpuInfo

# codecarbon.core.cpu.DEFAULT_POWER_PER_CORE, which it applies to each thread of a processor that it does not
# know.
UNKNOWN_THREAD_W = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadPower:
    """Specified power per hardware thread, and how we came by it."""

    thread_w: float
    basis: str


def thread_power(cpu: CpuInfo, table: Mapping[str, float]) -> ThreadPower:
    """Divide the chip's specified power by its threads, or take the constant for an unknown chip.

    Args:
        cpu: The processor.
        table: Specified power in watts by model name.
    """
    found = None if cpu.is_virtual else find_model(cpu.model, table)
    if found is None:
        why = "virtual machine, its share of the chip is unknown" if cpu.is_virtual else "not in codecarbon's table"
        return ThreadPower(
            thread_w=UNKNOWN_THREAD_W, basis=f"cpu {cpu.model!r} ({why}): {UNKNOWN_THREAD_W:g} W per thread"
        )
    name, chip_w = found
    return ThreadPower(
        thread_w=chip_w * cpu.sockets / cpu.threads,
        basis=f"cpu {name!r}: {chip_w:g} W x {cpu.sockets} socket(s) / {cpu.threads} threads",
    )


def find_model(model: str, table: Mapping[str, float]) -> tuple[str, float] | None:
    """Find the table's most specific name whose words all occur in `model`; None where several disagree."""
    words = _words(model)
    names = [name for name in table if _is_specific(_words(name)) and _words(name) <= words]
    longest = max((len(_words(name)) for name in names), default=0)
    best = [name for name in names if len(_words(name)) == longest]
    if not best or len({table[name] for name in best}) > 1:
        return None
    return best[0], table[best[0]]


@functools.cache
def load_table() -> Mapping[str, float]:
    """Read codecarbon's table; empty where it is not installed or has moved."""
    path = table_path()
    if path is None:
        return {}
    with path.open(encoding="utf-8", newline="") as file:
        rows = [(row.get("Name") or "", row.get("TDP") or "") for row in csv.DictReader(file)]
    return {name: float(watts) for name, watts in rows if re.fullmatch(r"\d+(\.\d+)?", watts)}


def table_path() -> Path | None:
    """Locate the table without importing codecarbon."""
    spec = importlib.util.find_spec("codecarbon")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / "data" / "hardware" / "cpu_power.csv"
        if path.is_file():
            return path
    return None


@functools.lru_cache(maxsize=16384)
def _words(name: str) -> frozenset[str]:
    """Split a name, without trade marks and clock rate."""
    plain = re.sub(r"\((r|tm|c)\)|@.*", " ", name.lower())
    return frozenset(re.findall(r"[a-z0-9][a-z0-9.+-]*", plain))


def _is_specific(words: frozenset[str]) -> bool:
    """Whether a name can stand for one model: bare numbers and family names cannot."""
    return any(re.search(r"\d", word) for word in words) and any(re.search(r"[a-z]", word) for word in words)
