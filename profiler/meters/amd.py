"""Energy of an AMD board through amdsmi, where that package is installed. Best first:

    measured:amd-energy-counter   the board's own accumulator (about 15 µJ a unit)
    measured:amd-power-current    the socket's power of the moment, sampled and integrated (MI300 and newer)
    measured:amd-power-average    the same over the mean that other boards give

torch on ROCm calls these devices `cuda`; `HIP_VISIBLE_DEVICES` (else `CUDA_VISIBLE_DEVICES`) and
`ROCR_VISIBLE_DEVICES` say which board is which. The systematic error is taken as 5 %: our assumption.
"""

import time
from typing import TYPE_CHECKING, Any

from gearshift.profiler.meters.amd_device import AmdDevice
from gearshift.profiler.meters.base import Clock
from gearshift.profiler.meters.board import BoardMeter
from gearshift.profiler.meters.nvml_visible import visible_board
from gearshift.profiler.meters.seams import Seams

if TYPE_CHECKING:
    import torch


class AmdMeter(BoardMeter):
    """The energy of one board, all processes on it included.

    Args:
        index: Board as HIP counts them when none is hidden, or its UUID.
        binding: The `amdsmi` package or one that behaves like it; None imports it.
        clock: Monotonic seconds.
        background: Sample on a thread while windows are open. Without it call `sample` yourself.

    Raises:
        MeterUnavailableError: The package, the library, the board or every one of its sensors is missing.
    """

    board: AmdDevice

    def __init__(
        self,
        index: int | str = 0,
        *,
        binding: Any | None = None,
        clock: Clock = time.perf_counter,
        background: bool = True,
    ) -> None:
        board = AmdDevice(index, binding)
        super().__init__(board, kind="amd", boundary=_boundary(board), clock=clock, background=background)


def hip_board(device: "torch.device | None", seams: Seams) -> int | str:
    """Find the board behind a device of torch on ROCm.

    Raises:
        MeterUnavailableError: HIP has no such device.
    """
    index = 0 if device is None else device.index or 0
    variable = "HIP_VISIBLE_DEVICES" if "HIP_VISIBLE_DEVICES" in seams.environ else "CUDA_VISIBLE_DEVICES"
    board = visible_board(index, seams.environ.get(variable), variable)
    if isinstance(board, str):
        return board
    return visible_board(board, seams.environ.get("ROCR_VISIBLE_DEVICES"), "ROCR_VISIBLE_DEVICES")


def _boundary(board: AmdDevice) -> str:
    dies = "; both dies of its package" if board.has_two_dies else ""
    return (
        f"GPU board only: {board.name} (index {board.index}) with its memory, all processes on it{dies}; host excluded "
        "(CPU, DRAM, power supply, fans of the case, other boards)"
    )
