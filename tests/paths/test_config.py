"""Typed YAML: what is read, and the one line that each fault gets."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, model_validator

from gearshift.config import check_config, read_config
from gearshift.errors import ConfigError
from gearshift.paths.models import describe, described_models
from gearshift.paths.segformer.config import SegformerDescription


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    learning_rate: float = Field(gt=0)
    warmup: int = 3


class Document(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    name: str
    sizes: list[int] = []
    training: Section | None = None
    stages: list[Section] = []

    @model_validator(mode="after")
    def _not_both(self) -> "Document":
        if self.training is not None and self.stages:
            raise ValueError("give either training or stages")
        return self


def refusal(value: Any) -> str:
    """Return the one line with which a parsed document is refused."""
    with pytest.raises(ConfigError) as caught:
        check_config(value, Document, "made.yaml")
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith("made.yaml: ")
    return message.removeprefix("made.yaml: ")


def test_a_file_is_read_into_its_model(tmp_path: Path) -> None:
    file = tmp_path / "made.yaml"
    file.write_text("name: one\ntraining: {learning_rate: 1.0e-3}\nsizes: [1, 2]\n")
    document = read_config(file, Document)
    assert document == Document(name="one", training=Section(learning_rate=1e-3), sizes=[1, 2])


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"name": "a", "sise": [1]}, 'unknown key "sise"; did you mean "sizes"?'),
        ({"nme": "a"}, 'unknown key "nme"; did you mean "name"?'),
        ({"name": "a", "colour": 1}, 'unknown key "colour"; known keys: name, sizes, stages, training'),
        (
            {"name": "a", "training": {"learning_rat": 1}},
            'unknown key "training.learning_rat"; did you mean "learning_rate"?',
        ),
        (
            {"name": "a", "training": {"learning_rate": 1, "xx": 1}},
            'unknown key "training.xx"; known keys: learning_rate, warmup',
        ),
        (
            {"name": "a", "stages": [{"learning_rate": 1, "warmpu": 1}]},
            'unknown key "stages.0.warmpu"; did you mean "warmup"?',
        ),
        ({"sizes": [1]}, 'key "name" is missing'),
        ({"name": "a", "training": {}}, 'key "training.learning_rate" is missing'),
        ({"name": "a", "sizes": [1, "two"]}, "\"sizes.1\" is 'two': input should be a valid integer"),
        (
            {"name": "a", "training": {"learning_rate": 0}},
            '"training.learning_rate" is 0: input should be greater than 0',
        ),
        ({"name": 3, "sizes": "no"}, '"name" is 3: input should be a valid string (and 1 more)'),
        (
            {"name": "a", "training": {"learning_rate": 1}, "stages": [{"learning_rate": 1}]},
            "give either training or stages",
        ),
        (None, "None"),
        ([1], "[1]"),
        ("text", "'text'"),
    ],
)
def test_what_does_not_fit_is_named_with_the_nearest_key(value: Any, said: str) -> None:
    assert said in refusal(value)


def test_a_long_value_is_not_repeated_whole() -> None:
    assert len(refusal({"name": list(range(10_000))})) < 200


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=3),
        max_leaves=8,
    )
)
def test_any_document_is_read_or_refused_in_one_line(value: Any) -> None:
    for document in (value, {"name": "a", "training": value}):
        try:
            check_config(document, Document, "made.yaml")
        except ConfigError as error:
            assert "\n" not in str(error)  # noqa: PT017 (many documents are read)


@pytest.mark.parametrize("text", ["a: [1", "a: b: c", "{", "\t- a", "!!python/object:os.system {}", "a: *b"])
def test_what_is_no_yaml_is_refused_with_the_file(text: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_config(file, Document)
    assert str(caught.value).startswith(f"{file} is not YAML: ")
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes(b"name: \xff")
    for name, reason in (
        ("absent.yaml", "No such file or directory"),
        (".", "Is a directory"),
        ("latin.yaml", "not UTF-8 text"),
    ):
        with pytest.raises(ConfigError) as caught:
            read_config(tmp_path / name, Document)
        assert str(caught.value) == f"cannot read {tmp_path / name}: {reason}; give an existing YAML file"


# Descriptions of models


VALID: dict[str, Any] = describe("segformer-b0").model_dump(exclude_none=True)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"depth": [1, 1, 1, 1]}, 'unknown key "depth"; did you mean "depths"?'),
        ({"depths": [1, 1, 1]}, '"depths" is [1, 1, 1]: list should have at least 4 items'),
        ({"decoder_hidden_size": 0}, '"decoder_hidden_size" is 0: input should be greater than 0'),
        ({"labels": ["a"]}, "give either num_labels or labels"),
        ({"num_labels": None}, "give either num_labels or labels"),
        ({"family": "swin"}, "\"family\" is 'swin': input should be 'segformer'"),
        ({"drop_path_rate": 1}, '"drop_path_rate" is 1: input should be less than 1'),
    ],
)
def test_a_description_that_does_not_fit_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_config(VALID | change, SegformerDescription, "b9.yaml")
    assert str(caught.value).startswith(f"b9.yaml: {said}")


@pytest.mark.parametrize("name", described_models())
def test_a_description_survives_being_written_and_read(name: str, tmp_path: Path) -> None:
    file = tmp_path / "again.yaml"
    file.write_text(yaml.safe_dump(describe(name).model_dump(exclude_none=True)))
    assert read_config(file, type(describe(name))) == describe(name)
