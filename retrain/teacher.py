"""A frozen ViT with a linear segmentation head as teacher: its features and logits, computed once per photograph.

The head reads the normalised features of several blocks, concatenated and standardised, through a 1x1
convolution. Its file holds `weight` (K, F, 1, 1), `bias` (K,), `feature_mean` (F,) and `feature_std` (F,).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F

from gearshift.errors import CheckpointError
from gearshift.paths.data import LabelledFrame
from gearshift.retrain.samples import Region

PATCH = 16
BLOCKS = (5, 8, 11)


@dataclass(frozen=True, slots=True, kw_only=True)
class TeacherMaps:
    """What the teacher says of every photograph, at its own 1/16 resolution, in half precision.

    Attributes:
        features: `(N, F, h, w)`, standardised.
        logits: `(N, K, h, w)`.
        top, bottom: The rows that the maps cover, as shares of the image's height.
    """

    features: Tensor
    logits: Tensor
    top: float
    bottom: float

    def crop(self, maps: Tensor, index: int, region: Region, size: tuple[int, int]) -> Tensor:
        """Cut `region` out of one photograph's map, bilinearly: `(C, *size)` in single precision."""
        grid = region.grid(*size)
        covered = self.bottom - self.top
        rows = ((grid[..., 1] + 1) / 2 - self.top) / covered * 2 - 1
        grid = torch.stack([grid[..., 0], rows], dim=-1)[None]
        return F.grid_sample(
            maps[index : index + 1].float(), grid, padding_mode="border", align_corners=False
        )[0]


def teach(
    backbone_file: Path, head_file: Path, frames: Sequence[LabelledFrame], progress: Callable[[int], None]
) -> TeacherMaps:
    """Run the teacher once over equally sized photographs, averaging each with its mirror image.

    Raises:
        CheckpointError: A file is absent, unreadable or does not fit.
    """
    head = _read(head_file)
    height, width = frames[0].labels.shape
    rows, columns = height // PATCH, width // PATCH
    top, left = (height - rows * PATCH) // 2, (width - columns * PATCH) // 2
    backbone = _backbone(backbone_file, rows, columns)
    mean, std = head["feature_mean"][:, None, None], head["feature_std"][:, None, None]
    features, logits = [], []
    for done, frame in enumerate(frames):
        image = torch.from_numpy(frame.image)[top : top + rows * PATCH, left : left + columns * PATCH]
        pixels = (image.permute(2, 0, 1)[None].float() / 255 - 0.5) / 0.5
        with torch.no_grad():
            both = _features(backbone, torch.cat([pixels, pixels.flip(3)]), rows, columns)
            standard = (both - mean) / std
            standard = (standard[0] + standard[1].flip(2)) / 2
            features.append(standard.half())
            logits.append(F.conv2d(standard[None], head["weight"], head["bias"])[0].half())
        progress(done + 1)
    return TeacherMaps(
        features=torch.stack(features),
        logits=torch.stack(logits),
        top=top / height,
        bottom=(top + rows * PATCH) / height,
    )


def _features(backbone: Any, pixels: Tensor, rows: int, columns: int) -> Tensor:
    tokens = backbone.forward_intermediates(
        pixels, indices=list(BLOCKS), norm=True, output_fmt="NLC", intermediates_only=True
    )
    return torch.cat(tokens, dim=-1).transpose(1, 2).unflatten(2, (rows, columns))


def _backbone(file: Path, rows: int, columns: int) -> Any:
    import timm  # only training with this teacher needs it

    state = _read(file)
    position = state["pos_embed"]
    side = round((position.shape[1] - 1) ** 0.5)
    grid = position[:, 1:].unflatten(1, (side, side)).permute(0, 3, 1, 2)
    grid = F.interpolate(grid, size=(rows, columns), mode="bicubic", align_corners=False)
    state["pos_embed"] = torch.cat([position[:, :1], grid.flatten(2).transpose(1, 2)], dim=1)
    model = timm.create_model("vit_tiny_patch16_224", img_size=(rows * PATCH, columns * PATCH))
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        raise CheckpointError(f"{file} does not hold timm's vit_tiny_patch16_224: {error}") from error
    return model.eval().requires_grad_(False)


def _read(file: Path) -> dict[str, Tensor]:
    try:
        tensors: dict[str, Tensor] = load_file(file)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"cannot read the teacher's weights {file}: {error}") from error
    return tensors
