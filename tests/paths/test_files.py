"""Files are whole or absent, and JSON is what any parser reads."""

import json
import math
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gearshift.errors import OutputError
from gearshift.files import sha256, to_json, write_atomic, write_json, write_text


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_written_with_its_folders(tmp_path: Path) -> None:
    file = tmp_path / "a" / "b" / "report.txt"
    write_text(file, "grüße\n")
    assert file.read_bytes() == "grüße\n".encode()
    assert names(file.parent) == ["report.txt"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o644


def test_an_older_file_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "report.txt"
    write_text(file, "a longer text than the next")
    write_text(file, "short")
    assert file.read_text() == "short"
    assert names(tmp_path) == ["report.txt"]


@pytest.mark.parametrize("fault", [ValueError("made"), KeyboardInterrupt(), OSError(28, "No space left on device")])
@pytest.mark.parametrize("older", [None, "older"])
def test_an_interrupted_write_leaves_what_was_there(older: str | None, fault: BaseException, tmp_path: Path) -> None:
    file = tmp_path / "report.txt"
    if older is not None:
        file.write_text(older)

    def half(temporary: Path) -> None:
        temporary.write_text("half")
        raise fault

    with pytest.raises((type(fault), OutputError)) as caught:
        write_atomic(file, half)
    if isinstance(fault, OSError):
        assert str(caught.value) == (
            f"cannot write {file}: No space left on device; choose a folder that you may write to"
        )
    assert names(tmp_path) == ([] if older is None else ["report.txt"])
    assert older is None or file.read_text() == older


def test_the_file_appears_only_when_it_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "report.txt"
    seen: list[bool] = []

    def write(temporary: Path) -> None:
        temporary.write_text("first half, ")
        seen.append(file.exists())
        with temporary.open("a") as stream:
            stream.write("second half")
        seen.append(file.exists())

    write_atomic(file, write)
    assert seen == [False, False]
    assert file.read_text() == "first half, second half"


def test_who_reads_the_older_file_reads_it_to_its_end(tmp_path: Path) -> None:
    """The new file is moved into place, not written over the old one."""
    file = tmp_path / "report.txt"
    write_text(file, "older")
    with file.open() as reader:
        write_text(file, "newer and longer")
        assert reader.read() == "older"
    assert file.read_text() == "newer and longer"


def test_a_writer_may_replace_the_file_it_is_given(tmp_path: Path) -> None:
    def write(temporary: Path) -> None:
        other = temporary.with_name("other")
        other.write_text("moved")
        other.replace(temporary)

    write_atomic(tmp_path / "file", write)
    assert (tmp_path / "file").read_text() == "moved"
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("file/report.txt", "File exists"),
        ("file/deeper/report.txt", "Not a directory"),
        ("folder", "Is a directory"),
    ],
)
def test_a_place_that_cannot_be_written_is_refused(place: str, reason: str, tmp_path: Path) -> None:
    """A file where a folder is needed, a folder where a file is: the same whoever runs this."""
    (tmp_path / "file").write_text("kept")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "kept").write_text("kept")
    with pytest.raises(OutputError) as caught:
        write_text(tmp_path / place, "new")
    assert str(caught.value) == (f"cannot write {tmp_path / place}: {reason}; choose a folder that you may write to")
    assert names(tmp_path) == ["file", "folder"]
    assert (tmp_path / "file").read_text() == (tmp_path / "folder" / "kept").read_text() == "kept"


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def strict(text: str) -> Any:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def without_gaps(value: Any) -> Any:
    """The value as JSON can hold it: tuples as lists, what is not finite as null."""
    if isinstance(value, dict):
        return {key: without_gaps(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_gaps(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@given(values)
def test_json_is_strict_and_reads_back(value: Any) -> None:
    text = to_json(value)
    assert strict(text) == without_gaps(value)
    assert text.endswith("\n")


def test_what_is_not_finite_is_null(tmp_path: Path) -> None:
    """B142."""
    file = tmp_path / "report.json"
    write_json(file, {"nan": math.nan, "high": math.inf, "low": [-math.inf, 1.5], "name": "µJ", 3: (1, 2)})
    assert strict(file.read_text(encoding="utf-8")) == {
        "nan": None,
        "high": None,
        "low": [None, 1.5],
        "name": "µJ",
        "3": [1, 2],
    }
    assert "µJ" in file.read_text(encoding="utf-8")


def test_what_json_cannot_hold_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        write_json(tmp_path / "report.json", {"a": {1, 2}})
    assert names(tmp_path) == []


def test_checksum_is_that_of_the_bytes(tmp_path: Path) -> None:
    """The published example of FIPS 180-2: "abc"."""
    (tmp_path / "abc").write_bytes(b"abc")
    assert sha256(tmp_path / "abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
