"""`runtime survey`: what it writes, how it goes on, and what it refuses."""

import csv
import io
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest
from rich.console import Console

from gearshift.profiler.survey import Layer, Row, Survey
from gearshift.profiler.survey.library import Facts
from gearshift.profiler.survey.row import failed
from gearshift.runtime.cli import main
from gearshift.runtime.cli import survey as survey_command
from gearshift.runtime.report.survey import survey_html, survey_terminal
from gearshift.runtime.report.words import count
from tests.support import Run

FEW = ("--filter", "resnet1[08][td]", "--workers", "1")
NAMES = ["resnet10t", "resnet18d"]


@pytest.fixture
def survey_of(run: Run) -> Run:
    """Run the command with these arguments."""
    return lambda *arguments: run("survey", *arguments)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything that a survey of two architectures writes; only to be read."""
    out = tmp_path_factory.mktemp("survey")
    assert main(["survey", *FEW, "--out", str(out)]) == 0
    return out


def made_up(**options: Any) -> Survey:
    """A survey with all that can happen: no year, no MACs, a failure, text that HTML must escape."""
    conv = Layer(
        kind="Conv2d", class_name="<b>&Conv", in_features=3, out_features=8, kernel=(3, 3), stride=(2, 2), bias=True
    )
    dated = Facts(family="f", model_class="A", year=2015, year_from="own documentation", weights=2)
    vague = Facts(family="f", year=2016, year_from="first paper of its file", weights=0)
    row = Row(
        name="<i>a</i>", status="ok", facts=dated, params=10, layers=(conv,), macs={"convolution": 30, "linear": 10}
    )
    rows = (
        row,
        Row(name="b", status="ok", facts=vague, params=20, layers=(conv,), macs={"attention": 7}),
        Row(name="c", status="ok", facts=Facts(family="g"), params=30, macs_reason="no <value>"),
        failed("d", "cannot & will not"),
    )
    return Survey(**{"library": "timm", "library_version": "1", "rows": rows, **options})


# What is written.


def test_a_folder_holds_data_tables_and_the_page(folder: Path) -> None:
    names = {"timm.json", "timm.csv", "timm-layers.csv", "timm.html", "timm.rows.jsonl"}
    assert {file.name for file in folder.iterdir()} == names


def test_json_holds_every_row_and_the_sums(folder: Path, read_strict_json: Callable[[str], Any]) -> None:
    found = read_strict_json((folder / "timm.json").read_text())
    assert (found["report"], found["schema_version"], found["library"]) == ("runtime survey", 1, "timm")
    assert [row["name"] for row in found["rows"]] == NAMES
    assert found["published"] == [], "a part of the library is not compared"
    summed = sum(layer["count"] for row in found["rows"] for layer in row["layers"] if layer["kind"] == "Conv2d")
    assert {part["name"]: part["count"] for part in found["summary"]["kinds"]}["Conv2d"] == summed
    assert sum(part["macs"] for part in found["summary"]["macs"]) == sum(
        macs for row in found["rows"] for macs in row["macs"].values()
    )


def test_csv_holds_a_line_per_architecture_and_per_layer(folder: Path) -> None:
    with (folder / "timm.csv").open() as stream:
        lines = {line["name"]: line for line in csv.DictReader(stream)}
    assert list(lines) == NAMES
    assert lines["resnet18d"]["year"] == "2015"
    with (folder / "timm-layers.csv").open() as stream:
        counts = [int(line["count"]) for line in csv.DictReader(stream) if line["name"] == "resnet18d"]
    assert sum(counts) == int(lines["resnet18d"]["conv2d"]) + int(lines["resnet18d"]["linear"])


def test_the_table_on_the_terminal(folder: Path, survey_of: Run) -> None:
    outcome = survey_of(*FEW, "--out", folder)
    assert outcome.code == 0
    assert "2 of 2 rows were there already; --fresh takes them anew" in outcome.err
    for title in ("Conv2d by kernel", "MACs by type of operator", "Sizes by year", "Layers by their own class"):
        assert title in outcome.out
    assert "Published figures" not in outcome.out


def test_json_on_stdout_is_alone_there(survey_of: Run, read_strict_json: Callable[[str], Any]) -> None:
    outcome = survey_of("--filter", "resnet10t", "--workers", "1", "--json", "-")
    assert (outcome.code, outcome.err) == (0, "")
    assert [row["name"] for row in read_strict_json(outcome.out)["rows"]] == ["resnet10t"]


def test_rows_are_kept_beside_the_first_file_and_taken_from_there(survey_of: Run, tmp_path: Path) -> None:
    target = tmp_path / "deep" / "mine.csv"
    first = survey_of("--filter", "resnet10t", "--workers", "1", "--csv", target)
    assert (first.code, "already" in first.err) == (0, False)
    assert {file.name for file in target.parent.iterdir()} == {"mine.csv", "mine.rows.jsonl"}
    assert "1 of 2 rows were there already" in survey_of(*FEW, "--csv", target).err
    assert "already" not in survey_of(*FEW, "--csv", target, "--fresh").err
    assert len((target.parent / "mine.rows.jsonl").read_text().splitlines()) == 2


def test_transformers(survey_of: Run, read_strict_json: Callable[[str], Any]) -> None:
    outcome = survey_of("--library", "transformers", "--filter", "segformer", "--workers", "1", "--json", "-")
    [row] = read_strict_json(outcome.out)["rows"]
    assert (outcome.code, row["status"], row["facts"]["model_class"]) == (0, "ok", "SegformerForImageClassification")


def test_failures_are_told_and_are_no_fault(survey_of: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def survey(*_: object, progress: Callable[..., None], **__: object) -> Survey:
        progress(1, 4, failed("d", "cannot & will not"))
        return made_up()

    monkeypatch.setattr(survey_command, "survey", survey)
    outcome = survey_of()
    assert outcome.code == 0
    assert "d failed: cannot & will not" in outcome.err
    assert "What could not be surveyed" in outcome.out
    assert "Published figures (2023) beside ours" in outcome.out


def test_stopped_by_ctrl_c_it_says_how_to_go_on(
    survey_of: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def survey(*_: object, **__: object) -> Survey:
        raise KeyboardInterrupt

    monkeypatch.setattr(survey_command, "survey", survey)
    assert survey_of("--out", tmp_path).err.splitlines() == [
        "the survey goes on where it was when the command is given again",
        "stopped",
    ]
    assert survey_of().err == "stopped\n", "without a file there is nothing to go on from"


def test_years_by_the_first_paper_of_a_file_are_told_on_the_terminal() -> None:
    console = Console(file=io.StringIO(), width=200)
    survey_terminal(made_up(), console)
    lines = [[cell.strip() for cell in line.split("│")] for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]
    counts = {line[1]: line[2:-1] for line in lines if len(line) > 2}
    assert counts["with a known year"] == ["2"]
    assert counts["of these by the first paper of their file, which may be older"] == ["1"]
    assert (counts["2015"][:2], counts["2016"][:2]) == (["1", "0"], ["1", "1"])


# What is refused.


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--workers", "0"), "--workers 0 must be at least 1"),
        (("--filter", "alexnet"), 'no architecture of timm .* matches "alexnet"'),
        (("--library", "keras"), "--library"),
        (("--out", "{file}"), "cannot write into .*: it is a file; give the name of a folder"),
        (("--json", "{file}/x.json"), "cannot write"),
        (("--html", "{folder}"), "it is a folder; give the name of a file"),
    ],
)
def test_bad_input_is_refused_in_one_line(
    arguments: tuple[str, ...], said: str, survey_of: Run, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.touch()
    outcome = survey_of(*(text.format(file=file, folder=tmp_path) for text in arguments))
    assert (outcome.code, outcome.out) == (2, "")
    [line] = outcome.err.splitlines()
    assert re.search(said, line)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


# The page.


class Reader(HTMLParser):
    """Collects what a page would fetch, its figures, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.figures: dict[str, str] = {}
        self.text = ""
        self._inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.fetched += [str(values[name]) for name in ("src", "href") if name in values]
        self._inside = str(values.get("id")) if values.get("type") == "application/json" else tag

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside.endswith("-data"):
            self.figures[self._inside] = self.figures.get(self._inside, "") + data
        elif self._inside not in ("script", "style"):
            self.text += data


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    return reader


def test_the_page_needs_no_network_and_its_figures_are_plotly_s(folder: Path) -> None:
    found = read((folder / "timm.html").read_text())
    assert found.fetched == []
    assert set(found.figures) == {
        f"{name}-data"
        for name in (
            "macs", "macs-by-year", "macs-over-params", "params-by-year", "gmacs-by-year",
            "kernels", "strides", "groups", "powers",
        )
    }  # fmt: skip
    for figure in found.figures.values():
        go.Figure(json.loads(figure))


def test_the_page_of_a_survey_with_everything_in_it() -> None:
    page = survey_html(made_up(), "2026-01-01")
    assert page == survey_html(made_up(), "2026-01-01")
    found = read(page)
    assert "<i>a</i>" not in page
    assert "1 architecture could not be built" in found.text
    assert "1 architecture could not be run" in found.text
    assert "cannot & will not" in found.text
    assert "no <value>" in found.text
    assert "Published figures (2023) beside ours" in found.text
    years = json.loads(found.figures["params-by-year-data"])
    assert sorted(trace["name"] for trace in years["data"]) == ["first paper of its file", "its own paper"]
    shares = json.loads(found.figures["macs-data"])["data"]
    assert {trace["name"]: trace["x"][0] for trace in shares} == pytest.approx(
        {"convolution": 100 * 30 / 47, "linear": 100 * 10 / 47, "attention": 100 * 7 / 47}
    )


@pytest.mark.parametrize("rows", [(), (failed("d", "why"),), (Row(name="e", status="ok", params=1),)])
def test_the_page_of_next_to_nothing(rows: tuple[Row, ...]) -> None:
    found = read(survey_html(made_up(rows=rows), "2026-01-01"))
    assert f"{count(len(rows), 'architecture')}: 0 Conv2d" in found.text
    assert "There is no such layer." in found.text
    assert "not measured" in found.text
