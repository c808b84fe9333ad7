"""Rows on disk: whatever cuts a file short, whole rows are read, and no row counts twice."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gearshift.profiler.survey.journal import RowJournal
from gearshift.profiler.survey.layers import Layer
from gearshift.profiler.survey.library import Facts
from gearshift.profiler.survey.row import Row, failed, row_from

MADE_BY = "timm 1, survey 1"

names = st.text(min_size=1, max_size=8)
counts = st.integers(0, 10**15)
layers = st.builds(
    Layer,
    kind=st.sampled_from(["Conv2d", "Linear"]),
    class_name=st.text(max_size=5),
    in_features=counts,
    out_features=counts,
    kernel=st.tuples(counts, counts),
    stride=st.just(()),
    groups=counts,
    bias=st.booleans(),
    count=counts,
)
rows = st.builds(
    Row,
    name=names,
    status=st.just("ok"),
    facts=st.none() | st.builds(Facts, family=names, year=st.none() | counts, weights=st.none() | counts),
    input_shape=st.none() | st.tuples(counts, counts),
    params=st.none() | counts,
    layers=st.lists(layers, max_size=2).map(tuple),
    macs=st.none() | st.dictionaries(names, counts, max_size=2),
    uncounted=st.dictionaries(names, counts, max_size=1),
    cpu_s=st.floats(0, 1e6),
) | st.builds(failed, names, names)
SHARED_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)


@given(row=rows)
def test_a_row_survives_the_round_trip(row: Row) -> None:
    assert row_from(row.to_dict()) == row


@SHARED_FOLDER
@given(kept=st.lists(rows, min_size=1, max_size=4), cut=st.integers(0, 10**4), added=rows)
def test_a_file_that_was_cut_short_holds_its_whole_rows_and_takes_more(
    kept: list[Row], cut: int, added: Row, tmp_path: Path
) -> None:
    file = tmp_path / "rows.jsonl"
    journal = RowJournal(file, MADE_BY, fresh=True)
    ends = [0]
    for row in kept:
        journal.add(row)
        ends.append(file.stat().st_size)
    size = min(cut, ends[-1])
    file.write_bytes(file.read_bytes()[:size])
    whole = sum(end - 1 <= size for end in ends[1:])  # a line without its line feed is whole
    again = RowJournal(file, MADE_BY)
    assert again.rows == {row.name: row for row in kept[:whole]}
    again.add(added)
    assert RowJournal(file, MADE_BY).rows == {row.name: row for row in [*kept[:whole], added]}


def test_a_row_that_two_runs_wrote_counts_once_and_the_last_one_counts(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    one, other = RowJournal(file, MADE_BY), RowJournal(file, MADE_BY)
    one.add(failed("net", "no memory"))
    other.add(Row(name="net", status="ok", params=3))
    assert list(RowJournal(file, MADE_BY).rows.values()) == [Row(name="net", status="ok", params=3)]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "null",
        "[]",
        "17",
        '{"made_by": "timm 1, survey 1"}',
        '{"made_by": "timm 1, survey 1", "name": "a"}',
        "{{",
        "\x00",
    ],
)
def test_lines_of_another_kind_are_passed_over(line: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    RowJournal(file, MADE_BY).add(failed("net", "why"))
    file.write_text(f"{line}\n{file.read_text()}{line}\n")
    assert list(RowJournal(file, MADE_BY).rows) == ["net"]


def test_rows_of_other_versions_are_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    RowJournal(file, "timm 2, survey 1").add(failed("net", "why"))
    assert RowJournal(file, MADE_BY).rows == {}
    assert list(RowJournal(file, "timm 2, survey 1").rows) == ["net"]


def test_without_a_file_rows_are_kept_in_memory() -> None:
    journal = RowJournal(None, MADE_BY)
    journal.add(failed("net", "why"))
    assert list(journal.rows) == ["net"]
