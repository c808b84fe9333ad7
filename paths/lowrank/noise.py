"""How far a path's answers are from the stock model's: noise to signal over frames, whatever the task."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn


def answers_of(output: Any) -> list[Tensor]:
    """What of an output is compared: logits, and boxes where there are any."""
    if isinstance(output, Tensor):
        return [output]
    boxes = getattr(output, "pred_boxes", None)
    return [output.logits] if boxes is None else [output.logits, boxes]


def energy(differences: Sequence[Tensor]) -> Tensor:
    """Sum of squares of each: `(answers,)`, in double precision."""
    return torch.stack([difference.double().square().sum() for difference in differences])


class Reference:
    """The stock model's answers to calibration frames, made once.

    Args:
        stock: In evaluation mode.
        frames: Normalised, `(B, C, H, W)`.
    """

    def __init__(self, stock: nn.Module, frames: Sequence[Tensor]) -> None:
        with torch.inference_mode(mode=False), torch.no_grad():
            dtype = next(stock.parameters()).dtype
            # Cloned: frames made in inference mode could not be trained on.
            self.frames = [frame.to(dtype).clone() for frame in frames]
            self.answers = [answers_of(stock(frame)) for frame in self.frames]
            self._signal = energy([_centred(answers) for answers in zip(*self.answers, strict=True)]).clamp(min=1e-300)

    def ratio(self, model: nn.Module) -> float:
        """Noise-to-signal ratio of a model over all frames: the mean over its answers."""
        with torch.inference_mode(mode=False), torch.no_grad():
            noise = [self._noise(model, index) for index in range(len(self.frames))]
            return float((torch.stack(noise).sum(0) / self._signal).mean())

    def loss(self, model: nn.Module, index: int) -> Tensor:
        """The same of one frame, as if all were like it; differentiable."""
        return (self._noise(model, index) * len(self.frames) / self._signal).mean()

    def _noise(self, model: nn.Module, index: int) -> Tensor:
        pairs = zip(answers_of(model(self.frames[index])), self.answers[index], strict=True)
        return energy([answer - expected for answer, expected in pairs])


def _centred(answers: Sequence[Tensor]) -> Tensor:
    """One answer over all frames, less its mean."""
    values = torch.cat([answer.flatten().double() for answer in answers])
    return values - values.mean()


def in_batches(frames: Sequence[Tensor], size: int) -> list[Tensor]:
    """Neighbouring frames of one shape put together."""
    batches: list[list[Tensor]] = []
    for frame in frames:
        if batches and len(batches[-1]) < size and batches[-1][0].shape == frame.shape:
            batches[-1].append(frame)
        else:
            batches.append([frame])
    return [torch.cat(batch) for batch in batches]
