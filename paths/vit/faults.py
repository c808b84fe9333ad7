"""What stands in the way of the exact rewrite: each check is on the modules that are there."""

from collections.abc import Iterator
from typing import Any

from torch import nn

from gearshift.errors import PathRefusedError
from gearshift.paths.vit.layout import SEGMENTER, Layout, class_of, layout_of

NORMS = (
    "torch.nn.modules.linear.Identity",
    "torch.nn.modules.normalization.LayerNorm",
    "torch.nn.modules.normalization.RMSNorm",
    *(f"timm.layers.norm.{name}" for name in ("LayerNorm", "LayerNormFp32", "RmsNorm", "RmsNormFp32")),
)
"""Norms that treat each token by itself."""

MLPS = (
    "timm.layers.mlp.Mlp",
    "timm.layers.mlp.GluMlp",
    "timm.layers.mlp.SwiGLU",
    "transformers.models.vit.modeling_vit.ViTMLP",
    "transformers.models.deit.modeling_deit.DeiTMLP",
)
"""MLPs that treat each token by itself."""


def check_rewritable(model: Any) -> None:
    """Raise `PathRefusedError` where a module is not one that the lossless forward is written for."""
    fault = next(_faults(model, layout_of(model)), None)
    if fault is not None:
        raise PathRefusedError(f"lossless does not fit this model: {fault}; use paths without lossless")


def check_patches(model: Any, what: str) -> None:
    """Raise `PathRefusedError` where frames are not cut into patches side by side by the library's own modules."""
    layout = layout_of(model)
    fault = next(_embedding_faults(layout.trunk_of(model), layout), None)
    if fault is not None:
        raise PathRefusedError(f"{what} does not fit this model: {fault}; use paths without {what}")


def _faults(model: Any, layout: Layout) -> Iterator[str]:
    yield from _embedding_faults(layout.trunk_of(model), layout)
    if not any(layout.blocks_of(model)):
        yield "it has no blocks"
    for name, block in layout.blocks_of(model):
        yield from _block_faults(name, block, layout)
    norm = getattr(layout.trunk_of(model), layout.norm)
    if not _treats_tokens_alone(norm):
        yield f"{layout.inside(layout.norm)} is a {type(norm).__name__}, not a norm of single tokens"
    if class_of(model) != SEGMENTER and not all(_is_linear(model.get_submodule(name)) for name in layout.heads):
        yield f"{layout.heads[0]} is not a linear layer"


def _block_faults(name: str, block: Any, layout: Layout) -> Iterator[str]:
    """Later checks rely on earlier ones."""
    if class_of(block) != layout.block:
        yield f"{name} is a {type(block).__name__}, not a {layout.block.rsplit('.', 1)[1]}"
    attention = getattr(block, layout.attention)
    if class_of(attention) != layout.attention_class:
        yield f"{name}.{layout.attention} is a {type(attention).__name__}, which is not rewritten"
    if getattr(attention, "gate", None) is not None:
        yield f"{name}.{layout.attention} gates its output, which is not handled"
    for part in layout.norms:
        if not _treats_tokens_alone(norm := getattr(block, part)):
            yield f"{name}.{part} is a {type(norm).__name__}, not a norm of single tokens"
    if class_of(block.mlp) not in MLPS:
        yield f"{name}.mlp is a {type(block.mlp).__name__}, which is not known to treat each token by itself"


def _embedding_faults(trunk: Any, layout: Layout) -> Iterator[str]:
    if layout.library == "transformers":
        embeddings, name = trunk.embeddings, f"{layout.inside('embeddings')}"
        if type(embeddings).__name__ not in ("ViTEmbeddings", "DeiTEmbeddings"):
            yield f"{name} is a {type(embeddings).__name__}, which is not rewritten"
        patch: Any = embeddings.patch_embeddings.projection
    else:
        name = layout.inside("patch_embed")
        if class_of(trunk.patch_embed) != "timm.layers.patch_embed.PatchEmbed":
            yield f"{name} is a {type(trunk.patch_embed).__name__}, not a PatchEmbed"
        patch = trunk.patch_embed.proj
    if type(patch) is not nn.Conv2d or patch.kernel_size != patch.stride or patch.padding not in ((0, 0), "valid"):
        yield f"{name} cuts frames by {patch}, not into patches side by side"


def _treats_tokens_alone(norm: object) -> bool:
    return class_of(norm) in NORMS


def _is_linear(layer: nn.Module) -> bool:
    return type(layer) is nn.Linear
