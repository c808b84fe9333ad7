"""Terms of the loss against formulas written out, and what becomes of batches without labels."""

import pytest
import torch
from torch.nn import functional as F

from gearshift.retrain.losses import any_labelled, distillation_loss, feature_loss, label_loss

IGNORED = 255


def test_label_loss_is_the_weighted_mean_of_negative_log_probabilities() -> None:
    logits, labels = torch.randn(2, 3, 4, 5), torch.randint(0, 3, (2, 4, 5))
    labels[0, :2] = IGNORED
    weights = torch.tensor([0.5, 1.0, 3.0])
    total = weight = 0.0
    for image, row, column in (labels != IGNORED).nonzero().tolist():
        scores, label = logits[image, :, row, column].double(), int(labels[image, row, column])
        total -= float(weights[label] * (scores[label] - scores.exp().sum().log()))
        weight += float(weights[label])
    assert float(label_loss(logits, labels, weights, IGNORED)) == pytest.approx(total / weight, rel=1e-5)


def test_logits_are_upsampled_to_the_labels() -> None:
    logits, labels = torch.randn(2, 3, 4, 5), torch.randint(0, 3, (2, 16, 20))
    full = F.interpolate(logits, scale_factor=4, mode="bilinear", align_corners=False)
    wanted = F.cross_entropy(full, labels)
    assert torch.allclose(label_loss(logits, labels, torch.ones(3), IGNORED), wanted)


def test_logits_in_bfloat16_are_judged_in_single_precision() -> None:
    logits, labels = torch.randn(1, 3, 4, 4).bfloat16(), torch.randint(0, 3, (1, 8, 8))
    loss = label_loss(logits, labels, torch.ones(3), IGNORED)
    assert loss.dtype == torch.float32
    assert torch.equal(loss, label_loss(logits.float(), labels, torch.ones(3), IGNORED))


def test_ignored_pixels_do_not_matter() -> None:
    logits, labels = torch.randn(1, 3, 2, 4), torch.randint(0, 3, (1, 2, 4))
    labels[..., 2:] = IGNORED
    cut = label_loss(logits[..., :2], labels[..., :2], torch.ones(3), IGNORED)
    assert torch.allclose(label_loss(logits, labels, torch.ones(3), IGNORED), cut)


def test_without_labels_the_loss_is_zero_and_so_is_its_gradient() -> None:
    logits = torch.randn(2, 3, 4, 4, requires_grad=True)
    loss = label_loss(logits, torch.full((2, 8, 8), IGNORED), torch.ones(3), IGNORED)
    torch.autograd.backward(loss)
    assert loss.item() == 0.0
    assert logits.grad is not None
    assert torch.equal(logits.grad, torch.zeros_like(logits))


def test_any_labelled() -> None:
    labels = torch.full((2, 3, 3), IGNORED)
    assert not any_labelled(labels, IGNORED)
    assert any_labelled(labels, 7)
    labels[1, 2, 0] = 0
    assert any_labelled(labels, IGNORED)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_distillation_loss_is_the_divergence_from_the_teacher(temperature: float) -> None:
    """KL(teacher || student) summed over classes, mean over pixels, times the temperature squared."""
    student, teacher = torch.randn(2, 5, 3, 4), torch.randn(2, 5, 3, 4)
    p = (teacher.double() / temperature).softmax(1)
    q = (student.double() / temperature).softmax(1)
    wanted = temperature**2 * (p * (p.log() - q.log())).sum() / (2 * 3 * 4)
    assert float(distillation_loss(student, teacher, temperature)) == pytest.approx(float(wanted), rel=1e-4)


def test_distillation_loss_sees_differences_of_logits_alone() -> None:
    logits = torch.randn(1, 5, 3, 4)
    assert float(distillation_loss(logits, logits, 2.0)) == pytest.approx(0, abs=1e-6)
    assert float(distillation_loss(logits + 3, logits, 2.0)) == pytest.approx(0, abs=1e-6)
    assert float(distillation_loss(logits.flip(1), logits, 2.0)) > 0.1


def test_feature_loss_is_the_mean_squared_error() -> None:
    predicted, target = torch.randn(2, 3, 4, 5), torch.randn(2, 3, 4, 5)
    wanted = float(((predicted.double() - target.double()) ** 2).sum()) / (2 * 3 * 4 * 5)
    assert float(feature_loss(predicted, target)) == pytest.approx(wanted, rel=1e-5)
    assert float(feature_loss(predicted.bfloat16(), target)) == pytest.approx(wanted, rel=0.02)


def test_gradients_reach_the_student_alone() -> None:
    student, teacher = torch.randn(1, 3, 2, 2, requires_grad=True), torch.randn(1, 3, 2, 2)
    torch.autograd.backward(distillation_loss(student, teacher, 2.0) + feature_loss(student, teacher))
    assert student.grad is not None
    assert teacher.grad is None
