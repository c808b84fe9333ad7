"""Two reports side by side: ratios and their intervals, what may not be compared, and what is not added twice."""

import copy
import json
import math
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gearshift.errors import InputError
from gearshift.files import to_json, write_json
from gearshift.profiler.meters import CpuTimeEstimate
from gearshift.profiler.meters.cpu_info import CpuInfo
from gearshift.runtime.bench.bench import BenchRequest, run_bench
from gearshift.runtime.bench.scenario import Scenario
from gearshift.runtime.carbon import given_intensity
from gearshift.runtime.cli import main
from gearshift.runtime.report import compare_html, comparison, page, with_emissions
from gearshift.runtime.report.against.data import CO2E, RUN, Compared, Comparison
from gearshift.runtime.report.against.ratios import energy_ratio, percentile_ratio, plain_ratio
from gearshift.runtime.report.energy.model import EnergyFigure, EnergyReport
from gearshift.runtime.report.energy.spread import spread_of

Document = dict[str, Any]
Change = Callable[[Document], None]
StrictJson = Callable[[str], Any]


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("tests have no network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(page, "get_plotlyjs", lambda: "")


@pytest.fixture(scope="module")
def recorded(small_bundle: Path) -> str:
    """A short bench with an estimate of energy, as JSON."""
    torch.set_num_threads(1)
    meter = CpuTimeEstimate(
        cpu=CpuInfo(model="Chip", sockets=1, threads=4, usable_threads=1, is_virtual=False), table={}
    )
    request = BenchRequest(
        bundle=small_bundle,
        scenario=Scenario.steady(["500ms"], 3.4),
        fps=20.0,
        baseline_seconds=0.3,
        pictures=2,
        calibrate=False,
    )
    return to_json(run_bench(request, meter))


@pytest.fixture
def document(recorded: str) -> Document:
    """With windows of its own, so that how fast the machine was decides nothing."""
    found: Document = json.loads(recorded)
    energy = found["energy_report"]["run"]
    for name in ("gross_j_per_frame", "net_j_per_frame"):
        value = energy[name]["value_j"] = abs(energy[name]["value_j"])
        spread = figure_of([value * part for part in (0.9, 1.1, 1.0, 0.95, 1.05)])
        energy[name] |= spread.model_dump(exclude={"value_j"})
    return found


def by_name(found: Comparison, run: str = RUN) -> dict[str, Compared]:
    return {figure.name: figure for figure in found.figures if figure.run == run}


def figure_of(values: list[float]) -> EnergyFigure:
    spread = spread_of(values)
    return EnergyFigure(
        value_j=spread.mean,
        n_windows=spread.n,
        n_effective=float(spread.n),
        mean_j=spread.mean,
        std_j=spread.std,
        standard_error_j=None if spread.std is None else spread.std / math.sqrt(spread.n),
        ci95_low_j=spread.low,
        ci95_high_j=spread.high,
        interval_method=None if spread.low is None else "Student's t",
        spread_reason=spread.reason,
    )


# Ratios.


def test_a_run_against_itself_is_one_in_every_figure(document: Document) -> None:
    found = comparison(document, document)
    for figure in found.figures:
        if figure.ratio.value is not None:
            assert figure.ratio.value == 1
            assert figure.ratio.low is None or figure.ratio.low <= 1 <= (figure.ratio.high or 0)
    assert found.warnings == ()
    assert "both files hold the same run" in found.notes
    assert {figure.run for figure in found.figures} == {RUN, *document["baselines"]}


def test_every_headline_figure_stands_there_with_both_values(document: Document) -> None:
    other = copy.deepcopy(document)
    energy = other["energy_report"]["run"]
    energy["gross_j_per_frame"]["value_j"] *= 2
    energy["frames_per_wh"] /= 2
    energy["latency"]["p95_ms"] *= 3
    other["trace"]["latency_ms"] = [3 * value for value in other["trace"]["latency_ms"]]
    found = by_name(comparison(document, other))
    assert {
        *("Gross energy per frame", "Net energy per frame", "Quality", "Latency p50", "Latency p95", "Latency p99"),
        *("Mean power", "Frames per Wh", "Frames per second", "Deadline misses", "Frames dropped"),
        *("Changes of path", "Energy of a change"),
    } == set(found)
    for name, ratio in (("Gross energy per frame", 2), ("Frames per Wh", 0.5), ("Latency p95", 3), ("Mean power", 1)):
        assert found[name].ratio.value == pytest.approx(ratio)
    assert found["Gross energy per frame"].unit == "J"
    assert found["Energy of a change"].ratio.reason == "not measured in both"


def test_the_interval_of_a_ratio_is_welch_s_of_the_logarithms() -> None:
    """Of a small spread the logarithm of a mean is the mean of logarithms."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(10.0, 0.1, 9), rng.normal(12.0, 0.3, 14)
    found = energy_ratio(figure_of(list(a)), figure_of(list(b)))
    reference = stats.ttest_ind(np.log(b), np.log(a), equal_var=False).confidence_interval(0.95)
    assert found.value == pytest.approx(b.mean() / a.mean())
    assert found.low == pytest.approx(math.exp(reference.low), rel=1e-3)
    assert found.high == pytest.approx(math.exp(reference.high), rel=1e-3)


def test_intervals_hold_the_true_ratio_19_times_in_20() -> None:
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(400):
        a, b = rng.normal(1.0, 0.1, 8), rng.normal(0.6, 0.15, 12)
        found = energy_ratio(figure_of(list(a)), figure_of(list(b)))
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 0.6 <= found.high
    assert 0.92 < held / 400 < 0.98


@given(a=st.lists(st.floats(0.1, 10), min_size=2, max_size=20), b=st.lists(st.floats(0.1, 10), min_size=2, max_size=20))
def test_the_other_way_round_the_ratio_is_turned_over(a: list[float], b: list[float]) -> None:
    one, other = energy_ratio(figure_of(a), figure_of(b)), energy_ratio(figure_of(b), figure_of(a))
    assert one.value is not None
    assert one.low is not None
    assert one.high is not None
    assert other.value == pytest.approx(1 / one.value)
    assert other.low == pytest.approx(1 / one.high)
    assert other.high == pytest.approx(1 / one.low)
    assert one.low <= one.value * (1 + 1e-9)
    assert one.value <= one.high * (1 + 1e-9)


@given(
    a=st.floats(0.1, 10),
    b=st.floats(0.1, 10),
    windows=st.lists(st.floats(0.1, 10), min_size=2, max_size=20),
    older=st.booleans(),
)
def test_the_ratio_lies_in_its_own_interval_whatever_the_windows(
    a: float, b: float, windows: list[float], older: bool
) -> None:
    """Figures are of whole runs, also of frames that no window holds; older ones hold no standard error."""
    changed = {"standard_error_j": None, "interval_method": None} if older else {}
    first, second = (figure_of(windows).model_copy(update={"value_j": value, **changed}) for value in (a, b))
    found = energy_ratio(first, second)
    assert found.value == pytest.approx(b / a)
    assert found.low is not None
    assert found.high is not None
    assert found.low <= found.value <= found.high


def test_an_older_figure_gives_the_ratio_the_error_of_its_mean() -> None:
    a, b = figure_of([1.0, 1.1, 0.9, 1.05]), figure_of([2.0, 2.3, 2.1])
    older = [one.model_copy(update={"standard_error_j": None, "interval_method": None}) for one in (a, b)]
    assert energy_ratio(*older).low == pytest.approx(energy_ratio(a, b).low)


@pytest.mark.parametrize(("a", "b"), [(None, 1.0), (1.0, None), (0.0, 1.0), (-1.0, 1.0), (1.0, -0.5)])
def test_there_is_no_ratio_of_what_is_missing_or_not_positive(a: float | None, b: float | None) -> None:
    found = plain_ratio(a, b, "no spread")
    assert (found.value, found.low) == (None, None)
    assert found.reason in ("not measured in both", "a ratio needs positive figures")


def test_one_window_is_no_spread() -> None:
    found = energy_ratio(figure_of([2.0]), figure_of([1.0, 1.1]))
    assert (found.low, found.reason) == (None, "one of them has no spread")
    assert found.value == pytest.approx(0.525)


def test_latencies_are_compared_frame_by_frame() -> None:
    rng = np.random.default_rng(0)
    a = list(rng.lognormal(3.0, 0.2, 300))
    found = percentile_ratio(a, [1.3 * value for value in a], 95)
    assert found.value == pytest.approx(1.3)
    assert found.low is not None
    assert found.high is not None
    assert found.low < 1.3 < found.high
    assert found == percentile_ratio(a, [1.3 * value for value in a], 95), "the same every time"
    assert percentile_ratio([5.0] * 4, [10.0] * 4, 50).low == 2
    assert percentile_ratio([5.0], a, 50).reason == "fewer than two frames"


# What may not be compared.


def setting(**values: Any) -> Change:
    return lambda document: document["energy_report"]["setting"].update(values)


def meter(**values: Any) -> Change:
    return lambda document: document["energy_report"]["meter"].update(values)


def run(**values: Any) -> Change:
    return lambda document: document["energy_report"]["run"].update(values)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (setting(device={"name": "Other chip", "threads": 4}), ["Device"]),
        (setting(input_shape=[1, 3, 512, 512]), ["Input"]),
        (setting(data="a folder"), ["Frames"]),
        (setting(seed=7), ["Frames"]),
        (setting(weights_sha256="0" * 64), ["Model"]),
        (setting(threads=64), ["Threads"]),
        (meter(estimated=False), ["Energy"]),
        (meter(boundary="the whole board"), ["Boundary"]),
        (meter(name="rapl", source="measured:rapl"), ["Meter"]),
        (run(camera_fps=30.0), ["Camera"]),
        (run(camera_fps=20.1), []),
        (setting(versions={"torch": "3.0"}), []),
        (setting(budget="33 ms"), []),
        (setting(dtype="bfloat16"), []),
    ],
)
def test_what_makes_two_reports_incomparable_is_said(change: Change, said: list[str], document: Document) -> None:
    other = copy.deepcopy(document)
    change(other)
    found = comparison(document, other)
    assert [warning.partition(":")[0] for warning in found.warnings] == said
    assert found.to_dict()["comparable"] is (said == [])
    html = compare_html(found)
    assert html.count("Not comparable: ") == len(said)
    for name in said:
        assert comparison(other, document).warnings[0].startswith(name)


def test_heat_clocks_and_throttling_are_said(document: Document) -> None:
    other = copy.deepcopy(document)
    for one, heat, clock in ((document, 40.0, 2000.0), (other, 80.0, 1500.0)):
        conditions = one["energy_report"]["run"]["conditions_before"]
        conditions.update(temperature_c=heat, clock_mhz=clock, throttle_reasons=["sw_power_cap"] if heat > 50 else [])
        for name in ("temperature_c", "clock_mhz", "throttle_reasons"):
            conditions["missing"].pop(name, None)
    notes = " | ".join(comparison(document, other).notes)
    assert "clocks differ when the runs began: 2000 against 1500 MHz" in notes
    assert "temperatures differ when the runs began: 40.0 against 80.0 °C" in notes
    assert "B was held down by sw_power_cap" in notes
    assert "the energy of both is ESTIMATED" in notes


# What is not added twice.


def hundred_joules(document: Document, *, started_s: float = 0.0, device: str = "Chip") -> Document:
    """The same run as if it had taken 100 J in 10 s, begun somewhen."""
    made = copy.deepcopy(document)
    begin = datetime.fromisoformat("2026-01-01T00:00:00+00:00") + timedelta(seconds=started_s)
    made["energy_report"]["run"].update(gross_j=100.0, seconds=10.0, started=begin.isoformat())
    made["energy_report"]["setting"]["device"]["name"] = device
    return made


@pytest.mark.parametrize(
    ("started_s", "device", "joules"),
    [
        (0.0, "Chip", 100.0),
        (0.0, "Other chip", 200.0),
        (20.0, "Chip", 200.0),
        (10.0, "Chip", 200.0),
        (4.0, "Chip", None),
    ],
)
def test_one_device_and_interval_counts_once(
    started_s: float, device: str, joules: float | None, document: Document
) -> None:
    a, b = hundred_joules(document), hundred_joules(document, started_s=started_s, device=device)
    found = comparison(a, b).together
    assert found.energy_j == (None if joules is None else pytest.approx(joules))
    assert found.is_estimate
    assert found.note


def test_a_run_within_another_counts_once(document: Document) -> None:
    a, b = hundred_joules(document), hundred_joules(document, started_s=2.0)
    b["energy_report"]["run"].update(gross_j=30.0, seconds=3.0)
    assert comparison(a, b).together.energy_j == pytest.approx(100.0)
    assert comparison(b, a).together.energy_j == pytest.approx(100.0)


def test_nothing_is_added_to_what_was_not_measured(document: Document) -> None:
    b = hundred_joules(document, started_s=99.0)
    b["energy_report"]["run"].update(gross_j=None, reason="the sensor fell off")
    found = comparison(hundred_joules(document), b).together
    assert found.energy_j is None
    assert "the sensor fell off" in found.note


# The page and the data.


def test_the_page_is_the_same_every_time_and_loads_nothing(document: Document) -> None:
    found = comparison(document, document)
    text = compare_html(found)
    assert text == compare_html(comparison(copy.deepcopy(document), copy.deepcopy(document)))
    assert not re.search(r"""\s(src|href|action)=|url\(|@import|<(link|iframe|img)""", text)
    [data] = re.findall(r'<script type="application/json" id="ratios-data">(.*?)</script>', text)
    figure = json.loads(data)
    go.Figure(figure)  # refuses what plotly does not know
    assert {value for trace in figure["data"] for value in trace["x"]} == {1.0}


def test_texts_stay_texts(document: Document) -> None:
    evil = '</script><img src=x onerror="x"><b>'
    other = copy.deepcopy(document)
    setting(budget=evil, data=evil, model=evil, dtype=evil, versions={evil: evil})(other)
    meter(boundary=evil, name=evil)(other)
    other["energy_report"]["baselines"]["stock"]["path"] = evil
    text = compare_html(comparison(document, other, names=(evil, f"b{evil}")))
    assert "<img" not in text
    assert text.count("</script>") == text.count("<script")


@pytest.mark.parametrize("unnamed", ["A", "B"])
def test_emissions_without_a_grid_are_not_called_unmeasured(unnamed: str, document: Document) -> None:
    with_grid = with_emissions(document, given_intensity(350.0))
    pair = (document, with_grid) if unnamed == "A" else (with_grid, document)
    found = comparison(*pair)
    one, other = unnamed.lower(), "b" if unnamed == "A" else "a"
    rows = [row for row in found.to_dict()["figures"] if row["name"] == CO2E]
    assert len(rows) == 1 + len(document["baselines"])
    for row in rows:
        assert (row[one], row[f"{one}_missing"]) == (None, "no grid named")
        assert row[other] > 0
        assert row[f"{other}_missing"] is None
        assert (row["ratio"], row["reason"]) == (None, f"no grid was named for {unnamed}")
    [cells] = re.findall(rf"{CO2E}, m?g(.*?)</tr>", compare_html(found).split("The fixed path")[0], re.DOTALL)
    assert "no grid named" in cells
    assert "no grid was named: --country FRA, or --grid-intensity in g/kWh" in cells
    assert "not measured" not in cells


def test_emissions_of_what_was_not_measured_are_not_measured(document: Document) -> None:
    grid = with_emissions(document, given_intensity(350.0))
    unmeasured = copy.deepcopy(grid)
    unmeasured["energy_report"]["run"]["co2e"] |= {"g_total": None, "g_per_1000_frames": None, "reason": "no sensor"}
    found = by_name(comparison(grid, unmeasured))[CO2E]
    assert (found.b, found.b_missing, found.ratio.reason) == (None, "not measured", "not measured in both")


@dataclass(frozen=True)
class Files:
    a: Path
    b: Path


@pytest.fixture
def runs(document: Document, tmp_path: Path) -> Files:
    """Two recorded runs, the second of twice the energy."""
    found = Files(tmp_path / "a.json", tmp_path / "b.json")
    write_json(found.a, document)
    other = copy.deepcopy(document)
    for name in ("value_j", "mean_j", "std_j", "standard_error_j", "ci95_low_j", "ci95_high_j"):
        other["energy_report"]["run"]["gross_j_per_frame"][name] *= 2
    write_json(found.b, other)
    return found


def test_the_command_writes_a_page_and_the_differences(
    runs: Files, capfd: pytest.CaptureFixture[str], read_strict_json: StrictJson
) -> None:
    assert main(["report", str(runs.a), "--against", str(runs.b), "--json", "-", "--country", "FRA"]) == 0
    out, err = capfd.readouterr()
    assert err == f"wrote {runs.a.with_name('a-against-b.html')}\n"
    assert "B takes 100 % more energy per frame than A" in runs.a.with_name("a-against-b.html").read_text()
    found = read_strict_json(out)
    rows = {(row["run"], row["name"]): row for row in found["figures"]}
    gross = rows[RUN, "Gross energy per frame"]
    assert gross["ratio"] == pytest.approx(2)
    assert gross["ratio_ci95"][0] <= 2 <= gross["ratio_ci95"][1]
    assert gross["b_ci95"][0] == pytest.approx(2 * gross["a_ci95"][0])
    emitted = rows[RUN, "CO2e per 1000 frames"]
    assert emitted["ratio"] == pytest.approx(2)
    assert emitted["a"] == pytest.approx(gross["a"] * 1000 / 3.6e6 * 56.039, rel=1e-3)
    assert rows["stock", "Quality"]["ratio"] == 1
    assert (found["a"]["file"], found["b"]["file"]) == (str(runs.a), str(runs.b))
    assert found["together"]["energy_j"] == pytest.approx(json.loads(runs.a.read_text())["run"]["energy"]["gross_j"])


def test_the_command_writes_the_energy_report_as_data(
    runs: Files, capfd: pytest.CaptureFixture[str], read_strict_json: StrictJson, tmp_path: Path
) -> None:
    options = ["--grid-intensity", "350", "--grid-source", "my grid", "--out", str(tmp_path / "page.html")]
    assert main(["report", str(runs.a), "--json", "-", *options]) == 0
    report = EnergyReport.model_validate(read_strict_json(capfd.readouterr().out))
    assert report.grid is not None
    assert report.grid.source == "my grid"
    assert report.run.co2e is not None
    assert report.run.co2e.g_total == pytest.approx((report.run.gross_j or 0.0) / 3.6e6 * 350)
    assert report.run.co2e.estimated
    assert "my grid" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--against", "absent.json"], "cannot read absent.json"),
        (["--against", "foreign.json"], "foreign.json holds no report"),
        (["--country", "ZZZ"], 'no grid intensity for the country "ZZZ"'),
        (["--country", "FRA", "--grid-intensity", "3"], "give either --country FRA or --grid-intensity 3"),
        (["--grid-intensity", "-3"], "a grid intensity of -3 g/kWh cannot be"),
        (["--grid-source", "me"], '--grid-source "me" names no figure'),
        (["--out", "a.json"], "a.json is a run that is read"),
        (["--against", "b.json", "--json", "b.json"], "b.json is a run that is read"),
    ],
)
def test_what_is_wrong_is_one_line(
    options: list[str],
    said: str,
    runs: Files,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(runs.a.parent)
    (runs.a.parent / "foreign.json").write_text("{}")
    before = {file.name: file.read_bytes() for file in runs.a.parent.iterdir()}
    assert main(["report", "a.json", *options]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    [line] = err.splitlines()
    assert line.startswith("error: ")
    assert said in line
    assert {file.name: file.read_bytes() for file in runs.a.parent.iterdir()} == before


def test_the_bench_refuses_an_unknown_country_before_any_work(
    small_bundle: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", str(small_bundle), "--budget", "33ms", "--country", "Atlantis"]) == 2
    assert capfd.readouterr().err.startswith('error: no grid intensity for the country "Atlantis"')


def test_documents_that_are_none_are_refused_by_name(document: Document) -> None:
    with pytest.raises(InputError, match="second holds no report"):
        comparison(document, {}, names=("first", "second"))
