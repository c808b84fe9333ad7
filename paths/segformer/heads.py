"""SegFormer's decode head in its other forms: sliced as the source paper does it, and folded below the upsampling.

Both take `fuse` (input channels of the fuse convolution kept) and `decoder` (its output channels kept); at equal
settings they compute the same function, so that the folded form is an exact rewrite of the sliced one too.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gearshift.errors import PathRefusedError
from gearshift.paths.segformer.forward import as_image, as_tokens
from gearshift.paths.sharing import DerivedTensors


@dataclass(frozen=True, slots=True, kw_only=True)
class Slicing:
    """What a path keeps of the fuse convolution; None keeps all.

    Attributes:
        fuse: Input channels kept, counted from the start of the concatenation (deepest stage first).
        decoder: Output channels kept, the most important ones by `decoder_importance`.
    """

    fuse: int | None = None
    decoder: int | None = None

    def check(self, head: Any) -> None:
        """Raise `PathRefusedError` where the head has no such channels."""
        for name, kept, available in (
            ("fuse", self.fuse, head.linear_fuse.in_channels),
            ("decoder", self.decoder, head.linear_fuse.out_channels),
        ):
            if kept is not None and not 1 <= kept <= available:
                raise PathRefusedError(f"{name}={kept} is out of range; this model's decoder allows 1 to {available}")

    def channels_per_stage(self, head: Any) -> list[int]:
        """Fuse input channels kept of each stage, shallowest stage first."""
        width = head.linear_fuse.in_channels // len(head.linear_projections)
        left = head.linear_fuse.in_channels if self.fuse is None else self.fuse
        kept = []
        for _ in head.linear_projections:
            kept.append(min(width, left))
            left -= kept[-1]
        return kept[::-1]


def decoder_importance(head: Any) -> Tensor:
    """Root mean square that each fuse output channel adds to the logits, from the weights alone: `(D,)`.

    After batch norm a channel is about normal with mean `beta` and deviation `|gamma|`; its second moment behind the
    ReLU is `(beta^2 + gamma^2) Phi(beta/gamma) + beta gamma phi(beta/gamma)`. Times the classifier's column norm.
    """
    _, second = _relu_moments(head)
    columns = head.classifier.weight[:, :, 0, 0].double().norm(dim=0)
    return columns * second.clamp(min=0).sqrt()


def _relu_moments(head: Any) -> tuple[Tensor, Tensor]:
    """First and second moment of ReLU(normal(beta, gamma)) per channel, in double precision."""
    beta = head.batch_norm.bias.detach().double()
    gamma = head.batch_norm.weight.detach().double().abs().clamp(min=1e-12)
    ratio = beta / gamma
    below = 0.5 * (1 + torch.erf(ratio / math.sqrt(2)))
    density = torch.exp(-(ratio**2) / 2) / math.sqrt(2 * math.pi)
    return beta * below + gamma * density, (beta**2 + gamma**2) * below + beta * gamma * density


@dataclass(frozen=True, slots=True, kw_only=True)
class _Output:
    """What follows the fuse convolution, restricted to the output channels kept."""

    fuse: Tensor  # (D', F): rows of the fuse convolution
    scale: Tensor  # (D',): batch norm as an affine map
    shift: Tensor  # (D',)
    classifier_weight: Tensor  # (K, D')
    classifier_bias: Tensor  # (K,), with the mean of what was dropped


def _output(head: Any, kept: int | None) -> _Output:
    """Fold the batch norm, choose the channels kept, and add the dropped channels' expected part to the bias."""
    norm = head.batch_norm
    scale = norm.weight.detach().double() / (norm.running_var.double() + norm.eps).sqrt()
    shift = norm.bias.detach().double() - scale * norm.running_mean.double()
    fuse = head.linear_fuse.weight.detach()[:, :, 0, 0]
    weight = head.classifier.weight.detach()[:, :, 0, 0]
    bias = head.classifier.bias.detach().double()
    if kept is not None and kept < len(scale):
        order = decoder_importance(head).argsort(descending=True)
        chosen, dropped = order[:kept].sort().values, order[kept:]
        mean, _ = _relu_moments(head)
        bias = bias + weight[:, dropped].double() @ mean[dropped]
        fuse, scale, shift, weight = fuse[chosen], scale[chosen], shift[chosen], weight[:, chosen]
    return _Output(fuse=fuse, scale=scale, shift=shift, classifier_weight=weight, classifier_bias=bias)


class SlicedHead(nn.Module):
    """The stock form with fewer channels: project, upsample, concatenate, fuse, normalise, classify.

    Weights are views on the stock head's own. Takes the encoder's maps `(B, C_i, H_i, W_i)`, gives logits
    `(B, K, H_0, W_0)`, as the stock head does.
    """

    def __init__(self, head: Any, slicing: Slicing, derived: DerivedTensors) -> None:
        super().__init__()
        slicing.check(head)
        self.activation = head.activation
        self._kept = slicing.channels_per_stage(head)
        self.projections = nn.ModuleList(layer.proj for layer in head.linear_projections)
        fuse = head.linear_fuse.weight.detach()
        if slicing.decoder is None or slicing.decoder == fuse.shape[0]:
            norm = head.batch_norm
            self.norm = norm
            self.register_buffer("weight", fuse[:, : slicing.fuse], persistent=False)
            self.register_buffer("classifier_weight", head.classifier.weight.detach(), persistent=False)
            self.register_buffer("classifier_bias", head.classifier.bias.detach(), persistent=False)
        else:
            key, output = f"sliced/decoder={slicing.decoder}", _output(head, slicing.decoder)
            self.norm = _AffineChannels(
                derived.get(f"{key}/scale", lambda: output.scale.float()),
                derived.get(f"{key}/shift", lambda: output.shift.float()),
            )
            chosen = derived.get(f"{key}/fuse", lambda: output.fuse[:, :, None, None])
            self.register_buffer("weight", chosen[:, : slicing.fuse], persistent=False)
            self.register_buffer(
                "classifier_weight",
                derived.get(f"{key}/classifier", lambda: output.classifier_weight[:, :, None, None]),
                persistent=False,
            )
            self.register_buffer(
                "classifier_bias",
                derived.get(f"{key}/classifier_bias", lambda: output.classifier_bias.float()),
                persistent=False,
            )

    weight: Tensor
    classifier_weight: Tensor
    classifier_bias: Tensor

    def forward(self, maps: Sequence[Tensor], **_: Any) -> Tensor:
        """Logits from the encoder's maps."""
        size = maps[0].shape[2:]
        parts = []
        for image, kept, layer in list(zip(maps, self._kept, self.projections, strict=True))[::-1]:
            if kept:
                projected = F.linear(image.flatten(2).transpose(1, 2), layer.weight[:kept], layer.bias[:kept])
                grid = projected.transpose(1, 2).reshape(len(image), kept, *image.shape[2:])
                parts.append(F.interpolate(grid, size=size, mode="bilinear", align_corners=False))
        fused = self.activation(self.norm(F.conv2d(torch.cat(parts, dim=1), self.weight)))
        return F.conv2d(fused, self.classifier_weight, self.classifier_bias)


class _AffineChannels(nn.Module):
    """An evaluated batch norm of chosen channels."""

    def __init__(self, scale: Tensor, shift: Tensor) -> None:
        super().__init__()
        self.register_buffer("scale", scale, persistent=False)
        self.register_buffer("shift", shift, persistent=False)

    scale: Tensor
    shift: Tensor

    def forward(self, image: Tensor) -> Tensor:
        return image * self.scale[:, None, None] + self.shift[:, None, None]


class FoldedHead(nn.Module):
    """Projection x fuse slice x batch norm as one matrix per stage, applied below the upsampling.

    A stage of which few fuse channels are kept stays factored (C_i to k, then k to D) where that is cheaper; a
    stage of which none is kept costs nothing. Takes channels-last maps, gives channels-last logits.
    """

    def __init__(self, head: Any, slicing: Slicing, derived: DerivedTensors) -> None:
        super().__init__()
        slicing.check(head)
        check_foldable(head)
        self._activation = head.activation
        output = _output(head, slicing.decoder)
        kept = slicing.channels_per_stage(head)
        whole = slicing.decoder is None or slicing.decoder == len(head.batch_norm.weight)
        prefix = "folded" if whole else f"folded/decoder={slicing.decoder}"
        self.stages = nn.ModuleList(
            _FoldedStage(head, stage, channels, output, f"{prefix}/stage{stage}", derived)
            for stage, channels in enumerate(kept)
        )
        self.register_buffer(
            "shift",
            derived.get(f"{prefix}/shift/fuse={sum(kept)}", lambda: _total_shift(head, kept, output)),
            persistent=False,
        )
        weight, bias = head.classifier.weight.detach()[:, :, 0, 0], head.classifier.bias.detach()
        if not whole:
            weight = derived.get(f"{prefix}/classifier", lambda: output.classifier_weight)
            bias = derived.get(f"{prefix}/classifier_bias", lambda: output.classifier_bias.float())
        self.register_buffer("classifier_weight", weight, persistent=False)
        self.register_buffer("classifier_bias", bias, persistent=False)

    shift: Tensor
    classifier_weight: Tensor
    classifier_bias: Tensor

    def forward(self, maps: Sequence[Tensor], **_: Any) -> Tensor:
        """Logits `(B, K, H_0, W_0)` from the encoder's maps `(B, C_i, H_i, W_i)`."""
        height, width = maps[0].shape[2:]
        tokens = self._sum(maps, (height, width))
        activated = self._activation(tokens)
        return as_image(F.linear(activated, self.classifier_weight, self.classifier_bias), height, width)

    def _sum(self, maps: Sequence[Tensor], size: tuple[int, int]) -> Tensor:
        """Add all stages, deepest first: `(B, H_0*W_0, D)`.

        The shift joins at the deepest, smallest map (interpolation keeps constants), and the shallowest stage is
        added by the matrix product itself, so that the large map is written once per upsampled stage and no more.
        """
        total: Tensor | None = None
        for stage, image in list(zip(self.stages, maps, strict=True))[::-1]:
            if not stage.kept:
                continue
            if total is not None and image.shape[2:] == size:
                return stage.add_to(total, as_tokens(image))
            part = as_image(stage(as_tokens(image), self.shift if total is None else None), *image.shape[2:])
            grown = as_tokens(F.interpolate(part, size=size, mode="bilinear", align_corners=False))
            total = grown if total is None else total.add_(grown)
        if total is None:
            raise PathRefusedError("the decoder keeps no channel of any stage; keep at least one")
        return total


class _FoldedStage(nn.Module):
    """One stage's map into the fused channels: one matrix, or two where fewer channels are kept than that is worth."""

    def __init__(
        self, head: Any, stage: int, kept: int, output: _Output, key: str, derived: DerivedTensors
    ) -> None:
        super().__init__()
        self.kept = kept
        proj = head.linear_projections[stage].proj
        fused, features = output.fuse.shape[0], proj.in_features
        fuse = _stage_slice(head, stage, kept, output)
        self.factored = kept * (features + fused) < features * fused
        if not kept:
            return
        if self.factored:
            self.register_buffer("inner", proj.weight.detach()[:kept], persistent=False)
            outer = derived.get(f"{key}/outer={kept}", lambda: (output.scale[:, None] * fuse).float())
            self.register_buffer("weight", outer, persistent=False)
        else:
            folded = derived.get(
                f"{key}/channels={kept}",
                lambda: (output.scale[:, None] * fuse @ proj.weight[:kept].double()).float(),
            )
            self.register_buffer("weight", folded, persistent=False)

    inner: Tensor
    weight: Tensor

    def forward(self, tokens: Tensor, shift: Tensor | None) -> Tensor:
        """`(B, N, C_i)` to `(B, N, D)`."""
        return F.linear(self._inner(tokens), self.weight, shift)

    def add_to(self, total: Tensor, tokens: Tensor) -> Tensor:
        """`total + forward(tokens)`, added within the product."""
        flat = total.view(-1, total.shape[-1])
        return torch.addmm(flat, self._inner(tokens).reshape(len(flat), -1), self.weight.T).view_as(total)

    def _inner(self, tokens: Tensor) -> Tensor:
        return F.linear(tokens, self.inner) if self.factored else tokens


def _stage_slice(head: Any, stage: int, kept: int, output: _Output) -> Tensor:
    """Columns of the fuse convolution that read the first `kept` channels of a stage: `(D', kept)`, double."""
    stages = len(head.linear_projections)
    start = (stages - 1 - stage) * (head.linear_fuse.in_channels // stages)
    return output.fuse[:, start : start + kept].double()


def _total_shift(head: Any, kept: Sequence[int], output: _Output) -> Tensor:
    """Batch-norm shift plus every stage's projection bias seen through fuse convolution and batch norm: `(D',)`."""
    total = output.shift.clone()
    for stage, (channels, layer) in enumerate(zip(kept, head.linear_projections, strict=True)):
        fuse = _stage_slice(head, stage, channels, output)
        total += output.scale * (fuse @ layer.proj.bias[:channels].double())
    return total.float()


def check_foldable(head: Any) -> None:
    """Raise `PathRefusedError`, with the reason, where something stands between projection and batch norm."""
    convolution, norm = head.linear_fuse, head.batch_norm
    reasons = {
        f"the fuse convolution has kernel {convolution.kernel_size}, not 1x1": convolution.kernel_size != (1, 1),
        f"the fuse convolution has {convolution.groups} groups, not 1": convolution.groups != 1,
        "the fuse convolution pads": convolution.padding not in ((0, 0), 0, "valid"),
        "the fuse convolution has a bias, which is not handled": convolution.bias is not None,
        f"{type(norm).__name__} stands behind it, not a batch norm": not isinstance(norm, nn.BatchNorm2d),
        "the batch norm has no running statistics": getattr(norm, "running_var", None) is None,
        "the batch norm has no scale and shift": getattr(norm, "weight", None) is None,
        "a stage's projection is more than one linear layer": any(
            [type(part) for part in layer.children()] != [nn.Linear] for layer in head.linear_projections
        ),
    }
    failed = next((reason for reason, wrong in reasons.items() if wrong), None)
    if failed is not None:
        raise PathRefusedError(f"the decoder cannot be folded: {failed}; use paths without lossless")
