"""Which energy counters the kernel's powercap tree offers, and which of them add up.

The tree has zones `intel-rapl:0`, `intel-rapl:0:2`, ... (AMD processors appear under the same name), flat as
in `/sys/class/powercap` or nested as in `/sys/devices/virtual/powercap`. A package holds its cores and the
uncore, so those are never added to it; memory (`dram`) is beside it; `psys` is the whole platform and holds
the packages. One package may be offered twice, by model-specific registers and by memory-mapped ones: it is
taken once, by its name.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gearshift.errors import MeterUnavailableError
from gearshift.units import watts_from_microwatts

# No processor of one socket draws more for long; the largest servers are specified at 500 W.
CEILING_W = 1000.0
# Some processors show one package's counter once for each die; such mirrors agree to within two reads'
# distance.
MIRROR_UJ = 1_000_000

_ZONE = re.compile(r"^intel-rapl(-[a-z]+)?(:\d+)*$")
_SUMMED = ("package", "dram")
# The registers' own interface knows more domains than the memory-mapped one.
_PROVIDERS = ("", "-tpmi", "-mmio")

ReadText = Callable[[Path], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """One counter that can be read.

    Attributes:
        label: `package-0`, `package-0/dram`, `psys`: unique after providers were merged.
        path: Its folder.
        span_uj: Where the counter starts over, or None where the kernel does not say.
        limit_w: The largest power that the kernel names for it, or None.
    """

    label: str
    path: Path
    span_uj: int | None
    limit_w: float | None

    @property
    def energy_path(self) -> Path:
        """The counter, in µJ."""
        return self.path / "energy_uj"

    @property
    def is_platform(self) -> bool:
        """Whether it holds the packages."""
        return _is_platform(self.label)

    @property
    def is_memory(self) -> bool:
        """Whether it is memory beside a package."""
        return _is_memory(self.label)

    @property
    def ceiling_w(self) -> float:
        """Readings that imply more than this are nonsense; at least twice the largest limit named."""
        return max(CEILING_W, 2 * (self.limit_w or 0.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """What a powercap tree offers.

    Attributes:
        domains: Counters that can be read, each label once.
        denied: Counters that exist, with no other way to the same label, but may not be read; by label.
        notes: What else was found wrong.
    """

    domains: tuple[Domain, ...]
    denied: Mapping[str, Path]
    notes: tuple[str, ...]


def scan(root: Path, read_text: ReadText = Path.read_text) -> Scan:
    """Take a trial reading of every package, memory and platform counter under `root`."""
    raw_uj: dict[str, int] = {}
    domains: dict[str, Domain] = {}
    denied: dict[str, Path] = {}
    notes: list[str] = []
    for zone in sorted(_zones(root), key=_preference):
        label = _label(zone, read_text)
        if label is None:
            continue
        raw = _trial(zone / "energy_uj", read_text)
        if isinstance(raw, Exception):
            notes.append(_complaint(zone / "energy_uj", raw, label))
            if isinstance(raw, PermissionError):
                denied.setdefault(label, zone / "energy_uj")
        elif label not in domains:
            domains[label] = _domain(zone, label, read_text)
            raw_uj[label] = raw
    mirrors = _mirrors(raw_uj)
    notes += [f"{label} mirrors another die's counter and is not added" for label in sorted(mirrors)]
    return Scan(
        domains=tuple(domains[label] for label in sorted(domains) if label not in mirrors),
        denied={label: denied[label] for label in sorted(denied) if label not in domains},
        notes=tuple(notes),
    )


def require_package(root: Path, found: Scan) -> None:
    """Refuse a tree without a readable package.

    Raises:
        MeterUnavailableError: With the path, what is missing, and the command that grants it.
    """
    if any(_is_package(domain.label) for domain in found.domains):
        return
    if any(map(_is_package, found.denied)):
        raise MeterUnavailableError(
            f"permission denied on {', '.join(map(str, found.denied.values()))}: grant reading, until the "
            f"next boot, with `{grant_command(found.denied)}`"
        )
    if others := [*(domain.label for domain in found.domains), *found.denied]:
        raise MeterUnavailableError(_only_others(root, others, found.notes))
    raise MeterUnavailableError(
        f"no RAPL domains under {root}"
        + (f" ({'; '.join(found.notes)})" if found.notes else "")
        + ": virtual machines and most ARM boards have none; on bare metal load the driver with "
        "`sudo modprobe intel_rapl_msr`, in a container mount /sys/class/powercap"
    )


def _only_others(root: Path, labels: Sequence[str], notes: tuple[str, ...]) -> str:
    """Say what is there instead of a package; granting it would not help."""
    named = " and ".join(f"{label} ({'the whole platform' if _is_platform(label) else 'memory'})" for label in labels)
    return (
        f"no RAPL package (the processor itself) can be read under {root}, there is only {named}, which is not taken "
        "in its place"
        + (f" ({'; '.join(notes)})" if notes else "")
        + ": on bare metal load the packages' driver with `sudo modprobe intel_rapl_msr`, in a container mount all of "
        "/sys/class/powercap; or use another meter, or a latency budget, which needs none"
    )


def grant_command(denied: Mapping[str, Path]) -> str:
    """Give the command that lets every user read these counters until the next boot."""
    return f"sudo chmod a+r {' '.join(map(str, denied.values()))}"


def package_limits_w(root: Path, read_text: ReadText = Path.read_text) -> dict[str, float]:
    """Read the long-term power limit of each package: of several providers' limits the lowest one holds.

    Limits may be read by everyone, also where the counters may not.
    """
    limits_w: dict[str, float] = {}
    for zone in _zones(root):
        label = _label(zone, read_text)
        if label is None or not label.startswith("package") or "/" in label:
            continue
        limit_uw = _long_term_limit_uw(zone, read_text)
        if limit_uw:
            limits_w[label] = min(limits_w.get(label, math.inf), watts_from_microwatts(limit_uw))
    return limits_w


def _long_term_limit_uw(zone: Path, read_text: ReadText) -> int | None:
    for index in range(3):
        if _name(zone, read_text, f"constraint_{index}_name") == "long_term":
            return _number(zone / f"constraint_{index}_power_limit_uw", read_text)
    return None


def _trial(path: Path, read_text: ReadText) -> int | OSError | ValueError:
    try:
        return int(read_text(path))
    except (OSError, ValueError) as error:
        return error


def _complaint(path: Path, error: Exception, label: str) -> str:
    what = "permission denied" if isinstance(error, PermissionError) else f"no number ({error})"
    return f"{path} ({label}): {what}"


def _zones(root: Path) -> Iterator[Path]:
    """Walk the zones, each once, whether they lie flat, nested or (as in sysfs) both."""
    seen: set[str] = set()
    pending = [root]
    while pending:
        try:
            entries = sorted(pending.pop().iterdir())
        except OSError:
            continue
        for entry in entries:
            if _ZONE.match(entry.name) and entry.name not in seen and entry.is_dir():
                seen.add(entry.name)
                pending.append(entry)
                if ":" in entry.name:
                    yield entry


def _preference(zone: Path) -> tuple[int, str]:
    provider = zone.name.partition(":")[0].removeprefix("intel-rapl")
    return (_PROVIDERS.index(provider) if provider in _PROVIDERS else len(_PROVIDERS), zone.name)


def _label(zone: Path, read_text: ReadText) -> str | None:
    """Name a zone that counts; None for one that is part of another or unknown."""
    name = _name(zone, read_text)
    if name.startswith(("package", "psys")):
        return name
    if not name.startswith("dram"):
        return None
    parent = zone.name.rpartition(":")[0]
    if ":" not in parent:
        return name
    sibling = zone.parent if zone.parent.name == parent else zone.with_name(parent)
    return f"{_name(sibling, read_text) or parent}/{name}"


def _is_platform(label: str) -> bool:
    return label.startswith("psys")


def _is_memory(label: str) -> bool:
    # `dram`, `dram-1`, `package-0/dram`
    return label.rpartition("/")[2].startswith("dram")


def _is_package(label: str) -> bool:
    return not _is_platform(label) and not _is_memory(label)


def _name(zone: Path, read_text: ReadText, file: str = "name") -> str:
    try:
        return read_text(zone / file).strip().lower()
    except OSError:
        return ""


def _domain(zone: Path, label: str, read_text: ReadText) -> Domain:
    limits_uw = [_number(zone / f"constraint_{index}_{kind}_uw", read_text) for index in range(3) for kind in _LIMITS]
    named_uw = [limit for limit in limits_uw if limit]
    return Domain(
        label=label,
        path=zone,
        span_uj=_number(zone / "max_energy_range_uj", read_text) or None,
        limit_w=watts_from_microwatts(max(named_uw)) if named_uw else None,
    )


_LIMITS = ("max_power", "power_limit")


def _number(path: Path, read_text: ReadText) -> int | None:
    try:
        return int(read_text(path))
    except (OSError, ValueError):
        return None


def _mirrors(raw_uj: dict[str, int]) -> set[str]:
    """Find dies whose counter is that of an earlier die of the same package."""
    mirrors: set[str] = set()
    dies = sorted(label for label in raw_uj if "-die-" in label and "/" not in label)
    for position, label in enumerate(dies):
        package = label.partition("-die-")[0]
        for earlier in dies[:position]:
            close = abs(raw_uj[label] - raw_uj[earlier]) <= MIRROR_UJ < raw_uj[label]
            if close and earlier.partition("-die-")[0] == package:
                mirrors.add(label)
    return mirrors
