"""Recipes and the reading of typed YAML: what ships reads, and what does not fit is said in one line."""

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, ValidationError

from gearshift.config import check_config, read_config
from gearshift.errors import ConfigError
from gearshift.paths.models import described_models
from gearshift.retrain.recipe import Distillation, Recipe

MakeDocument = Callable[..., dict[str, Any]]
SHIPPED = sorted(Path(str(files("gearshift.configs"))).glob("recipes/*.yaml"))


def refusal(document: object) -> str:
    """Return the line with which a document is refused."""
    with pytest.raises(ConfigError) as caught:
        check_config(document, Recipe, "recipe.yaml")
    message = str(caught.value)
    assert message.startswith("recipe.yaml: ")
    assert "\n" not in message
    return message.removeprefix("recipe.yaml: ")


def test_there_are_recipes() -> None:
    assert "segformer-street.yaml" in [path.name for path in SHIPPED]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_recipe_reads(path: Path) -> None:
    recipe = Recipe.read(path)
    assert recipe.model in described_models()
    assert recipe.optimiser.warmup_steps + recipe.optimiser.decay_steps <= recipe.steps
    assert check_config(recipe.model_dump(), Recipe, "again") == recipe


def test_what_is_left_out_has_the_documented_value(make_document: MakeDocument) -> None:
    document = make_document(seed=None, class_balance=None, checkpoint_every=None, evaluate_every=None)
    del document["optimiser"]["clip_norm"], document["augmentation"]["min_region"]
    recipe = check_config(document, Recipe, "recipe.yaml")
    assert (recipe.seed, recipe.class_balance, recipe.checkpoint_every, recipe.evaluate_every) == (
        0,
        0.5,
        250,
        1000,
    )
    assert (recipe.optimiser.clip_norm, recipe.augmentation.min_region) == (1.0, 0.5)
    assert recipe.distillation is None
    assert recipe.bfloat16 is False


def test_a_recipe_does_not_change(make_document: MakeDocument) -> None:
    recipe = check_config(make_document(), Recipe, "recipe.yaml")
    with pytest.raises(ValidationError, match="frozen"):
        recipe.steps = 9


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("sed", 'unknown key "sed"; did you mean "seed"?'),
        ("bfloat", 'unknown key "bfloat"; did you mean "bfloat16"?'),
        ("temperature_of_it", 'unknown key "temperature_of_it"; did you mean "temperature"?'),
    ],
)
def test_an_unknown_key_is_named_with_the_nearest(make_document: MakeDocument, key: str, message: str) -> None:
    assert refusal(make_document() | {key: 1}) == message


def test_a_key_like_none_is_answered_with_those_of_its_section(make_document: MakeDocument) -> None:
    document = make_document()
    document["augmentation"]["xyz"] = 1
    assert refusal(document) == (
        'unknown key "augmentation.xyz"; known keys: aspect_jitter, colour_jitter, crop_height, crop_width, min_region'
    )


def test_a_key_of_another_section_is_found_there(make_document: MakeDocument) -> None:
    document = make_document()
    document["optimiser"]["seed"] = 1
    assert refusal(document) == 'unknown key "optimiser.seed"; did you mean "seed"?'


def test_a_misspelt_key_is_not_called_missing(make_document: MakeDocument) -> None:
    document = make_document()
    document["step"] = document.pop("steps")
    assert refusal(document) == 'unknown key "step"; did you mean "steps"?'


def test_a_missing_key_is_named(make_document: MakeDocument) -> None:
    document = make_document()
    del document["optimiser"]["learning_rate"]
    assert refusal(document) == 'key "optimiser.learning_rate" is missing'


@pytest.mark.parametrize(
    ("changes", "start"),
    [
        ({"steps": "many"}, "\"steps\" is 'many': input should be a valid integer"),
        ({"steps": 0}, '"steps" is 0: input should be greater than 0'),
        ({"steps": 8.5}, '"steps" is 8.5: input should be a valid integer'),
        ({"learning_rate": -1}, '"optimiser.learning_rate" is -1: input should be greater than 0'),
        ({"learning_rate": float("nan")}, '"optimiser.learning_rate" is nan: input should be'),
        ({"weight_decay": float("inf")}, '"optimiser.weight_decay" is inf: input should be a finite number'),
        ({"crop_height": 33}, '"augmentation.crop_height" is 33: input should be a multiple of 4'),
        ({"crop_width": 28}, '"augmentation.crop_width" is 28: input should be greater than or equal to 32'),
        ({"model": 3}, '"model" is 3: input should be a valid string'),
        ({"bfloat16": "perhaps"}, "\"bfloat16\" is 'perhaps': input should be a valid boolean"),
        ({"distillation": [1]}, '"distillation" is [1]: input should be a valid dictionary'),
        ({"ema_decay": 1}, '"optimiser.ema_decay" is 1: input should be less than 1'),
        ({"rendered_pool": 20_000}, '"rendered_pool" is 20000: input should be less than or equal to 10000'),
        ({"decay_steps": 7}, "warmup_steps 2 and decay_steps 7 do not fit into steps 8; shorten them"),
        ({"rendered_pool": 0}, "batch_rendered is 1, but rendered_pool is 0; give the number"),
        ({"steps": "x" * 999}, f'"steps" is \'{"x" * 79}...: input should be'),
    ],
)
def test_a_wrong_value_is_named(make_document: MakeDocument, changes: dict[str, Any], start: str) -> None:
    assert refusal(make_document(**changes)).startswith(start)


def test_several_wrong_values_are_counted(make_document: MakeDocument) -> None:
    assert refusal(make_document(steps=0, crop_height=3, model=1)).endswith("(and 2 more)")


@pytest.mark.parametrize("document", [None, [], "steps: 3\nseed: 1", 3])
def test_what_is_no_mapping_is_called_so(document: object) -> None:
    message = refusal(document)
    assert message.startswith(f"the document is {document!r}")
    assert message.endswith("should hold keys and their values")


def test_scientific_notation_is_a_number(make_document: MakeDocument) -> None:
    """YAML 1.1 reads 8e-4, which has no point, as text."""
    document = yaml.safe_load("rate: 8e-4")
    assert isinstance(document["rate"], str)
    recipe = check_config(make_document(learning_rate=document["rate"]), Recipe, "recipe.yaml")
    assert recipe.optimiser.learning_rate == 8e-4


class Leaf(BaseModel):
    model_config = ConfigDict(extra="forbid")
    weight: int = 0


class Tree(BaseModel):
    model_config = ConfigDict(extra="forbid")
    leaves: list[Leaf] = []
    named: dict[str, Leaf] = {}
    trees: "list[Tree]" = []


def test_the_keys_of_the_same_section_come_first() -> None:
    class Outer(BaseModel):
        weights: int
        leaf: Leaf

    with pytest.raises(ConfigError, match=r'unknown key "leaf\.weighs"; did you mean "weight"\?'):
        check_config({"weights": 1, "leaf": {"weighs": 1}}, Outer, "here")


@pytest.mark.parametrize(
    ("document", "place"),
    [
        ({"leaves": [{}, {"wieght": 1}]}, "leaves.1.wieght"),
        ({"named": {"a": {"wieght": 1}}}, "named.a.wieght"),
        ({"trees": [{"leaves": [{"wieght": 1}]}]}, "trees.0.leaves.0.wieght"),
    ],
)
def test_keys_within_lists_mappings_and_trees_are_known(document: dict[str, Any], place: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_config(document, Tree, "here")
    assert str(caught.value) == f'here: unknown key "{place}"; did you mean "weight"?'


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*none\.yaml: No such file or directory; give an existing"):
        Recipe.read(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="Is a directory"):
        Recipe.read(tmp_path)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not UTF-8 text"):
        Recipe.read(tmp_path / "recipe.yaml")


words = st.sampled_from(
    ["model", "steps", "a", ":", " ", "\n", "-", "[", "]", "{", "}", "&a", "*a", "!!int", "0x", "2026-13-45"]
)


@given(text=st.one_of(st.text(), st.lists(words).map("".join)))
@example(text="{")
@example(text="2026-13-45")
@example(text="!!int ''")
@example(text="!!bool maybe")
@example(text="!!timestamp never")
@example(text="&a [*a]")
@example(text="? [1]\n: 2")
@example(text="? {a: 1}\n: 2")
@example(text="1: 2")
@example(text="\x00")
@example(text="[" * 2000)
def test_any_text_is_refused_in_one_line_that_names_the_file(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(ConfigError) as caught:
        Recipe.read(path)
    message = str(caught.value)
    assert str(path) in message
    assert len(message.splitlines()) == 1


@given(
    logits_weight=st.floats(0, 10),
    temperature=st.floats(0.1, 10),
    features_weight=st.floats(0, 10),
)
def test_a_section_survives_being_written_and_read(
    tmp_path_factory: pytest.TempPathFactory, logits_weight: float, temperature: float, features_weight: float
) -> None:
    section = Distillation(logits_weight=logits_weight, temperature=temperature, features_weight=features_weight)
    path = tmp_path_factory.getbasetemp() / "section.yaml"
    path.write_text(yaml.safe_dump(section.model_dump()))
    assert read_config(path, Distillation) == section
