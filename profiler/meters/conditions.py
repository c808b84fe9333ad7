"""At what temperature, clocks and limits a device runs: without them two measurements cannot be compared."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gearshift.errors import MeterUnavailableError
from gearshift.profiler.meters.amd import hip_board
from gearshift.profiler.meters.amd_conditions import amd_conditions
from gearshift.profiler.meters.amd_device import AmdDevice
from gearshift.profiler.meters.cpu_conditions import embedded_gpu_conditions, processor_conditions
from gearshift.profiler.meters.nvml_conditions import board_conditions
from gearshift.profiler.meters.nvml_device import NvmlDevice
from gearshift.profiler.meters.nvml_visible import cuda_board
from gearshift.profiler.meters.seams import Seams, torch_is_hip

if TYPE_CHECKING:
    import torch

Readers = Mapping[str, Callable[[], object]]
FIELDS = ("temperature_c", "clock_mhz", "memory_clock_mhz", "power_limit_w", "throttle_reasons")


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What a device runs at just now; None is unknown, and `missing` says why.

    Attributes:
        temperature_c: Of the GPU's core, or the hottest sensor of the processor.
        clock_mhz: Of the multiprocessors, or the mean over the processors that this process may use.
        memory_clock_mhz: Of the board's memory.
        power_limit_w: The limit that is enforced: of the board, or the packages' long-term limits added up.
        throttle_reasons: What holds the clocks down; () where nothing does. For a board as `nvidia-smi -q`
            names them, being idle left out. For a processor `passive_cooling` (now), and `core_thermal` or
            `package_thermal` where the kernel has counted such an event since this process first looked.
        missing: By field, why it is None.
    """

    temperature_c: float | None
    clock_mhz: float | None
    memory_clock_mhz: float | None
    power_limit_w: float | None
    throttle_reasons: tuple[str, ...] | None
    missing: Mapping[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Give its fields, ready for JSON."""
        return {name: getattr(self, name) for name in FIELDS} | {"missing": dict(self.missing)}


def read_conditions(device: "torch.device | None" = None, seams: Seams | None = None) -> Conditions:
    """Read what a device runs at just now. Never raises; it takes a few milliseconds and does not wake a GPU.

    Args:
        device: A CPU or CUDA device; None is the processor.
        seams: Where meters touch the machine.
    """
    places = seams or Seams()
    kind = "cpu" if device is None else device.type
    if kind == "cpu":
        return _gather(processor_conditions(places.root, places.powercap, places.read_text))
    if kind == "cuda":
        return _of_board(device, places)
    return _gather(_nothing(f"nothing here reads the state of a {kind} device"))


def _of_board(device: "torch.device | None", seams: Seams) -> Conditions:
    """Ask the vendor's library, and sysfs for what that does not tell."""
    beside = embedded_gpu_conditions(seams.root)
    try:
        if torch_is_hip(seams):
            return _gather(amd_conditions(AmdDevice(hip_board(device, seams), seams.amd)), beside)
        board = NvmlDevice(cuda_board(device, seams), seams.binding)
    except MeterUnavailableError as error:
        return _gather(_nothing(str(error)), beside)
    try:
        return _gather(board_conditions(board), beside)
    finally:
        board.close()


def _nothing(reason: str) -> Readers:
    def refuse() -> object:
        raise MeterUnavailableError(reason)

    return dict.fromkeys(FIELDS, refuse)


def _gather(*sources: Readers) -> Conditions:
    """Take each field from the first source that tells it."""
    found: dict[str, Any] = {}
    missing: dict[str, str] = {}
    for name in FIELDS:
        reasons = []
        for read in (source[name] for source in sources if name in source):
            try:
                found[name] = read()
                break
            except MeterUnavailableError as error:
                reasons.append(str(error))
        else:
            found[name], missing[name] = None, "; ".join(reasons)
    return Conditions(**found, missing=missing)
