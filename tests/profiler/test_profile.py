"""Profiles: counts joined with time, call by call."""

import json
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.autograd import DeviceType

from gearshift.errors import InputError
from gearshift.profiler import OperatorType, Timing, count, profile
from gearshift.profiler.stopwatch import ClockStopwatch, kernel_seconds


class FakeClock:
    """Advances while work is done, and by 1 ms whenever it is read: recording is not free."""

    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        self.now_s += 0.001
        return self.now_s


CLOCK = FakeClock()


@torch.library.custom_op("gearshift_test::work", mutates_args=())
def work(x: torch.Tensor, takes_s: float) -> torch.Tensor:
    CLOCK.now_s += takes_s
    return x.clone()


class Worker(nn.Module):
    def __init__(self, takes_s):
        super().__init__()
        self.takes_s = takes_s

    def forward(self, x):
        return work(x, self.takes_s)


def mlp():
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))


def test_times_go_to_the_calls_that_took_them():
    model = nn.Sequential(Worker(0.010), Worker(0.030))
    result = profile(model, torch.ones(1), clock=CLOCK, repeats=3, warmup=1)

    assert result.wall_ms == result.time_ms == pytest.approx(10 + 30 + 1)
    assert result.own_ms == pytest.approx((10 + 1) + (30 + 1))
    assert result.profiled_ms == pytest.approx(10 + 30 + 2 * 2 + 1)
    assert result.times_ms == pytest.approx([41 * 11 / 42, 41 * 31 / 42])
    assert [row.time_share for row in result.modules(depth=1)] == pytest.approx([1, 11 / 42, 31 / 42])
    assert "scaled by 0.976 to sum to wall_ms" in result.source


def test_many_small_operators_are_scaled_to_the_wall_time():
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(500)))
    result = profile(model, torch.ones(1, 4), repeats=3, warmup=1)

    assert sum(result.times_ms) == pytest.approx(result.wall_ms, rel=0.02)
    assert sum(row.time_ms for row in result.table()) == pytest.approx(result.wall_ms, rel=0.02)
    assert result.modules(depth=0)[0].time_ms == pytest.approx(result.wall_ms, rel=0.02)
    assert result.profiled_ms > result.wall_ms
    assert result.overhead_ratio == result.profiled_ms / result.wall_ms


def test_a_profile_holds_the_count():
    model, x = mlp(), torch.ones(3, 8)
    result, counted = profile(model, x, repeats=1, warmup=0), count(model, x)

    assert result.count == counted
    assert (result.macs, result.flops, result.params) == (counted.macs, counted.flops, counted.params)
    assert len(result.times_ms) == len(counted.calls)
    assert {row.name: row.macs for row in result.table()} == {row.name: row.macs for row in counted.table()}


def test_rows_hold_shares():
    rows = {row.name: row for row in profile(mlp(), torch.ones(3, 8), repeats=2, warmup=1).modules(1)}

    assert list(rows) == ["", "0", "1", "2"]
    assert rows["0"].macs_share == pytest.approx(8 * 16 / (8 * 16 + 16 * 4))
    assert rows["0"].params == 8 * 16 + 16
    assert rows["1"].time_ms > 0
    assert sum(rows[name].time_share for name in ("0", "1", "2")) == pytest.approx(1)


def test_reading_a_profile_changes_nothing():
    result = profile(mlp(), torch.ones(3, 8), repeats=2, warmup=0)
    reports = [json.dumps(result.to_dict(), allow_nan=False) for _ in range(3)]

    assert reports[0] == reports[1] == reports[2]
    report = json.loads(reports[0])
    assert report["inputs"][0]["shape"] == [3, 8]
    assert (report["device"], report["dtype"], report["params"]) == ("cpu", "float32", 212)
    assert report["source"].startswith("wall_ms measured:wall-clock on cpu")
    assert {"wall_ms", "profiled_ms", "overhead_ratio", "own_ms"} <= set(report)
    assert all({"time_ms", "time_share"} <= set(row) for row in report["by_type"])


def test_uncounted_operators_show_their_share_of_time():
    model = nn.Sequential(nn.Linear(4, 4), Worker(0.030))
    result = profile(model, torch.ones(1, 4), clock=CLOCK, repeats=2, warmup=1)

    (row,) = result.uncounted()
    assert row.name == "gearshift_test::work"
    assert row.time_share > 0.5
    assert result.to_dict()["uncounted_time"][0]["calls"] == result.count.uncounted[row.name] == 1


def test_no_pair_of_runs_begins_after_the_time_allowed():
    """The warm-up takes about 12 ms of this clock, each pair about 26."""
    model = nn.Sequential(Worker(0.010))
    assert [
        profile(model, torch.ones(1), clock=CLOCK, repeats=9, warmup=1, max_seconds=seconds).timing.n
        for seconds in (1e-6, 0.05, 0.08, 9.0)
    ] == [1, 2, 3, 9]


def test_kernel_times_stay_as_they_are_and_the_rest_is_gaps():
    """A device that waits for its launches: 40 ms of the wall time, of which kernels fill 12."""

    class Kernels:
        is_device_time = True
        method = "scripted kernel times"

        def __enter__(self):
            return self

        def __exit__(self, *exception):
            return None

        def begin(self):
            pass

        def end(self):
            pass

        def seconds(self):
            return [0.004, 0.008]

    model = nn.Sequential(Worker(0.010), Worker(0.030))
    result = profile(model, torch.ones(1), clock=CLOCK, repeats=2, warmup=0, stopwatch=Kernels)

    assert result.times_ms == pytest.approx([4, 8])
    assert result.own_share == pytest.approx(12 / result.wall_ms)
    assert result.gap_ms == pytest.approx(result.wall_ms - 12)
    assert "the rest of wall_ms is gap_ms" in result.source
    assert result.launches is None


def test_fused_kernels_share_their_time_by_macs():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    result = profile(layer, torch.ones(1, 4, 8), repeats=1, warmup=0)

    rows = {row.name: row for row in result.table()}
    assert rows["linear"].time_ms / rows["attention"].time_ms == pytest.approx(
        rows["linear"].macs / rows["attention"].macs
    )
    assert sum(row.time_ms for row in rows.values()) == pytest.approx(result.wall_ms)


def test_a_compiled_module_is_timed_compiled_and_counted_eager():
    runs = []

    def backend(graph, inputs):
        def run(*args):
            runs.append(1)
            return graph.forward(*args)

        return run

    model = mlp().eval()
    compiled = torch.compile(model, backend=backend)
    result = profile(compiled, torch.ones(3, 8), repeats=3, warmup=1)

    assert len(runs) == 4  # the un-profiled runs
    assert result.macs == 3 * (8 * 16 + 16 * 4)
    assert "wall time is the compiled module's" in result.source


def test_counting_does_not_slow_a_compiled_module():
    compiled = torch.compile(mlp().eval(), backend="eager")
    x = torch.ones(3, 8)

    def fastest():
        def once():
            started_s = time.perf_counter()
            compiled(x)
            return time.perf_counter() - started_s

        return min(once() for _ in range(50))

    compiled(x)
    before_s = fastest()
    count(compiled, x)
    assert fastest() < 1.3 * before_s + 1e-4


def test_models_that_cache_are_timed_warm():
    class Caching(nn.Module):
        cached = None

        def forward(self, x):
            if self.cached is None:
                builds.append(1)
                self.cached = x.new_ones(3)
            return x * self.cached

    builds = []
    model = Caching()
    profile(model, torch.ones(3), repeats=4, warmup=1)

    assert len(builds) == 1
    assert model.cached is None


def test_a_device_is_waited_for_around_every_timed_call():
    log = []
    x = torch.ones(1)

    def clock():
        log.append("clock")
        return float(len(log))

    profile(nn.ReLU(), x, repeats=1, warmup=0, clock=clock, synchronise=lambda: log.append("sync"))

    timed = ["sync", "clock", "sync", "clock"]
    assert log == [*timed, "sync", "clock", *timed, "sync", "clock"]


def test_the_meta_device_and_no_repeats_are_refused():
    with pytest.raises(InputError, match="use count, or a real device"):
        profile(nn.Linear(2, 2, device="meta"), torch.ones(1, 2, device="meta"))
    with pytest.raises(InputError, match="use repeats >= 1"):
        profile(nn.Linear(2, 2), torch.ones(1, 2), repeats=0)


# --- Kernel times ----------------------------------------------------------------------------------------


def event(call, **fields):
    return SimpleNamespace(name=f"gearshift.call.{call}", **fields)


@pytest.mark.parametrize("field", ["device_time_total", "cuda_time_total"])
def test_kernel_times_are_read_under_either_name(field):
    events = [
        event(0, **{field: 1500.0}),
        event(1, **{field: 500.0}),
        event(1, **{field: 9e9}, device_type=DeviceType.CUDA),  # the span as the device saw it
        SimpleNamespace(name="aten::mm", **{field: 7.0}),
    ]
    assert kernel_seconds(events, 2) == pytest.approx([1.5e-3, 0.5e-3])


@pytest.mark.parametrize("events", [[], [event(0)], [event(0, device_time_total=0.0)]])
def test_an_empty_device_profile_is_unavailable_and_not_zero(events):
    assert kernel_seconds(events, 1) is None


def test_a_stopwatch_without_times_is_an_error_and_not_zero():
    class Silent(ClockStopwatch):
        def seconds(self):
            return None

    with pytest.raises(InputError, match="yielded no times"):
        profile(nn.ReLU(), torch.ones(1), stopwatch=Silent)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_kernel_times_on_a_device():
    model, x = mlp().cuda(), torch.ones(64, 8, device="cuda")
    result = profile(model, x)

    assert result.own_ms > 0
    assert "torch.profiler" in result.source
    assert result.device.startswith("cuda")
    assert {row.name for row in result.table() if row.time_ms > 0} >= {OperatorType.LINEAR.value}


def test_a_compiled_module_is_compiled_in_the_warm_up_only():
    """Several sizes, profiled in turn and again: what is timed never compiles, and the limit is never in sight."""
    compiled_at = []

    def backend(graph, example):
        compiled_at.append(tuple(example[-1].shape))
        return graph.forward

    torch._dynamo.reset()
    model = torch.compile(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()), backend=backend, dynamic=False)
    sides = (8, 12, 16, 20)
    for side in sides:
        before = len(compiled_at)
        profile(model, torch.ones(1, 3, side, side), repeats=2, warmup=1)
        assert len(compiled_at) == before + 1
    for side in sides:
        profile(model, torch.ones(1, 3, side, side), repeats=2, warmup=1)
    assert len(compiled_at) == len(sides)
    torch._dynamo.reset()


@pytest.mark.parametrize(
    ("walls_s", "own_s", "profiled_ms", "said"),
    [
        ([1.0, 1.0, 1.1], 0.95, 1050, None),
        ([1.0, 2.0, 3.0], 1.9, 2100, "passes differ by 50%"),
        ([1.0, 1.0, 1.0], 0.9, 700, "1.43 x as fast while being profiled"),
        ([1.0, 1.0, 1.0], 3.2, 4200, "own times sum to 320%"),
    ],
)
def test_times_that_other_work_has_spoilt_say_so(walls_s, own_s, profiled_ms, said):
    result = profile(mlp(), torch.ones(3, 8), repeats=1, warmup=0)
    timing = Timing.of([seconds * 1e3 for seconds in walls_s], first_call_ms=1.0, source="measured:test")
    result = replace(result, timing=timing, own_ms=own_s * 1e3, profiled_ms=profiled_ms)

    assert result.to_dict()["warnings"] == list(result.warnings)
    if said is None:
        assert result.warnings == ()
    else:
        assert any(said in text for text in result.warnings)


@pytest.mark.parametrize("wrong", [{"repeats": 1.5}, {"warmup": -1}, {"max_seconds": float("nan")}, {"max_seconds": 0}])
def test_senseless_settings_are_refused(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        profile(mlp(), torch.ones(3, 8), **wrong)
