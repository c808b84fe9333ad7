"""Energy of a Jetson from its own power monitors: of the whole board where they watch its input.

The monitor holds the last conversion (a few milliseconds with the drivers' defaults of averaging and
conversion time); we sample it every `PERIOD_S` and integrate. Its shunts and amplifier are taken to be within
5 %: our assumption; NVIDIA states no figure for the boards.
"""

import time
from collections.abc import Hashable
from pathlib import Path

from gearshift.errors import MeterUnavailableError
from gearshift.profiler.meters.base import Clock
from gearshift.profiler.meters.ina3221_rails import Board, Rail, find_rails
from gearshift.profiler.meters.protocol import Precision
from gearshift.profiler.meters.sampled import PowerSample, SampledPowerMeter

PERIOD_S = 0.05
RELATIVE_ERROR = 0.05
MAX_GAP_S = 1.0


class Ina3221Meter(SampledPowerMeter):
    """The energy of the board, processor, GPU and memory included; `window.parts` gives the rails within it.

    Where no input rail can be read it is the energy of the other rails alone, and `boundary` says so.

    Args:
        root: Where `sys` lies.
        clock: Monotonic seconds.
        background: Sample on a thread while windows are open. Without it call `sample` yourself.

    Raises:
        MeterUnavailableError: There are no rails, or none can be read.
    """

    def __init__(self, root: Path = Path("/"), *, clock: Clock = time.perf_counter, background: bool = True) -> None:
        self.board = find_rails(root)
        super().__init__(
            name="ina3221",
            source="measured:ina3221",
            boundary=_boundary(self.board),
            precision=Precision(
                resolution_s=PERIOD_S, relative=RELATIVE_ERROR, what="sampling period", period_s=PERIOD_S
            ),
            max_gap_s=MAX_GAP_S,
            clock=clock,
            period_s=PERIOD_S if background else None,
            notes=self.board.notes,
        )
        self.read()

    def sensor_value(self) -> Hashable:
        """Power of the rails that make up the total."""
        return tuple(rail.read_w() for rail in self.board.total)

    def _sample_w(self) -> PowerSample:
        rails_w = {rail.label: rail.read_w() for rail in self.board.total}
        parts_w = {rail.label: _if_read(rail) for rail in self.board.parts}
        return PowerSample(power_w=sum(rails_w.values()), parts_w={**rails_w, **parts_w})


def _boundary(board: Board) -> str:
    total = " + ".join(rail.label for rail in board.total)
    if board.is_whole:
        return f"whole board as seen by {total}, all processes; excluded: what is fed before it, power supply"
    rails = "rail" if len(board.total) == 1 else "rails"
    return (
        f"only the {rails} {total}, not the whole board, all processes; "
        "excluded: everything on other rails, power supply"
    )


def _if_read(rail: Rail) -> float | None:
    try:
        return rail.read_w()
    except MeterUnavailableError:
        return None
