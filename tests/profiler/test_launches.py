"""Launch gaps and graphs of a GPU, from scripted events and a scripted CUDA module, and on a real device."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.autograd import DeviceType  # type: ignore[attr-defined]

from gearshift.profiler import profile
from gearshift.profiler.cuda_graph import WARMUP_RUNS, as_graph
from gearshift.profiler.launches import Launches, kernel_spans_us, measure_launches, union_us

DEVICE = torch.device("cuda", 0)


def event(start: float, end: float, kind: Any = DeviceType.CUDA, **more: Any) -> SimpleNamespace:
    return SimpleNamespace(time_range=SimpleNamespace(start=start, end=end), device_type=kind, **more)


class FakeCuda:
    """What `torch.cuda` gives to a capture; `refuses` stands for an operation that no graph can hold."""

    def __init__(self, refuses: str | None = None) -> None:
        self.log: list[str] = []
        self._refuses = refuses

    @contextmanager
    def device(self, device: torch.device) -> Iterator[None]:
        self.log.append(f"device {device.index}")
        yield

    def Stream(self) -> Any:  # noqa: N802 - torch's own name
        return SimpleNamespace(wait_stream=lambda other: self.log.append("side waits"))

    def current_stream(self) -> Any:
        return SimpleNamespace(wait_stream=lambda other: self.log.append("main waits"))

    @contextmanager
    def stream(self, stream: Any) -> Iterator[None]:
        yield

    def CUDAGraph(self) -> Any:  # noqa: N802
        return SimpleNamespace(replay=lambda: self.log.append("replay"))

    @contextmanager
    def graph(self, graph: Any) -> Iterator[None]:
        self.log.append("capture")
        yield
        if self._refuses:
            raise RuntimeError(self._refuses)


def test_work_is_warmed_up_aside_captured_once_and_replayed() -> None:
    cuda = FakeCuda()
    replay, reason = as_graph(lambda: cuda.log.append("run"), DEVICE, cuda)
    assert reason is None
    assert replay is not None
    assert cuda.log == ["device 0", "side waits", *["run"] * WARMUP_RUNS, "main waits", "capture", "run"]
    replay()
    assert cuda.log[-1] == "replay"


def test_work_that_cannot_be_captured_says_why_in_one_line() -> None:
    replay, reason = as_graph(lambda: None, DEVICE, FakeCuda("operation not permitted\nwhen stream is capturing"))
    assert replay is None
    assert reason == "operation not permitted when stream is capturing"


def measured(events: list[Any], wall_ms: float, cuda: Any) -> Launches | None:
    ticks = iter(range(10_000))
    return measure_launches(
        lambda: None,
        DEVICE,
        wall_ms,
        synchronise=lambda: None,
        clock=lambda: next(ticks) * 1e-3,
        trace=lambda run: events,
        cuda=cuda,
    )


def test_gaps_are_what_the_kernels_leave_of_the_wall_time() -> None:
    events = [
        event(0, 9000, DeviceType.CPU),
        event(100, 1100),
        event(600, 1600),  # another stream, half at the same time
        event(5000, 5500),
        event(0, 9000, is_user_annotation=True),  # a span drawn on the device's line
    ]
    found = measured(events, 10.0, FakeCuda())
    assert found is not None
    assert found.kernels == 3
    assert found.busy_ms == pytest.approx(1.5 + 0.5)
    assert found.gap_ms == pytest.approx(8.0)
    assert found.gap_share == pytest.approx(0.8)
    assert found.is_launch_bound
    assert found.graph_ms == pytest.approx(1.0)  # one tick of the clock
    assert found.to_dict()["gap_ms"] == found.gap_ms


def test_a_graph_that_cannot_be_captured_leaves_none_with_the_reason() -> None:
    found = measured([event(0, 900)], 1.0, FakeCuda("waits for the host"))
    assert found is not None
    assert (found.graph_ms, found.graph_reason) == (None, "waits for the host")
    assert not found.is_launch_bound


def test_a_trace_without_kernels_is_no_measurement() -> None:
    assert measured([event(0, 9, DeviceType.CPU)], 1.0, FakeCuda()) is None


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=12))
def test_a_union_counts_every_moment_once(spans: list[tuple[int, int]]) -> None:
    moments = {moment for start, length in spans for moment in range(start, start + length)}
    assert union_us((start, start + length) for start, length in spans) == len(moments)


def test_only_the_devices_own_spans_are_kernels() -> None:
    events = [event(0, 1, DeviceType.CPU), event(2, 3), SimpleNamespace(name="no device at all")]
    assert kernel_spans_us(events) == [(2.0, 3.0)]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_small_model_on_a_real_device_waits_for_its_launches() -> None:
    model = nn.Sequential(*(nn.Linear(16, 16) for _ in range(50))).cuda()
    found = profile(model, torch.ones(1, 16, device="cuda"), repeats=3).launches
    assert found is not None
    assert found.kernels >= 50
    assert found.graph_ms is not None
    assert found.graph_ms < found.wall_ms
