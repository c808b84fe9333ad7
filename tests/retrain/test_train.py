"""The training step: what it changes, what it leaves, and what it refuses to start with."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from gearshift.errors import CheckpointError, DataError, OutputError
from gearshift.paths.data import IGNORE_INDEX, LabelledFrame
from gearshift.paths.quality import mean_iou
from gearshift.paths.segformer import forward as lean
from gearshift.retrain import train as train_module
from gearshift.retrain.recipe import Recipe
from gearshift.retrain.train import Trainer, TrainingData

MakeRecipe = Callable[..., Recipe]
MakeFrames = Callable[..., list[LabelledFrame]]
MakeData = Callable[..., TrainingData]
MakeModel = Callable[[], Any]
DISTILLATION = {"logits_weight": 0.5, "temperature": 2.0, "features_weight": 1.0}
Weights = dict[str, Tensor]


def copy(weights: Weights) -> Weights:
    return {name: value.detach().clone() for name, value in weights.items()}


def equal(one: Weights, other: Weights) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def blank(frame: LabelledFrame) -> LabelledFrame:
    """The frame without a single label."""
    return replace(frame, labels=np.full_like(frame.labels, IGNORE_INDEX))


def log(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


class History:
    """The weights after each step, taken through the progress that training reports."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.weights = [copy(model.state_dict())]
        self.terms: list[dict[str, float]] = []

    def __call__(self, step: int, terms: dict[str, float]) -> None:
        assert step == len(self.weights)
        self.weights.append(copy(self.model.state_dict()))
        self.terms.append(terms)


@pytest.mark.parametrize("taught", [False, True])
def test_a_step_changes_every_trainable_tensor(
    make_recipe: MakeRecipe, make_data: MakeData, make_model: MakeModel, tmp_path: Path, taught: bool
) -> None:
    model = make_model()
    for parameter in model.parameters():  # zeros would stay zeros where the gradient is none
        torch.nn.init.normal_(parameter, std=0.1) if parameter.ndim == 1 else None
    recipe = make_recipe(steps=1, warmup_steps=0, decay_steps=1, distillation=DISTILLATION if taught else None)
    history = History(model)
    Trainer(model, recipe, make_data(taught=taught), tmp_path).run(history)
    before, after = history.weights
    assert [name for name in before if torch.equal(before[name], after[name])] == []


def test_the_optimiser_holds_the_trainable_tensors_and_no_others(
    make_recipe: MakeRecipe,
    make_data: MakeData,
    make_model: MakeModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held: list[Tensor] = []

    class Recorded(torch.optim.AdamW):
        def __init__(self, parameters: list[Tensor], **settings: Any) -> None:
            held.extend(parameters)
            super().__init__(parameters, **settings)

    monkeypatch.setattr(torch.optim, "AdamW", Recorded)
    model = make_model()
    model.segformer.requires_grad_(False)
    trainable = {id(parameter) for parameter in model.decode_head.parameters()}
    Trainer(model, make_recipe(), make_data(), tmp_path)
    assert {id(parameter) for parameter in held} == trainable
    held.clear()
    Trainer(model, make_recipe(), make_data(taught=True), tmp_path)  # the recipe does not distil
    assert {id(parameter) for parameter in held} == trainable
    held.clear()
    Trainer(model, make_recipe(distillation=DISTILLATION), make_data(taught=True), tmp_path)
    shapes = [tuple(parameter.shape) for parameter in held if id(parameter) not in trainable]
    assert shapes == [(6, 24, 1, 1), (6,)]  # the teacher's features from the third stage's


def test_what_is_frozen_stays(
    make_recipe: MakeRecipe, make_data: MakeData, make_model: MakeModel, tmp_path: Path
) -> None:
    model = make_model()
    model.segformer.requires_grad_(False)
    encoder, head = copy(model.segformer.state_dict()), copy(model.decode_head.state_dict())
    Trainer(model, make_recipe(steps=5), make_data(), tmp_path).run(lambda step, terms: None)
    assert equal(model.segformer.state_dict(), encoder)
    assert not equal(model.decode_head.state_dict(), head)


def test_the_teacher_stays_as_it_was(
    make_recipe: MakeRecipe, make_data: MakeData, make_model: MakeModel, tmp_path: Path
) -> None:
    model, data = make_model(), make_data(taught=True)
    assert data.teacher is not None
    features, logits = data.teacher.features.clone(), data.teacher.logits.clone()
    modes = []
    recipe = make_recipe(steps=5, distillation=DISTILLATION)
    Trainer(model, recipe, data, tmp_path).run(lambda step, terms: modes.append(model.training))
    assert torch.equal(features, data.teacher.features)
    assert torch.equal(logits, data.teacher.logits)
    assert not data.teacher.features.requires_grad
    assert data.teacher.features.grad is None
    assert modes == [True] * 5


def test_the_teachers_terms_are_weighted_and_named(
    make_recipe: MakeRecipe, make_data: MakeData, make_model: MakeModel, tmp_path: Path
) -> None:
    def first(name: str, **weights: float) -> dict[str, float]:
        model = make_model()
        history = History(model)
        recipe = make_recipe(steps=2, warmup_steps=0, decay_steps=1, distillation=DISTILLATION | weights)
        torch.manual_seed(0)  # the layer that predicts the features starts alike
        Trainer(model, recipe, make_data(taught=True), tmp_path / name).run(history)
        return history.terms[0]

    once, twice = first("once"), first("twice", logits_weight=1.0, features_weight=3.0)
    assert once.keys() == {"labels", "teacher logits", "teacher features", "learning_rate"}
    assert twice["labels"] == once["labels"]
    assert twice["teacher logits"] == pytest.approx(2 * once["teacher logits"])
    assert twice["teacher features"] == pytest.approx(3 * once["teacher features"])


def test_training_lowers_the_loss(
    make_recipe: MakeRecipe, make_data: MakeData, make_model: MakeModel, tmp_path: Path
) -> None:
    model = make_model()
    history = History(model)
    recipe = make_recipe(steps=25, decay_steps=10, colour_jitter=0.0)
    quality = Trainer(model, recipe, make_data(), tmp_path).run(history)["held out"]
    losses = [terms["labels"] for terms in history.terms]
    assert np.mean(losses[-5:]) < 0.8 * np.mean(losses[:5])
    assert 0 <= quality.value <= 1


@pytest.mark.parametrize("ema_decay", [0.0, 0.3, 0.998])
def test_the_average_follows_its_formula(
    make_recipe: MakeRecipe, make_data: MakeData, make_model: MakeModel, tmp_path: Path, ema_decay: float
) -> None:
    """a <- d a + (1 - d) w with d = min(ema_decay, (1 + t) / (10 + t)) after step t = 0, 1, ..."""
    model = make_model()
    history = History(model)
    trainer = Trainer(model, make_recipe(ema_decay=ema_decay), make_data(), tmp_path)
    trainer.run(history)
    wanted = {name: value.double() for name, value in history.weights[0].items()}
    for step, weights in enumerate(history.weights[1:]):
        decay = min(ema_decay, (1 + step) / (10 + step))
        wanted = {name: decay * value + (1 - decay) * weights[name] for name, value in wanted.items()}
    averaged = trainer.averaged_weights()
    counter = "decode_head.batch_norm.num_batches_tracked"
    assert averaged.pop(counter) == model.state_dict()[counter] == len(history.terms)
    for name, value in averaged.items():
        assert torch.allclose(value.double(), wanted[name], atol=1e-6), name


def test_judging_leaves_weights_and_mode(
    make_recipe: MakeRecipe, make_data: MakeData, make_model: MakeModel, tmp_path: Path
) -> None:
    model, data = make_model(), make_data()
    trainer = Trainer(model, make_recipe(), data, tmp_path)
    trainer.run(lambda step, terms: None)
    for training in (True, False):
        model.train(training)
        before, average = copy(model.state_dict()), copy(trainer.averaged_weights())
        state = torch.get_rng_state()
        judged = trainer.evaluate()
        assert equal(model.state_dict(), before)
        assert equal(trainer.averaged_weights(), average)
        assert {module.training for module in model.modules()} == {training}
        assert torch.equal(torch.get_rng_state(), state)
        assert not any(parameter.is_inference() for parameter in model.parameters())
    other = make_model()
    other.load_state_dict(trainer.averaged_weights())
    frames = data.validation["held out"]
    assert judged["held out"] == mean_iou(lambda pixels: lean.forward(other, pixels), frames, 5)


def test_judging_that_fails_leaves_weights_and_mode(
    make_recipe: MakeRecipe,
    make_data: MakeData,
    make_model: MakeModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = make_model()
    trainer = Trainer(model, make_recipe(), make_data(), tmp_path)
    trainer.run(lambda step, terms: None)
    model.train()
    before = copy(model.state_dict())

    def fails(*given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(train_module, "mean_iou", fails)
    with pytest.raises(KeyboardInterrupt):
        trainer.evaluate()
    assert equal(model.state_dict(), before)
    assert model.training


def test_judging_along_the_way_does_not_change_training(
    make_recipe: MakeRecipe, make_data: MakeData, make_model: MakeModel, tmp_path: Path
) -> None:
    ends = []
    for every in (1, 100):
        model = make_model()
        recipe = make_recipe(evaluate_every=every)
        Trainer(model, recipe, make_data(), tmp_path / str(every)).run(lambda step, terms: None)
        ends.append(copy(model.state_dict()))
    assert equal(*ends)
    assert [row["step"] for row in log(tmp_path / "1") if "mIoU held out" in row] == [*range(1, 9)]


def test_a_model_that_has_served_can_be_trained(
    make_recipe: MakeRecipe, make_data: MakeData, make_model: MakeModel, tmp_path: Path
) -> None:
    model = make_model()
    with torch.inference_mode():
        for height, width in ((32, 32), (64, 96), (47, 70)):
            lean.forward(model, torch.rand(1, 3, height, width))
    history = History(model)
    Trainer(model, make_recipe(), make_data(), tmp_path).run(history)
    assert not equal(history.weights[0], history.weights[-1])


def test_one_image_makes_a_batch(
    make_recipe: MakeRecipe, make_data: MakeData, make_model: MakeModel, tmp_path: Path
) -> None:
    recipe = make_recipe(batch_labelled=1, batch_rendered=0, crop_height=32, crop_width=32)
    history = History(make_model())
    Trainer(history.model, recipe, make_data(), tmp_path).run(history)
    assert all(np.isfinite(terms["labels"]) for terms in history.terms)


def test_a_batch_without_labels_is_skipped_and_counted(
    make_recipe: MakeRecipe,
    make_data: MakeData,
    make_model: MakeModel,
    make_frames: MakeFrames,
    tmp_path: Path,
) -> None:
    labelled, unlabelled = make_frames(2)
    model = make_model()
    history = History(model)
    recipe = make_recipe(batch_labelled=1, batch_rendered=0, checkpoint_every=1)
    trainer = Trainer(model, recipe, make_data(labelled=[labelled, blank(unlabelled)]), tmp_path)
    trainer.run(history)
    skips = [terms["labels"] == 0.0 for terms in history.terms]
    assert sum(skips) == trainer.skipped == 4  # each epoch of two visits it once
    for skipped, before, after in zip(skips, history.weights, history.weights[1:], strict=False):
        assert equal(before, after) == skipped
    rows = [row for row in log(tmp_path) if "skipped" in row]
    assert [row["skipped"] for row in rows] == np.cumsum(skips).tolist()
    assert all(torch.isfinite(value).all() for value in model.state_dict().values())
    again = Trainer(make_model(), recipe, make_data(labelled=[labelled, blank(unlabelled)]), tmp_path)
    again.run(history)
    assert again.skipped == 4


def test_a_teacher_still_teaches_where_labels_are_missing(
    make_recipe: MakeRecipe,
    make_data: MakeData,
    make_model: MakeModel,
    make_frames: MakeFrames,
    tmp_path: Path,
) -> None:
    labelled, *unlabelled = make_frames(3)
    model = make_model()
    history = History(model)
    recipe = make_recipe(batch_labelled=1, batch_rendered=0, distillation=DISTILLATION)
    data = make_data(taught=True, labelled=[labelled, *map(blank, unlabelled)])
    trainer = Trainer(model, recipe, data, tmp_path)
    trainer.run(history)
    assert trainer.skipped == sum(terms["labels"] == 0.0 for terms in history.terms) >= 4
    for before, after in zip(history.weights, history.weights[1:], strict=False):
        assert not equal(before, after)
    assert all(torch.isfinite(value).all() for value in model.state_dict().values())


def test_the_log_is_json_whatever_the_loss(
    make_recipe: MakeRecipe,
    make_data: MakeData,
    make_model: MakeModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(train_module, "label_loss", lambda logits, *rest: logits.sum() * float("nan"))
    Trainer(make_model(), make_recipe(), make_data(), tmp_path).run(lambda step, terms: None)

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    lines = (tmp_path / "log.jsonl").read_text().splitlines()
    rows = [json.loads(line, parse_constant=refuse) for line in lines]
    assert [(row["step"], row["labels"]) for row in rows if "labels" in row] == [
        (2, None),
        (4, None),
        (6, None),
        (8, None),
    ]


def test_data_that_the_model_has_no_class_for_is_refused(
    make_recipe: MakeRecipe,
    make_data: MakeData,
    make_model: MakeModel,
    make_frames: MakeFrames,
    tmp_path: Path,
) -> None:
    odd = [replace(frame, labels=np.where(frame.labels == 4, np.uint8(7), frame.labels)) for frame in make_frames(2)]
    for name, message in (
        ("labelled", r"labels to train on hold class 7, but the model has classes 0\.\.4"),
        ("rendered", "labels to train on hold class 7"),
        ("validation", 'labels of the validation set "odd" hold class 7'),
    ):
        data = make_data(**{name: {"odd": odd} if name == "validation" else odd})
        with pytest.raises(DataError, match=message):
            Trainer(make_model(), make_recipe(), data, tmp_path)


def test_a_validation_set_without_labels_is_refused_before_training(
    make_recipe: MakeRecipe,
    make_data: MakeData,
    make_model: MakeModel,
    make_frames: MakeFrames,
    tmp_path: Path,
) -> None:
    data = make_data(validation={"held out": [blank(frame) for frame in make_frames(2)]})
    with pytest.raises(DataError, match='no labelled pixel of the validation set "held out"'):
        Trainer(make_model(), make_recipe(), data, tmp_path)


def test_maps_of_another_teacher_are_refused(
    make_recipe: MakeRecipe,
    make_data: MakeData,
    make_model: MakeModel,
    make_teacher_maps: Callable[..., Any],
    tmp_path: Path,
) -> None:
    recipe = make_recipe(distillation=DISTILLATION)
    with pytest.raises(CheckpointError, match="the teacher knows 11 classes and the model 5"):
        Trainer(make_model(), recipe, replace(make_data(), teacher=make_teacher_maps(3, classes=11)), tmp_path)
    with pytest.raises(CheckpointError, match="the teacher has seen 2 photographs, but there are 3"):
        Trainer(make_model(), recipe, replace(make_data(), teacher=make_teacher_maps(2)), tmp_path)


def test_a_folder_that_is_a_file_is_refused(
    make_recipe: MakeRecipe, make_data: MakeData, make_model: MakeModel, tmp_path: Path
) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(OutputError, match=r"cannot write .*out"):
        Trainer(make_model(), make_recipe(), make_data(), tmp_path / "out").run(lambda step, terms: None)
