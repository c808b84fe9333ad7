"""What does this model cost here, and where?

Counting looks at shapes and may run on the meta device; profiling also measures.

    count              one forward pass in MACs, element-wise FLOPs and bytes   counter.py
    profile            the same, joined call by call with measured time         profile.py
    Roofline           every type of work against what this device can do       roofline.py, peaks.py
    Launches           a GPU's gaps between kernels, and the same work as a graph  launches.py, cuda_graph.py
    measure_*          latency, throughput, candidates in turn                  timing.py
    CallRecorder       every operator call of any piece of code, backward too   recorder.py
    register_operator  teach the counter an operator          operators.py, macs.py, flops.py, traffic.py
    meta_copy          the structure of a module without its memory             structure.py

Below these: `calls` (one call, sums of calls), `rows` (tables), `module_path` (who is calling), `origins` (whose
gradient it is), `stopwatch` (times of single calls), `preserve` and `run` (leave everything as found), `zeros`
(weights that are zero and still cost), `flops` (element-wise work), `replay` (calls made again without the model).
Imported on their own:

    gearshift.profiler.meters           power and energy
    gearshift.profiler.operator_energy  energy of every type of work, by replaying it under a meter
    gearshift.profiler.survey           statistics over whole libraries of models
    gearshift.profiler.device           which device this is; device_store: figures that are kept by device
"""

from gearshift.profiler.calls import Call, Totals
from gearshift.profiler.counter import Count, count
from gearshift.profiler.inputs import InputSpec
from gearshift.profiler.launches import Launches
from gearshift.profiler.macs import OperatorType
from gearshift.profiler.operators import Traffic, register_operator
from gearshift.profiler.peaks import Peaks, measure_peaks, peaks_of
from gearshift.profiler.profile import Profile, profile
from gearshift.profiler.recorder import CallRecorder
from gearshift.profiler.roofline import RankCorrelation, Roofline, RooflineRow
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
    "Launches",
    "OperatorType",
    "Peaks",
    "Profile",
    "RankCorrelation",
    "Ratio",
    "Roofline",
    "RooflineRow",
    "Row",
    "Stopwatch",
    "Throughput",
    "Timing",
    "Totals",
    "Traffic",
    "count",
    "measure_in_turn",
    "measure_latency",
    "measure_peaks",
    "measure_throughput",
    "meta_copy",
    "peaks_of",
    "profile",
    "ratio_of_medians",
    "register_operator",
]
