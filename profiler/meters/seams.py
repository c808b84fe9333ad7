"""Where meters touch the machine, so that a test can put a machine of its own in its place."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from gearshift.profiler.meters.base import Clock
from gearshift.profiler.meters.cpu_info import CpuInfo
from gearshift.profiler.meters.cpu_time import process_cpu_s
from gearshift.profiler.meters.rapl import POWERCAP
from gearshift.profiler.meters.rapl_domains import ReadText

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Seams:
    """Where meters touch the machine; a test fills these.

    Attributes:
        binding: The `pynvml` module or one that behaves like it; None imports it.
        amd: The same for `amdsmi`.
        jtop: The same for `jtop`.
        is_hip: Whether torch is built for AMD boards; None asks torch.
        powercap: Root of the RAPL tree.
        root: Where `sys` and `proc` lie, for everything else that is read from files.
        read_text: Reads one file of the RAPL tree.
        clock: Monotonic seconds.
        cpu_clock: Processor seconds of this process.
        cpu: The processor; None reads it from the system.
        environ: Environment variables (`CUDA_VISIBLE_DEVICES`).
        uuid_of: UUID of a CUDA device as torch reports it, or None where it does not.
    """

    binding: ModuleType | Any | None = None
    amd: ModuleType | Any | None = None
    jtop: ModuleType | Any | None = None
    is_hip: bool | None = None
    powercap: Path = POWERCAP
    root: Path = Path("/")
    read_text: ReadText = Path.read_text
    clock: Clock = time.perf_counter
    cpu_clock: Callable[[], float] = process_cpu_s
    cpu: CpuInfo | None = None
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    uuid_of: "Callable[[torch.device], str | None] | None" = None


def torch_is_hip(seams: Seams) -> bool:
    """Whether torch's `cuda` devices are AMD boards."""
    if seams.is_hip is not None:
        return seams.is_hip
    import torch

    return torch.version.hip is not None
