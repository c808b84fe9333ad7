"""What the operating system says about the processor. Reads files under a root that a test can fill."""

import os
import platform
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuInfo:
    """The processor as this process sees it.

    Attributes:
        model: Its name, or that of the architecture where the system gives none (most ARM boards).
        sockets: Packages listed.
        threads: Hardware threads of the machine.
        usable_threads: Threads that this process may run on.
        is_virtual: Whether a hypervisor is announced; sockets and threads are then not those of the chip.
    """

    model: str
    sockets: int
    threads: int
    usable_threads: int
    is_virtual: bool


def read_cpu(root: Path = Path("/")) -> CpuInfo:
    """Describe the processor from `proc/cpuinfo` under `root`, else from the `platform` module."""
    entries = _entries(root / "proc" / "cpuinfo")
    models = [value for key, value in entries if key == "model name"]
    packages = {value for key, value in entries if key == "physical id"}
    flags = next((value for key, value in entries if key == "flags"), "")
    threads = sum(key == "processor" for key, _ in entries) or os.cpu_count() or 1
    return CpuInfo(
        model=models[0] if models and models[0] else platform.processor() or platform.machine() or "unknown",
        sockets=max(1, len(packages)),
        threads=threads,
        usable_threads=min(threads, usable_threads()),
        is_virtual="hypervisor" in flags.split(),
    )


def usable_threads() -> int:
    """Count the hardware threads that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _entries(path: Path) -> list[tuple[str, str]]:
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return []
    pairs = (line.partition(":") for line in lines)
    return [(key.strip(), value.strip()) for key, colon, value in pairs if colon]
