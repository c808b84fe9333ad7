"""Meters: how much energy flowed, how that is known, over which seconds, and how far it may be off.

protocol       what a meter promises; Reading, Measurement, MeterStatus
window         a measuring window;  measure: the subtraction;  total: several meters together
base, poller   what meters share: names, locks, the sampling thread;  seams: where they touch the machine
counter        wraps and resets of a counter;  integral: energy from sampled power;  sampled: a meter of it
board          a board of any vendor: counter or power, by a trial reading
nvml           NVIDIA boards (nvml_device: the library; nvml_visible: which board CUDA's device N is)
amd            AMD boards, where amdsmi is installed (amd_device: the library)
rapl           Intel and AMD processors (rapl_domains: which counters add up)
ina3221        a Jetson by its power rails (ina3221_rails: which is the total);  jtop: by jetson-stats' service
battery        the whole machine, unplugged (power_supply: the batteries, and what is left in them)
cpu_time       an estimate for machines without a meter (cpu_power: the table; cpu_info: the processor)
null           measures nothing and says why
idle           idle power and net energy;  quiet_idle: only while nobody works;  kept_idle: kept with the device
period         how often a sensor really delivers
conditions     temperature, clocks, limits, throttling (nvml_, amd_ and cpu_conditions: where from)
discover       what works here, and opening one

Zeus 0.16, the field's measuring layer, was tried on the scripted NVML library of our tests. Its windows and its
device per vendor are our model, and it serves where power limits are to be set (zeusd, its limit optimisers). It
is not used here: a counter that goes back gives -1006 J, one that has not moved 0.0 J, a board lost in mid-run
ends the caller's run, and no energy says its source, its uncertainty or how many readings it rests on.
"""

from gearshift.profiler.meters.amd import AmdMeter
from gearshift.profiler.meters.base import BaseMeter
from gearshift.profiler.meters.battery import BatteryMeter
from gearshift.profiler.meters.conditions import Conditions, read_conditions
from gearshift.profiler.meters.cpu_time import CpuTimeEstimate
from gearshift.profiler.meters.discover import METERS, MeterEntry, discover, open_meter
from gearshift.profiler.meters.idle import IdlePower, measure_idle, net_energy_j
from gearshift.profiler.meters.ina3221 import Ina3221Meter
from gearshift.profiler.meters.jtop import JtopMeter
from gearshift.profiler.meters.kept_idle import KeptIdle, keep_idle, kept_idle
from gearshift.profiler.meters.null import NullMeter
from gearshift.profiler.meters.nvml import NvmlMeter
from gearshift.profiler.meters.nvml_visible import visible_board
from gearshift.profiler.meters.period import ObservedPeriod, observe_period
from gearshift.profiler.meters.power_supply import RemainingEnergy, remaining_wh
from gearshift.profiler.meters.protocol import (
    Measurement,
    Meter,
    MeterStatus,
    Precision,
    Reading,
    is_estimate,
)
from gearshift.profiler.meters.quiet_idle import measure_quiet_idle
from gearshift.profiler.meters.rapl import RaplMeter
from gearshift.profiler.meters.seams import Seams
from gearshift.profiler.meters.total import TotalEnergy, total_energy
from gearshift.profiler.meters.window import Window

__all__ = [
    "METERS",
    "AmdMeter",
    "BaseMeter",
    "BatteryMeter",
    "Conditions",
    "CpuTimeEstimate",
    "IdlePower",
    "Ina3221Meter",
    "JtopMeter",
    "KeptIdle",
    "Measurement",
    "Meter",
    "MeterEntry",
    "MeterStatus",
    "NullMeter",
    "NvmlMeter",
    "ObservedPeriod",
    "Precision",
    "RaplMeter",
    "Reading",
    "RemainingEnergy",
    "Seams",
    "TotalEnergy",
    "Window",
    "discover",
    "is_estimate",
    "keep_idle",
    "kept_idle",
    "measure_idle",
    "measure_quiet_idle",
    "net_energy_j",
    "observe_period",
    "open_meter",
    "read_conditions",
    "remaining_wh",
    "total_energy",
    "visible_board",
]
