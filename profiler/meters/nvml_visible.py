"""Which board CUDA's device N is: `CUDA_VISIBLE_DEVICES` hides and reorders boards, NVML ignores it."""

from typing import TYPE_CHECKING

from gearshift.errors import MeterUnavailableError
from gearshift.profiler.meters.seams import Seams

if TYPE_CHECKING:
    import torch


def cuda_board(device: "torch.device | None", seams: Seams) -> int | str:
    """Find the board behind a CUDA device: by the UUID that torch reports, else by `CUDA_VISIBLE_DEVICES`.

    Raises:
        MeterUnavailableError: CUDA has no such device.
    """
    uuid = None if device is None else (seams.uuid_of or _torch_uuid)(device)
    listed = visible_board((device.index or 0) if device is not None else 0, seams.environ.get("CUDA_VISIBLE_DEVICES"))
    return uuid or listed


def _torch_uuid(device: "torch.device") -> str | None:
    import torch

    if (device.index or 0) >= torch.cuda.device_count():
        return None
    uuid = getattr(torch.cuda.get_device_properties(device), "uuid", None)
    return None if uuid is None else f"GPU-{str(uuid).removeprefix('GPU-')}"


def visible_board(cuda_index: int, visible: str | None, variable: str = "CUDA_VISIBLE_DEVICES") -> int | str:
    """Translate CUDA's device number to NVML's index or UUID (of a board, or of a MIG slice).

    As CUDA does, the list ends at its first invalid entry, and a UUID may be a unique prefix. By number the
    two orders agree where `CUDA_DEVICE_ORDER=PCI_BUS_ID` or all boards are alike; prefer the UUID that torch
    reports.

    Args:
        cuda_index: N of `cuda:N`.
        visible: The value of the variable, or None where it is not set.
        variable: Its name, for the message.

    Raises:
        MeterUnavailableError: CUDA has no such device.
    """
    if visible is None:
        return cuda_index
    boards = _listed(visible)
    if not 0 <= cuda_index < len(boards):
        raise MeterUnavailableError(
            f"{variable}={visible!r} shows {len(boards)} device(s), so there is no "
            f"cuda:{cuda_index}: choose another device or list this one"
        )
    return boards[cuda_index]


def _listed(visible: str) -> list[int | str]:
    boards: list[int | str] = []
    for entry in (part.strip() for part in visible.split(",")):
        if entry.isdecimal():
            boards.append(int(entry))
        elif entry.startswith(("GPU-", "MIG-")):
            boards.append(entry)
        else:
            break
    return boards
