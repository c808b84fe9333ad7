"""Which board CUDA's device N is: `CUDA_VISIBLE_DEVICES` hides and reorders boards, NVML ignores it."""

from gearshift.errors import MeterUnavailableError


def visible_board(cuda_index: int, visible: str | None) -> int | str:
    """Translate CUDA's device number to NVML's index or UUID.

    As CUDA does, the list ends at its first invalid entry, and a UUID may be a unique prefix. By number the
    two orders agree where `CUDA_DEVICE_ORDER=PCI_BUS_ID` or all boards are alike; prefer the UUID that torch
    reports.

    Args:
        cuda_index: N of `cuda:N`.
        visible: The value of `CUDA_VISIBLE_DEVICES`, or None where it is not set.

    Raises:
        MeterUnavailableError: CUDA has no such device, or it is a MIG slice, which has no meter of its own.
    """
    if visible is None:
        return cuda_index
    boards = _listed(visible)
    if not 0 <= cuda_index < len(boards):
        raise MeterUnavailableError(
            f"CUDA_VISIBLE_DEVICES={visible!r} shows {len(boards)} device(s), so there is no "
            f"cuda:{cuda_index}: choose another device or list this one"
        )
    board = boards[cuda_index]
    if isinstance(board, str) and board.startswith("MIG-"):
        raise MeterUnavailableError(
            f"cuda:{cuda_index} is the MIG slice {board}, which has no energy meter of its own: "
            "measure the whole board with NvmlMeter(index)"
        )
    return board


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
