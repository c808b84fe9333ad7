"""Agreement of detections: what any measure of the kind must satisfy, and a count by hand."""

from itertools import permutations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torchvision.ops import box_iou

from gearshift.paths.detr.agreement import Detections, agreement, detections, judged_threshold

CLASSES = 3


@st.composite
def frames(draw: st.DrawFn, most: int = 5) -> Detections:
    count = draw(st.integers(0, most))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    corner = torch.rand(count, 2, generator=generator) * 0.5
    side = torch.rand(count, 2, generator=generator) * 0.4 + 0.1
    return Detections(
        classes=torch.randint(CLASSES, (count,), generator=generator),
        scores=torch.rand(count, generator=generator),
        boxes=torch.cat([corner, corner + side], 1),
    )


def by_trying_all(ours: Detections, theirs: Detections) -> int:
    """The most pairs of one class and enough overlap, over all ways to pair them."""
    few, many = sorted((ours, theirs), key=lambda side: len(side.classes))
    if not len(few.classes):
        return 0
    overlaps = box_iou(few.boxes, many.boxes)
    return max(
        sum(bool(overlaps[i, j] >= 0.5 and few.classes[i] == many.classes[j]) for i, j in enumerate(chosen))
        for chosen in permutations(range(len(many.classes)), len(few.classes))
    )


@given(frames(), frames())
def test_pairs_are_as_many_as_can_be_and_neither_side_is_the_judge(ours: Detections, theirs: Detections) -> None:
    matched, total = agreement(ours, theirs)
    assert (matched, total) == agreement(theirs, ours)
    assert matched == 2 * by_trying_all(ours, theirs)
    assert total == len(ours.classes) + len(theirs.classes)


@given(frames(most=40), st.randoms(use_true_random=False))
def test_the_same_detections_in_any_order_agree_wholly(found: Detections, chance: object) -> None:
    order = list(range(len(found.classes)))
    chance.shuffle(order)  # type: ignore[attr-defined]
    shuffled = Detections(classes=found.classes[order], scores=found.scores[order], boxes=found.boxes[order])
    matched, total = agreement(found, shuffled)
    assert matched == total == 2 * len(order)


@given(frames(most=20))
def test_shifted_boxes_and_other_classes_do_not_agree(found: Detections) -> None:
    total = 2 * len(found.classes)
    away = Detections(classes=found.classes, scores=found.scores, boxes=found.boxes + 2)
    other = Detections(classes=found.classes + CLASSES, scores=found.scores, boxes=found.boxes)
    assert agreement(found, away) == agreement(found, other) == (0, total)


@pytest.mark.parametrize("background", [False, True])
def test_detections_are_the_confident_queries_best_first(background: bool) -> None:
    sure, likely, unsure = [-9.0, 9.0, -9.0], [1.0, -9.0, -9.0], [-2.0, -3.0, -9.0]
    rows: list[list[float]] = [likely, unsure, sure]
    logits = torch.tensor([[*row, 0.0] for row in rows] if background else rows)
    boxes = torch.tensor([[0.5, 0.5, 0.2, 0.4]]).repeat(3, 1)
    found = detections(logits, boxes, CLASSES)
    assert found.classes.tolist() == [1, 0]
    assert found.scores.tolist() == pytest.approx(expected_scores(logits, background))
    torch.testing.assert_close(found.boxes, torch.tensor([[0.4, 0.3, 0.6, 0.7]]).repeat(2, 1))
    assert len(detections(logits, boxes, CLASSES, threshold=0).classes) == 3


def expected_scores(logits: Tensor, background: bool) -> list[float]:
    """Of the sure and of the likely one, by the definition of softmax and of the logistic function."""
    if background:
        return [float(logits[2, 1].exp() / logits[2].exp().sum()), float(logits[0, 0].exp() / logits[0].exp().sum())]
    return [float(1 / (1 + (-logits[2, 1]).exp())), float(1 / (1 + (-logits[0, 0]).exp()))]


def test_where_the_stock_model_finds_nothing_all_queries_are_judged() -> None:
    assert judged_threshold([0.1, 0.7]) == 0.5
    assert judged_threshold([0.1, 0.2]) == 0
