"""Terms of the training loss: labels, the teacher's softened logits, the teacher's features."""

import torch
from torch import Tensor
from torch.nn import functional as F


def label_loss(logits: Tensor, labels: Tensor, weights: Tensor, ignore_index: int) -> Tensor:
    """Class-weighted cross-entropy of logits `(B, K, h, w)`, upsampled to labels `(B, H, W)`.

    Returns 0 with a graph where every label is ignored: the plain mean over nothing would be NaN.
    """
    full = F.interpolate(logits.float(), size=labels.shape[-2:], mode="bilinear", align_corners=False)
    if not any_labelled(labels, ignore_index):
        return full.sum() * 0.0
    return F.cross_entropy(full, labels, weight=weights, ignore_index=ignore_index)


def any_labelled(labels: Tensor, ignore_index: int) -> bool:
    """Whether any pixel counts."""
    return bool((labels != ignore_index).any())


def distillation_loss(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """Kullback-Leibler divergence per pixel of `(B, K, h, w)` logits, times T^2 (Hinton et al., 2015)."""
    log_student = F.log_softmax(student.float() / temperature, dim=1)
    log_teacher = F.log_softmax(teacher / temperature, dim=1)
    divergence = F.kl_div(log_student, log_teacher, reduction="none", log_target=True).sum(1)
    return divergence.mean() * temperature**2


def feature_loss(predicted: Tensor, target: Tensor) -> Tensor:
    """Mean squared error of `(B, F, h, w)` maps; the target is standardised, so 1 means nothing learnt."""
    return torch.mean((predicted.float() - target) ** 2)
