"""A run that was stopped and resumed ends bit for bit as one that was not; another recipe is refused."""

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from gearshift.errors import CheckpointError, OutputError
from gearshift.retrain.recipe import Recipe
from gearshift.retrain.train import Trainer, TrainingData

MakeRecipe = Callable[..., Recipe]
MakeData = Callable[..., TrainingData]
MakeModel = Callable[[], Any]
DISTILLATION = {"logits_weight": 0.5, "temperature": 2.0, "features_weight": 1.0}


@pytest.fixture(scope="module")
def start(make_recipe: MakeRecipe, make_data: MakeData, make_model: MakeModel) -> Callable[..., Trainer]:
    """Make a trainer for the same model and data, with changes of the recipe."""

    def make(folder: Path, **changes: Any) -> Trainer:
        recipe = make_recipe(**changes)
        torch.manual_seed(0)  # the layer that predicts a teacher's features starts alike
        return Trainer(make_model(), recipe, make_data(taught=recipe.distillation is not None), folder)

    return make


@pytest.fixture(scope="module")
def unbroken(start: Callable[..., Trainer], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Trainer]:
    """Return a trainer that ran to its end without a break; each kind runs once for all tests."""

    @functools.cache
    def run(distils: bool = False) -> Trainer:
        return go(start(tmp_path_factory.mktemp("unbroken"), distillation=DISTILLATION if distils else None))

    return run


def go(trainer: Trainer) -> Trainer:
    trainer.run(lambda step, terms: None)
    return trainer


def kill(trainer: Trainer, after: int) -> None:
    """Run, and interrupt as soon as `after` steps are done."""

    def stop(step: int, terms: dict[str, float]) -> None:
        if step == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trainer.run(stop)


def differences(one: Any, other: Any, place: str = "") -> list[str]:
    """Places at which two nested states are not bit for bit the same."""
    if isinstance(one, Tensor):
        return [] if torch.equal(one, other) else [place]
    if isinstance(one, dict):
        keys = {*one, *other}
        return [found for key in keys for found in differences(one.get(key), other.get(key), f"{place}/{key}")]
    if isinstance(one, list | tuple):
        pairs = zip(one, other, strict=True)
        return [found for i, pair in enumerate(pairs) for found in differences(*pair, f"{place}/{i}")]
    return [] if one == other else [place]


def state(folder: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = torch.load(folder / "checkpoint.pt", weights_only=True)
    return loaded


@pytest.mark.parametrize("after", [1, 2, 3, 7])
@pytest.mark.parametrize("distils", [False, True], ids=["plain", "taught"])
def test_a_resumed_run_ends_as_an_unbroken_one(
    start: Callable[..., Trainer],
    unbroken: Callable[..., Trainer],
    tmp_path: Path,
    after: int,
    distils: bool,
) -> None:
    """Whether it was stopped before the first checkpoint, right before one was written, or between two."""
    distillation = DISTILLATION if distils else None
    kill(start(tmp_path, distillation=distillation), after)
    assert (tmp_path / "checkpoint.pt").exists() == (after > 2)
    resumed, whole = go(start(tmp_path, distillation=distillation)), unbroken(distils)
    assert differences(state(whole.folder), state(tmp_path)) == []
    assert differences(whole.averaged_weights(), resumed.averaged_weights()) == []
    assert whole.step == resumed.step == 8


def test_a_run_may_be_broken_often(start: Callable[..., Trainer], tmp_path: Path) -> None:
    go(start(tmp_path / "unbroken", checkpoint_every=1))
    for after in (2, 3, 5, 6):
        kill(start(tmp_path / "broken", checkpoint_every=1), after)
    go(start(tmp_path / "broken", checkpoint_every=1))
    assert differences(state(tmp_path / "unbroken"), state(tmp_path / "broken")) == []


def test_two_runs_are_the_same_whatever_the_random_state(
    start: Callable[..., Trainer], unbroken: Callable[..., Trainer], tmp_path: Path
) -> None:
    trainer = start(tmp_path)
    torch.manual_seed(99)
    go(trainer)
    assert differences(state(unbroken().folder), state(tmp_path)) == []


def test_a_finished_run_is_judged_again_and_stays(
    start: Callable[..., Trainer], unbroken: Callable[..., Trainer]
) -> None:
    folder = unbroken().folder
    before, steps = state(folder), []
    quality = start(folder).run(lambda step, terms: steps.append(step))
    assert steps == []
    assert quality == unbroken().evaluate()
    assert differences(before, state(folder)) == []


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"seed": 4}, "seed"),
        ({"crop_height": 36}, "augmentation.crop_height"),
        ({"learning_rate": 0.02, "batch_labelled": 1}, "batch_labelled, optimiser.learning_rate"),
        ({"class_balance": 0.25, "steps": 10}, "class_balance"),
    ],
)
def test_another_recipe_is_refused_by_what_differs(
    start: Callable[..., Trainer], tmp_path: Path, changes: dict[str, Any], named: str
) -> None:
    kill(start(tmp_path), after=3)
    before = state(tmp_path)
    with pytest.raises(CheckpointError, match=rf"checkpoint\.pt was made with another recipe \({named} differ\)"):
        go(start(tmp_path, **changes))
    assert differences(before, state(tmp_path)) == []


def test_distillation_cannot_be_added_later(start: Callable[..., Trainer], tmp_path: Path) -> None:
    kill(start(tmp_path), after=3)
    with pytest.raises(CheckpointError, match=r"distillation\.logits_weight"):
        go(start(tmp_path, distillation=DISTILLATION))


@pytest.mark.parametrize("steps", [6, 10])
def test_the_end_may_be_moved_before_the_decay_begins(
    start: Callable[..., Trainer], tmp_path: Path, steps: int
) -> None:
    go(start(tmp_path / "unbroken", steps=steps))
    kill(start(tmp_path / "broken", steps=8), after=3)
    go(start(tmp_path / "broken", steps=steps))
    assert differences(state(tmp_path / "unbroken"), state(tmp_path / "broken")) == []


@pytest.mark.parametrize(
    ("after", "steps"),
    [(7, 10), (7, 6), (5, 6)],
    ids=["decay begun", "both begun", "new decay would have begun"],
)
def test_the_end_stays_once_a_decay_has_begun(
    start: Callable[..., Trainer], tmp_path: Path, after: int, steps: int
) -> None:
    """Of 8 steps the last 3 decay: from step 6 on, the rate is below the full one."""
    kill(start(tmp_path), after)
    with pytest.raises(CheckpointError, match=r"\(steps differ\)"):
        go(start(tmp_path, steps=steps))


def test_another_model_is_refused(start: Callable[..., Trainer], tmp_path: Path) -> None:
    kill(start(tmp_path), after=3)
    other = start(tmp_path)
    other.model.decode_head.classifier = torch.nn.Conv2d(16, 6, 1)
    with pytest.raises(CheckpointError, match="another model or teacher") as caught:
        go(other)
    assert "\n" not in str(caught.value)


def test_another_teacher_is_refused(
    start: Callable[..., Trainer],
    make_recipe: MakeRecipe,
    make_data: MakeData,
    make_model: MakeModel,
    tmp_path: Path,
) -> None:
    kill(start(tmp_path, distillation=DISTILLATION), after=3)
    data = make_data(taught=True)
    assert data.teacher is not None
    wider = replace(data.teacher, features=data.teacher.features.repeat(1, 2, 1, 1))
    recipe = make_recipe(distillation=DISTILLATION)
    with pytest.raises(CheckpointError, match="another model or teacher"):
        go(Trainer(make_model(), recipe, replace(data, teacher=wider), tmp_path))


@pytest.mark.parametrize("content", [b"", b"no checkpoint", b"PK\x03\x04 cut short"])
def test_a_damaged_checkpoint_is_refused(start: Callable[..., Trainer], tmp_path: Path, content: bytes) -> None:
    (tmp_path / "checkpoint.pt").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"checkpoint\.pt cannot be read as a checkpoint; remove it") as caught:
        go(start(tmp_path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [[1, 2], {"step": 3}])
def test_a_file_that_holds_something_else_is_refused(
    start: Callable[..., Trainer], tmp_path: Path, content: object
) -> None:
    torch.save(content, tmp_path / "checkpoint.pt")
    with pytest.raises(CheckpointError, match="cannot be read as a checkpoint"):
        go(start(tmp_path))


def test_half_a_checkpoint_is_refused(start: Callable[..., Trainer], tmp_path: Path) -> None:
    kill(start(tmp_path), after=3)
    whole = (tmp_path / "checkpoint.pt").read_bytes()
    (tmp_path / "checkpoint.pt").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CheckpointError, match="cannot be read as a checkpoint"):
        go(start(tmp_path))


def test_a_full_disk_leaves_the_last_checkpoint_whole(start: Callable[..., Trainer], tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    kill(start(tmp_path), after=3)
    before = state(tmp_path)
    _, hard = limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(OutputError, match=r"cannot write .*checkpoint\.pt") as caught:
            go(start(tmp_path))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "\n" not in str(caught.value)
    assert differences(before, state(tmp_path)) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint.pt", "log.jsonl"]


def test_a_checkpoint_from_before_batches_were_counted_resumes(start: Callable[..., Trainer], tmp_path: Path) -> None:
    kill(start(tmp_path), after=3)
    older = {key: value for key, value in state(tmp_path).items() if key != "skipped"}
    torch.save(older, tmp_path / "checkpoint.pt")
    assert go(start(tmp_path)).skipped == 0
