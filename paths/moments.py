"""What a channel behind a batch norm and a ReLU is on average, told from the weights alone.

After batch norm a channel is about normal with mean `beta` and deviation `|gamma|`; the moments behind the ReLU are
those of a rectified normal variable.
"""

import math
from typing import Any

import torch
from torch import Tensor


def channel_importance(norm: Any, classifier: Any) -> Tensor:
    """Root mean square that each channel adds to the logits of a 1x1 classifier behind it: `(D,)`.

    Behind the ReLU a channel's second moment is `(beta^2 + gamma^2) Phi(beta/gamma) + beta gamma phi(beta/gamma)`; its
    root, times the norm of the classifier's column.
    """
    beta, gamma, below, density = _rectified(norm)
    second = (beta**2 + gamma**2) * below + beta * gamma * density
    columns: Tensor = classifier.weight.detach()[:, :, 0, 0].double().norm(dim=0)
    return columns * second.clamp(min=0).sqrt()


def relu_mean(norm: Any) -> Tensor:
    """Mean of each channel behind the ReLU: `(D,)`."""
    beta, gamma, below, density = _rectified(norm)
    return beta * below + gamma * density


def _rectified(norm: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Mean, deviation, and distribution and density of the standard normal at their ratio, in double precision."""
    beta = norm.bias.detach().double()
    gamma = norm.weight.detach().double().abs().clamp(min=1e-12)
    ratio = beta / gamma
    below = 0.5 * (1 + torch.erf(ratio / math.sqrt(2)))
    density = torch.exp(-(ratio**2) / 2) / math.sqrt(2 * math.pi)
    return beta, gamma, below, density
