"""The report of a bench: the page, the terminal's tables, and the reader of the JSON file."""

import copy
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from gearshift.errors import InputError
from gearshift.files import write_json
from gearshift.runtime.bench.bench import REPORT_SCHEMA
from gearshift.runtime.bench.drive import Run, Served
from gearshift.runtime.bench.summary import summarise
from gearshift.runtime.budget import Budget
from gearshift.runtime.carbon import given_intensity
from gearshift.runtime.report import document as shapes
from gearshift.runtime.report import energy_report, html, page, read_run, terminal, with_emissions
from gearshift.runtime.report.energy.older import NOT_KEPT, NOT_TRACED
from gearshift.runtime.report.energy.spread import ratio_of, stretches
from gearshift.runtime.report.names import names
from gearshift.runtime.report.tags import tag
from gearshift.runtime.report.words import number, percent, quantity, shortened

Document = dict[str, Any]
LONG = "lossless+skip=0.0,0.1,1.0,1.1,2.0,2.1,3.0,3.1+fuse=192"
SHORT = "lossless+skip=0.0+fuse=320"
NO_METER = "no meter works here"


def power_limit(limit: float, mean: float, violated: float) -> Document:
    return {
        "kind": "power",
        "unit": "W",
        "limit": limit,
        "mean": mean,
        "worst_1s_window": mean * 1.1,
        "windows": 40,
        "windows_in_violation": violated,
        "held_on_average": mean <= limit,
        "reason": None,
    }


def latency_limit(limit: float, achieved: float) -> Document:
    return {
        "kind": "latency p95",
        "unit": "ms",
        "limit": limit,
        "mean": achieved * 0.8,
        "achieved": achieved,
        "worst_frame": achieved * 1.5,
        "frames_in_violation": 0.25,
        "held": achieved <= limit,
    }


def run_part(gross_j: float, quality: float, *paths: str) -> Document:
    return {
        "seconds": 4.0,
        "camera_fps": 2.0,
        "frames": 8,
        "dropped": 1,
        "fps": 2.0,
        "latency_ms": {"p50": 48.2, "p95": 231.0, "p99": 294.0, "max": 312.0},
        "energy": {
            "gross_j": gross_j * 8,
            "gross_j_per_frame": gross_j,
            "net_j_per_frame": gross_j / 2,
            "spread_j_per_frame": 0.01,
            "uncertainty_j": 0.8,
            "power_w": gross_j * 2,
            "idle_power_w": 0.8,
            "worst_1s_window_w": gross_j * 2.5,
            "source": "measured:rapl",
            "warnings": [],
            "reason": None,
        },
        "quality": {"metric": "mIoU", "value": quality, "per_class": [], "frames": 8, "not_judged": 0},
        "paths": [
            {
                "path": path,
                "frames": 8 // len(paths),
                "share_of_frames": 1 / len(paths),
                "share_of_time": 1 / len(paths),
                "median_ms": 40.0,
            }
            for path in paths
        ],
        "switches": len(paths) - 1,
        "budgets": [{"budget": "1.801 W", "from_s": 0.0, "to_s": 4.0, "limits": [power_limit(1.801, 1.776, 0.478)]}],
        "shortfalls": [],
    }


def path_row(path: str, role: str, median_ms: float, net_j: float, quality: float) -> Document:
    return {
        "path": path,
        "roles": [role],
        "quality": {"metric": "mIoU", "value": quality, "per_class": [], "images": 12},
        "latency": {
            "median_ms": median_ms,
            "p95_ms": median_ms * 1.2,
            "iqr_ms": median_ms / 9,
            "n": 30,
            "source": "measured:perf-counter",
        },
        "energy": {
            "gross_j": net_j * 1.5,
            "net_j": net_j,
            "spread_j": 0.01,
            "windows": 5,
            "source": "measured:rapl",
            "reason": None,
        },
        "macs": 425582208,
        "extra_bytes": 262656,
        "largest_difference": None,
    }


def cost(path: str, *shares: tuple[str, float, float]) -> Document:
    rows = [
        {
            "name": name,
            "macs": int(macs * 6e8),
            "macs_share": macs,
            "time_ms": time * 200,
            "time_share": time,
        }
        for name, time, macs in shares
    ]
    return {
        "path": path,
        "macs": 600_000_000,
        "wall_ms": 200.0,
        "overhead_ratio": 1.8,
        "source": "wall",
        "by_type": rows,
    }


@pytest.fixture
def document() -> Document:
    """What a bench returns: a steady power budget, held on average by changing between two paths."""
    frames = 8
    return {
        "report": "runtime bench",
        "schema_version": 1,
        "created": "2026-01-02T03:04:05+00:00",
        "bundle": "street.bundle",
        "model": {"reference": "checkpoint", "weights_sha256": "ab" * 32, "trained": True},
        "device": {"kind": "cpu", "name": "Test CPU", "threads": 2, "memory_bytes": 2**34, "driver": None},
        "versions": {"gearshift": "0.1.0", "torch": "2.11.0"},
        "threads": 2,
        "input_shape": [1, 3, 180, 240],
        "frames_from": "rendered street scenes",
        "seed": 7,
        "pictures": 10,
        "meter": {
            "name": "rapl",
            "source": "measured:rapl",
            "boundary": "processor package",
            "notes": ["one package"],
            "idle_power_w": 0.8,
            "idle_how": "measured for 2 s",
        },
        "costs": "measured here before the run",
        "scenario": {"seconds": 4.0, "budgets": [{"at_s": 0.0, "budget": ["60%"]}], "loads": []},
        "budget": "1.801 W",
        "binds": {"binds": True, "text": "the budget binds: the best path needs about 198 ms and 5.26 W"},
        "met": True,
        "shortfall": None,
        "run": run_part(0.421, 0.62, LONG, SHORT),
        "baselines": {
            "stock": {"path": "stock", **run_part(0.993, 0.64, "stock")},
            "lossless": {"path": "lossless", **run_part(0.702, 0.64, "lossless")},
            "best single path": {"path": LONG, **run_part(0.265, 0.55, LONG)},
        },
        "other_budgets": [
            {
                "budget": "80% of stock",
                "power_limit_w": 2.4,
                "latency_limit_ms": None,
                "met": True,
                "quality": 0.61,
                "power_w": 2.4,
                "paths": [{"path": SHORT, "share_of_frames": 0.3}, {"path": LONG, "share_of_frames": 0.7}],
            },
            {
                "budget": "p95 14 ms",
                "power_limit_w": None,
                "latency_limit_ms": 14.0,
                "met": False,
                "quality": 0.55,
                "power_w": None,
                "paths": [{"path": LONG, "share_of_frames": 1.0}],
            },
        ],
        "frontier": [
            path_row("stock", "stock", 318.0, 0.69, 0.64),
            path_row("lossless", "lossless", 126.0, 0.51, 0.64),
            path_row(SHORT, "frontier", 55.0, 0.31, 0.63),
            path_row(LONG, "frontier", 11.0, 0.08, 0.55),
        ],
        "where_cost_goes": {
            "stock": cost("stock", ("linear", 0.3, 0.6), ("convolution", 0.6, 0.4), ("norm", 0.1, 0.0)),
            "lossless": cost("lossless", ("linear", 0.5, 0.8), ("convolution", 0.5, 0.2)),
        },
        "trace": {
            "paths": sorted([LONG, SHORT]),
            "frame_index": list(range(frames)),
            "start_s": [0.5 * place for place in range(frames)],
            "latency_ms": [40.0 + place for place in range(frames)],
            "path": [0, 0, 0, 0, 1, 1, 1, 1],
            "power_end_s": [0.1 * (place + 1) for place in range(39)],
            "power_w": [1.7 + 0.01 * place for place in range(39)],
            "budgets": [{"at_s": 0.0, "power_w": 1.801, "text": "1.801 W"}],
        },
    }


@pytest.fixture
def several(document: Document) -> Document:
    """Three budgets in turn, the last one not held, beside another program."""
    document["run"]["budgets"] = [
        {"budget": "9 W", "from_s": 0.0, "to_s": 1.0, "limits": [power_limit(9.0, 8.5, 0.0)]},
        {"budget": "5 W", "from_s": 1.0, "to_s": 2.5, "limits": [power_limit(5.0, 4.9, 0.1)]},
        {
            "budget": "7 W and p95 33 ms",
            "from_s": 2.5,
            "to_s": 4.0,
            "limits": [power_limit(7.0, 6.9, 0.0), latency_limit(33.0, 66.0)],
        },
    ]
    document["scenario"]["loads"] = [{"from_s": 1.0, "to_s": 2.0, "processes": 2}]
    return document


@pytest.fixture
def unmeasured(document: Document) -> Document:
    """No meter, no labels, no comparison runs, no profile."""
    gone = {
        "gross_j_per_frame": None,
        "net_j_per_frame": None,
        "power_w": None,
        "source": None,
        "reason": NO_METER,
    }
    document["run"]["energy"] = gone
    document["run"]["quality"] = {"metric": None, "value": None, "frames": 0, "reason": "no output was kept"}
    limit = document["run"]["budgets"][0]["limits"][0]
    limit |= dict.fromkeys(["mean", "worst_1s_window", "windows_in_violation", "held_on_average"])
    limit |= {"windows": 0, "reason": "no power was read"}
    document["trace"] |= {"power_end_s": [], "power_w": []}
    for path in document["frontier"]:
        path["quality"] = None
        path["energy"] = {"gross_j": None, "net_j": None, "source": "none", "reason": NO_METER}
    return document | {"baselines": {}, "where_cost_goes": {}, "other_budgets": []}


@pytest.fixture
def emitting(several: Document) -> Document:
    """With an energy report of its own, and emissions."""
    made = with_emissions(several, given_intensity(350.0, "the plant next door"))
    return json.loads(json.dumps({**made, "schema_version": REPORT_SCHEMA}))


@pytest.fixture
def without_plotly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves plotly's five megabytes out of pages, for tests that look at the rest."""
    monkeypatch.setattr(page, "get_plotlyjs", lambda: "")


class Elements(HTMLParser):
    """Collects a page's elements, attributes and texts, and the contents of its scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str | None]] = []
        self.texts: list[str] = []
        self.raw: dict[str, list[str]] = {"script": [], "style": []}
        self._open = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value) for name, value in attrs]
        self._open = tag
        if tag != "wbr":
            self.texts.append(" ")

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        if self._open in self.raw:
            self.raw[self._open].append(data)
        else:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.texts).split())

    @property
    def figures(self) -> list[Document]:
        return [json.loads(raw) for raw in self.raw["script"] if raw.startswith('{"data"')]


def printed(document: Document, width: int = 110) -> str:
    stream = io.StringIO()
    terminal(document, Console(file=stream, width=width))
    return stream.getvalue()


def leaves(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if items is None:
        yield place, value
        return
    for key, inner in items:
        yield from leaves(inner, (*place, key))


def put(document: Document, place: tuple[Any, ...], value: Any) -> Document:
    changed = copy.deepcopy(document)
    inner: Any = changed
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return changed


# The page


def test_the_page_loads_nothing(document: Document) -> None:
    text = html(document)
    found = Elements(text)
    assert not [one for one in found.attributes if one[1] in ("src", "href", "srcset", "action", "data")]
    assert not found.tags.keys() & {"link", "iframe", "img", "object", "embed", "base"}
    assert not re.search(r"url\(|@import", " ".join(found.raw["style"]))
    assert ("meta", "content", page.POLICY) in found.attributes
    assert page.POLICY.startswith("default-src 'none'")
    assert sum("plotly.js v" in script for script in found.raw["script"]) == 1


def test_rendering_twice_gives_the_same_bytes_and_leaves_the_document_alone(document: Document) -> None:
    before = copy.deepcopy(document)
    assert html(document) == html(document) == html(copy.deepcopy(document))
    assert document == before
    assert printed(document) == printed(document)


@pytest.mark.usefixtures("without_plotly")
def test_the_page_holds_the_key_figures(document: Document) -> None:
    text = Elements(html(document)).text
    assert "Budget 1.801 W: held on average" in text
    assert "Mean power 1.78 W, 1.4 % below the limit of 1.8 W; 47.8 % of the 40 windows of 1 s lay above it." in text
    assert "The budget binds" in text
    assert "421 against 993 mJ gross; net −57.6 %" in text
    assert "Energy measured: By rapl." in text
    assert "70 % P1, 30 % P2" in text
    assert LONG in text
    assert "ESTIMATED" not in text
    assert "not measured" in text  # the power that was predicted for a latency budget


@pytest.mark.usefixtures("without_plotly")
def test_an_estimate_says_so_wherever_energy_stands(document: Document) -> None:
    document["run"]["energy"]["source"] = "estimated:cpu-time"
    found = Elements(html(document))
    assert "Energy ESTIMATED: No meter was read; the figures come from cpu-time." in found.text
    assert "Quality over energy (estimated)" in found.text
    assert sum(value == "mark" for _, name, value in found.attributes if name == "class") == 2
    assert "Energy ESTIMATED" in printed(document)


@pytest.mark.usefixtures("without_plotly")
def test_a_budget_that_does_not_bind_and_weights_that_are_random_are_said(document: Document) -> None:
    document["binds"] = {"binds": False, "text": "the budget does not bind"}
    document["model"]["trained"] = False
    document["run"]["shortfalls"] = [f"no path meets {place} ms" for place in range(5)]
    text = Elements(html(document)).text
    assert "Not binding: The budget does not bind." in text
    assert "Untrained:" in text
    assert "No path meets 0 ms; no path meets 1 ms. (and 3 more messages)" in text


@pytest.mark.usefixtures("without_plotly")
def test_what_was_not_measured_is_said_with_its_reason(unmeasured: Document) -> None:
    text = Elements(html(unmeasured)).text
    assert "Budget 1.801 W: not measured" in text
    assert "not measured (no power was read)" in text
    assert f"Energy not measured: {NO_METER.capitalize()}." in text
    assert "No comparison runs were made." in text
    assert "the bundle holds no quality" in text
    assert "the run was not profiled" in text
    assert f"Power: not measured ({NO_METER})" in text
    assert "Nothing was predicted." in text
    assert not re.search(r"(?<![\d.,])0(\.0+)? (m?J|m?W)\b", text)
    shown = printed(unmeasured)
    assert f"n/m: not measured: {NO_METER}; no output was kept" in shown
    assert "not measured" in shown.splitlines()[0]


def attempt(document: Document) -> tuple[str, str | None]:
    """The texts of page and terminal, or why there are none."""
    try:
        return Elements(html(document)).text + printed(document), None
    except InputError as error:
        return "", str(error)


@pytest.mark.usefixtures("without_plotly")
@pytest.mark.parametrize("which", ["several", "emitting"])
def test_any_figure_may_be_missing(which: str, request: pytest.FixtureRequest) -> None:
    """Null in place of any number is shown as missing, or refused in one line; never None, nan or a crash."""
    tried: set[tuple[Any, ...]] = set()
    accepted = 0
    several = request.getfixturevalue(which)
    for place, value in leaves(several):
        kind = tuple("any" if isinstance(key, int) else key for key in place)
        if not isinstance(value, float) or kind in tried:
            continue
        tried.add(kind)
        shown, error = attempt(put(several, place, None))
        assert error is None or "\n" not in error
        if error is None:
            accepted += 1
            assert not re.search(r"\b(None|nan)\b", shown), place
            assert attempt(put(several, place, float("nan"))) == (shown, None)
    assert accepted > 60


@pytest.mark.usefixtures("without_plotly")
def test_several_budgets_in_turn(several: Document) -> None:
    found = Elements(html(several))
    assert "3 budgets in turn: 1 held, 1 held on average, 1 not held" in found.text
    assert "2.5 to 4 s, 7 W and p95 33 ms: not held (power 6.90 W, latency p95 66.0 ms)." in found.text
    assert "The fixed paths ran for up to 4.00 s each, not all under the same budgets" in found.text
    timeline = next(figure for figure in found.figures if "yaxis3" in figure["layout"])
    power, latency = (one for one in timeline["data"] if one["name"] == "limit")
    assert power["y"] == [9.0, 9.0, None, 5.0, 5.0, None, 7.0, 7.0, None]
    assert latency["x"] == [2.5, 4.0, None]
    assert timeline["layout"]["annotations"][0]["text"] == "2 other programs busy"
    assert len([shape for shape in timeline["layout"]["shapes"] if shape["type"] == "line"]) == 2


@pytest.mark.usefixtures("without_plotly")
def test_a_budget_without_limits_and_a_run_without_frames(document: Document) -> None:
    document["run"]["budgets"] = [{"budget": "no limit", "from_s": 0.0, "to_s": 4.0, "limits": []}]
    document["run"] |= {"frames": 0, "paths": [], "fps": None}
    document["run"]["latency_ms"] = {"p50": None, "p95": None, "p99": None, "max": None, "reason": "no frame"}
    document["trace"] |= {"start_s": [], "latency_ms": [], "path": [], "paths": []}
    document["budget"] = "no limit"
    text = Elements(html(document)).text
    assert "Budget no limit: no limit" in text
    assert "No limit was set." in text
    assert "no frame was served" in text
    printed(document)


@pytest.mark.usefixtures("without_plotly")
def test_figures_are_plotlys(document: Document) -> None:
    found = Elements(html(document))
    assert len(found.figures) == 4
    for figure in found.figures:
        go.Figure(figure)  # refuses what plotly does not know
    ids = [value for name, attribute, value in found.attributes if (name, attribute) == ("div", "id")]
    assert ids == ["frontier-energy", "frontier-latency", "timeline", "costs"]
    path_hovers = [text for one in found.figures[0]["data"] for text in one.get("hovertext", [])]
    assert any(LONG in text.replace("<br>", "") for text in path_hovers)


@pytest.mark.usefixtures("without_plotly")
def test_costs_are_in_per_cent_of_the_stock_path(document: Document) -> None:
    costs = Elements(html(document)).figures[-1]
    linear = next(one for one in costs["data"] if one["name"] == "linear")
    assert dict(zip(linear["y"], linear["x"], strict=True)) == pytest.approx(
        {
            "stock, time": 100 * 60 / 200,
            "lossless, time": 100 * 100 / 200,
            "stock, MACs": 100 * 0.6,
            "lossless, MACs": 100 * 0.8,
        }
    )


EVIL = '</script><script>x=1</script><img src=x onerror="x">&quot;\'"><b>[red]%{x}\x1b[31m'
STRUCTURE = frozenset({"report", "roles", "method"})


@pytest.mark.usefixtures("without_plotly")
@pytest.mark.parametrize("which", ["several", "emitting"])
def test_texts_of_the_document_stay_texts(which: str, request: pytest.FixtureRequest) -> None:
    """Whatever stands in a document's strings, the page has the same elements, the terminal no codes."""
    evil = request.getfixturevalue(which)
    clean = Elements(html(evil))
    for place, value in leaves(evil):
        if isinstance(value, str) and not STRUCTURE & set(place):
            evil = put(evil, place, value + EVIL)
    evil["baselines"][f"another{EVIL}"] = evil["baselines"]["best single path"]
    evil["where_cost_goes"][f"another{EVIL}"] = evil["where_cost_goes"]["stock"]
    if which == "emitting":
        fixed = evil["energy_report"]["baselines"]
        fixed[f"another{EVIL}"] = fixed["best single path"]
    found = Elements(html(evil))
    for element in ("script", "style", "img", "b", "iframe"):
        assert found.tags[element] == clean.tags[element]
    assert not [name for _, name, _ in found.attributes if name.startswith("on")]
    assert EVIL in " ".join(found.texts)
    labels = json.dumps(found.figures)
    assert not re.search(r"<(?!/?b>|br>|/?extra>)", labels)
    assert all(
        "hovertemplate" not in one or "img" not in one["hovertemplate"] for f in found.figures for one in f["data"]
    )
    shown = printed(evil, width=400)
    assert "\x1b" not in shown
    assert "[red]" in shown


def test_tags_escape_text_and_attributes_but_not_what_they_made() -> None:
    inner = tag("b", "<&>")
    assert inner == "<b>&lt;&amp;&gt;</b>"
    assert tag("p", inner, None, "x", class_='a"b', data_label="c") == (
        '<p class="a&quot;b" data-label="c"><b>&lt;&amp;&gt;</b>x</p>'
    )


# The energy report


@pytest.mark.usefixtures("without_plotly")
def test_an_older_document_has_an_energy_report_as_far_as_it_goes(document: Document) -> None:
    found = energy_report(document)
    run, trace = found["run"], document["trace"]
    assert run["gross_j"] == pytest.approx(8 * 0.421)
    assert run["gross_j_per_frame"]["value_j"] == pytest.approx(0.421)
    assert run["net_j_per_frame"]["value_j"] == pytest.approx(0.421 - 0.8 * 4 / 8)
    windows = stretches(trace["start_s"], trace["power_end_s"], trace["power_w"][1:], 1.0)
    spread = ratio_of([window.energy_j for window in windows], [window.frames for window in windows])
    assert len(windows) == 3
    assert run["gross_j_per_frame"]["windows_j"] == pytest.approx(spread.ratio)
    assert spread.standard_error is not None
    assert spread.ratio is not None
    assert run["gross_j_per_frame"]["standard_error_j"] == pytest.approx(0.421 * spread.standard_error / spread.ratio)
    assert run["gross_j_per_frame"]["ci95_low_j"] < 0.421 < run["gross_j_per_frame"]["ci95_high_j"]
    assert found["baselines"]["stock"]["gross_j_per_frame"]["spread_reason"] == NOT_TRACED
    assert run["conditions_before"]["missing"]["temperature_c"] == NOT_KEPT
    assert (run["deadlines"]["misses"], run["deadlines"]["reason"]) == (None, NOT_KEPT)
    assert (found["grid"], run["co2e"]) == (None, None)
    text = Elements(html(document)).text
    assert "Energy report" in text
    assert NOT_KEPT in text


@pytest.mark.usefixtures("without_plotly")
def test_a_newer_document_must_hold_one(document: Document) -> None:
    with pytest.raises(InputError, match='key "energy_report" is missing'):
        html({**document, "schema_version": 2})


@pytest.mark.usefixtures("without_plotly")
def test_emissions_are_shown_where_they_were_asked_for_and_only_there(document: Document) -> None:
    assert "CO2e" not in Elements(html(document)).text + printed(document)
    made = with_emissions(document, given_intensity(350.0, "the plant next door"))
    text, shown = Elements(html(made)).text, printed(made)
    # 421 J for 1000 frames at 350 g for 3.6 MJ.
    assert "CO2e per 1000 frames 40.9 mg" in text
    assert "350 g/kWh, the plant next door, as given, operation only" in text
    assert "CO2e per 1000 frames 40.9 mg, at 350 g/kWh (the plant next door)" in shown
    again = with_emissions(made, given_intensity(700.0))
    assert again["energy_report"]["run"]["co2e"]["g_total"] == pytest.approx(
        2 * made["energy_report"]["run"]["co2e"]["g_total"]
    )
    assert with_emissions(made, None) is made


@pytest.mark.usefixtures("without_plotly")
def test_emissions_of_an_estimate_are_estimates(document: Document) -> None:
    document["run"]["energy"]["source"] = "estimated:cpu-time"
    made = with_emissions(document, given_intensity(350.0))
    assert "CO2e per 1000 frames 40.9 mg estimated" in Elements(html(made)).text
    assert "mg, estimated, at 350 g/kWh" in printed(made)


@pytest.mark.usefixtures("without_plotly")
def test_a_run_without_a_grid_beside_runs_with_one_is_not_called_unmeasured(document: Document) -> None:
    made = with_emissions(document, given_intensity(350.0))
    made["energy_report"]["baselines"]["stock"]["co2e"] = None
    text = Elements(html(made)).text
    assert re.search(r"CO2e per 1000 frames.{0,80}no grid named", text)
    assert "no grid was named: --country FRA, or --grid-intensity in g/kWh" in text


def test_energy_without_a_meter_has_no_emissions(unmeasured: Document) -> None:
    found = with_emissions(unmeasured, given_intensity(350.0))["energy_report"]["run"]["co2e"]
    assert (found["g_total"], found["g_per_1000_frames"], found["reason"]) == (None, None, NO_METER)


def test_the_terminal_tells_both_energies_with_their_intervals(document: Document) -> None:
    [line] = [line for line in printed(document, width=200).splitlines() if line.startswith("energy per frame in mJ")]
    assert re.search(r"gross 421 \(95 %: \d+ to \d+, n = 3\), net 21\.0 \(95 %: −?\d+ to \d+, n = 3\)", line), line


# Names and words


def test_paths_are_named_from_the_fastest_to_the_slowest(document: Document) -> None:
    called = names(shapes.checked(document, "here"))
    assert {name.id: name.short for name in called.values()} == {
        LONG: "P1",
        SHORT: "P2",
        "lossless": "lossless",
        "stock": "stock",
    }
    assert len({name.colour for name in called.values()}) == 4


def test_paths_that_the_frontier_lacks_have_names_too(document: Document) -> None:
    document["frontier"] = document["frontier"][:1]
    assert set(names(shapes.checked(document, "here"))) == {"stock", "lossless", LONG, SHORT}
    html(document)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (0.4213, "0.421"), (48.14, "48.1"), (1234.5, "1234"), (-2.0, "−2.00"), (3e-7, "3e-07")],
)
def test_number(value: float, text: str) -> None:
    assert number(value) == text


@given(st.floats(min_value=1e-4, max_value=1e8))
def test_numbers_have_no_exponent_and_three_true_digits(value: float) -> None:
    text = number(value)
    assert "e" not in text
    assert float(text) == pytest.approx(value, rel=0.00501)


def test_units_and_shares() -> None:
    assert quantity(None, "J") == "not measured"
    assert quantity(0.0, "J") == "0 J"
    assert quantity(0.421, "J") == "421 mJ"
    assert quantity(33.0, "ms", exact=True) == "33 ms"
    assert (percent(0.0), percent(1.0), percent(0.4783), percent(1e-5)) == (
        "0 %",
        "100 %",
        "47.8 %",
        "< 0.1 %",
    )


@given(st.text(max_size=60), st.integers(min_value=3, max_value=60))
def test_shortened_is_no_longer_than_asked_and_keeps_both_ends(text: str, longest: int) -> None:
    short = shortened(text, longest)
    assert len(short) <= max(longest, len(short) if len(text) <= longest else 0)
    if text:
        assert short[0] == text[0]
        assert short[-1] == text[-1]


# The terminal


def test_the_terminal_holds_the_key_figures_on_one_screen(document: Document) -> None:
    shown = printed(document)
    assert shown.startswith("Budget 1.801 W: held on average\n")
    run = next(line for line in shown.splitlines() if line.startswith("this run"))
    for figure in ("0.620", "421", "−57.6 %", "−40.0 %", "842", "48.2/231/294"):
        assert figure in run
    assert "−1.4 %" in shown
    assert shortened(LONG, 60) in shown
    assert len(shown.splitlines()) <= 45


def test_a_long_document_stays_on_one_screen(several: Document) -> None:
    several["model"]["trained"] = False
    several["run"]["shortfalls"] = ["no path meets 33 ms; the fastest needs 593 ms"] * 3
    several["run"]["budgets"] *= 4
    several["run"]["paths"] *= 6
    several["other_budgets"] *= 6
    several["where_cost_goes"]["stock"]["by_type"] *= 5
    lines = printed(several).splitlines()
    assert len(lines) <= 45
    assert max(map(len, lines)) <= 110
    assert sum("more in the page" in line for line in lines) == 2


# The reader


def test_what_was_written_is_read(document: Document, tmp_path: Path) -> None:
    write_json(tmp_path / "run.json", document)
    assert read_run(tmp_path / "run.json") == document


def cut(text: str) -> str:
    return text[: len(text) // 2]


def changed(**parts: Any) -> Callable[[str], str]:
    return lambda text: json.dumps(json.loads(text) | parts)


def lacking(key: str) -> Callable[[str], str]:
    return lambda text: json.dumps({name: part for name, part in json.loads(text).items() if name != key})


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (cut, "is not JSON"),
        (lambda _: "", "is not JSON"),
        (lambda _: "[]", "holds no report"),
        (lambda _: '"text"', "holds no report"),
        (lambda _: "{}", "holds no report"),
        (lambda _: "[" * 100_000, "is not JSON"),
        (lambda text: text.replace("0.421", "NaN"), "NaN"),
        (changed(report="pip freeze"), "holds the report 'pip freeze'"),
        (changed(schema_version=REPORT_SCHEMA + 1), "read it with a newer Gearshift"),
        (changed(schema_version="1"), "schema version '1'"),
        (changed(schema_version=True), "schema version True"),
        (changed(threads="many"), '"threads"'),
        (changed(frontier=None), '"frontier"'),
        (lacking("run"), 'key "run" is missing'),
        (lambda text: text.replace('"power_end_s": [', '"power_end_s": [0.0,'), "one entry a sample"),
    ],
)
def test_what_is_no_report_is_refused_in_one_line(
    spoil: Callable[[str], str], says: str, document: Document, tmp_path: Path
) -> None:
    file = tmp_path / "run.json"
    file.write_text(spoil(json.dumps(document)), encoding="utf-8")
    with pytest.raises(InputError, match=re.escape(says)) as caught:
        read_run(file)
    assert "\n" not in str(caught.value)
    assert str(file) in str(caught.value)


def test_a_cut_file_says_so(document: Document, tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    file.write_text(json.dumps(document)[:-1], encoding="utf-8")
    with pytest.raises(InputError, match="ends too early"):
        read_run(file)


def test_no_file_and_no_text_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read"):
        read_run(tmp_path / "absent.json")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not UTF-8"):
        read_run(tmp_path / "bytes.json")


@pytest.mark.parametrize("index", [-1, 2])
def test_a_frame_on_an_unknown_path_is_refused(index: int, document: Document) -> None:
    document["trace"]["path"][0] = index
    with pytest.raises(InputError, match="indices into the 2 entries"):
        html(document)


# What the bench writes is what the report reads


def test_the_schema_is_the_benchs() -> None:
    assert shapes.SCHEMA == REPORT_SCHEMA


def test_a_runs_summary_is_read_whole() -> None:
    """The barest summary that a bench writes, without energy and outputs, with every kind of limit."""
    frames = [
        Served(index=place, picture=0, path="stock", start_s=place / 30, latency_s=0.01, budget=0) for place in range(9)
    ]
    budget = Budget.parse("60W", "33ms", "250mJ", "40Wh/3h")
    run = Run(fps=30.0, camera_frames=9, seconds=0.3, frames=frames, budgets=[(0.0, budget)])
    nothing: Any = None  # no output is judged
    summary = summarise(run, nothing, 3, None, nothing)
    read = shapes.Run.model_validate(summary)
    assert [limit.kind for limit in read.budgets[0].limits] == [
        "power",
        "mission",
        "energy per frame",
        "latency p95",
    ]
    assert read.energy.gross_j_per_frame is None
    assert read.energy.reason
