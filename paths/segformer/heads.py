"""SegFormer's decode head in its other forms: sliced as the source paper does it, and folded.

Both take `fuse` (input channels of the fuse convolution kept) and `decoder` (its output channels kept); at
equal settings they compute the same function: the folded form is an exact rewrite of the sliced one too.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gearshift.errors import PathRefusedError
from gearshift.paths.moments import channel_importance, relu_mean
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
    """Root mean square that each fuse output channel adds to the logits, from the weights alone: `(D,)`."""
    return channel_importance(head.batch_norm, head.classifier)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Output:
    """What follows the fuse convolution, restricted to the output channels kept; double unless noted."""

    fuse: Tensor  # (D', F): rows of the fuse convolution, in the model's own precision
    scale: Tensor  # (D',): batch norm as an affine map
    shift: Tensor  # (D',)
    classifier_weight: Tensor  # (K, D'), in the model's own precision
    classifier_bias: Tensor  # (K,), with the mean of what was dropped


def _output(head: Any, kept: int | None) -> _Output:
    """Fold the batch norm, choose the channels kept, add the others' expected part to the bias."""
    norm = head.batch_norm
    scale = norm.weight.detach().double() / (norm.running_var.double() + norm.eps).sqrt()
    shift = norm.bias.detach().double() - scale * norm.running_mean.double()
    fuse = head.linear_fuse.weight.detach()[:, :, 0, 0]
    weight = head.classifier.weight.detach()[:, :, 0, 0]
    bias = head.classifier.bias.detach().double()
    if kept is not None and kept < len(scale):
        order = decoder_importance(head).argsort(descending=True, stable=True)
        chosen, dropped = order[:kept].sort().values, order[kept:]
        bias = bias + weight[:, dropped].double() @ relu_mean(head.batch_norm)[dropped]
        fuse, scale, shift, weight = fuse[chosen], scale[chosen], shift[chosen], weight[:, chosen]
    return _Output(fuse=fuse, scale=scale, shift=shift, classifier_weight=weight, classifier_bias=bias)


class SlicedHead(nn.Module):
    """The stock form with fewer channels: project, upsample, concatenate, fuse, normalise, classify.

    Weights are views on the stock head's own, except for a choice of output channels. Takes the encoder's
    maps `(B, C_i, H_i, W_i)`, gives logits `(B, K, H_0, W_0)`, as the stock head does.
    """

    def __init__(self, head: Any, slicing: Slicing, derived: DerivedTensors) -> None:
        super().__init__()
        check_foldable(head)
        slicing.check(head)
        self.activation = head.activation
        self.dropout = head.dropout
        self._kept = slicing.channels_per_stage(head)
        self.projections = nn.ModuleList(layer.proj for layer in head.linear_projections)
        if slicing.decoder is None or slicing.decoder == head.linear_fuse.out_channels:
            self.norm = head.batch_norm
            fuse, classifier = head.linear_fuse.weight.detach(), head.classifier.weight.detach()
            bias = head.classifier.bias.detach()
        else:
            key, output = f"sliced/decoder={slicing.decoder}", _output(head, slicing.decoder)
            self.norm = _AffineChannels(
                derived.get(f"{key}/scale", lambda: output.scale.to(output.fuse.dtype)),
                derived.get(f"{key}/shift", lambda: output.shift.to(output.fuse.dtype)),
            )
            fuse = derived.get(f"{key}/fuse", lambda: output.fuse[:, :, None, None])
            classifier = derived.get(f"{key}/classifier", lambda: output.classifier_weight[:, :, None, None])
            bias = derived.get(f"{key}/classifier_bias", lambda: output.classifier_bias.to(output.fuse.dtype))
        self.register_buffer("weight", fuse[:, : slicing.fuse], persistent=False)
        self.register_buffer("classifier_weight", classifier, persistent=False)
        self.register_buffer("classifier_bias", bias, persistent=False)

    weight: Tensor
    classifier_weight: Tensor
    classifier_bias: Tensor

    def forward(self, maps: Sequence[Tensor], **_: Any) -> Tensor:
        """Logits from the encoder's maps."""
        size = maps[0].shape[2:]
        stages: list[tuple[Tensor, int, Any]] = list(zip(maps, self._kept, self.projections, strict=True))
        parts = []
        for image, kept, layer in reversed(stages):
            if kept:
                projected = F.linear(image.flatten(2).transpose(1, 2), layer.weight[:kept], layer.bias[:kept])
                grid = projected.transpose(1, 2).reshape(len(image), kept, *image.shape[2:])
                parts.append(F.interpolate(grid, size=size, mode="bilinear", align_corners=False))
        fused = self.activation(self.norm(F.conv2d(torch.cat(parts, dim=1), self.weight)))
        return F.conv2d(self.dropout(fused), self.classifier_weight, self.classifier_bias)


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

    A stage of which few fuse channels are kept stays factored (C_i to k, then k to D) where that is cheaper;
    a stage of which none is kept costs nothing. Takes channels-last maps, gives channels-last logits.
    """

    def __init__(self, head: Any, slicing: Slicing, derived: DerivedTensors) -> None:
        super().__init__()
        check_foldable(head)
        slicing.check(head)
        self.activation = head.activation
        output = _output(head, slicing.decoder)
        kept = slicing.channels_per_stage(head)
        whole = slicing.decoder is None or slicing.decoder == head.linear_fuse.out_channels
        prefix = "folded" if whole else f"folded/decoder={slicing.decoder}"
        self.stages = nn.ModuleList(
            _FoldedStage(head, stage, channels, output, f"{prefix}/stage{stage}", derived)
            for stage, channels in enumerate(kept)
        )
        shift = derived.get(f"{prefix}/shift/fuse={sum(kept)}", lambda: _total_shift(head, kept, output))
        weight, bias = head.classifier.weight.detach()[:, :, 0, 0], head.classifier.bias.detach()
        if not whole:
            weight = derived.get(f"{prefix}/classifier", lambda: output.classifier_weight)
            bias = derived.get(f"{prefix}/classifier_bias", lambda: output.classifier_bias.to(output.fuse.dtype))
        self.register_buffer("shift", shift, persistent=False)
        self.register_buffer("classifier_weight", weight, persistent=False)
        self.register_buffer("classifier_bias", bias, persistent=False)

    shift: Tensor
    classifier_weight: Tensor
    classifier_bias: Tensor

    def forward(self, maps: Sequence[Tensor], **_: Any) -> Tensor:
        """Logits `(B, K, H_0, W_0)` from the encoder's maps `(B, C_i, H_i, W_i)`."""
        height, width = maps[0].shape[2:]
        activated = self.activation(self._sum(maps, (height, width)))
        return as_image(F.linear(activated, self.classifier_weight, self.classifier_bias), height, width)

    def _sum(self, maps: Sequence[Tensor], size: tuple[int, int]) -> Tensor:
        """Add all stages, deepest first: `(B, H_0*W_0, D)`.

        The shift joins at the deepest, smallest map (interpolation keeps constants), and a stage of the full
        size is added by the matrix product itself, so that the large map is written once per upsampled stage
        and no more. The deepest stage always keeps a channel: slices are counted from it.
        """
        total: Tensor | None = None
        stages: list[tuple[Any, Tensor]] = list(zip(self.stages, maps, strict=True))
        for stage, image in reversed(stages):
            if not stage.kept:
                continue
            if total is not None and image.shape[2:] == size:
                total = stage.add_to(total, as_tokens(image))
                continue
            part = as_image(stage(as_tokens(image), self.shift if total is None else None), *image.shape[2:])
            grown = as_tokens(F.interpolate(part, size=size, mode="bilinear", align_corners=False))
            total = grown if total is None else total.add_(grown)
        assert total is not None  # Slicing.check: at least one channel, and the first are the deepest stage's
        return total


class _FoldedStage(nn.Module):
    """One stage's map into the fused channels: one matrix, or two where that is cheaper."""

    def __init__(self, head: Any, stage: int, kept: int, output: _Output, key: str, derived: DerivedTensors) -> None:
        super().__init__()
        self.kept = kept
        proj, fuse = head.linear_projections[stage].proj, _stage_slice(head, stage, kept, output)
        fused, features = len(fuse), proj.in_features
        self.factored = folded_weights(features, fused, kept) < features * fused
        if not kept:
            return
        if self.factored:
            weight = derived.get(f"{key}/outer={kept}", lambda: (output.scale[:, None] * fuse).to(proj.weight.dtype))
            self.register_buffer("inner", proj.weight.detach()[:kept], persistent=False)
        else:
            weight = derived.get(f"{key}/channels={kept}", lambda: _folded(proj, kept, fuse, output))
        self.register_buffer("weight", weight, persistent=False)

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


def folded_weights(features: int, fused: int, kept: int) -> int:
    """Weights, and multiply-accumulates per token, of a stage's map from `features` to `fused` channels."""
    return min(features * fused, kept * (features + fused))


def _folded(proj: Any, kept: int, fuse: Tensor, output: _Output) -> Tensor:
    """Batch norm x fuse slice x projection: `(D', C_i)`, in the model's own precision."""
    product: Tensor = output.scale[:, None] * fuse @ proj.weight[:kept].double()
    return product.to(output.fuse.dtype)


def _stage_slice(head: Any, stage: int, kept: int, output: _Output) -> Tensor:
    """Columns of the fuse convolution that read a stage's first `kept` channels: `(D', kept)`, double."""
    stages = len(head.linear_projections)
    start = (stages - 1 - stage) * (head.linear_fuse.in_channels // stages)
    return output.fuse[:, start : start + kept].double()


def _total_shift(head: Any, kept: Sequence[int], output: _Output) -> Tensor:
    """Batch-norm shift plus all projections' biases seen through fuse convolution and batch norm: `(D',)`."""
    total = output.shift.clone()
    for stage, (channels, layer) in enumerate(zip(kept, head.linear_projections, strict=True)):
        fuse = _stage_slice(head, stage, channels, output)
        total += output.scale * (fuse @ layer.proj.bias[:channels].double())
    return total.to(output.fuse.dtype)


def check_foldable(head: Any) -> None:
    """Raise `PathRefusedError` where the head is not the one that both forms rewrite, with the reason.

    That is: one linear layer per stage, a 1x1 convolution without bias, a batch norm, a ReLU and a 1x1
    classifier, each of torch's own class, since a subclass may compute something else.
    """
    fault = next(_faults(head), None)
    if fault is not None:
        raise PathRefusedError(
            f"the decoder can be neither folded nor sliced: {fault}; use paths without lossless, fuse and decoder"
        )


def _faults(head: Any) -> Iterator[str]:
    """What stands in the way; a later check may rely on the earlier ones."""
    for layer in head.linear_projections:
        if [type(part) for part in layer.children()] != [nn.Linear] or layer.proj.bias is None:
            yield "a stage's projection is more than one linear layer with a bias"
    yield from _convolution_faults("fuse convolution", head.linear_fuse)
    if head.linear_fuse.bias is not None:
        yield "the fuse convolution has a bias, which is not handled"
    norm, activation = head.batch_norm, head.activation
    if type(norm) is not nn.BatchNorm2d:
        yield f"{type(norm).__name__} stands behind it, not a batch norm"
    if norm.running_var is None:
        yield "the batch norm has no running statistics"
    if norm.weight is None:
        yield "the batch norm has no scale and shift"
    if type(activation) is not nn.ReLU:
        yield f"its activation is {type(activation).__name__}, not ReLU"
    yield from _convolution_faults("classifier", head.classifier)
    if head.classifier.bias is None:
        yield "the classifier has no bias"


def _convolution_faults(name: str, layer: Any) -> Iterator[str]:
    if type(layer) is not nn.Conv2d:
        yield f"the {name} is a {type(layer).__name__}, not a Conv2d"
    if layer.kernel_size != (1, 1):
        yield f"the {name} has kernel {layer.kernel_size}, not 1x1"
    if layer.stride != (1, 1):
        yield f"the {name} has stride {layer.stride}, not 1"
    if layer.groups != 1:
        yield f"the {name} has {layer.groups} groups, not 1"
    if layer.padding not in ((0, 0), "valid", "same"):
        yield f"the {name} pads by {layer.padding}"
