"""From tokens to what the stock model answers: which tokens are read, and by what.

A readout says which tokens of the last block it reads (`reads`), and after how many blocks it taps the trunk.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from gearshift.paths.sharing import DerivedTensors
from gearshift.paths.vit.affine import Affine, bare, is_foldable, shifted, unflatten
from gearshift.paths.vit.layout import TEACHER, class_of, layout_of

Grid = tuple[int, int]


class TokenReadout(nn.Module):
    """A linear map for each of the first tokens: class, and distillation where there is one."""

    def __init__(self, norm: nn.Module, fc_norm: nn.Module, heads: Sequence[nn.Module]) -> None:
        super().__init__()
        self.norm, self.fc_norm = norm, fc_norm
        self.heads = nn.ModuleList(heads)
        self.reads = slice(0, len(heads))

    def forward(self, taken: Sequence[Tensor], grid: Grid) -> list[Tensor]:
        """Logits `(B, K)` of each head."""
        tokens = self.fc_norm(self.norm(taken[-1])).unbind(1)
        return [head(token) for head, token in zip(self.heads, tokens, strict=True)]


class PooledReadout(nn.Module):
    """Tokens of patches, pooled, under one linear map."""

    def __init__(self, norm: nn.Module, pool: Callable[[Tensor], Tensor], fc_norm: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.norm, self.pool, self.fc_norm, self.head = norm, pool, fc_norm, head
        self.reads = slice(None)

    def forward(self, taken: Sequence[Tensor], grid: Grid) -> list[Tensor]:
        """Logits `(B, K)`."""
        return [self.head(self.fc_norm(self.pool(self.norm(taken[-1]))))]


class SegmentReadout(nn.Module):
    """One linear map for the tokens of each tapped block, their sum as a map of logits."""

    def __init__(self, norm: nn.Module, maps: Sequence[Affine], prefix: int) -> None:
        super().__init__()
        self.norm = norm
        self.maps = nn.ModuleList(maps)
        self.reads = slice(prefix, None)

    def forward(self, taken: Sequence[Tensor], grid: Grid) -> list[Tensor]:
        """Logits `(B, K, h, w)`."""
        parts = [layer(self.norm(tokens)) for layer, tokens in zip(self.maps, taken, strict=True)]
        logits = torch.stack(parts).sum(0) if len(parts) > 1 else parts[0]
        return [unflatten(logits.mT, 2, grid)]


def readout_of(model: Any) -> TokenReadout | PooledReadout:
    """The readout of a classifier, over its own modules."""
    layout = layout_of(model)
    heads = [model.get_submodule(name) for name in layout.heads]
    norm = getattr(layout.trunk_of(model), layout.norm)
    if layout.library == "transformers":
        return TokenReadout(norm, nn.Identity(), heads)
    if model.attn_pool is None and model.global_pool == "token":
        return TokenReadout(norm, nn.Identity() if len(heads) > 1 else model.fc_norm, heads)
    pool = POOLS[model.global_pool] if model.attn_pool is None else model.attn_pool
    pooled = PooledReadout(norm, pool, model.fc_norm, heads[0])
    if not model.pool_include_prefix:
        pooled.reads = slice(model.num_prefix_tokens, None)
    return pooled


def answer_of(model: Any) -> Callable[[list[Tensor]], Any]:
    """What the stock model makes of its heads' logits."""
    layout = layout_of(model)
    if class_of(model) == TEACHER:
        return _taught
    if layout.library == "transformers":
        return _classified
    return _mean if len(layout.heads) > 1 else _alone


def _alone(logits: list[Tensor]) -> Tensor:
    return logits[0]


def _mean(logits: list[Tensor]) -> Tensor:
    return (logits[0] + logits[1]) / 2


def _classified(logits: list[Tensor]) -> Any:
    from transformers.modeling_outputs import ImageClassifierOutput

    return ImageClassifierOutput(logits=logits[0])


def _taught(logits: list[Tensor]) -> Any:
    from transformers.models.deit.modeling_deit import DeiTForImageClassificationWithTeacherOutput

    cls, distillation = logits
    return DeiTForImageClassificationWithTeacherOutput(
        logits=(cls + distillation) / 2, cls_logits=cls, distillation_logits=distillation
    )


def _average(tokens: Tensor) -> Tensor:
    return tokens.mean(dim=1)


def _largest(tokens: Tensor) -> Tensor:
    return tokens.amax(dim=1)


def _average_and_largest(tokens: Tensor) -> Tensor:
    return 0.5 * (tokens.amax(dim=1) + tokens.mean(dim=1))


POOLS: dict[str, Callable[[Tensor], Tensor]] = {
    "avg": _average,
    "max": _largest,
    "avgmax": _average_and_largest,
}
"""timm's poolings of the tokens that are read (`global_pool_nlc`)."""


def segment_readout(model: Any, derived: DerivedTensors, *, folded: bool) -> SegmentReadout:
    """The readout of a segmenter: standardisation and convolution as one matrix, with the norm where it is folded."""
    norm = model.backbone.norm
    fold = folded and is_foldable(norm)
    key, maps = (
        ("norms/segmenter", partial(_folded_maps, model, norm)) if fold else ("segmenter", partial(_maps, model))
    )
    weight = derived.get(f"{key}/weight", lambda: maps()[0], stored=False)
    bias = derived.get(f"{key}/bias", lambda: maps()[1], stored=False)
    # The bias goes with the first of the tapped blocks.
    parts = weight.chunk(len(model.taken), dim=1)
    layers = [Affine(part, bias if index == 0 else None) for index, part in enumerate(parts)]
    return SegmentReadout(bare(norm) if fold else norm, layers, model.backbone.num_prefix_tokens)


def _maps(model: Any) -> tuple[Tensor, Tensor]:
    """Matrix `(K, F)` and bias `(K,)`."""
    classifier = model.classifier
    weight = classifier.weight[:, :, 0, 0].double() / model.feature_std.double()
    bias = classifier.bias.double() - weight @ model.feature_mean.double()
    return weight.to(classifier.weight.dtype), bias.to(classifier.weight.dtype)


def _folded_maps(model: Any, norm: Any) -> tuple[Tensor, Tensor]:
    weight, bias = _maps(model)
    taps = len(model.taken)
    return weight * norm.weight.repeat(taps), shifted(weight, bias, norm.bias.repeat(taps))
