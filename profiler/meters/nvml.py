"""Energy of an NVIDIA board through NVML. Best first:

    measured:nvml-energy-counter   the board's own counter, in mJ (Volta and newer)
    measured:nvml-power-average    one-second mean power, sampled every 0.1 s and integrated by the trapezoid rule
    measured:nvml-power-instant    the same over power that the board calls instantaneous (about 25 ms)
    measured:nvml-power-usage      the same over the older reading, taken for a one-second mean: so from Ampere on

The systematic error is taken as 5 %, NVIDIA's own figure for older boards; on A100 and H100 the sensor sees a
quarter of the time ("Part-time Power Measurements", SC'24).
"""

import time
from types import ModuleType
from typing import Any

from gearshift.profiler.meters.base import Clock
from gearshift.profiler.meters.board import BoardMeter
from gearshift.profiler.meters.nvml_device import NvmlDevice


class NvmlMeter(BoardMeter):
    """The energy of one board, all processes on it and all its MIG slices included.

    Args:
        index: Board in the order of `nvidia-smi`, its UUID, or that of one of its MIG slices (see `visible_board`
            for the one that CUDA uses).
        binding: The `pynvml` module or one that behaves like it; None imports it.
        clock: Monotonic seconds.
        background: Sample on a thread while windows are open. Without it call `sample` yourself.

    Raises:
        MeterUnavailableError: The library, the driver, the board or every one of its sensors is missing.
    """

    board: NvmlDevice

    def __init__(
        self,
        index: int | str = 0,
        *,
        binding: ModuleType | Any | None = None,
        clock: Clock = time.perf_counter,
        background: bool = True,
    ) -> None:
        board = NvmlDevice(index, binding)
        super().__init__(
            board, kind="nvml", boundary=_boundary(board), notes=_notes(board), clock=clock, background=background
        )


def _boundary(board: NvmlDevice) -> str:
    text = (
        f"GPU board only: {board.name} (index {board.index}, {board.uuid}) with its memory, all processes on "
        "it; host excluded (CPU, DRAM, power supply, fans of the case, other boards)"
    )
    return text + "; the board is split into MIG slices, all of them included" if board.is_partitioned else text


def _notes(board: NvmlDevice) -> tuple[str, ...]:
    notes = []
    if board.slice is not None:
        notes.append(f"{board.slice} is a MIG slice without a meter of its own: this is the energy of its whole board")
    if hasattr(board.binding, "__path__"):
        notes.append("the retired package `pynvml` hides nvidia-ml-py: pip uninstall pynvml; pip install nvidia-ml-py")
    return tuple(notes)
