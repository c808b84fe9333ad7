"""What does this model cost here, and where?

Counting looks at shapes and may run on the meta device; profiling also measures.

    count              one forward pass in multiply-accumulates and bytes       counter.py
    profile            the same, joined call by call with measured time         profile.py
    measure_*          latency, throughput, candidates in turn                  timing.py
    CallRecorder       every operator call of any piece of code, backward too   recorder.py
    register_operator  teach the counter an operator          operators.py, macs.py, traffic.py
    meta_copy          the structure of a module without its memory             structure.py

Below these: `calls` (one call, sums of calls), `rows` (tables), `module_path` (who is calling), `stopwatch`
(times of single calls), `preserve` and `run` (leave everything as found), `zeros` (weights that are zero and
still cost). Power and energy are measured in `gearshift.profiler.meters`, devices are described in
`gearshift.profiler.device`; both are imported on their own.
"""

from gearshift.profiler.calls import Call, Totals
from gearshift.profiler.counter import Count, count
from gearshift.profiler.inputs import InputSpec
from gearshift.profiler.macs import OperatorType
from gearshift.profiler.operators import Traffic, register_operator
from gearshift.profiler.profile import Profile, profile
from gearshift.profiler.recorder import CallRecorder
from gearshift.profiler.rows import Row
from gearshift.profiler.stopwatch import ClockStopwatch, KernelStopwatch, Stopwatch
from gearshift.profiler.structure import meta_copy
from gearshift.profiler.timing import (
    Ratio,
    Throughput,
    Timing,
    measure_in_turn,
    measure_latency,
    measure_throughput,
    ratio_of_medians,
)

__all__ = [
    "Call",
    "CallRecorder",
    "ClockStopwatch",
    "Count",
    "InputSpec",
    "KernelStopwatch",
    "OperatorType",
    "Profile",
    "Ratio",
    "Row",
    "Stopwatch",
    "Throughput",
    "Timing",
    "Totals",
    "Traffic",
    "count",
    "measure_in_turn",
    "measure_latency",
    "measure_throughput",
    "meta_copy",
    "profile",
    "ratio_of_medians",
    "register_operator",
]
