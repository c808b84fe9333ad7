"""The meters we know, which of them work here, and how to open one.

A new meter is one file and one entry in `METERS`: how to open it for a device, how to list it, and which
kinds of device its energy belongs to. Automatic choice takes the first entry, in order, that belongs to the
device and answers a trial reading. A meter of another device is never taken instead: the processor's energy
says nothing about a GPU's. On a Jetson one input feeds both, so its rails serve either, after the meters that
see the device alone.

A battery is opened by name only, even where an estimate would be taken instead: its gauge needs minutes for
what a controller wants to know within seconds.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from gearshift.errors import InputError, MeterUnavailableError
from gearshift.profiler.meters.amd import AmdMeter, hip_board
from gearshift.profiler.meters.amd_device import list_boards
from gearshift.profiler.meters.amd_device import load_binding as load_amdsmi
from gearshift.profiler.meters.base import BaseMeter
from gearshift.profiler.meters.battery import BatteryMeter
from gearshift.profiler.meters.cpu_time import CpuTimeEstimate
from gearshift.profiler.meters.ina3221 import Ina3221Meter
from gearshift.profiler.meters.jtop import JtopMeter
from gearshift.profiler.meters.null import NullMeter
from gearshift.profiler.meters.nvml import NvmlMeter
from gearshift.profiler.meters.nvml_device import count_boards, load_binding
from gearshift.profiler.meters.nvml_visible import cuda_board
from gearshift.profiler.meters.protocol import Meter, MeterStatus, status_of
from gearshift.profiler.meters.rapl import RaplMeter
from gearshift.profiler.meters.seams import Seams, torch_is_hip

if TYPE_CHECKING:
    import torch

Kind = Literal["auto", "nvml", "amd", "rapl", "ina3221", "jtop", "battery", "cpu-time", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeterEntry:
    """One known meter.

    Attributes:
        serves: Kinds of device for which automatic choice may take it (torch on ROCm says `cuda` too).
        open: Opens it for a device; raises MeterUnavailableError.
        probe: Lists what there is of it.
        is_estimate: Whether a formula takes the place of a sensor.
    """

    serves: tuple[str, ...]
    open: "Callable[[torch.device | None, Seams], Meter]"
    probe: Callable[[Seams], list[MeterStatus]]
    is_estimate: bool = False


def discover(seams: Seams | None = None) -> list[MeterStatus]:
    """Try every known meter on this machine; nothing raises, what does not work says why and what helps."""
    return [status for entry in METERS.values() for status in entry.probe(seams or Seams())]


def open_meter(
    kind: Kind = "auto",
    *,
    device: "torch.device | None" = None,
    allow_estimate: bool = True,
    seams: Seams | None = None,
) -> Meter:
    """Open a meter. Close it, or hold it with `contextlib.closing`, to give back threads and handles.

    Args:
        kind: `nvml` or `amd` (a board), `rapl` (Intel and AMD processors), `ina3221` or `jtop` (a whole
            Jetson), `battery` (the whole machine, unplugged), `cpu-time` (an estimate), `none`, or `auto`: the
            best that belongs to the device, and where there is none, one that measures nothing and says why.
        device: Whose energy is wanted; None is the processor.
        allow_estimate: Whether `auto` may take an estimate where no meter works. Its source says
            `estimated:`.
        seams: Where meters touch the machine.

    Raises:
        InputError: `kind` is unknown.
        MeterUnavailableError: A meter asked for by name does not work here; the message says why and what
            helps.
    """
    places = seams or Seams()
    if kind == "none":
        return NullMeter(clock=places.clock)
    if kind == "auto":
        return _best("cpu" if device is None else device.type, device, allow_estimate, places)
    if kind not in METERS:
        raise InputError(f"unknown meter {kind!r}: choose one of auto, {', '.join(METERS)}, none")
    return METERS[kind].open(device, places)


def _best(device_kind: str, device: "torch.device | None", allow_estimate: bool, seams: Seams) -> Meter:
    refusals: list[str] = []
    for kind, entry in METERS.items():
        if device_kind not in entry.serves:
            continue
        if entry.is_estimate and not allow_estimate:
            refusals.append(f"{kind}: an estimate was not asked for")
            continue
        try:
            meter = entry.open(device, seams)
        except MeterUnavailableError as error:
            refusals.append(f"{kind}: {error}")
        else:
            return _noted(meter, refusals)
    return NullMeter("; ".join(refusals) or f"no meter reads the energy of a {device_kind} device", clock=seams.clock)


def _noted(meter: Meter, refusals: list[str]) -> Meter:
    if isinstance(meter, BaseMeter):
        meter.notes = (*meter.notes, *refusals)
    return meter


def _open_nvml(device: "torch.device | None", seams: Seams) -> Meter:
    _require_board(device, "NVML reads NVIDIA boards", seams, hip=False)
    return NvmlMeter(cuda_board(device, seams), binding=seams.binding, clock=seams.clock)


def _open_amd(device: "torch.device | None", seams: Seams) -> Meter:
    _require_board(device, "amdsmi reads AMD boards", seams, hip=True)
    return AmdMeter(hip_board(device, seams), binding=seams.amd, clock=seams.clock)


def _require_board(device: "torch.device | None", what: str, seams: Seams, *, hip: bool) -> None:
    """Refuse a device that is no board of this vendor; without a device the first board is meant."""
    if device is None:
        return
    if device.type != "cuda":
        raise MeterUnavailableError(f"{what}, not a {device.type} device: take auto, or a meter of that device")
    if torch_is_hip(seams) != hip:
        raise MeterUnavailableError(f"{what}, and torch here is built for {'CUDA' if hip else 'ROCm'}")


def _probe_nvml(seams: Seams) -> list[MeterStatus]:
    try:
        boards = count_boards(load_binding() if seams.binding is None else seams.binding)
    except MeterUnavailableError as error:
        return [MeterStatus(name="nvml", available=False, reason=str(error))]
    if boards == 0:
        return [MeterStatus(name="nvml", available=False, reason="NVML lists no board: check `nvidia-smi -L`")]
    open_board = functools.partial(NvmlMeter, binding=seams.binding, background=False)
    return [_trial(f"nvml:{index}", functools.partial(open_board, index)) for index in range(boards)]


def _probe_amd(seams: Seams) -> list[MeterStatus]:
    try:
        binding = load_amdsmi() if seams.amd is None else seams.amd
        boards = sorted(list_boards(binding))
    except MeterUnavailableError as error:
        return [MeterStatus(name="amd", available=False, reason=str(error))]
    if not boards:
        return [MeterStatus(name="amd", available=False, reason="amdsmi lists no board: check `amd-smi list`")]
    open_board = functools.partial(AmdMeter, binding=binding, background=False)
    return [_trial(f"amd:{index}", functools.partial(open_board, index)) for index in boards]


def _trial(name: str, open_it: Callable[[], BaseMeter]) -> MeterStatus:
    try:
        with open_it() as meter:
            return status_of(meter)
    except MeterUnavailableError as error:
        return MeterStatus(name=name, available=False, reason=str(error))


def _open_rapl(device: "torch.device | None", seams: Seams) -> Meter:
    return RaplMeter(seams.powercap, clock=seams.clock, read_text=seams.read_text)


def _probe_rapl(seams: Seams) -> list[MeterStatus]:
    return [_trial("rapl", lambda: RaplMeter(seams.powercap, background=False, read_text=seams.read_text))]


def _open_ina3221(device: "torch.device | None", seams: Seams) -> Meter:
    return Ina3221Meter(seams.root, clock=seams.clock)


def _probe_ina3221(seams: Seams) -> list[MeterStatus]:
    return [_trial("ina3221", lambda: Ina3221Meter(seams.root, background=False))]


def _open_jtop(device: "torch.device | None", seams: Seams) -> Meter:
    return JtopMeter(module=seams.jtop, root=seams.root, clock=seams.clock)


def _probe_jtop(seams: Seams) -> list[MeterStatus]:
    return [_trial("jtop", lambda: JtopMeter(module=seams.jtop, root=seams.root, background=False))]


def _open_battery(device: "torch.device | None", seams: Seams) -> Meter:
    return BatteryMeter(seams.root, clock=seams.clock)


def _probe_battery(seams: Seams) -> list[MeterStatus]:
    return [_trial("battery", lambda: BatteryMeter(seams.root, background=False))]


def _open_cpu_time(device: "torch.device | None", seams: Seams) -> Meter:
    return CpuTimeEstimate(clock=seams.clock, cpu_clock=seams.cpu_clock, cpu=seams.cpu)


def _probe_cpu_time(seams: Seams) -> list[MeterStatus]:
    return [status_of(CpuTimeEstimate(cpu=seams.cpu))]


METERS: dict[str, MeterEntry] = {
    "nvml": MeterEntry(serves=("cuda",), open=_open_nvml, probe=_probe_nvml),
    "amd": MeterEntry(serves=("cuda",), open=_open_amd, probe=_probe_amd),
    "rapl": MeterEntry(serves=("cpu",), open=_open_rapl, probe=_probe_rapl),
    "ina3221": MeterEntry(serves=("cpu", "cuda"), open=_open_ina3221, probe=_probe_ina3221),
    "jtop": MeterEntry(serves=("cpu", "cuda"), open=_open_jtop, probe=_probe_jtop),
    "battery": MeterEntry(serves=(), open=_open_battery, probe=_probe_battery),
    "cpu-time": MeterEntry(serves=("cpu",), open=_open_cpu_time, probe=_probe_cpu_time, is_estimate=True),
}
