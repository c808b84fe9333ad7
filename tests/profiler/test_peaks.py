"""Peaks of a device: measured, kept, and read between the sizes measured."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gearshift.errors import InputError
from gearshift.profiler.device import DeviceIdentity
from gearshift.profiler.device_store import DeviceStore
from gearshift.profiler.peaks import Peaks, measure_peaks, peaks_of

HERE = DeviceIdentity(kind="cpu", name="Some CPU", threads=8, memory_bytes=2**30, torch_version="2.14.1")
PEAKS = Peaks(
    dtype="float32",
    threads=2,
    gflops=100.0,
    gflops_spread=0.01,
    utilisation=0.99,
    bandwidth_gbs={1000: 80.0, 100_000: 40.0, 10_000_000: 10.0},
    runs=5,
    measured_at="2026-01-01T00:00:00+00:00",
    source="made for a test",
)


def test_a_measurement_on_this_machine() -> None:
    peaks = measure_peaks(matrix_sides=(32, 64), copy_bytes=(2**14, 2**16, 2**18), seconds_each=0.002)
    assert peaks.gflops > 0
    assert list(peaks.bandwidth_gbs) == [2**14, 2**16, 2**18]
    curve = list(peaks.bandwidth_gbs.values())
    assert curve == sorted(curve, reverse=True)
    assert peaks.memory_gbs == curve[-1]
    assert (peaks.dtype, peaks.threads) == ("float32", torch.get_num_threads())
    assert peaks.runs >= 5
    assert "64x64 float32" in peaks.source or "32x32 float32" in peaks.source


def test_a_product_counts_two_operations_a_multiply_add() -> None:
    """Every reading of the clock is 1 ms after the last: each product takes 1 ms, each copy too."""
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 0.001
        return now

    peaks = measure_peaks(
        matrix_sides=(5, 10), copy_bytes=(8000,), seconds_each=0.01, clock=clock, cpu_clock=lambda: 0.0
    )
    assert (peaks.utilisation, peaks.is_steady) == (0.0, False)
    assert peaks.gflops == pytest.approx(2 * 10**3 / 1e-3 / 1e9)
    assert peaks.bandwidth_gbs == {8000: pytest.approx(8000 / 1e-3 / 1e9)}
    assert peaks.gflops_spread == pytest.approx(0)
    assert peaks.runs == 10


def test_a_clock_that_stands_still_is_no_division_by_zero() -> None:
    assert measure_peaks(matrix_sides=(4,), copy_bytes=(64,), seconds_each=0.0, clock=lambda: 1.0).gflops > 0


@given(st.floats(1, 1e12))
def test_bandwidth_lies_between_the_sizes_measured(size: float) -> None:
    bandwidth = PEAKS.bandwidth_for(int(size))
    assert 10.0 * (1 - 1e-12) <= bandwidth <= 80.0 * (1 + 1e-12)
    assert PEAKS.bandwidth_for(int(size) * 2) <= bandwidth * (1 + 1e-12)


def test_bandwidth_at_the_sizes_measured_and_half_way_on_the_log_scale() -> None:
    for size, value in PEAKS.bandwidth_gbs.items():
        assert PEAKS.bandwidth_for(size) == pytest.approx(value)
    assert PEAKS.bandwidth_for(10_000) == pytest.approx((80 * 40) ** 0.5)
    assert PEAKS.balance_flops_per_byte == pytest.approx(10.0)


def test_peaks_survive_json() -> None:
    assert Peaks.from_dict(json.loads(json.dumps(PEAKS.to_dict()))) == PEAKS


@pytest.mark.parametrize(
    "change",
    [{"gflops": 0.0}, {"gflops": float("nan")}, {"bandwidth_gbs": {}}, {"bandwidth_gbs": {"1": -1}}, {"runs": "many"}],
)
def test_what_makes_no_sense_is_no_peak(change: dict[str, object]) -> None:
    with pytest.raises(InputError, match="measure them again"):
        Peaks.from_dict(PEAKS.to_dict() | change)


def test_peaks_are_measured_once_for_a_device_and_type(tmp_path: Path) -> None:
    asked: list[torch.dtype] = []

    def measure(device: torch.device | str, dtype: torch.dtype) -> Peaks:
        asked.append(dtype)
        return replace(PEAKS, gflops=100.0 * len(asked))

    def ask(dtype: torch.dtype = torch.float32, *, fresh: bool = False, identity: DeviceIdentity = HERE) -> float:
        store = DeviceStore(tmp_path)
        return peaks_of("cpu", dtype, store=store, identity=identity, fresh=fresh, measure=measure).gflops

    assert [ask(), ask()] == [100.0, 100.0]
    assert ask(torch.bfloat16) == 200.0
    assert ask(identity=replace(HERE, threads=4)) == 300.0
    assert ask(fresh=True) == 400.0
    assert ask() == 400.0
    assert asked == [torch.float32, torch.bfloat16, torch.float32, torch.float32]
    next(tmp_path.glob("cpu-some-cpu-8t.peaks-float32-*.json")).write_text(
        json.dumps({"device_key": HERE.key(), "figures": {"gflops": 1}})
    )
    assert ask() == 500.0


@pytest.mark.parametrize("sign", [{"gflops_spread": 0.6}, {"utilisation": 0.5}])
def test_peaks_taken_beside_other_programs_are_not_kept(sign: dict[str, float], tmp_path: Path) -> None:
    """Runs that scatter, or that a constant competitor makes alike but slow."""
    taken = iter([replace(PEAKS, gflops=50.0, **sign), PEAKS])
    found = [
        peaks_of("cpu", store=DeviceStore(tmp_path), identity=HERE, measure=lambda *asked: next(taken))
        for _ in range(3)
    ]
    assert [peaks.gflops for peaks in found] == [50.0, 100.0, 100.0]
    assert [peaks.is_steady for peaks in found] == [False, True, True]


def test_a_process_that_got_half_of_its_threads_time_says_so() -> None:
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 0.001
        return now

    threads = torch.get_num_threads()
    peaks = measure_peaks(
        matrix_sides=(4,), copy_bytes=(64,), seconds_each=0.0, clock=clock, cpu_clock=lambda: 0.5 * threads * now
    )
    assert peaks.utilisation == pytest.approx(0.5)
    assert not peaks.is_steady


def test_a_folder_that_cannot_be_written_is_said_and_costs_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    found = peaks_of("cpu", store=DeviceStore(tmp_path / "file" / "x"), identity=HERE, measure=lambda *asked: PEAKS)
    assert found == PEAKS
    assert "not kept for next time" in caplog.text


def test_a_type_without_a_peak_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no peak is defined for torch\.int8; choose one of float32"):
        peaks_of("cpu", torch.int8, store=DeviceStore(tmp_path), identity=HERE)
