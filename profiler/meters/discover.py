"""The meters we know, which of them work here, and how to open one.

A new meter is one file and one entry in `METERS`: how to open it for a device, how to list it, and which
kinds of device its energy belongs to. Automatic choice takes the first entry, in order, that belongs to the
device and answers a trial reading. A meter of another device is never taken instead: the processor's energy
says nothing about a GPU's.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from gearshift.errors import InputError, MeterUnavailableError
from gearshift.profiler.meters.base import BaseMeter
from gearshift.profiler.meters.cpu_time import CpuTimeEstimate
from gearshift.profiler.meters.null import NullMeter
from gearshift.profiler.meters.nvml import NvmlMeter
from gearshift.profiler.meters.nvml_device import count_boards, load_binding
from gearshift.profiler.meters.nvml_visible import cuda_board
from gearshift.profiler.meters.protocol import Meter, MeterStatus, status_of
from gearshift.profiler.meters.rapl import RaplMeter
from gearshift.profiler.meters.seams import Seams

if TYPE_CHECKING:
    import torch

Kind = Literal["auto", "nvml", "rapl", "cpu-time", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeterEntry:
    """One known meter.

    Attributes:
        serves: Kinds of device whose energy it reads.
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
        kind: `nvml`, `rapl`, `cpu-time`, `none`, or `auto`: the best that belongs to the device, and where
            there is none, one that measures nothing and says why.
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
    if device is not None and device.type != "cuda":
        raise MeterUnavailableError(
            f"NVML reads NVIDIA boards, not a {device.type} device: take auto, rapl or cpu-time"
        )
    return NvmlMeter(cuda_board(device, seams), binding=seams.binding, clock=seams.clock)


def _probe_nvml(seams: Seams) -> list[MeterStatus]:
    try:
        boards = count_boards(load_binding() if seams.binding is None else seams.binding)
    except MeterUnavailableError as error:
        return [MeterStatus(name="nvml", available=False, reason=str(error))]
    if boards == 0:
        return [MeterStatus(name="nvml", available=False, reason="NVML lists no board: check `nvidia-smi -L`")]
    open_board = functools.partial(NvmlMeter, binding=seams.binding, background=False)
    return [_trial(f"nvml:{index}", functools.partial(open_board, index)) for index in range(boards)]


def _trial(name: str, open_it: Callable[[], NvmlMeter | RaplMeter]) -> MeterStatus:
    try:
        with open_it() as meter:
            return status_of(meter)
    except MeterUnavailableError as error:
        return MeterStatus(name=name, available=False, reason=str(error))


def _open_rapl(device: "torch.device | None", seams: Seams) -> Meter:
    return RaplMeter(seams.powercap, clock=seams.clock, read_text=seams.read_text)


def _probe_rapl(seams: Seams) -> list[MeterStatus]:
    return [_trial("rapl", lambda: RaplMeter(seams.powercap, background=False, read_text=seams.read_text))]


def _open_cpu_time(device: "torch.device | None", seams: Seams) -> Meter:
    return CpuTimeEstimate(clock=seams.clock, cpu_clock=seams.cpu_clock, cpu=seams.cpu)


def _probe_cpu_time(seams: Seams) -> list[MeterStatus]:
    return [status_of(CpuTimeEstimate(cpu=seams.cpu))]


METERS: dict[str, MeterEntry] = {
    "nvml": MeterEntry(serves=("cuda",), open=_open_nvml, probe=_probe_nvml),
    "rapl": MeterEntry(serves=("cpu",), open=_open_rapl, probe=_probe_rapl),
    "cpu-time": MeterEntry(serves=("cpu",), open=_open_cpu_time, probe=_probe_cpu_time, is_estimate=True),
}
