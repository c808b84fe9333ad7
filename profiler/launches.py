"""How much of a GPU's time passes between kernels, and what a captured graph makes of it.

Eager models of small kernels are bound by their launches: the device waits for the host. Three times tell:
the module as it is, its kernels alone (their union on the device's own clock, from one traced pass), and the
same work replayed as a CUDA graph, which launches all kernels at once.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd import DeviceType  # type: ignore[attr-defined]  # public, but not listed

from gearshift.profiler.cuda_graph import as_graph
from gearshift.profiler.timing import Clock, Synchronise, measure_latency

GRAPH_RUNS = 20
LAUNCH_BOUND = 0.5
"""Above this share of gaps a module is called launch-bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launches:
    """Kernels and the gaps between them in one forward pass.

    Attributes:
        wall_ms: The module un-profiled, eager, end to end.
        kernels: Kernels and copies on the device.
        busy_ms: Time with at least one of them running.
        graph_ms: The same work replayed as a CUDA graph; None where it could not be captured.
        graph_reason: Why not.
        source: How this was obtained.
    """

    wall_ms: float
    kernels: int
    busy_ms: float
    graph_ms: float | None
    graph_reason: str | None
    source: str

    @property
    def gap_ms(self) -> float:
        """Time without any kernel running."""
        return max(0.0, self.wall_ms - self.busy_ms)

    @property
    def gap_share(self) -> float:
        """Share of the un-profiled time without any kernel running."""
        return self.gap_ms / self.wall_ms if self.wall_ms > 0 else 0.0

    @property
    def is_launch_bound(self) -> bool:
        """Whether the device waits for the host most of the time."""
        return self.gap_share > LAUNCH_BOUND

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {
            "wall_ms": self.wall_ms,
            "kernels": self.kernels,
            "busy_ms": self.busy_ms,
            "gap_ms": self.gap_ms,
            "gap_share": self.gap_share,
            "is_launch_bound": self.is_launch_bound,
            "graph_ms": self.graph_ms,
            "graph_reason": self.graph_reason,
            "source": self.source,
        }


def measure_launches(
    run: Callable[[], object],
    device: torch.device,
    wall_ms: float,
    *,
    synchronise: Synchronise,
    clock: Clock = time.perf_counter,
    trace: Callable[[Callable[[], object]], Iterable[Any]] | None = None,
    cuda: Any = torch.cuda,
) -> Launches | None:
    """Trace one pass and replay it as a graph; None where the trace shows no kernel.

    Args:
        run: One forward pass, without gradients.
        device: The CUDA device that it runs on.
        wall_ms: Its time un-profiled.
        synchronise: Waits for the device.
        clock: Seconds that never jump.
        trace: Runs a pass and gives the profiler's events.
        cuda: The `torch.cuda` module, or one that behaves like it.
    """
    spans_us = kernel_spans_us((trace or _traced)(run))
    if not spans_us:
        return None
    graph, reason = as_graph(run, device, cuda)
    graph_ms = None
    if graph is not None:
        graph_ms = measure_latency(graph, repeats=GRAPH_RUNS, synchronise=synchronise, clock=clock).median_ms
    return Launches(
        wall_ms=wall_ms,
        kernels=len(spans_us),
        busy_ms=union_us(spans_us) / 1e3,
        graph_ms=graph_ms,
        graph_reason=reason,
        source=(
            "measured: kernels' union on the device clock from one torch.profiler pass; gaps are un-profiled "
            f"wall time without it; graph replay median of {GRAPH_RUNS}"
        ),
    )


def kernel_spans_us(events: Iterable[Any]) -> list[tuple[float, float]]:
    """Read start and end of every kernel and copy on the device, in µs, from profiler events.

    The profiler also draws host spans on the device's line; those are annotations, not work.
    """
    return [
        (float(event.time_range.start), float(event.time_range.end))
        for event in events
        if getattr(event, "device_type", DeviceType.CPU) == DeviceType.CUDA
        and not getattr(event, "is_user_annotation", False)
    ]


def union_us(spans: Iterable[tuple[float, float]]) -> float:
    """Length of the union of intervals: work on several streams at once counts once."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def _traced(run: Callable[[], object]) -> Iterable[Any]:
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    ) as profiler:
        run()
        torch.cuda.synchronize()
    return profiler.events() or ()
