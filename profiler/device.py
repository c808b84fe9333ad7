"""Which device this is, when two are the same, and how to wait for it.

Time and energy figures hold for one kind of device only; `DeviceIdentity.key()` decides whether figures taken
elsewhere may be used here.
"""

import re
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Self

import torch

from gearshift.errors import InputError
from gearshift.profiler.meters.cpu_info import read_cpu
from gearshift.profiler.meters.nvml_device import driver_version

_GIB = 2**30
_KINDS = ("cpu", "cuda")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceIdentity:
    """A device as figures are labelled with it.

    Attributes:
        kind: `cpu` or `cuda`.
        name: Processor model or board name.
        threads: Hardware threads that this process may use.
        memory_bytes: Memory that this process may use (the container's limit where there is one) or that of
            the board; None where the system does not say.
        torch_version: Version of torch.
        driver: Version of the NVIDIA driver, or None.
    """

    kind: str
    name: str
    threads: int
    memory_bytes: int | None
    torch_version: str
    driver: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise InputError(f"device kind {self.kind!r} is not known: expected one of {', '.join(_KINDS)}")

    def describe(self) -> str:
        """Describe it in one line."""
        parts = [self.name, f"{self.threads} threads"]
        if self.memory_bytes is not None:
            parts.append(f"{self.memory_bytes / _GIB:.1f} GiB")
        parts.append(f"torch {self.torch_version}")
        if self.driver is not None:
            parts.append(f"driver {self.driver}")
        return f"{self.kind}: {', '.join(parts)}"

    def key(self) -> str:
        """Name the kind of device: equal keys mean that measured figures carry over.

        A processor is told by model and usable threads, a board by model and memory; versions of software are
        not part of it, nor is which of several equal boards it is.
        """
        slug = re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")
        if self.kind == "cpu":
            return f"cpu:{slug}:{self.threads}t"
        return f"cuda:{slug}:{round((self.memory_bytes or 0) / _GIB)}g"

    def to_dict(self) -> dict[str, Any]:
        """Give its fields, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Read what `to_dict` gave.

        Raises:
            InputError: A field is missing or unknown.
        """
        known = {field.name for field in fields(cls)}
        wrong = sorted((values.keys() ^ known) - {"driver"})
        if wrong:
            raise InputError(f"a device identity has the fields {', '.join(sorted(known))}; check {', '.join(wrong)}")
        return cls(**values)


def identify(
    device: torch.device | str = "cpu", *, root: Path = Path("/"), binding: Any | None = None
) -> DeviceIdentity:
    """Identify a device.

    Args:
        device: A CPU or CUDA device.
        root: Where `proc` and `sys` lie.
        binding: The `pynvml` module, for the driver's version; None imports it.

    Raises:
        InputError: The device is of another kind, or CUDA does not have it.
    """
    target = _checked(device)
    cpu = read_cpu(root)
    if target.type == "cpu":
        return DeviceIdentity(
            kind="cpu",
            name=cpu.model,
            threads=cpu.usable_threads,
            memory_bytes=_memory_bytes(root),
            torch_version=torch.__version__,
        )
    if not torch.cuda.is_available() or (target.index or 0) >= torch.cuda.device_count():
        raise InputError(f"device {target} is not there: torch sees {torch.cuda.device_count()} CUDA device(s)")
    properties = torch.cuda.get_device_properties(target)
    return DeviceIdentity(
        kind="cuda",
        name=properties.name,
        threads=cpu.usable_threads,
        memory_bytes=properties.total_memory,
        torch_version=torch.__version__,
        driver=driver_version(binding),
    )


def synchronise(device: torch.device | str) -> None:
    """Wait until the work queued on a device is done (a CPU has none); call it at both edges of a window."""
    target = _checked(device)
    if target.type == "cuda":
        torch.cuda.synchronize(target)


def _checked(device: torch.device | str) -> torch.device:
    try:
        target = torch.device(device)
    except RuntimeError as error:
        raise InputError(f"device {device!r} is not known to torch: expected cpu, cuda or cuda:N") from error
    if target.type not in _KINDS:
        raise InputError(f"device {str(target)!r} is not supported: expected one of {', '.join(_KINDS)}")
    return target


def _memory_bytes(root: Path) -> int | None:
    """The smaller of the machine's memory and the container's limit."""
    found = [
        _number(root / "sys/fs/cgroup/memory.max", r"(\d+)", 1),
        _number(root / "sys/fs/cgroup/memory/memory.limit_in_bytes", r"(\d+)", 1),
        _number(root / "proc/meminfo", r"MemTotal:\s*(\d+) kB", 1024),
    ]
    return min((number for number in found if number is not None), default=None)


def _number(path: Path, pattern: str, unit: int) -> int | None:
    try:
        match = re.match(pattern, path.read_text())
    except OSError:
        return None
    return None if match is None else int(match.group(1)) * unit
