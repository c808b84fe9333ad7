"""How answers are judged: top-1 and agreement of classes, counts that add up, a judge for every task."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from transformers import ViTConfig, ViTForImageClassification

from gearshift.errors import DataError
from gearshift.paths.data import IGNORE_INDEX, LabelledFrame, LabelledImage
from gearshift.paths.judge import Judge
from gearshift.paths.tasks import Classification, Detection, Segmentation, task_of
from gearshift.paths.tasks.task import Task

IMAGE = np.zeros((4, 4, 3), np.uint8)


def top_1(answers: list[int], labels: list[int]) -> float:
    task = Classification()
    counts = [
        task.score(torch.tensor(answer), LabelledImage(image=IMAGE, label=label))
        for answer, label in zip(answers, labels, strict=True)
    ]
    return task.quality(sum(counts[1:], start=counts[0]), len(labels)).value


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=20))
def test_top_1_is_the_share_of_right_classes(pairs: list[tuple[int, int]]) -> None:
    answers, labels = (list(values) for values in zip(*pairs, strict=True))
    assert top_1(answers, labels) == pytest.approx(np.mean(np.array(answers) == np.array(labels)))


def test_the_answer_is_the_largest_logit_s_class() -> None:
    logits = torch.tensor([[0.1, 3.0, -1.0]])
    assert int(Classification().answer(logits, LabelledImage(image=IMAGE))) == 1


@pytest.mark.parametrize("task", [Classification(), Segmentation(3)], ids=lambda task: task.name)
def test_an_answer_agrees_with_itself_and_counts_add_up(task: Task) -> None:
    answer = torch.tensor(1) if task.name == "classification" else torch.tensor([[0, 1], [2, 1]])
    other = torch.tensor(2) if task.name == "classification" else torch.tensor([[0, 0], [0, 0]])
    same, different = task.agree(answer, answer), task.agree(answer, other)
    assert task.agreement(same, 1).value == 1.0
    assert task.agreement(same + different, 2).value == pytest.approx((same + different)[0] / (same + different)[1])
    assert task.agreement(different, 1).metric == "agreement"


@pytest.mark.parametrize(
    ("task", "frame"),
    [
        (Classification(), LabelledImage(image=IMAGE)),
        (Classification(), LabelledFrame(image=IMAGE, labels=np.zeros((4, 4), np.uint8))),
        (Segmentation(3), LabelledImage(image=IMAGE, label=1)),
    ],
)
def test_labels_of_another_kind_are_refused(task: Task, frame: Any) -> None:
    with pytest.raises(DataError, match="is judged on"):
        task.score(torch.tensor(1), frame)


def test_frames_know_whether_they_are_labelled() -> None:
    image, frame = LabelledImage(image=IMAGE, label=0), LabelledFrame(image=IMAGE, labels=np.zeros((4, 4), np.uint8))
    blank = LabelledFrame(image=IMAGE, labels=np.full((4, 4), IGNORE_INDEX, np.uint8))
    assert [item.labelled for item in (image, frame, blank)] == [True, True, False]
    assert not image.unlabelled().labelled
    assert not frame.unlabelled().labelled


def classifier() -> nn.Module:
    torch.manual_seed(3)
    settings = {"image_size": 16, "patch_size": 8, "hidden_size": 16, "num_attention_heads": 2, "num_labels": 4}
    model: nn.Module = ViTForImageClassification(ViTConfig(**settings, num_hidden_layers=2, intermediate_size=32))
    return model.eval()


def images(count: int, labels: list[int | None]) -> list[LabelledImage]:
    rng = np.random.default_rng(0)
    return [
        LabelledImage(image=rng.integers(0, 255, (16, 16, 3), dtype=np.uint8), label=labels[number % len(labels)])
        for number in range(count)
    ]


def test_a_judge_of_labelled_images_gives_top_1() -> None:
    """Labels are what the model itself says, one of them wrong."""
    model = classifier()
    frames = images(6, [None])
    judge = Judge(model, frames)
    said = [int(judge.answer(model, frame)) for frame in frames]
    labels = [*said[:-1], (said[-1] + 1) % 4]
    labelled = [LabelledImage(image=f.image, label=label) for f, label in zip(frames, labels, strict=True)]
    quality = Judge(model, labelled).judge(model)
    assert (quality.metric, quality.images) == ("top-1", 6)
    assert quality.value == pytest.approx(5 / 6)
    assert judge.judge(model).metric == "agreement"
    assert judge.judge(model).value == 1.0


def test_every_task_has_a_judge() -> None:
    assert task_of("segmentation", 3).metric == "mIoU"
    assert task_of("classification", 3).metric == "top-1"
    assert task_of("detection", 3).metric is None


def found(scores: list[float], classes: int = 2) -> torch.Tensor:
    """Queries side by side, each of class 0 with a score, as a detector without a class for nothing tells them."""
    logits = torch.full((len(scores), classes), -9.0)
    logits[:, 0] = torch.tensor(scores).logit()
    boxes = torch.tensor([[0.1 + 0.2 * number, 0.5, 0.1, 0.1] for number in range(len(scores))])
    return torch.cat([logits, boxes], dim=-1)


def test_detections_are_judged_by_the_threshold_that_the_stock_model_calls_for() -> None:
    """Sure of something anywhere, what it is unsure of does not count; sure of nothing, everything does."""
    sure, unsure = found([0.9, 0.1]), found([0.2, 0.1])
    ours = found([0.9, 0.1])
    ours[1, -4:] += 0.3  # the unsure one elsewhere
    task = Detection(2).judging([sure, unsure])
    assert task.agree(ours, sure).tolist() == [2.0, 2.0]
    assert task.agree(unsure, unsure).tolist() == [0.0, 0.0]
    assert task.agreement(task.agree(unsure, unsure), 1).value == 1.0
    assert Detection(2).judging([unsure]).agree(ours, sure).tolist() == [2.0, 4.0]
