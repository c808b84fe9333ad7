"""Whole benches on a tiny bundle: what the document holds, and that it is true. No assertion is on time itself."""

import math
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional as F

from gearshift.errors import BudgetError, DataError
from gearshift.files import to_json
from gearshift.paths.bundle import Bundle, read_bundle, update_record
from gearshift.paths.data import CAMVID_CLASSES, SceneStream, normalise
from gearshift.profiler import count
from gearshift.profiler.device import identify
from gearshift.profiler.meters import CpuTimeEstimate, Meter, NullMeter
from gearshift.profiler.meters.conditions import Conditions
from gearshift.profiler.meters.cpu_info import CpuInfo
from gearshift.runtime.bench import bench as bench_module
from gearshift.runtime.bench.bench import BenchRequest, run_bench
from gearshift.runtime.bench.scenario import BudgetStep, Load, Scenario
from gearshift.runtime.carbon import given_intensity
from gearshift.runtime.report import html
from gearshift.runtime.report.document import checked
from gearshift.runtime.report.energy.model import EnergyReport

FPS, SECONDS, BASELINE_SECONDS, PICTURES = 20.0, 1.6, 0.6, 4
PARTS = {
    *("report", "schema_version", "created", "bundle", "model", "device", "versions", "threads", "input_shape"),
    *("frames_from", "seed", "pictures", "meter", "costs", "scenario", "budget", "binds", "met", "shortfall"),
    *("run", "baselines", "energy_report", "other_budgets", "frontier", "where_cost_goes", "trace"),
}

Document = dict[str, Any]
MakeBundle = Callable[..., Bundle]
StrictJson = Callable[[str], Any]


class Sensor(CpuTimeEstimate):
    """Processor time again, but it says that it measures: what a bench does must not hang on the name."""

    def __init__(self) -> None:
        super().__init__(cpu=CpuInfo(model="Chip", sockets=1, threads=4, usable_threads=1, is_virtual=False), table={})
        self.source = "measured:test"


def request_of(folder: Path, *budgets: str, **changes: Any) -> BenchRequest:
    """A short bench without measuring costs first; what else differs is in `changes`."""
    wanted = BenchRequest(
        bundle=folder,
        scenario=Scenario.steady(list(budgets), changes.pop("seconds", SECONDS)),
        fps=FPS,
        baseline_seconds=0.0,
        pictures=PICTURES,
        calibrate=False,
    )
    return replace(wanted, **changes)


def bench(folder: Path, *budgets: str, meter: Meter | None = None, **changes: Any) -> Document:
    return run_bench(request_of(folder, *budgets, **changes), meter or Sensor())


@pytest.fixture(autouse=True)
def short_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    """Costs as a bench measures them, in a hurry."""
    monkeypatch.setattr(bench_module, "COST_ROUNDS", 2)
    monkeypatch.setattr(bench_module, "COST_WINDOW_S", 0.01)
    monkeypatch.setattr(bench_module, "SWITCH_ROUNDS", 2)
    monkeypatch.setattr(bench_module, "SWITCH_WINDOW_S", 0.01)


@pytest.fixture(scope="module")
def document(small_bundle: Path) -> Document:
    """One bench with comparison runs, for all tests that only read it."""
    torch.set_num_threads(1)
    return bench(small_bundle, "60%", baseline_seconds=BASELINE_SECONDS)


def runs_of(document: Document) -> list[Document]:
    return [document["run"], *document["baselines"].values()]


# The document.


def test_it_has_all_its_parts_and_no_others(document: Document) -> None:
    assert set(document) == PARTS
    assert set(document["baselines"]) == {"stock", "lossless", "best single path"}
    assert set(document["where_cost_goes"]) == {"stock", "lossless"}


def test_it_is_strict_json(document: Document, read_strict_json: StrictJson) -> None:
    again = read_strict_json(to_json(document))
    assert again.keys() == document.keys()
    assert read_strict_json(to_json(again)) == again


def test_the_report_can_be_drawn_from_it(document: Document) -> None:
    checked(document, "here")
    assert html(document).startswith("<!doctype html>")


def test_every_frame_ran_on_exactly_one_path(document: Document) -> None:
    run, trace = document["run"], document["trace"]
    by_path = Counter(trace["paths"][index] for index in trace["path"])
    assert {row["path"]: row["frames"] for row in run["paths"]} == by_path
    assert by_path.total() == run["frames"] == len(trace["frame_index"]) == len(trace["latency_ms"])
    assert sum(row["share_of_frames"] for row in run["paths"]) == pytest.approx(1)
    assert sum(row["share_of_time"] for row in run["paths"]) == pytest.approx(1)
    assert run["switches"] == sum(one != other for one, other in pairwise(trace["path"]))
    assert all(earlier < later for earlier, later in pairwise(trace["frame_index"]))


def test_served_and_dropped_frames_are_those_of_the_camera(document: Document) -> None:
    for run, seconds in [(document["run"], SECONDS), *((run, BASELINE_SECONDS) for run in runs_of(document)[1:])]:
        assert run["frames"] + run["dropped"] == round(FPS * seconds)
        assert run["camera_fps"] == FPS
        assert run["seconds"] >= seconds
        assert run["fps"] == pytest.approx(run["frames"] / run["seconds"])


def picture_of(index: int) -> int:
    """To the end and back: 0 1 2 3 2 1 0 ..."""
    return [0, 1, 2, 3, 2, 1][index % 6]


def mean_iou(predicted: list[np.ndarray], labels: list[np.ndarray], classes: int) -> float:
    """From one histogram of (label, prediction) pairs; classes that occur nowhere are left out."""
    pairs = np.zeros((classes, classes))
    for ours, theirs in zip(predicted, labels, strict=True):
        counted = theirs != 255
        np.add.at(pairs, (theirs[counted], ours[counted]), 1)
    union = pairs.sum(0) + pairs.sum(1) - pairs.diagonal()
    return float(np.mean(pairs.diagonal()[union > 0] / union[union > 0]))


def test_quality_is_that_of_the_frames_as_they_were_answered(document: Document, small_bundle: Path) -> None:
    found = read_bundle(small_bundle)
    factory = found.load()
    paths = {record.id: factory.build(record.spec) for record in found.record.paths}
    drive = SceneStream(seed=20_000, height=64, width=96, fps=FPS)
    frames = [drive.frame(number) for number in range(PICTURES)]
    predicted, labels = [], []
    trace = document["trace"]
    for index, path in zip(trace["frame_index"], trace["path"], strict=True):
        frame = frames[picture_of(index)]
        with torch.no_grad():
            logits = paths[trace["paths"][path]](normalise(frame.image)).logits
            full = F.interpolate(logits, size=(64, 96), mode="bilinear", align_corners=False)
        predicted.append(full[0].argmax(0).numpy())
        labels.append(frame.labels)

    quality = document["run"]["quality"]
    assert quality["metric"] == "mIoU"
    assert (quality["frames"], quality["not_judged"]) == (len(predicted), 0)
    assert quality["value"] == pytest.approx(mean_iou(predicted, labels, len(CAMVID_CLASSES)), rel=1e-6)


def test_energy_adds_up(document: Document) -> None:
    for run in runs_of(document):
        energy = run["energy"]
        assert energy["source"] == "measured:test"
        assert energy["gross_j_per_frame"] * run["frames"] == pytest.approx(energy["gross_j"])
        assert energy["power_w"] * energy["seconds"] == pytest.approx(energy["gross_j"])
        idle_j = energy["idle_power_w"] * energy["seconds"]
        assert energy["net_j_per_frame"] * run["frames"] == pytest.approx(energy["gross_j"] - idle_j)
        assert energy["seconds"] == pytest.approx(run["seconds"], abs=0.5)


def test_a_share_of_the_stock_model_s_power_is_told_in_watts(document: Document) -> None:
    # Made-up costs: idle 1 W, and 0.1 J at 20 frames/s are 2 W more; 60 % of 3 W.
    assert document["budget"] == "1.8 W"
    [stretch] = document["run"]["budgets"]
    [limit] = stretch["limits"]
    assert (limit["kind"], limit["unit"], limit["limit"]) == ("power", "W", pytest.approx(1.8))
    assert stretch["from_s"] == 0
    assert stretch["to_s"] == document["run"]["seconds"]
    assert limit["held_on_average"] == (limit["mean"] <= limit["limit"])
    assert limit["worst_1s_window"] >= limit["mean"] * 0.5


def test_a_budget_that_binds_says_what_the_best_path_needs(document: Document) -> None:
    assert document["binds"] == {
        "binds": True,
        # 1 W and 0.08 J at 20 frames/s; without a latency budget, the median.
        "text": "the budget binds: the best path (lossless) needs about 30 ms and 2.6 W",
    }


def test_comparison_runs_stay_on_their_path(document: Document) -> None:
    wanted = {"stock": "stock", "lossless": "lossless", "best single path": "lossless+size=50%"}
    for name, path in wanted.items():
        run = document["baselines"][name]
        assert run["path"] == path
        assert [row["path"] for row in run["paths"]] == [path]
        assert (run["switches"], run["shortfalls"]) == (0, [])


def test_other_budgets_give_more_for_more(document: Document) -> None:
    rows = document["other_budgets"]
    powers = [row for row in rows if row["power_limit_w"] is not None]
    latencies = [row for row in rows if row["latency_limit_ms"] is not None]
    assert (len(powers), len(latencies)) == (7, 5)
    assert len(powers) + len(latencies) == len(rows)
    for part, limit, falling in ((powers, "power_limit_w", True), (latencies, "latency_limit_ms", False)):
        ordered = sorted(part, key=lambda row: row[limit])
        assert part == (ordered[::-1] if falling else ordered)
        assert [row["quality"] for row in ordered] == sorted(row["quality"] for row in ordered)
        assert [row["met"] for row in ordered] == sorted(row["met"] for row in ordered)
    assert [row["met"] for row in latencies] == [True] * 5
    assert powers[0]["quality"] == 0.8
    for row in powers:
        assert sum(part["share_of_frames"] for part in row["paths"]) == pytest.approx(1)
        assert not row["met"] or row["power_w"] <= row["power_limit_w"] * (1 + 1e-9)


def test_the_frontier_is_the_bundle_s(document: Document, small_bundle: Path) -> None:
    record = read_bundle(small_bundle).record
    assert [row["path"] for row in document["frontier"]] == [path.id for path in record.paths]
    assert document["frontier"][0]["roles"] == ("stock",)
    assert document["costs"] == "as the bundle holds them"


def test_where_the_cost_goes_is_counted_and_timed(document: Document) -> None:
    costs = document["where_cost_goes"]
    assert costs["stock"]["macs"] > costs["lossless"]["macs"] > 0
    for cost in costs.values():
        assert sum(row["macs"] for row in cost["by_type"]) == cost["macs"]
        assert sum(row["time_share"] for row in cost["by_type"]) == pytest.approx(1)
    assert "segformer" in {row["name"] for row in costs["stock"]["by_module"]}, "the stock model's own names"


def test_the_circumstances_are_told(document: Document, small_bundle: Path) -> None:
    assert document["bundle"] == str(small_bundle)
    assert document["device"] == identify("cpu").to_dict()
    assert document["versions"]["torch"] == torch.__version__
    assert document["input_shape"] == [1, 3, 64, 96]
    assert document["frames_from"] == "rendered street scenes"
    assert (document["seed"], document["pictures"], document["threads"]) == (20_000, PICTURES, 1)
    assert document["meter"]["source"] == "measured:test"
    assert document["meter"]["idle_how"] == "constant of the estimate"


# The energy report.


def test_the_energy_report_is_that_of_the_runs(document: Document, read_strict_json: StrictJson) -> None:
    report = EnergyReport.model_validate(read_strict_json(to_json(document["energy_report"])))
    assert report.model_dump(mode="json") == document["energy_report"]
    pairs = [(document["run"], report.run), *((run, report.baselines[n]) for n, run in document["baselines"].items())]
    for run, found in pairs:
        assert found.gross_j == run["energy"]["gross_j"]
        assert found.gross_j_per_frame.value_j == pytest.approx(run["energy"]["gross_j_per_frame"])
        assert found.net_j_per_frame.value_j == pytest.approx(run["energy"]["net_j_per_frame"])
        assert found.path == run.get("path")
        assert (found.frames, found.switches.count) == (run["frames"], run["switches"])
        assert found.deadlines.dropped == run["dropped"]
        latency, quality = run["latency_ms"], run["quality"]
        assert (found.latency.p50_ms, found.latency.p95_ms, found.latency.n) == (
            latency["p50"],
            latency["p95"],
            run["frames"],
        )
        assert (found.quality.value, found.quality.metric) == (quality["value"], quality["metric"])
        assert sum(domain.energy_j or 0.0 for domain in found.domains) == pytest.approx(found.gross_j)
    assert report.meter.source == "measured:test"
    assert report.setting.dtype == "float32"
    assert (report.idle.power_w, report.idle.how) == (document["meter"]["idle_power_w"], "constant of the estimate")
    assert (report.grid, report.run.co2e) == (None, None), "no emissions unless asked for"
    started = [datetime.fromisoformat(run.started or "") for run in (report.run, *report.baselines.values())]
    assert started == sorted(started)


def test_windows_of_the_run_are_told(document: Document) -> None:
    found = EnergyReport.model_validate(document["energy_report"]).run
    assert found.windows.n <= SECONDS
    assert found.windows.shortest_s is None or found.windows.shortest_s >= 1
    assert found.gross_j_per_frame.n_windows == found.windows.n


def test_an_interval_of_quality_has_a_reason_or_two_ends(document: Document) -> None:
    for run in runs_of(document):
        quality = run["quality"]
        assert 1 <= quality["pictures"] <= PICTURES
        if quality["pictures"] > 1:
            assert 0 <= quality["ci95_low"] <= quality["ci95_high"] <= 1


def test_one_picture_gives_no_interval_of_quality(small_bundle: Path) -> None:
    quality = bench(small_bundle, "500ms", pictures=1, seconds=0.3)["energy_report"]["run"]["quality"]
    assert (quality["ci95_low"], quality["ci_reason"]) == (None, "one picture: an interval needs two or more")


def test_emissions_are_worked_out_where_a_grid_is_given(small_bundle: Path) -> None:
    found = bench(small_bundle, "500ms", seconds=0.3, baseline_seconds=0.2, grid=given_intensity(350.0, "a test"))
    report = EnergyReport.model_validate(found["energy_report"])
    assert report.grid is not None
    assert (report.grid.source, report.grid.g_per_kwh) == ("a test", 350.0)
    for run in (report.run, *report.baselines.values()):
        assert run.co2e is not None
        assert run.co2e.g_total == pytest.approx((run.gross_j or 0.0) / 3.6e6 * 350)
        assert run.co2e.g_per_1000_frames == pytest.approx(1000 * (run.co2e.g_total or 0.0) / run.frames)
        assert run.co2e.estimated is False


def test_what_a_change_of_path_costs_is_measured_with_the_other_costs(
    small_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The costs of the record, so that which path is the fastest does not hang on this machine.
    monkeypatch.setattr(bench_module, "remeasure", lambda bundle, *_, **__: bundle.record)
    script = Scenario(
        seconds=0.8, budgets=[BudgetStep(at_s=at, budget=[text]) for at, text in ((0, "500ms"), (0.4, "0.001ms"))]
    )
    told: list[str] = []
    request = request_of(small_bundle, scenario=script, calibrate=True)
    found = run_bench(request, Sensor(), told.append)
    switches = found["energy_report"]["run"]["switches"]
    assert switches["count"] >= 1
    assert switches["energy"]["n"] == switches["time"]["n"] == 2
    assert any(line.startswith("measuring what a change between ") for line in told)
    assert "alternating at every frame" in switches["energy"]["method"]

    found = run_bench(replace(request, calibrate=False), Sensor())
    energy = found["energy_report"]["run"]["switches"]["energy"]
    assert (energy["value_j"], energy["reason"]) == (None, "not measured: no costs were measured here, as asked")


def test_conditions_are_read_before_and_after_every_run(small_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heat = iter(range(40, 90))

    def read(_: torch.device) -> Conditions:
        return Conditions(
            temperature_c=float(next(heat)),
            clock_mhz=None,
            memory_clock_mhz=None,
            power_limit_w=None,
            throttle_reasons=("hot",),
            missing=dict.fromkeys(("clock_mhz", "memory_clock_mhz", "power_limit_w"), "not here"),
        )

    monkeypatch.setattr(bench_module, "read_conditions", read)
    report = bench(small_bundle, "500ms", seconds=0.2, baseline_seconds=0.1)["energy_report"]
    pairs = [
        (run["conditions_before"], run["conditions_after"]) for run in (report["run"], *report["baselines"].values())
    ]
    # The best single path is the lossless one, which runs once.
    assert [(before["temperature_c"], after["temperature_c"]) for before, after in pairs] == [
        (40, 41),
        (42, 43),
        (44, 45),
        (44, 45),
    ]
    assert pairs[0][0]["throttle_reasons"] == ["hot"]


# Budgets.


def test_a_budget_that_does_not_bind_says_so(small_bundle: Path) -> None:
    found = bench(small_bundle, "500ms", "90W", seconds=0.3)
    assert not found["binds"]["binds"]
    assert found["binds"]["text"].startswith("the budget does not bind: the best path (lossless) needs about")
    assert (found["met"], found["shortfall"], found["run"]["shortfalls"]) == (True, None, [])
    assert [row["path"] for row in found["run"]["paths"]] == ["lossless"]
    assert [limit["kind"] for limit in found["run"]["budgets"][0]["limits"]] == ["power", "latency p95"]


@pytest.mark.parametrize(
    ("budget", "said"), [("0.1ms", "0.1 ms; the fastest needs "), ("1mW", "0.001 W; "), ("0.01mJ", "0.01 mJ/frame; ")]
)
def test_a_budget_that_no_path_can_meet_runs_the_cheapest(budget: str, said: str, small_bundle: Path) -> None:
    found = bench(small_bundle, budget, seconds=0.5, baseline_seconds=0.2)
    assert found["met"] is False
    assert found["shortfall"].startswith(f"no path meets {said}")
    assert "needs" in found["shortfall"]
    assert "\n" not in found["shortfall"]
    assert found["run"]["shortfalls"] == [found["shortfall"]]
    assert [row["path"] for row in found["run"]["paths"]] == ["lossless+size=50%"]
    assert found["baselines"]["best single path"]["path"] == "lossless+size=50%"


def test_each_step_of_a_script_is_a_stretch_of_the_run(small_bundle: Path) -> None:
    texts = (["500ms"], ["90%", "400ms"], ["20W"])
    script = Scenario(
        seconds=1.2, budgets=[BudgetStep(at_s=0.4 * number, budget=text) for number, text in enumerate(texts)]
    )
    found = bench(small_bundle, scenario=script, baseline_seconds=0.6)

    for run, seconds in ((found["run"], 1.2), (found["baselines"]["stock"], 0.6)):
        stretches = run["budgets"]
        assert [stretch["budget"] for stretch in stretches] == ["p95 500 ms", "2.7 W and p95 400 ms", "20 W"]
        assert [len(stretch["limits"]) for stretch in stretches] == [1, 2, 1]
        assert stretches[0]["from_s"] == 0
        assert stretches[-1]["to_s"] == run["seconds"]
        for one, next_one, step in zip(stretches, stretches[1:], (1, 2), strict=False):
            assert one["to_s"] == next_one["from_s"] >= step * seconds / 3
    assert found["budget"] == "p95 500 ms"
    assert [entry["text"] for entry in found["trace"]["budgets"]] == [s["budget"] for s in found["run"]["budgets"]]
    assert found["scenario"]["seconds"] == 1.2


def test_a_step_that_cannot_be_met_counts_although_others_can(small_bundle: Path) -> None:
    script = Scenario(
        seconds=0.9,
        budgets=[BudgetStep(at_s=at, budget=[text]) for at, text in ((0, "500ms"), (0.3, "0.1ms"), (0.6, "500ms"))],
    )
    found = bench(small_bundle, scenario=script, baseline_seconds=0.2)
    assert found["met"] is False
    assert found["shortfall"].startswith("no path meets 0.1 ms")


def test_the_best_single_path_is_the_best_under_every_step(small_bundle: Path) -> None:
    # At 20 frames/s the made-up costs are 3, 2.6, 2 and 1.4 W.
    for steps, path in ((("2.7W",), "lossless"), (("2.7W", "2.1W", "2.7W"), "lossless+size=75%")):
        script = Scenario(
            seconds=0.3, budgets=[BudgetStep(at_s=0.1 * number, budget=[text]) for number, text in enumerate(steps)]
        )
        found = bench(small_bundle, scenario=script, baseline_seconds=0.1)
        assert found["baselines"]["best single path"]["path"] == path


def test_a_camera_too_fast_for_every_path_drops_frames_and_says_so(small_bundle: Path) -> None:
    found = bench(small_bundle, "500ms", seconds=0.5, fps=2000.0)
    run = found["run"]
    assert run["frames"] + run["dropped"] == 1000
    assert run["dropped"] > run["frames"]


def test_without_a_rate_the_camera_is_one_that_the_stock_model_keeps_up_with(small_bundle: Path) -> None:
    found = bench(small_bundle, "500ms", seconds=0.2, fps=None)
    assert found["run"]["camera_fps"] == pytest.approx(0.95 / 0.040)


# Energy.


@pytest.fixture
def blind() -> NullMeter:
    return NullMeter("no sensor: plug one in")


def test_without_a_meter_energy_is_null_and_says_why(
    small_bundle: Path, blind: NullMeter, read_strict_json: StrictJson
) -> None:
    found = bench(small_bundle, "500ms", meter=blind, seconds=0.5, baseline_seconds=0.2, calibrate=True)
    for run in runs_of(found):
        energy = run["energy"]
        assert (energy["gross_j_per_frame"], energy["net_j_per_frame"], energy["power_w"]) == (None, None, None)
        assert energy["reason"] == "no sensor: plug one in"
    for run in (found["energy_report"]["run"], *found["energy_report"]["baselines"].values()):
        assert run["gross_j_per_frame"]["value_j"] is None
        assert run["gross_j_per_frame"]["reason"] == "no sensor: plug one in"
        assert run["switches"]["energy"]["value_j"] is None
    assert found["energy_report"]["meter"]["method"] == "none"
    assert found["meter"]["idle_power_w"] is None
    assert found["trace"]["power_w"] == []
    for row in found["frontier"]:
        assert row["energy"]["gross_j"] is None
        assert row["energy"]["reason"] == "no sensor: plug one in"
    assert {row["power_limit_w"] for row in found["other_budgets"]} == {None}
    assert {row["power_w"] for row in found["other_budgets"]} == {None}
    assert "W" not in found["binds"]["text"]
    read_strict_json(to_json(found))
    assert "not measured" in html(found)


@pytest.mark.parametrize("budget", ["60W", "60%", "250mJ", "40Wh/3h"])
@pytest.mark.parametrize("calibrate", [True, False])
def test_a_budget_of_energy_that_nothing_measures_is_refused_before_any_work(
    budget: str, calibrate: bool, small_bundle: Path, blind: NullMeter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Bundle, "load", lambda *_: pytest.fail("it was loaded"))
    with pytest.raises(BudgetError, match="needs an energy meter, and none works here: no sensor: plug one in"):
        bench(small_bundle, "500ms", budget, meter=blind, calibrate=calibrate)


def test_a_bundle_without_energy_figures_says_what_is_missing(make_bundle_at: MakeBundle, tmp_path: Path) -> None:
    folder = make_bundle_at(tmp_path / "b", energy=False).folder
    with pytest.raises(BudgetError, match="none works here: no meter was chosen"):
        bench(folder, "60W")
    found = bench(folder, "500ms", seconds=0.3)
    assert found["run"]["energy"]["gross_j"] > 0


def test_costs_are_measured_here_unless_asked_not_to(small_bundle: Path) -> None:
    found = bench(small_bundle, "60%", calibrate=True, seconds=0.3)
    assert found["costs"] == "measured here before the run"
    for row in found["frontier"]:
        assert row["energy"]["source"] == "measured:test"
        assert row["energy"]["windows"] == 2
        assert row["latency"]["source"].startswith("measured:perf-counter")
    assert {"stock", "lossless"} <= {row["path"] for row in found["frontier"]}


def test_figures_of_another_device_are_used_with_a_warning(make_bundle_at: MakeBundle, tmp_path: Path) -> None:
    found = make_bundle_at(tmp_path / "b")
    elsewhere = {**found.record.device, "name": "Another chip"}
    update_record(found, found.record.model_copy(update={"device": elsewhere}))
    told: list[str] = []
    run_bench(request_of(found.folder, "500ms", seconds=0.2), Sensor(), told.append)
    assert any(line.startswith("warning: ") and "was measured on another device" in line for line in told)


# Frames.


def write_frames(folder: Path, sizes: list[tuple[int, int]], *, labels: bool, classes: int = 11) -> Path:
    (folder / "images").mkdir(parents=True)
    rng = np.random.default_rng(0)
    for number, (height, width) in enumerate(sizes):
        pixels = rng.integers(0, 255, (height, width, 3), np.uint8)
        Image.fromarray(pixels).save(folder / "images" / f"{number}.png")
        if labels:
            (folder / "labels").mkdir(exist_ok=True)
            values = rng.integers(0, classes, (height, width), np.uint8)
            Image.fromarray(values).save(folder / "labels" / f"{number}.png")
    return folder


def test_frames_of_a_folder_are_shown(small_bundle: Path, tmp_path: Path) -> None:
    data = write_frames(tmp_path / "data", [(64, 96)] * 3, labels=True)
    found = bench(small_bundle, "500ms", data=data, pictures=2, seconds=0.3)
    assert (found["frames_from"], found["seed"], found["pictures"]) == (str(data), None, 2)
    assert found["run"]["quality"]["metric"] == "mIoU"


def test_without_labels_quality_is_agreement_with_the_stock_model(small_bundle: Path, tmp_path: Path) -> None:
    data = write_frames(tmp_path / "data", [(64, 96)] * 3, labels=False)
    found = bench(small_bundle, "500ms", data=data, seconds=0.3, baseline_seconds=0.3)
    qualities = {name: run["quality"] for name, run in found["baselines"].items()}
    assert {quality["metric"] for quality in qualities.values()} == {"agreement"}
    assert qualities["stock"]["value"] == 1.0
    assert qualities["lossless"]["value"] == pytest.approx(1.0, abs=1e-3)


def test_scenes_serve_no_model_of_other_classes(make_bundle_at: MakeBundle, tmp_path: Path) -> None:
    for classes in (("cat", "dog"), tuple(f"class {number}" for number in range(19))):
        folder = make_bundle_at(tmp_path / str(len(classes)), classes).folder
        told: list[str] = []
        found = run_bench(request_of(folder, "500ms", seconds=0.2), Sensor(), told.append)
        assert found["run"]["quality"]["metric"] == "agreement"
        assert "the model has other classes than the scenes: quality is agreement with the stock model" in told


def test_costs_are_taken_at_the_size_of_the_frames_shown(small_bundle: Path, tmp_path: Path) -> None:
    data = write_frames(tmp_path / "data", [(48, 64)] * 2, labels=True)
    found = bench(small_bundle, "500ms", data=data, seconds=0.2, calibrate=True)
    assert found["input_shape"] == [1, 3, 48, 64]
    factory = read_bundle(small_bundle).load()
    [stock] = [row for row in found["frontier"] if row["path"] == "stock"]
    assert (
        stock["macs"]
        == count(factory.stock, (torch.zeros(1, 3, 48, 64),)).macs
        == found["where_cost_goes"]["stock"]["macs"]
    )

    told: list[str] = []
    run_bench(request_of(small_bundle, "500ms", data=data, seconds=0.2), Sensor(), told.append)
    assert "warning: costs are those of frames of 64x96" in told


def test_frames_of_several_sizes_make_no_stream(small_bundle: Path, tmp_path: Path) -> None:
    data = write_frames(tmp_path / "data", [(64, 96), (64, 80)], labels=True)
    with pytest.raises(DataError, match=r"1\.png is 64x80, but the first frame is 64x96"):
        bench(small_bundle, "500ms", data=data)


def test_labels_out_of_range_are_refused(small_bundle: Path, tmp_path: Path) -> None:
    data = write_frames(tmp_path / "data", [(64, 96)], labels=True, classes=40)
    with pytest.raises(DataError, match=r"labels/0\.png holds class"):
        bench(small_bundle, "500ms", data=data)


def test_a_picture_without_labels_does_not_spoil_the_others(small_bundle: Path, tmp_path: Path) -> None:
    data = write_frames(tmp_path / "data", [(64, 96)] * 2, labels=True)
    Image.fromarray(np.full((64, 96), 255, np.uint8)).save(data / "labels" / "0.png")
    assert bench(small_bundle, "500ms", data=data, seconds=0.3)["run"]["quality"]["metric"] == "mIoU"
    # Too short a run to get to the labelled one.
    assert bench(small_bundle, "500ms", data=data, seconds=0.04)["run"]["quality"]["metric"] == "agreement"


# What is left behind.


class Watched(Sensor):
    """Knows whether it was given back."""

    closed = False

    def close(self) -> None:
        self.closed = True
        super().close()


def test_the_meter_is_given_back(small_bundle: Path) -> None:
    meter = Watched()
    bench(small_bundle, "500ms", meter=meter, seconds=0.2)
    assert meter.closed


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks at /proc")
@pytest.mark.parametrize("fails", [False, True])
def test_co_running_processes_are_gone_afterwards(
    fails: bool, small_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def children() -> set[str]:
        listed = Path(f"/proc/{os.getpid()}/task").glob("*/children")
        return {child for file in listed for child in file.read_text().split()}

    if fails:
        monkeypatch.setattr(bench_module, "_baselines", lambda *_: 1 / 0)
    script = Scenario(
        seconds=0.6,
        budgets=[BudgetStep(at_s=0, budget=["500ms"])],
        loads=[Load(from_s=0.1, to_s=0.3, processes=2), Load(from_s=0.2, to_s=9, processes=1)],
    )
    before = children()
    if fails:
        with pytest.raises(ZeroDivisionError):
            bench(small_bundle, scenario=script, baseline_seconds=0.3)
    else:
        found = bench(small_bundle, scenario=script, baseline_seconds=0.3)
        assert [load["processes"] for load in found["scenario"]["loads"]] == [2, 1]
    assert children() == before


def test_numbers_are_finite_or_null(document: Document) -> None:
    def walk(value: Any) -> None:
        if isinstance(value, dict):
            for item in value.values():
                walk(item)
        elif isinstance(value, list | tuple):
            for item in value:
                walk(item)
        else:
            assert value is None or isinstance(value, str | bool | int) or math.isfinite(value)

    walk(document)
