"""Capture a piece of GPU work once and replay it without launching its kernels one by one."""

from collections.abc import Callable
from typing import Any

import torch

WARMUP_RUNS = 3


def as_graph(
    run: Callable[[], object], device: torch.device, cuda: Any = torch.cuda
) -> tuple[Callable[[], None] | None, str | None]:
    """Capture `run` as a CUDA graph.

    Work that waits for the device, allocates on the host or depends on values cannot be captured.

    Args:
        run: Queues the work; its inputs must stay where they are.
        device: A CUDA device.
        cuda: The `torch.cuda` module, or one that behaves like it.

    Returns:
        What replays the work, and None; or None, and why it could not be captured in one line.
    """
    try:
        with cuda.device(device), torch.no_grad():
            side = cuda.Stream()
            side.wait_stream(cuda.current_stream())
            with cuda.stream(side):  # libraries set themselves up in their first runs, which no graph may hold
                for _ in range(WARMUP_RUNS):
                    run()
            cuda.current_stream().wait_stream(side)
            graph = cuda.CUDAGraph()
            with cuda.graph(graph):
                run()
    except RuntimeError as error:  # torch names every refusal of a capture so
        return None, " ".join(str(error).split())[:200] or type(error).__name__

    def replay() -> None:
        graph.replay()

    return replay, None
