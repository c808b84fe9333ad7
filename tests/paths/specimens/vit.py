"""ViT, DeiT and the segmenter among the specimens; `test_vit_*.py` go further."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import (
    DeiTConfig,
    DeiTForImageClassification,
    DeiTForImageClassificationWithTeacher,
    ViTConfig,
    ViTForImageClassification,
)

from gearshift.paths.vit.segmenter import VitSegmenter
from tests.paths.specimens.masks import heads_cut, mlp_cut, pruned
from tests.paths.specimens.specimen import Specimen, seeded
from tests.paths.specimens.tome import Merging

timm = pytest.importorskip("timm")

WIDTH, DEPTH, HEADS, PATCH, CLASSES = 24, 4, 3, 8, 7
SIZE = (32, 40)
SQUARE = (32, 32)
TAKEN = (1, 3)


def timm_vit(distilled: bool = False, **changes: Any) -> Any:
    """A small random model of timm; what starts at 0 is random too."""
    kind = timm.models.deit.VisionTransformerDistilled if distilled else timm.models.VisionTransformer
    settings = {
        "img_size": SIZE,
        "patch_size": PATCH,
        "embed_dim": WIDTH,
        "depth": DEPTH,
        "num_heads": HEADS,
        "num_classes": CLASSES,
    }
    return seeded(lambda: placed(kind(**(settings | changes))))


def transformers_vit(kind: Any, config: Any, **changes: Any) -> Any:
    """A small random model of transformers."""
    settings = {
        "image_size": SQUARE[0],
        "patch_size": PATCH,
        "hidden_size": WIDTH,
        "num_hidden_layers": DEPTH,
        "num_attention_heads": HEADS,
        "intermediate_size": 2 * WIDTH,
        "num_labels": CLASSES,
    }
    return seeded(lambda: placed(kind(config(**(settings | changes)))))


def segmenter() -> Any:
    """A segmenter over a small random ViT."""

    def make() -> nn.Module:
        model = VitSegmenter(timm_vit(), TAKEN, [f"class {index}" for index in range(CLASSES)])
        model.feature_mean.normal_()
        model.feature_std.uniform_(0.5, 2)
        return model

    return seeded(make)


def placed(model: Any) -> Any:
    """Give tokens, positions and layer scales values that matter."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if any(part in name for part in ("token", "pos_embed", "position_embeddings", "gamma")):
                parameter.normal_()
    return model


def silenced(*blocks: int) -> Callable[[Any], nn.Module]:
    """The stock model with these blocks adding nothing: what they add is multiplied by 0."""

    def mask(model: Any) -> nn.Module:
        with torch.no_grad():
            for index in blocks:
                for name, parameter in list_of(model)[index].named_parameters():
                    if any(part in name for part in ("attn.proj.", "mlp.fc2.", "o_proj.")):
                        parameter.zero_()
        return model

    return mask


def list_of(model: Any) -> Any:
    """The blocks."""
    trunk = getattr(model, "vit", None) or getattr(model, "deit", None) or getattr(model, "backbone", model)
    return trunk.layers if hasattr(trunk, "layers") else trunk.blocks


class Resized(nn.Module):
    """The stock model with the library's own way to take frames of another size."""

    def __init__(self, size: tuple[int, int], model: Any) -> None:
        super().__init__()
        self.size, self.model = size, model
        if hasattr(model, "patch_embed"):
            self.model = timm_vit(type(model).__name__ == "VisionTransformerDistilled", dynamic_img_size=True)
            self.model.load_state_dict(model.state_dict())
            self.model.to(next(model.parameters()).dtype)

    def forward(self, frames: Tensor) -> Any:
        frames = F.interpolate(frames, self.size, mode="bilinear", align_corners=False)
        if hasattr(self.model, "patch_embed"):
            return self.model(frames)
        return self.model(frames, interpolate_pos_encoding=True)


def resized(size: tuple[int, int]) -> Callable[[Any], nn.Module]:
    return lambda model: Resized(size, model)


def timm_parts(block: Any) -> tuple[Any, ...]:
    def project(tokens: Tensor) -> tuple[Tensor, ...]:
        return block.attn.qkv(tokens).chunk(3, dim=1)

    return block.norm1, project, block.attn.proj, block.norm2, block.mlp, block.ls1, block.ls2


def transformers_parts(block: Any) -> tuple[Any, ...]:
    attention = block.attention

    def project(tokens: Tensor) -> tuple[Tensor, ...]:
        return attention.q_proj(tokens), attention.k_proj(tokens), attention.v_proj(tokens)

    norms = block.layernorm_before, block.layernorm_after
    return norms[0], project, attention.o_proj, norms[1], block.mlp, nn.Identity(), nn.Identity()


def merged_timm(count: int) -> Callable[[Any], nn.Module]:
    """Token merging over a timm classifier, written out."""

    def make(model: Any) -> nn.Module:
        def embed(frame: Tensor) -> Tensor:
            return model.norm_pre(model._pos_embed(model.patch_embed(frame)))  # type: ignore[no-any-return]

        def answer(after: list[Tensor], frame: Tensor) -> Tensor:
            return model.forward_head(model.norm(after[-1][None]))  # type: ignore[no-any-return]

        return Merging(embed, model.blocks, timm_parts, HEADS, model.num_prefix_tokens, count, answer)

    return make


def merged_transformers(count: int) -> Callable[[Any], nn.Module]:
    """Token merging over a classifier of transformers, written out."""

    def make(model: Any) -> nn.Module:
        trunk = model.vit if hasattr(model, "vit") else model.deit

        def answer(after: list[Tensor], frame: Tensor) -> dict[str, Tensor]:
            tokens = trunk.layernorm(after[-1])
            if hasattr(model, "classifier"):
                return {"logits": model.classifier(tokens[:1])}
            one, two = model.cls_classifier(tokens[:1]), model.distillation_classifier(tokens[1:2])
            return {"logits": (one + two) / 2, "cls_logits": one, "distillation_logits": two}

        prefix = 2 if hasattr(model, "deit") else 1
        return Merging(trunk.embeddings, trunk.layers, transformers_parts, HEADS, prefix, count, answer)

    return make


def merged_segmenter(count: int) -> Callable[[Any], nn.Module]:
    """Token merging over the segmenter: tapped tokens are given back to every patch that they stand for."""

    def make(model: Any) -> nn.Module:
        backbone = model.backbone

        def embed(frame: Tensor) -> Tensor:
            seen: list[Tensor] = []
            hook = backbone.blocks[0].register_forward_pre_hook(lambda _, given: seen.append(given[0]))
            model(frame)
            hook.remove()
            return seen[0]

        def answer(after: list[Tensor], frame: Tensor) -> Tensor:
            features = torch.cat([backbone.norm(after[index][1:]) for index in TAKEN], dim=1)
            logits = F.linear((features - model.feature_mean) / model.feature_std, model.classifier.weight[:, :, 0, 0])
            rows, columns = (side // PATCH for side in frame.shape[2:])
            return (logits + model.classifier.bias).T.reshape(1, CLASSES, rows, columns)

        return Merging(embed, copy.deepcopy(backbone.blocks), timm_parts, HEADS, 1, count, answer)

    return make


def stock_macs(n: int, prefix: int, mlp: int, depth: int = DEPTH) -> int:
    """Of `n` patches: the convolution, then blocks whose MLP is `mlp` times as wide."""
    c, tokens = WIDTH, n + prefix
    block = (4 + 2 * mlp) * tokens * c * c + 2 * tokens * tokens * c
    return n * c * 3 * PATCH * PATCH + depth * block + prefix * c * CLASSES


def lossless_macs(n: int, prefix: int, mlp: int, depth: int = DEPTH) -> int:
    """The last block for the prefix tokens alone: their queries, seen through the keys' matrices, attend to the tokens
    themselves, and their sums of tokens go through the values' matrices; then projection and MLP."""
    c = WIDTH
    last = prefix * ((1 + 1 + 1 + 1 + 2 * mlp) * c * c + 2 * HEADS * (n + prefix) * c)
    return stock_macs(n, prefix, mlp, depth - 1) + last


def merge_macs(n: int, count: int) -> int:
    """The same with one class token and MLPs of 4: per block the likeness of patches, and sums of those that move."""
    c, total, before = WIDTH, n * WIDTH * 3 * PATCH * PATCH + WIDTH * CLASSES, n + 1
    for _ in range(DEPTH - 1):
        moved = min(count, (before - 1) // 2)
        even, odd = (before - 1) // 2, before // 2
        after = before - moved
        total += 4 * before * c * c + 2 * before * before * c + 8 * after * c * c
        total += even * odd * (c // HEADS) + odd * moved * (c + 1)
        before = after
    return total + 12 * c * c + 2 * HEADS * before * c


def patches(height: int, width: int) -> int:
    return (height // PATCH) * (width // PATCH)


FORMS = ("lossless", "lossless+norms")
JOINED = ("lossless+qkv", "lossless+qkv+norms")

SPECIMENS = (
    Specimen(
        name="vit of timm",
        make=timm_vit,
        sizes=(SIZE,),
        exact=FORMS,
        masked={
            "skip=0.1": silenced(1),
            "lossless+skip=0.1,0.3": silenced(1, 3),
            "lossless+norms+skip=0.0": silenced(0),
            "size=24x48": resized((24, 48)),
            "lossless+size=24x48": resized((24, 48)),
            "lossless+merge=3": merged_timm(3),
            "lossless+norms+merge=100": merged_timm(100),
            "heads=60%": heads_cut(60),
            "prune=50%": pruned(50),
            "lossless+prune=50%": pruned(50),
            "lossless+heads=60%+mlp=50%": lambda model: mlp_cut(50)(heads_cut(60)(model)),
        },
        macs={
            "stock": lambda height, width: stock_macs(patches(height, width), 1, 4),
            "lossless": lambda height, width: lossless_macs(patches(height, width), 1, 4),
            "lossless+norms": lambda height, width: lossless_macs(patches(height, width), 1, 4),
            "lossless+skip=0.3": lambda height, width: lossless_macs(patches(height, width), 1, 4, DEPTH - 1),
            "lossless+size=24x48": lambda height, width: lossless_macs(patches(24, 48), 1, 4),
            "lossless+merge=3": lambda height, width: merge_macs(patches(height, width), 3),
            "lossless+merge=100": lambda height, width: merge_macs(patches(height, width), 100),
            "lossless+merge=20%": lambda height, width: merge_macs(
                patches(height, width), round((patches(height, width) + 1) * 0.2)
            ),
        },
        others=(
            "lossless+norms+prune=40%+merge=2",
            "blocks=2",
            "lossless+norms+skip=0.2+merge=2+size=32x24",
            "lossless+blocks=0",
        ),
    ),
    Specimen(
        name="distilled vit of timm",
        make=lambda: timm_vit(distilled=True),
        sizes=(SIZE,),
        exact=FORMS,
        masked={"lossless+skip=0.1": silenced(1), "lossless+merge=3": merged_timm(3), "size=24x48": resized((24, 48))},
        macs={"lossless": lambda height, width: lossless_macs(patches(height, width), 2, 4)},
    ),
    Specimen(
        name="averaging vit of timm",
        make=lambda: timm_vit(global_pool="avg", class_token=False, init_values=0.1, reg_tokens=2),
        sizes=(SIZE,),
        exact=FORMS,
        masked={"lossless+merge=3": merged_timm(3), "lossless+skip=0.3": silenced(3)},
    ),
    Specimen(
        name="vit of transformers",
        make=lambda: transformers_vit(ViTForImageClassification, ViTConfig),
        sizes=(SQUARE,),
        exact=(*FORMS, *JOINED),
        masked={
            "skip=0.1": silenced(1),
            "lossless+qkv+skip=0.3": silenced(3),
            "size=24x48": resized((24, 48)),
            "lossless+qkv+size=24x48": resized((24, 48)),
            "lossless+merge=3": merged_transformers(3),
            "lossless+qkv+norms+merge=2": merged_transformers(2),
            "lossless+qkv+heads=60%+mlp=50%": lambda model: mlp_cut(50)(heads_cut(60)(model)),
        },
        macs={
            "stock": lambda height, width: stock_macs(patches(height, width), 1, 2),
            "lossless": lambda height, width: lossless_macs(patches(height, width), 1, 2),
            "lossless+qkv+norms": lambda height, width: lossless_macs(patches(height, width), 1, 2),
        },
    ),
    Specimen(
        name="deit of transformers",
        make=lambda: transformers_vit(DeiTForImageClassification, DeiTConfig),
        sizes=(SQUARE,),
        exact=(*FORMS, *JOINED),
        masked={"lossless+merge=3": merged_transformers(3), "lossless+size=40x24": resized((40, 24))},
    ),
    Specimen(
        name="deit with a teacher",
        make=lambda: transformers_vit(DeiTForImageClassificationWithTeacher, DeiTConfig),
        sizes=(SQUARE,),
        exact=(*FORMS, *JOINED),
        masked={"lossless+merge=3": merged_transformers(3), "skip=0.2": silenced(2)},
        macs={"lossless": lambda height, width: lossless_macs(patches(height, width), 2, 2)},
    ),
    Specimen(
        name="vit segmenter",
        make=segmenter,
        sizes=((35, 45), (32, 40), (8, 61)),
        exact=FORMS,
        masked={
            "skip=0.1": silenced(1),
            "lossless+skip=0.1,0.2": silenced(1, 2),
            "lossless+norms+skip=0.3": silenced(3),
            "lossless+merge=3": merged_segmenter(3),
            "lossless+norms+merge=2": merged_segmenter(2),
        },
        others=("size=75%", "lossless+skip=0.2+merge=2+size=24x48", "lossless+norms+blocks=1"),
    ),
)
