"""Work against the peaks of its device: bounds, what limits, and how counts order modules by time."""

import itertools
import json
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from gearshift.profiler import Call, OperatorType, profile
from gearshift.profiler.peaks import Peaks
from gearshift.profiler.roofline import ARITHMETIC, MEMORY, bound_of, rank_correlations, roofline_of

PEAKS = Peaks(
    dtype="float32",
    threads=2,
    gflops=100.0,
    gflops_spread=0.01,
    utilisation=0.99,
    bandwidth_gbs={1_000_000: 10.0},
    runs=5,
    measured_at="2026-01-01T00:00:00+00:00",
    source="made for a test",
)
"""1 ms is worth 100 MFLOP or 10 MB."""


def call(
    module: str = "",
    operator_type: OperatorType = OperatorType.LINEAR,
    *,
    macs: int = 0,
    read: int = 0,
    written: int = 0,
    apart: int = 0,
) -> Call:
    return Call(
        operator="aten::made",
        operator_type=operator_type,
        module=module,
        macs=macs,
        bytes_read=read,
        bytes_written=written,
        elementwise_flops=apart,
        input_shapes=(),
    )


def test_a_call_is_bound_by_whatever_takes_longer() -> None:
    arithmetic = bound_of(call(macs=50_000_000, read=1_000_000), PEAKS)
    assert (arithmetic.arithmetic_ms, arithmetic.memory_ms) == (pytest.approx(1.0), pytest.approx(0.1))
    assert (arithmetic.ms, arithmetic.limit) == (pytest.approx(1.0), ARITHMETIC)
    memory = bound_of(call(apart=10_000_000, read=6_000_000, written=4_000_000), PEAKS)
    assert (memory.arithmetic_ms, memory.memory_ms) == (pytest.approx(0.1), pytest.approx(1.0))
    assert memory.limit == MEMORY
    assert bound_of(call(), PEAKS).ms == 0


def test_types_show_what_they_achieve_of_their_bound() -> None:
    calls = [
        call(macs=50_000_000, read=1_000_000),  # 1 ms by arithmetic
        call(macs=5_000_000, read=5_000_000),  # 0.5 ms by memory
        call(operator_type=OperatorType.NORM, apart=1_000_000, read=10_000_000),  # 1 ms by memory
        call(operator_type=OperatorType.DATA_MOVEMENT),  # a view: nothing to do
    ]
    found = roofline_of(calls, [2.0, 1.0, 5.0, 0.5], PEAKS)
    norm, linear, view = found.rows
    assert [row.name for row in found.rows] == ["norm", "linear", "data movement"]
    assert (linear.bound_ms, linear.achieved, linear.limit) == (pytest.approx(1.5), pytest.approx(0.5), ARITHMETIC)
    assert linear.arithmetic_bound_share == pytest.approx(1.0 / 1.5)
    assert linear.gflops == pytest.approx(110e6 / 3e-3 / 1e9)
    assert linear.bandwidth_gbs == pytest.approx(6e6 / 3e-3 / 1e9)
    assert linear.intensity_flops_per_byte == pytest.approx(110 / 6)
    assert (norm.achieved, norm.limit) == (pytest.approx(0.2), MEMORY)
    assert (view.achieved, view.limit, view.intensity_flops_per_byte) == (0.0, None, None)
    assert found.total.time_ms == pytest.approx(8.5)
    assert found.total.achieved == pytest.approx(2.5 / 8.5)
    json.dumps(found.to_dict(), allow_nan=False)


def test_time_that_nobody_measured_gives_no_share() -> None:
    row = roofline_of([call(macs=1)], [0.0], PEAKS).rows[0]
    assert (row.achieved, row.gflops, row.bandwidth_gbs) == (None, None, None)


def tau_by_hand(left: Sequence[float], right: Sequence[float]) -> float | None:
    """Kendall's tau-b from its definition: concordant less discordant pairs, ties taken out of either side."""
    agree = left_pairs = right_pairs = 0
    for (a, b), (c, d) in itertools.combinations(zip(left, right, strict=True), 2):
        agree += ((a > c) - (a < c)) * ((b > d) - (b < d))
        left_pairs += a != c
        right_pairs += b != d
    return agree / (left_pairs * right_pairs) ** 0.5 if left_pairs and right_pairs else None


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=12))
def test_correlations_are_kendalls_tau_b_over_modules(modules: list[tuple[int, int, int]]) -> None:
    """Each module's costs are spread over two calls, so that they have to be summed before they are ordered."""
    calls, times = [], []
    for index, (macs, moved, time_ms) in enumerate(modules):
        calls += [call(f"m{index}", macs=macs, read=moved), call(f"m{index}", macs=1, written=1)]
        times += [time_ms / 4, 3 * time_ms / 4]
    bounds = [bound_of(item, PEAKS) for item in calls]
    found = {item.of: item for item in rank_correlations(calls, times, bounds)}
    measured = [time_ms for _, _, time_ms in modules]
    for of, counted in (("macs", [macs for macs, _, _ in modules]), ("bytes", [moved for _, moved, _ in modules])):
        expected = tau_by_hand(counted, measured)
        assert found[of].modules == len(modules)
        if expected is None:
            assert found[of].kendall_tau is None
        else:
            assert found[of].kendall_tau == pytest.approx(expected)


def test_roofline_time_orders_what_neither_count_does_alone() -> None:
    """Modules limited by arithmetic beside others limited by memory, each taking exactly its bound."""
    calls = [
        *(call(f"a{index}", macs=index * 10_000_000, read=100) for index in range(1, 6)),
        *(call(f"m{index}", macs=100, read=index * 3_000_000) for index in range(1, 6)),
    ]
    bounds = [bound_of(item, PEAKS) for item in calls]
    found = {item.of: item.kendall_tau for item in rank_correlations(calls, [bound.ms for bound in bounds], bounds)}
    assert found["roofline_ms"] == pytest.approx(1.0)
    assert found["macs"] is not None
    assert found["bytes"] is not None
    assert max(found["macs"], found["bytes"]) < 0.9


def test_a_profile_is_held_against_peaks() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 8))
    result = profile(model, torch.ones(32, 64), repeats=2, warmup=1)
    found = result.roofline(PEAKS)
    assert {row.name for row in found.rows} == {row.name for row in result.table()}
    assert sum(row.time_ms for row in found.rows) == pytest.approx(result.wall_ms)
    assert found.total.bound_ms == pytest.approx(sum(row.bound_ms for row in found.rows))
    assert {item.modules for item in found.correlations} == {4}
