"""Figures of merit, against hand arithmetic and a plain count over pixels."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from gearshift.errors import DataError
from gearshift.paths.build import build_path
from gearshift.paths.data import IGNORE_INDEX, LabelledFrame, normalise
from gearshift.paths.judge import Judge
from gearshift.paths.quality import ConfusionQuality, Quality, class_map, mean_iou
from gearshift.paths.spec import PathSpec
from gearshift.paths.tasks import Segmentation


def judged(predicted: Any, labels: Any, num_classes: int, ignore_index: int = IGNORE_INDEX) -> Quality:
    quality = ConfusionQuality(num_classes, ignore_index)
    quality.update(torch.tensor(predicted), torch.tensor(labels))
    return quality.result()


# Mean IoU


def test_by_hand() -> None:
    """B130: class 0 has 2 of 3 pixels of the union, class 1 has 1 of 2."""
    quality = judged([[0, 0], [0, 1]], [[0, 1], [0, 1]], 2)
    assert quality.metric == "mIoU"
    assert quality.per_class == (pytest.approx(2 / 3), 0.5)
    assert quality.value == pytest.approx((2 / 3 + 1 / 2) / 2)
    assert round(quality.value, 4) == 0.5833


def test_ignored_pixels_count_neither_for_nor_against() -> None:
    quality = judged([[0, 1, 1, 0]], [[0, 1, 255, 255]], 2)
    assert quality.per_class == (1.0, 1.0)


def test_ignoring_one_of_the_classes_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="the ignored label 0 is one of the 2 classes"):
        quality = judged([[0, 0], [0, 1]], [[0, 1], [0, 1]], 2, ignore_index=0)
    assert quality.per_class == (0.0, 0.5)


def test_a_class_that_never_occurs_is_left_out_of_the_mean() -> None:
    quality = judged([[0, 0, 3]], [[0, 1, 3]], 5)
    assert quality.per_class == (0.5, 0.0, None, 1.0, None)
    assert quality.value == pytest.approx(0.5)


def test_a_class_that_is_only_predicted_counts_as_wrong() -> None:
    assert judged([[2, 0]], [[0, 0]], 3).per_class == (0.5, None, 0.0)


class_maps = arrays.arrays(np.int64, (2, 3, 4), elements=st.integers(0, 3))
label_maps = arrays.arrays(np.int64, (2, 3, 4), elements=st.sampled_from([0, 1, 2, 3, 255]))


def by_counting(predicted: np.ndarray, labels: np.ndarray) -> list[float | None]:
    counts = labels != 255
    found: list[float | None] = []
    for number in range(4):
        ours, theirs = (predicted == number) & counts, (labels == number) & counts
        union = int((ours | theirs).sum())
        found.append(int((ours & theirs).sum()) / union if union else None)
    return found


@given(class_maps, label_maps)
def test_against_a_count_over_pixels(predicted: np.ndarray, labels: np.ndarray) -> None:
    if (labels == 255).all():
        labels[0, 0, 0] = 1
    expected = by_counting(predicted, labels)
    quality = judged(predicted, labels, 4)
    assert quality.per_class == tuple(expected)
    assert quality.value == pytest.approx(np.mean([value for value in expected if value is not None]))
    assert quality.images == 2
    assert 0 <= quality.value <= 1


@given(class_maps, label_maps)
def test_frames_one_by_one_are_judged_as_all_at_once(predicted: np.ndarray, labels: np.ndarray) -> None:
    labels[0, 0, 0] = labels[1, 0, 0] = 1
    quality = ConfusionQuality(4)
    for ours, theirs in zip(predicted, labels, strict=True):
        quality.update(torch.tensor(ours), torch.tensor(theirs))
    assert quality.result() == judged(predicted, labels, 4)


@pytest.mark.parametrize("kind", [torch.uint8, torch.int32, torch.int64])
def test_labels_of_any_integer_type(kind: torch.dtype) -> None:
    quality = ConfusionQuality(2)
    quality.update(torch.tensor([[0, 1, 1]]), torch.tensor([[0, 1, 255]]).to(kind))
    assert quality.result().value == 1.0


def test_an_excluded_class_of_minus_one_is_the_same_as_255() -> None:
    """B128: the ignored value is compared, not wrapped."""
    assert judged([[0, 1, 1]], [[0, 1, -1]], 2, ignore_index=-1) == judged([[0, 1, 1]], [[0, 1, 255]], 2)


def test_nothing_labelled_is_refused() -> None:
    with pytest.raises(DataError, match="no labelled pixel: every label is the ignore index"):
        judged([[0, 1]], [[255, 255]], 2)
    with pytest.raises(DataError, match="no labelled pixel"):
        ConfusionQuality(2).result()


@pytest.mark.parametrize(
    ("predicted", "labels", "said"),
    [
        (
            [[0, 0]],
            [[5, 0]],
            "label 5 is out of range; allowed are 0 to 2 and 255 for pixels that do not count",
        ),
        ([[0, 0]], [[-1, 0]], "label -1 is out of range"),
        ([[3, 0]], [[0, 0]], "predicted class 3 is out of range"),
        ([[0, 0]], [[0, 0, 0]], r"a class map of \(1, 2\) has labels of \(1, 3\)"),
    ],
)
def test_what_does_not_fit_is_refused(predicted: Any, labels: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        judged(predicted, labels, 3)


# Class maps and agreement


def test_logits_are_upsampled_before_classes_are_taken() -> None:
    """Between a class of logit 3 and one of logit 1, the border is nearer to the weaker."""
    logits = torch.tensor([[[[3.0, 0.0]], [[0.0, 1.0]]]])
    assert class_map(logits, (1, 8)).tolist() == [[[0, 0, 0, 0, 0, 1, 1, 1]]]
    assert class_map(logits.half(), (1, 2)).tolist() == [[[0, 1]]]


def agreement(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> Quality:
    task = Segmentation(9)
    return task.agreement(sum(task.agree(*pair) for pair in zip(ours, theirs, strict=True)), len(ours))


def test_agreement_is_the_share_of_equal_pixels() -> None:
    ours, theirs = (
        [torch.tensor([[0, 1]]), torch.tensor([[2, 2, 2, 2]])],
        [torch.tensor([[0, 2]]), torch.tensor([[2, 2, 2, 0]])],
    )
    quality = agreement(ours, theirs)
    assert (quality.metric, quality.value, quality.images) == ("agreement", pytest.approx(4 / 6), 2)
    assert quality.per_class == ()


def test_agreement_with_oneself_is_whole() -> None:
    maps = [torch.randint(0, 9, (4, 5)) for _ in range(3)]
    assert agreement(maps, maps).value == 1.0


def test_agreement_needs_frames_of_equal_shape() -> None:
    with pytest.raises(DataError, match=r"cannot compare class maps of \(1, 2\) and \(2, 2\)"):
        agreement([torch.zeros(1, 2)], [torch.zeros(2, 2)])


# Judging a model


def frames_of(model: Any, count: int = 4, labelled: bool = True) -> list[LabelledFrame]:
    """Frames whose labels are the model's own classes, but for the first column; or no labels."""
    rng = np.random.default_rng(0)
    made = []
    for _ in range(count):
        image = rng.integers(0, 256, (64, 96, 3), np.uint8)
        with torch.inference_mode():
            classes = class_map(model(normalise(image)).logits, (64, 96))[0].numpy().astype(np.uint8)
        classes[:, 0] = IGNORE_INDEX
        made.append(LabelledFrame(image, classes if labelled else np.full((64, 96), IGNORE_INDEX, np.uint8)))
    return made


def test_a_model_judged_by_its_own_classes_is_perfect(stock: Any) -> None:
    frames = frames_of(stock)
    quality = mean_iou(lambda pixels: stock(pixels).logits, frames, 7)
    assert (quality.value, quality.images) == (1.0, 4)
    assert Judge(stock, frames).judge(stock) == quality


def test_a_judge_of_labelled_frames_gives_the_mean_iou(stock: Any) -> None:
    frames = frames_of(stock)
    path = build_path(stock, PathSpec.parse("blocks=0-0-0-0"))
    judge = Judge(stock, frames)
    assert judge.metric == "mIoU"
    assert judge.judge(path) == mean_iou(lambda pixels: path(pixels).logits, frames, 7)
    assert judge.judge(path).value < 1
    assert judge.judge(path, every=2) == mean_iou(lambda pixels: path(pixels).logits, frames[::2], 7)


def test_a_judge_of_unlabelled_frames_gives_the_agreement_with_the_stock_model(stock: Any) -> None:
    judge = Judge(stock, frames_of(stock, labelled=False))
    path = build_path(stock, PathSpec.parse("blocks=0-0-0-0"))
    assert judge.metric == "agreement"
    sparse, full = judge.judge(path, every=3), judge.judge(path)
    assert (sparse.metric, sparse.images, full.images) == ("agreement", 2, 4)
    assert 0 < full.value < 1
    assert judge.judge(stock).value == judge.judge(build_path(stock, PathSpec())).value == 1.0


def test_a_judge_needs_a_frame(stock: Any) -> None:
    with pytest.raises(DataError, match="no frame to judge on; give a folder with at least one image"):
        Judge(stock, [])


def test_lossless_paths_are_judged_as_the_stock_model(stock: Any, exact: PathSpec) -> None:
    judge = Judge(stock, frames_of(stock))
    assert judge.judge(build_path(stock, exact)).value == pytest.approx(1.0, abs=1e-3)
