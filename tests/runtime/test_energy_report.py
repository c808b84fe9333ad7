"""The energy report: figures against their definitions, what is not measured with its reason, and its schema.

No clock runs but those of the tests.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from importlib.resources import files
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy import stats
from torch import Tensor

from gearshift.paths.data import IGNORE_INDEX, LabelledFrame
from gearshift.paths.tasks import Segmentation
from gearshift.profiler.meters import IdlePower, Measurement, NullMeter
from gearshift.profiler.meters.base import BaseMeter
from gearshift.profiler.meters.conditions import Conditions
from gearshift.profiler.meters.protocol import Precision, Reading
from gearshift.runtime.bench.drive import Run, Served
from gearshift.runtime.bench.energy import Outcome, meter_of, run_energy
from gearshift.runtime.bench.judged import quality
from gearshift.runtime.bench.summary import summarise
from gearshift.runtime.bench.switching import LONGEST_WINDOW_S, NEVER, SwitchCost, measure_switch
from gearshift.runtime.budget import Budget
from gearshift.runtime.report.energy.model import (
    CONDITIONS,
    ConditionsRecord,
    EnergyFigure,
    EnergyReport,
    RunEnergy,
)
from gearshift.runtime.report.energy.per_frame import (
    NO_LOGARITHM,
    OF_GROSS,
    OF_NET,
    Consumed,
    gross_figure,
    net_figure,
)
from gearshift.runtime.report.energy.rows import OLDER, interval_rows
from gearshift.runtime.report.energy.schema import NAME, schema_text
from gearshift.runtime.report.energy.spread import Stretch, ratio_of, spread_of, stretches, window_length_s
from gearshift.runtime.sampler import PowerSample
from gearshift.runtime.stream import Pictures

UNKNOWN = SwitchCost.unknown(NEVER, "measured:plant")
CONDITIONS_NOW = Conditions(
    temperature_c=61.0,
    clock_mhz=1800.0,
    memory_clock_mhz=None,
    power_limit_w=95.0,
    throttle_reasons=(),
    missing={"memory_clock_mhz": "the plant has none"},
)


class Plant(BaseMeter):
    """A meter of whatever was put into it, on the test's clock."""

    def __init__(self, *, resolution_s: float = 0.0, what: str = "counter update", relative: float = 0.05) -> None:
        self.now_s = 100.0
        self.joules = 0.0
        super().__init__(
            name="plant",
            source="measured:plant",
            boundary="everything",
            precision=Precision(resolution_s=resolution_s, relative=relative, what=what),
            clock=lambda: self.now_s,
        )

    def _read(self) -> Reading:
        return Reading(time_s=self.now_s, energy_j=self.joules)

    def work(self, seconds: float, joules: float) -> None:
        self.now_s += seconds
        self.joules += joules


def run_of(
    watts: Sequence[float],
    *,
    fps: float = 10.0,
    sample_s: float = 0.1,
    latency_s: float = 0.02,
    budgets: Sequence[str] = (),
    reason: str | None = None,
    parts: dict[str, float | None] | None = None,
) -> Run:
    """Frames at a steady rate under samples of given power, one after the other."""
    seconds = len(watts) * sample_s
    frames = [
        Served(index=n, picture=0, path="stock", start_s=n / fps, latency_s=latency_s, budget=0)
        for n in range(round(seconds * fps))
    ]
    samples = [
        PowerSample(n, n * sample_s, (n + 1) * sample_s, power, power * sample_s) for n, power in enumerate(watts)
    ]
    joules = None if reason else sum(sample.energy_j for sample in samples)
    found = Measurement(
        name="run",
        meter="plant",
        source="measured:plant",
        start_s=0.0,
        seconds=seconds,
        energy_j=joules,
        power_w=joules / seconds if joules is not None and seconds else None,
        uncertainty_j=None if joules is None else 0.05 * joules,
        samples=len(samples),
        missing=0,
        reason=reason,
        parts=parts or {},
    )
    return Run(
        fps=fps,
        camera_frames=len(frames),
        seconds=seconds,
        frames=frames,
        budgets=[(0.0, Budget.parse(*budgets) if budgets else Budget())],
        powers=[] if reason else samples,
        energy=found,
    )


def idle_of(power_w: float | None) -> IdlePower:
    return IdlePower(
        power_w=power_w,
        seconds=2.0,
        uncertainty_w=None if power_w is None else 0.1 * power_w,
        source="measured:plant",
        how="2 s without work",
        reason="no sensor" if power_w is None else None,
    )


def report_of(run: Run, idle_w: float | None = 20.0, meter: Any = None, switch: SwitchCost = UNKNOWN) -> RunEnergy:
    nothing: Any = None  # no output is judged
    outcome = Outcome(
        run=run,
        summary=summarise(run, nothing, 3, idle_w, nothing),
        started="2026-01-01T00:00:00+00:00",
        before=CONDITIONS_NOW,
        after=CONDITIONS_NOW,
        path=None,
    )
    return run_energy(outcome, meter or Plant(), idle_of(idle_w), "made up", switch)


# Figures.


def test_ten_seconds_at_60_w_over_20_w_idle() -> None:
    found = report_of(run_of([60.0] * 100))
    assert found.gross_j == pytest.approx(600.0)
    assert found.gross_kwh == pytest.approx(600.0 / 3.6e6)
    assert found.gross_j_per_frame.value_j == pytest.approx(6.0)
    assert found.net_j_per_frame.value_j == pytest.approx(4.0)
    assert found.frames_per_wh == pytest.approx(600.0)
    assert found.power_w == pytest.approx(60.0)
    # 5 % of 600 J; and with it 10 % of 20 W over 10 s, the two as independent.
    assert found.gross_j_per_frame.sensor_uncertainty_j == pytest.approx(0.3)
    assert found.gross_j_per_frame.sensor_uncertainty_relative == pytest.approx(0.05)
    assert found.net_j_per_frame.sensor_uncertainty_j == pytest.approx(math.hypot(30.0, 20.0) / 100)


def test_units_do_not_slip() -> None:
    found = report_of(run_of([2.5] * 4000, sample_s=0.1, fps=10.0))
    assert found.frames == 4000
    assert found.gross_j_per_frame.value_j == pytest.approx(0.25)
    assert found.gross_j == pytest.approx(1000.0)
    assert found.gross_kwh == pytest.approx(2.7778e-4, rel=1e-4)


def test_steady_power_has_no_spread_and_a_wandering_one_student_s() -> None:
    steady = report_of(run_of([60.0] * 100)).gross_j_per_frame
    assert steady.std_j == pytest.approx(0.0, abs=1e-9)
    assert steady.ci95_low_j == pytest.approx(6.0)
    assert steady.ci95_high_j == pytest.approx(6.0)

    powers = np.repeat(np.random.default_rng(1).normal(60.0, 5.0, 12), 10)  # one level in each second
    found = report_of(run_of(list(powers)))
    seconds = powers[::10][:11]  # the last window has no frame after it
    assert found.windows.n == found.gross_j_per_frame.n_windows == 11
    # Windows of ten frames each: the standard error is that of a mean. The figure is of all twelve seconds.
    value, error = powers.mean() / 10, stats.sem(seconds / 10)
    times = math.exp(stats.t.ppf(0.975, 10) * error / (seconds.mean() / 10))
    assert found.gross_j_per_frame.value_j == pytest.approx(value)
    assert found.gross_j_per_frame.windows_j == pytest.approx(seconds.mean() / 10)
    assert found.gross_j_per_frame.mean_j == pytest.approx(seconds.mean() / 10)
    assert found.gross_j_per_frame.std_j == pytest.approx(seconds.std(ddof=1) / 10)
    assert found.gross_j_per_frame.ci95_low_j == pytest.approx(value / times)
    assert found.gross_j_per_frame.ci95_high_j == pytest.approx(value * times)
    shift = 20.0 / 10  # idle power falls upon ten frames a second
    assert found.net_j_per_frame.mean_j == pytest.approx(seconds.mean() / 10 - shift)
    assert found.net_j_per_frame.std_j == pytest.approx(seconds.std(ddof=1) / 10)
    half = stats.t.ppf(0.975, 10) * error
    assert found.net_j_per_frame.ci95_low_j == pytest.approx(value - shift - half)
    assert found.net_j_per_frame.ci95_high_j == pytest.approx(value - shift + half)
    assert found.gross_j_per_frame.interval_method == OF_GROSS
    assert found.net_j_per_frame.interval_method == OF_NET


@pytest.mark.parametrize(
    ("resolution_s", "seconds", "least_s", "periods", "short"),
    [
        (0.0, 12.0, 1.0, None, False),
        (0.1, 12.0, 1.0, 10.0, False),
        (1.0, 12.0, 4.0, 4.0, True),
        (0.5, 30.0, 5.0, 10.0, False),
    ],
)
def test_windows_are_told_in_meter_periods(
    resolution_s: float, seconds: float, least_s: float, periods: float | None, short: bool
) -> None:
    run = run_of([60.0] * round(10 * seconds))
    found = report_of(run, meter=Plant(resolution_s=resolution_s)).windows
    assert found.least_s == pytest.approx(least_s)
    assert found.meter_periods == (None if periods is None else pytest.approx(periods))
    assert found.too_short is short
    assert ("fewer than 10" in found.note) is short


def test_a_run_too_short_for_windows_has_a_total_and_no_interval() -> None:
    found = report_of(run_of([60.0] * 9))
    assert found.gross_j_per_frame.value_j == pytest.approx(6.0)
    assert found.gross_j_per_frame.ci95_low_j is None
    assert found.gross_j_per_frame.spread_reason == "no whole window within the power samples"
    assert (found.windows.n, found.windows.too_short, found.windows.independent) == (0, None, None)


def test_without_a_sensor_everything_is_null_and_says_why() -> None:
    found = report_of(run_of([0.0] * 100, reason="no sensor: plug one in"), None, NullMeter("no sensor: plug one in"))
    assert (found.gross_j, found.gross_kwh, found.power_w, found.frames_per_wh) == (None,) * 4
    for figure in (found.gross_j_per_frame, found.net_j_per_frame):
        assert (figure.value_j, figure.reason, figure.spread_reason) == (None, *["no sensor: plug one in"] * 2)
    assert found.reason == "no sensor: plug one in"
    meter = meter_of(NullMeter("no sensor: plug one in"))
    assert (meter.method, meter.resolution_s, meter.reason) == ("none", None, "no sensor: plug one in")


def test_without_idle_power_there_is_no_net_energy() -> None:
    found = report_of(run_of([60.0] * 100), None)
    assert found.gross_j_per_frame.value_j == pytest.approx(6.0)
    assert (found.net_j_per_frame.value_j, found.net_j_per_frame.reason) == (None, "idle power is not known")


def test_without_frames_there_is_a_total_but_nothing_per_frame() -> None:
    run = run_of([60.0] * 20)
    run.frames = []
    found = report_of(run)
    assert found.gross_j == pytest.approx(120.0)
    assert found.gross_j_per_frame.reason == "no frame was served"
    assert found.latency.reason == "no frame was served"
    assert (found.deadlines.misses, found.deadlines.reason) == (None, "no frame was served")


def test_a_run_without_length_has_no_power() -> None:
    found = report_of(run_of([]))
    assert (found.power_w, found.fps) == (None, None)


def test_net_energy_below_zero_is_not_hidden() -> None:
    assert report_of(run_of([15.0] * 100)).net_j_per_frame.value_j == pytest.approx(-0.5)


def test_rails_are_listed_one_by_one() -> None:
    found = report_of(run_of([60.0] * 100, parts={"package-0": 500.0, "dram": None}))
    assert [(one.name, one.energy_j, one.reason) for one in found.domains] == [
        ("package-0", 500.0, None),
        ("dram", None, "it could not be read"),
    ]


@pytest.mark.parametrize(
    ("budgets", "what", "deadline_ms", "misses"),
    [
        ((), "the camera's period: no budget limits latency", 100.0, 0),
        (("60W",), "the camera's period: no budget limits latency", 100.0, 0),
        (("10ms",), "latency limit of the budget", 10.0, 100),
        (("25ms",), "latency limit of the budget", 25.0, 0),
    ],
)
def test_frames_are_late_by_the_budget_or_the_camera(
    budgets: tuple[str, ...], what: str, deadline_ms: float, misses: int
) -> None:
    found = report_of(run_of([60.0] * 100, budgets=budgets)).deadlines
    assert (found.what, found.misses, found.n_frames, found.dropped) == (what, misses, 100, 0)
    assert found.deadline_ms == pytest.approx(deadline_ms)


def test_each_frame_is_late_by_the_budget_in_force() -> None:
    run = run_of([60.0] * 100)
    run.budgets = [(0.0, Budget.parse("10ms")), (5.0, Budget())]
    run.frames = [
        Served(index=n, picture=0, path="stock", start_s=n / 10, latency_s=0.02, budget=int(n >= 50))
        for n in range(100)
    ]
    found = report_of(run)
    assert (found.deadlines.misses, found.deadlines.deadline_ms) == (50, None)
    assert "changed during the run" in found.windows.note


@pytest.mark.parametrize(("what", "method"), [("counter update", "counter"), ("sensor averaging", "integral")])
def test_the_method_is_named(what: str, method: str) -> None:
    assert meter_of(Plant(resolution_s=0.1, what=what)).method == method


# Quality.


def judged(right: Sequence[bool], *, labelled: bool) -> dict[str, Any]:
    """A run over pictures of four pixels, each answered wholly right or wholly wrong, five times."""
    labels = 1 if labelled else IGNORE_INDEX
    frames = [
        LabelledFrame(image=np.zeros((2, 2, 3), np.uint8), labels=np.full((2, 2), labels, np.uint8)) for _ in right
    ]
    run = run_of([1.0])
    run.frames = [
        Served(index=n, picture=n % len(right), path="p", start_s=0.0, latency_s=0.0, budget=0)
        for n in range(5 * len(right))
    ]
    one, other = torch.tensor([0.0, 1.0]), torch.tensor([1.0, 0.0])
    run.outputs = {
        (picture, "p"): (one if good else other).reshape(1, 2, 1, 1).expand(1, 2, 2, 2)
        for picture, good in enumerate(right)
    }
    answer = SimpleNamespace(logits=one.reshape(1, 2, 1, 1).expand(1, 2, 2, 2))
    return quality(run, Pictures(frames, torch.device("cpu")), Segmentation(2), lambda _: answer)


def test_quality_s_interval_is_a_bootstrap_over_pictures() -> None:
    """Pictures wholly right or wrong, drawn again, are a binomial."""
    found = judged([True, False] * 10, labelled=False)
    assert (found["metric"], found["value"], found["pictures"], found["frames"]) == ("agreement", 0.5, 20, 100)
    assert found["ci95_low"] == pytest.approx(stats.binom.ppf(0.025, 20, 0.5) / 20, abs=0.051)
    assert found["ci95_high"] == pytest.approx(stats.binom.ppf(0.975, 20, 0.5) / 20, abs=0.051)


@pytest.mark.parametrize("labelled", [True, False])
def test_pictures_that_are_all_alike_leave_no_doubt(labelled: bool) -> None:
    found = judged([True] * 4, labelled=labelled)
    assert found["metric"] == ("mIoU" if labelled else "agreement")
    assert (found["value"], found["ci95_low"], found["ci95_high"]) == (1.0, 1.0, 1.0)


def test_the_interval_of_the_mean_iou_holds_it() -> None:
    found = judged([True, True, False] * 4, labelled=True)
    # Class 1 is right on two thirds; class 0 occurs in wrong answers only, with an IoU of 0.
    assert found["value"] == pytest.approx((2 / 3 + 0) / 2)
    assert found["ci95_low"] < found["value"] < found["ci95_high"]


# Windows and intervals.

PERIODS = st.lists(st.floats(0.01, 3.0), min_size=1, max_size=40)
SAMPLES = st.lists(st.tuples(st.floats(0.05, 0.5), st.floats(0.0, 200.0)), min_size=1, max_size=60)


def joules_between(edges: Sequence[float], watts: Sequence[float], start_s: float, end_s: float) -> float:
    """By the definition."""
    return sum(
        power * max(0.0, min(end_s, after) - max(start_s, before))
        for (before, after), power in zip(itertools.pairwise(edges), watts, strict=True)
    )


@given(periods=PERIODS, samples=SAMPLES, length_s=st.floats(0.2, 3.0))
def test_windows_hold_whole_frames_follow_each_other_and_keep_the_energy(
    periods: list[float], samples: list[tuple[float, float]], length_s: float
) -> None:
    starts = [0.0, *itertools.accumulate(periods)]
    edges = [0.0, *itertools.accumulate(seconds for seconds, _ in samples)]
    watts = [power for _, power in samples]
    found = stretches(starts, edges, watts, length_s)
    ends = list(itertools.accumulate((one.seconds for one in found), initial=0.0))
    frames = list(itertools.accumulate((one.frames for one in found), initial=0))
    for place, one in enumerate(found):
        assert one.frames >= 1
        assert one.seconds >= length_s - 1e-6
        assert ends[place] == pytest.approx(starts[frames[place]], abs=1e-9)
        assert one.energy_j == pytest.approx(joules_between(edges, watts, ends[place], ends[place + 1]), abs=1e-6)
    assert ends[-1] <= edges[-1] + 1e-9


@given(values=st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=40))
def test_an_interval_holds_the_mean_and_is_never_narrower_than_student_s(values: list[float]) -> None:
    assume(float(np.std(values)) > 1e-6)
    found = spread_of(values)
    plain = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert found.low is not None
    assert found.high is not None
    assert found.low <= np.mean(values) <= found.high
    assert found.low <= plain.low + 1e-6
    assert found.high >= plain.high - 1e-6
    assert found.n_effective <= found.n


@pytest.mark.parametrize(("correlation", "least"), [(0.0, 0.9), (0.6, 0.85)])
def test_intervals_hold_the_truth_although_neighbours_are_alike(correlation: float, least: float) -> None:
    """Of 300 simulated runs; taken as independent, two in three would hold it at most where neighbours are alike."""
    rng = np.random.default_rng(0)
    held = naive = 0
    for _ in range(300):
        noise = rng.normal(size=60)
        values = [noise[0] / math.sqrt(1 - correlation**2)]
        for step in noise[1:]:
            values.append(correlation * values[-1] + step)
        found = spread_of(values)
        assert found.low is not None
        assert found.high is not None
        plain = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
        held += found.low <= 0 <= found.high
        naive += plain.low <= 0 <= plain.high
    assert held / 300 > least
    assert correlation == 0 or naive / 300 < 0.75


def consumed(windows: Sequence[Stretch], edges: Sequence[Stretch] = (), idle_w: float = 0.0) -> Consumed:
    """A run of windows, and of frames at its edges that no window holds."""
    parts = [*windows, *edges]
    return Consumed(
        frames=sum(part.frames for part in parts),
        seconds=math.fsum(part.seconds for part in parts),
        gross_j=math.fsum(part.energy_j for part in parts),
        reason=None,
        uncertainty_j=None,
        idle_power_w=idle_w,
        idle_uncertainty_w=None,
        windows=windows,
        least_window_s=1.0,
        why_no_windows=None,
        period_s=None,
    )


STRETCH = st.builds(Stretch, frames=st.integers(1, 200), seconds=st.floats(0.5, 5.0), energy_j=st.floats(1e-3, 1e4))


@given(
    windows=st.lists(STRETCH, min_size=2, max_size=20), edges=st.lists(STRETCH, max_size=2), idle_w=st.floats(0.0, 50.0)
)
def test_the_printed_figure_lies_in_its_own_interval_and_gross_is_above_0(
    windows: list[Stretch], edges: list[Stretch], idle_w: float
) -> None:
    run = consumed(windows, edges, idle_w)
    gross, net = gross_figure(run), net_figure(run)
    assert gross.value_j == pytest.approx((run.gross_j or 0.0) / run.frames)
    for figure in (gross, net):
        low, value, high = figure.ci95_low_j, figure.value_j, figure.ci95_high_j
        assert low is not None
        assert value is not None
        assert high is not None
        assert low <= value <= high
    assert gross.ci95_low_j is not None
    assert gross.ci95_low_j > 0
    assert gross.windows_j == pytest.approx(sum(one.energy_j for one in windows) / sum(one.frames for one in windows))


def test_three_unlike_windows_leave_gross_energy_above_0_and_the_figure_inside() -> None:
    """A mean over these windows is 4.3 J, with an interval that reaches below 0 by Student's t."""
    windows = [Stretch(frames=n, seconds=1.0, energy_j=joules) for n, joules in ((1, 7.0), (3, 9.0), (13, 35.0))]
    plain = spread_of([window.energy_j / window.frames for window in windows])
    assert plain.low is not None
    assert plain.low < 0
    found = gross_figure(consumed(windows))
    assert found.value_j == found.windows_j == pytest.approx(3.0)
    assert found.mean_j == pytest.approx((7.0 + 3.0 + 35 / 13) / 3)
    assert found.ci95_low_j is not None
    assert found.ci95_high_j is not None
    assert 0 < found.ci95_low_j < 3.0 < found.ci95_high_j


def test_the_standard_error_is_that_of_two_correlated_means() -> None:
    """By the delta method, from variances and the covariance: var(E) + R^2 var(n) - 2 R cov(E, n)."""
    joules, frames = [12.0, 31.0, 7.5, 22.0, 40.0], [10, 25, 8, 20, 27]
    found = ratio_of(joules, frames)
    ratio = sum(joules) / sum(frames)
    covariance = np.cov(joules, frames, ddof=1)
    variance = covariance[0, 0] + ratio**2 * covariance[1, 1] - 2 * ratio * covariance[0, 1]
    assert found.ratio == pytest.approx(ratio)
    assert found.standard_error == pytest.approx(math.sqrt(variance / len(frames)) / np.mean(frames))
    windows = [Stretch(frames=n, seconds=1.0, energy_j=energy) for energy, n in zip(joules, frames, strict=True)]
    gross, times = gross_figure(consumed(windows)), stats.t.ppf(0.975, 4) * (found.standard_error or 0.0)
    assert gross.ci95_low_j == pytest.approx(ratio * math.exp(-times / ratio))
    assert gross.ci95_high_j == pytest.approx(ratio * math.exp(times / ratio))


@given(values=st.lists(st.floats(0.0, 1e3), min_size=2, max_size=30), frames=st.integers(1, 50))
def test_with_windows_alike_a_ratio_is_a_mean(values: list[float], frames: int) -> None:
    assume(float(np.std(values)) > 1e-3)
    ratio, mean = ratio_of([frames * value for value in values], [frames] * len(values)), spread_of(values)
    assert ratio.ratio == pytest.approx(mean.mean)
    assert ratio.independent is mean.independent
    assert ratio.n_effective == pytest.approx(mean.n_effective, rel=1e-4)
    assert ratio.standard_error == pytest.approx((mean.std or 0.0) / math.sqrt(mean.n_effective), rel=1e-4)


def test_intervals_of_unequal_windows_hold_the_truth_19_times_in_20() -> None:
    """Windows of 2 to 40 frames at 20 W of idle power and 2 J a frame, the frames of a window costing alike.

    Windows with few frames pay more for each, so that the mean over windows is another figure: its interval misses.
    """
    rng = np.random.default_rng(0)
    runs, held = 2000, {"gross": 0, "net": 0, "mean": 0}
    true_j = 20.0 / 21 + 2.0  # windows of a second hold 21 frames on average
    for _ in range(runs):
        frames = rng.integers(2, 41, 24)
        joules = 20.0 + frames * 2.0 * rng.gamma(16.0, 1 / 16, 24)
        windows = [
            Stretch(frames=int(n), seconds=1.0, energy_j=float(energy))
            for n, energy in zip(frames, joules, strict=True)
        ]
        run = consumed(windows, idle_w=20.0)
        for name, found, truth in (("gross", gross_figure(run), true_j), ("net", net_figure(run), 2.0)):
            assert found.ci95_low_j is not None
            assert found.ci95_high_j is not None
            held[name] += found.ci95_low_j <= truth <= found.ci95_high_j
        plain = spread_of([window.energy_j / window.frames for window in windows])
        held["mean"] += plain.low is not None and plain.high is not None and plain.low <= true_j <= plain.high
    assert 0.93 < held["gross"] / runs < 0.97
    assert 0.93 < held["net"] / runs < 0.97
    assert held["mean"] / runs < 0.8


def test_frames_at_the_edges_are_in_the_figure_and_its_interval_is_the_windows() -> None:
    windows = [Stretch(frames=n, seconds=1.0, energy_j=joules) for n, joules in ((10, 21.0), (20, 38.0), (30, 61.0))]
    inner = gross_figure(consumed(windows))
    whole = gross_figure(consumed(windows, [Stretch(frames=20, seconds=0.9, energy_j=160.0)]))
    assert inner.value_j == inner.windows_j == whole.windows_j == 2.0
    assert whole.value_j == pytest.approx(3.5)
    assert whole.standard_error_j == pytest.approx((inner.standard_error_j or 0.0) * 3.5 / 2)
    for bound in ("ci95_low_j", "ci95_high_j"):
        assert getattr(whole, bound) / 3.5 == pytest.approx(getattr(inner, bound) / 2.0)


def test_no_energy_has_no_interval_on_the_logarithm() -> None:
    found = consumed([Stretch(frames=5, seconds=1.0, energy_j=0.0)] * 3)
    assert (gross_figure(found).value_j, gross_figure(found).ci95_low_j) == (0.0, None)
    assert gross_figure(found).spread_reason == NO_LOGARITHM
    assert (net_figure(found).ci95_low_j, net_figure(found).ci95_high_j) == (0.0, 0.0)


def test_an_older_figure_is_still_read_and_says_what_its_interval_is_of() -> None:
    """Recorded when the interval was that of the mean over windows."""
    older = {
        "value_j": 2.92,
        "n_windows": 3,
        "n_effective": 3.0,
        "mean_j": 4.24,
        "std_j": 2.44,
        "ci95_low_j": -1.82,
        "ci95_high_j": 10.3,
    }
    found = EnergyFigure.model_validate(older)
    assert (found.interval_method, found.windows_j, found.standard_error_j) == (None, None, None)
    run = report_of(run_of([60.0] * 100)).model_copy(update={"gross_j_per_frame": found})
    told = dict(interval_rows(run))
    assert told == {"Interval, gross": OLDER, "Interval, net": OF_NET}


def test_windows_of_a_sensor_gone_below_0_have_no_interval_on_the_logarithm() -> None:
    run = consumed([Stretch(frames=1, seconds=1.0, energy_j=joules) for joules in (-100.0, 100.001)])
    assert (gross_figure(run).ci95_low_j, gross_figure(run).spread_reason) == (None, NO_LOGARITHM)
    assert net_figure(run).ci95_low_j is not None


@pytest.mark.parametrize("values", [[], [3.0]])
def test_an_interval_needs_two(values: list[float]) -> None:
    found = spread_of(values)
    assert (found.low, found.high, found.std, found.n) == (None, None, None, len(values))
    assert found.reason is not None
    ratio = ratio_of(values, [1] * len(values))
    assert (ratio.standard_error, ratio.n, ratio.reason) == (None, len(values), found.reason)


@given(seconds=st.floats(0.0, 1e4), period_s=st.floats(0.0, 10.0))
def test_windows_last_a_second_and_ten_periods_if_three_fit(seconds: float, period_s: float) -> None:
    length = window_length_s(seconds, period_s)
    assert length >= 1
    assert length >= 10 * period_s or length >= seconds / 3 - 1e-9
    assert length == 1 or 3 * length <= seconds + 1e-6


# What a change of path costs.


class Engine:
    """Two paths that take time and energy of a plant, and more of both after a change."""

    def __init__(self, meter: Plant, *, extra_j: float, extra_s: float, noise: float = 0.0) -> None:
        self.meter, self.extra_j, self.extra_s = meter, extra_j, extra_s
        self.rng, self.noise = np.random.default_rng(0), noise
        self.last: str | None = None
        self.ran = {"a": 0, "b": 0}

    def path(self, name: str, seconds: float, joules: float) -> Callable[[Tensor], None]:
        def call(_: Tensor) -> None:
            changed = self.last not in (None, name)
            self.last = name
            self.ran[name] += 1
            factor = math.exp(self.rng.normal(0.0, self.noise)) if self.noise else 1.0
            self.meter.work((seconds + changed * self.extra_s) * factor, (joules + changed * self.extra_j) * factor)

        return call


def measured(engine: Engine, rounds: int = 6) -> SwitchCost:
    pair = (engine.path("a", 0.01, 0.5), engine.path("b", 0.03, 2.0))
    clock = engine.meter._clock
    return measure_switch(pair, ("a", "b"), torch.zeros(1), engine.meter, rounds=rounds, window_s=1.0, clock=clock)


def test_a_change_costs_what_alternating_takes_beyond_both_alone() -> None:
    found = measured(Engine(Plant(), extra_j=0.1, extra_s=0.002)).of_run(7)
    # Of windows of 25 to 100 frames alone, the first frame follows a change as well: at most 1/25 too little.
    assert found.energy.value_j == pytest.approx(0.1, rel=0.05)
    assert found.energy.all_switches_j == pytest.approx(7 * (found.energy.value_j or 0.0))
    assert found.time.value_ms == pytest.approx(2.0, rel=0.05)
    assert (found.count, found.energy.n, found.energy.source) == (7, 6, "measured:plant")
    assert "a and b alternating at every frame" in found.energy.method


def test_a_change_that_noise_hides_is_null_with_its_interval() -> None:
    found = measured(Engine(Plant(), extra_j=0.0, extra_s=0.0, noise=0.3)).of_run(7).energy
    assert (found.value_j, found.all_switches_j) == (None, None)
    assert found.reason == "not resolved: the 95 % interval holds 0"
    assert found.ci95_low_j is not None
    assert found.ci95_high_j is not None
    assert found.ci95_low_j < 0 < found.ci95_high_j


def test_a_meter_too_coarse_gives_no_energy_but_time_all_the_same() -> None:
    meter = Plant(resolution_s=LONGEST_WINDOW_S / 5)
    found = measured(Engine(meter, extra_j=0.1, extra_s=0.002)).of_run(7)
    assert found.energy.value_j is None
    assert "does not resolve what a change costs" in (found.energy.reason or "")
    assert found.time.value_ms == pytest.approx(2.0, rel=0.05)


def test_windows_hold_ten_periods_of_the_meter_and_both_paths_equally() -> None:
    engine = Engine(Plant(resolution_s=0.15), extra_j=0.1, extra_s=0.0)
    measured(engine, rounds=1)
    # 1.5 s each: 150 frames of a, 50 of b, and 37 or 38 of both in turn; two of each warm up.
    assert engine.ran["a"] == pytest.approx(2 + 150 + 38, abs=2)
    assert engine.ran["b"] == pytest.approx(2 + 50 + 38, abs=2)


def test_a_change_without_a_sensor() -> None:
    plant = Plant()
    engine = Engine(plant, extra_j=0.1, extra_s=0.002)
    pair = (engine.path("a", 0.01, 0.5), engine.path("b", 0.03, 2.0))
    blind = NullMeter("no sensor", clock=plant._clock)
    found = measure_switch(pair, ("a", "b"), torch.zeros(1), blind, rounds=3, window_s=1.0, clock=plant._clock).of_run(
        1
    )
    assert (found.energy.value_j, found.energy.reason) == (None, "no sensor")
    assert found.time.value_ms == pytest.approx(2.0, rel=0.05)


def test_a_path_that_never_changed_cost_no_measured_nothing() -> None:
    found = report_of(run_of([60.0] * 100)).switches
    assert (found.count, found.energy.value_j, found.energy.reason) == (0, None, NEVER)


# The shape.


def test_the_published_schema_is_the_model_s() -> None:
    published = (files("gearshift.configs") / "schemas" / NAME).read_text(encoding="utf-8")
    assert published == schema_text(), "write it anew: python -m gearshift.runtime.report.energy.schema"
    again = EnergyReport.model_json_schema()
    assert again["properties"]["run"] == {"$ref": "#/$defs/RunEnergy"}
    assert again["additionalProperties"] is False


def numbers_without_a_unit(schema: dict[str, Any]) -> set[str]:
    """Names of numeric fields, of all parts, that say no unit."""
    units = ("_j", "_w", "_s", "_ms", "_wh", "_kwh", "_c", "_mhz", "_low", "_high", "_relative", "_fps")
    found = set()
    for part in schema["$defs"].values():
        for name, field in part.get("properties", {}).items():
            kinds = {one.get("type") for one in [field, *field.get("anyOf", [])]}
            if "number" in kinds and not name.endswith(units):
                found.add(name)
    return found


def test_numbers_say_their_unit() -> None:
    assert numbers_without_a_unit(EnergyReport.model_json_schema()) == {
        *("fps", "value", "n_effective", "neighbour_correlation", "meter_periods", "relative_uncertainty"),
        *("g_total", "g_per_1000_frames", "seconds"),
    }


@pytest.mark.parametrize(("value", "reason"), [(None, None), (1.0, "there is one")])
def test_null_without_a_reason_is_refused_and_so_is_a_reason_without_null(
    value: float | None, reason: str | None
) -> None:
    with pytest.raises(ValidationError, match="null exactly where a reason says why"):
        EnergyFigure(value_j=value, reason=reason, spread_reason="none")


@pytest.mark.parametrize("field", CONDITIONS)
def test_a_condition_that_was_not_read_says_why(field: str) -> None:
    values: dict[str, Any] = {**CONDITIONS_NOW.to_dict(), field: None}
    missing = {**values["missing"], field: "no sensor"}
    assert getattr(ConditionsRecord(**{**values, "missing": missing}), field) is None
    missing.pop(field)
    with pytest.raises(ValidationError, match="null exactly where"):
        ConditionsRecord(**{**values, "missing": missing})


def test_a_run_s_report_survives_json() -> None:
    found = report_of(run_of([60.0] * 100, parts={"dram": None}))
    assert RunEnergy.model_validate_json(found.model_dump_json()) == found
    with pytest.raises(ValidationError, match="not permitted"):
        RunEnergy.model_validate({**found.model_dump(), "gross_mj": 1.0})
