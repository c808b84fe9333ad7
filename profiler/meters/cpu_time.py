"""An estimate for machines without any meter: processor time times specified power. Never a measurement.

    energy = idle power x seconds  +  active power per thread x processor seconds

with, for `usable` threads of `thread` watts each (codecarbon's table, or 4 W per thread; see `cpu_power`):

    idle power              = 10 % x usable x thread      (codecarbon's floor of 10 %, in its `cpu_load` mode)
    active power per thread = 90 % x thread

so that all threads busy give the specified power. Processor seconds are those of this process, all its
threads, and those of its child processes that have ended and been waited for; running children (such as data
loaders) and other processes are not seen. Clock rate, vector units and memory do not enter: energy per second
of processor time is taken as constant, so the estimate ranks paths by processor time and nothing else. The
half-width of 50 % is our assumption.
"""

import os
import time
from collections.abc import Callable, Mapping

from gearshift.errors import InputError
from gearshift.profiler.meters.base import BaseMeter, Clock
from gearshift.profiler.meters.cpu_info import CpuInfo, read_cpu
from gearshift.profiler.meters.cpu_power import load_table, thread_power
from gearshift.profiler.meters.protocol import Precision, Reading

IDLE_SHARE = 0.1
RELATIVE_ERROR = 0.5


def process_cpu_s() -> float:
    """Processor seconds, user and system, of this process and of its children that were waited for."""
    children = os.times()
    return time.process_time() + children.children_user + children.children_system


class CpuTimeEstimate(BaseMeter):
    """Estimated energy of the processor on behalf of this process.

    Args:
        clock: Monotonic seconds.
        cpu_clock: Processor seconds so far.
        cpu: The processor; None reads it from the system.
        table: Specified power in watts by model name; None reads codecarbon's.
        idle_share: Share of the specified power that flows without any work.
        notes: Why no meter was taken.
    """

    def __init__(
        self,
        *,
        clock: Clock = time.perf_counter,
        cpu_clock: Callable[[], float] = process_cpu_s,
        cpu: CpuInfo | None = None,
        table: Mapping[str, float] | None = None,
        idle_share: float = IDLE_SHARE,
        notes: tuple[str, ...] = (),
    ) -> None:
        if not 0 <= idle_share <= 1:
            raise InputError(f"idle_share is a share between 0 and 1, got {idle_share!r}")
        seen = read_cpu() if cpu is None else cpu
        power = thread_power(seen, load_table() if table is None else table)
        full_w = power.thread_w * seen.usable_threads
        self.idle_w = idle_share * full_w
        self.active_thread_w = (1 - idle_share) * power.thread_w
        usable = f"{seen.usable_threads} usable threads = {full_w:.4g} W"
        self.basis = f"{power.basis} x {usable}; idle {idle_share:.0%} of that"
        self._cpu_clock = cpu_clock
        super().__init__(
            name="cpu-time",
            source="estimated:cpu-time",
            boundary=(
                "estimate, processor only: idle share of the usable threads plus processor time of this "
                "process and its ended children; excluded: memory, GPUs, other processes, disks, power supply"
            ),
            precision=Precision(resolution_s=0.0, relative=RELATIVE_ERROR),
            clock=clock,
            notes=(self.basis, *notes),
        )
        self._start = (clock(), cpu_clock())

    def _read(self) -> Reading:
        cpu_s = self._cpu_clock()
        now_s = self._clock()
        idle_j = self.idle_w * (now_s - self._start[0])
        active_j = self.active_thread_w * (cpu_s - self._start[1])
        return Reading(time_s=now_s, energy_j=idle_j + active_j, parts={"idle": idle_j, "active": active_j})
