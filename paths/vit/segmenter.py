"""`VitSegmenter`: a frozen ViT under a linear segmentation head, as a stock model.

The head reads the normalised features of several blocks, concatenated and standardised, through a 1x1 convolution.
Its file holds `weight` (K, F, 1, 1), `bias` (K,), `feature_mean` (F,) and `feature_std` (F,).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

from gearshift.errors import CheckpointError, InputError, ModelError
from gearshift.paths.vit.affine import unflatten
from gearshift.paths.vit.embedding import whole_patches
from gearshift.paths.vit.layout import TIMM, class_of

BACKBONE = "vit_tiny_patch16_224"
PATCH = 16
BLOCKS = (5, 8, 11)
FEATURES = 192 * len(BLOCKS)
HEAD = {
    "weight": (None, FEATURES, 1, 1),
    "bias": (None,),
    "feature_mean": (FEATURES,),
    "feature_std": (FEATURES,),
}
"""What a head's file holds: name and shape, None where it is the number of classes."""


class VitSegmenter(nn.Module):
    """Frames `(B, 3, H, W)` of any size from one patch up to logits `(B, K, h, w)`, one for each patch.

    Frames that are not of whole patches are resized, bilinearly, to the next smaller size that is: the logits then
    cover the whole frame evenly, and bilinear upsampling to the frame puts them where they belong. Positions are
    resampled bicubically to the frame's grid.

    Args:
        backbone: timm's `VisionTransformer` with a class token that has a position.
        blocks: Which blocks the head reads, from 0, ascending.
        classes: Their names.

    Raises:
        ModelError: Another backbone, or a block that it does not have.
    """

    def __init__(self, backbone: Any, blocks: Sequence[int], classes: Sequence[str]) -> None:
        super().__init__()
        _check_backbone(backbone, blocks)
        self.backbone = backbone
        self.backbone.head = nn.Identity()  # nothing reads it
        self.taken = tuple(blocks)
        self.classes = tuple(classes)
        features = backbone.embed_dim * len(self.taken)
        self.register_buffer("feature_mean", torch.zeros(features))
        self.register_buffer("feature_std", torch.ones(features))
        self.classifier = nn.Conv2d(features, len(self.classes), 1)

    feature_mean: Tensor
    feature_std: Tensor

    def forward(self, pixel_values: Tensor) -> Tensor:
        """Logits of the patches."""
        patch = self.backbone.patch_embed.patch_size
        logits: Tensor = self.classifier(self.features(whole_patches(pixel_values, patch, "resize")))
        return logits

    def features(self, pixel_values: Tensor) -> Tensor:
        """Standardised features `(B, F, h, w)` of frames of whole patches."""
        backbone = self.backbone
        patches = backbone.patch_embed.proj(pixel_values)
        grid = (patches.shape[2], patches.shape[3])
        tokens = torch.cat([backbone.cls_token.expand(len(patches), -1, -1), patches.flatten(2).mT], dim=1)
        tokens = backbone.norm_pre(tokens + resized_positions(backbone.pos_embed, backbone.patch_embed.grid_size, grid))
        taken = []
        for index, block in enumerate(backbone.blocks[: self.taken[-1] + 1]):
            tokens = block(tokens)
            if index in self.taken:
                taken.append(backbone.norm(tokens)[:, 1:])
        joined = unflatten(torch.cat(taken, dim=-1).mT, 2, grid)
        return (joined - self.feature_mean[:, None, None]) / self.feature_std[:, None, None]


def load_segmenter(backbone_file: Path, head_file: Path, *, role: str = "segmenter") -> VitSegmenter:
    """Load timm's ViT-Ti/16 and a head of it, strictly, in evaluation mode.

    Args:
        backbone_file: Tensors by timm's names (safetensors).
        head_file: The head's tensors.
        role: What messages call it.

    Raises:
        CheckpointError: A file is absent, unreadable or does not fit.
        InputError: The library that holds the backbone is not installed.
    """
    head = _head(head_file, role)
    names = [f"class {index}" for index in range(len(head["bias"]))]
    segmenter = VitSegmenter(_backbone(backbone_file, role), BLOCKS, names)
    segmenter.feature_mean.copy_(head["feature_mean"])
    segmenter.feature_std.copy_(head["feature_std"])
    segmenter.classifier.load_state_dict({name: head[name] for name in ("weight", "bias")})
    return segmenter.eval()


def resized_positions(positions: Tensor, old: tuple[int, int], new: tuple[int, int]) -> Tensor:
    """Resample embeddings `(1, 1 + h * w, C)` from one grid to another; the first, the class token's, stays."""
    if old == new:
        return positions
    image = unflatten(positions[:, 1:].mT, 2, old)
    image = F.interpolate(image, size=new, mode="bicubic", align_corners=False)
    return torch.cat([positions[:, :1], image.flatten(2).mT], dim=1)


def _check_backbone(backbone: Any, blocks: Sequence[int]) -> None:
    if class_of(backbone) != TIMM:
        raise ModelError(f"a VitSegmenter stands on timm's VisionTransformer, not on {type(backbone).__name__}")
    if backbone.num_prefix_tokens != 1 or backbone.no_embed_class or backbone.pos_embed is None:
        raise ModelError("a VitSegmenter's backbone needs positions, and one class token that has a position")
    if not isinstance(backbone.patch_embed.norm, nn.Identity):
        raise ModelError("a VitSegmenter's backbone may not normalise its patches")
    depth = len(backbone.blocks)
    if not blocks or list(blocks) != sorted(set(blocks)) or blocks[0] < 0 or blocks[-1] >= depth:
        raise ModelError(f"blocks {list(blocks)} must be ascending numbers from 0 to {depth - 1}")


def _backbone(file: Path, role: str) -> Any:
    try:
        import timm  # only this model needs it
    except ImportError as error:
        raise InputError(f"the {role} needs timm; install it with: pip install 'gearshift[timm]'") from error
    state = _read(file, role)
    model = timm.create_model(BACKBONE)
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:200]
        raise CheckpointError(f"{file} does not hold timm's {BACKBONE}: {reason}") from error
    return model


def _head(file: Path, role: str) -> dict[str, Tensor]:
    head = _read(file, role)
    for name, shape in HEAD.items():
        if name not in head:
            raise CheckpointError(f"{file} is no {role}'s head: {name} is missing; it holds {', '.join(HEAD)}")
        classes = head["weight"].shape[:1].numel()
        wanted, got = tuple(size or classes for size in shape), tuple(head[name].shape)
        if got != wanted:
            raise CheckpointError(f"{file} is no head for this {role}: {name} is {got}, but should be {wanted}")
    return head


def _read(file: Path, role: str) -> dict[str, Tensor]:
    try:
        tensors: dict[str, Tensor] = load_file(file)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"cannot read the {role}'s weights {file}: {error}") from error
    return tensors
