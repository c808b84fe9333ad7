"""Meters: how much energy flowed, how that is known, over which seconds, and how far it may be off.

protocol       what a meter promises; Reading, Measurement, MeterStatus
window         a measuring window;  measure: the subtraction;  total: several meters together
base, poller   what meters share: names, locks, the sampling thread
nvml           NVIDIA boards (nvml_device: the library; nvml_visible: CUDA_VISIBLE_DEVICES)
rapl           Intel and AMD processors (rapl_domains: which counters add up)
cpu_time       an estimate for machines without a meter (cpu_power: the table; cpu_info: the processor)
null           measures nothing and says why
counter        wraps and resets of a counter;  integral: energy from sampled power
idle           idle power and net energy
discover       what works here, and opening one
"""

from gearshift.profiler.meters.base import BaseMeter
from gearshift.profiler.meters.conditions import Conditions, read_conditions
from gearshift.profiler.meters.cpu_time import CpuTimeEstimate
from gearshift.profiler.meters.discover import METERS, MeterEntry, discover, open_meter
from gearshift.profiler.meters.idle import IdlePower, measure_idle, net_energy_j
from gearshift.profiler.meters.null import NullMeter
from gearshift.profiler.meters.nvml import NvmlMeter
from gearshift.profiler.meters.nvml_visible import visible_board
from gearshift.profiler.meters.protocol import (
    Measurement,
    Meter,
    MeterStatus,
    Precision,
    Reading,
    is_estimate,
)
from gearshift.profiler.meters.rapl import RaplMeter
from gearshift.profiler.meters.seams import Seams
from gearshift.profiler.meters.total import TotalEnergy, total_energy
from gearshift.profiler.meters.window import Window

__all__ = [
    "METERS",
    "BaseMeter",
    "Conditions",
    "CpuTimeEstimate",
    "IdlePower",
    "Measurement",
    "Meter",
    "MeterEntry",
    "MeterStatus",
    "NullMeter",
    "NvmlMeter",
    "Precision",
    "RaplMeter",
    "Reading",
    "Seams",
    "TotalEnergy",
    "Window",
    "discover",
    "is_estimate",
    "measure_idle",
    "net_energy_j",
    "open_meter",
    "read_conditions",
    "total_energy",
    "visible_board",
]
