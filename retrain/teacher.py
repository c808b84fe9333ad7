"""A frozen ViT with a linear segmentation head as teacher: features and logits, once per photograph.

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

from gearshift.errors import CheckpointError, DataError, InputError
from gearshift.paths.data import LabelledFrame
from gearshift.retrain.samples import Region

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


@dataclass(frozen=True, slots=True, kw_only=True)
class TeacherMaps:
    """What the teacher says of every photograph, at its own 1/16 resolution, in half precision.

    Attributes:
        features: `(N, F, h, w)`, standardised.
        logits: `(N, K, h, w)`.
        top, bottom: The rows that the maps cover, as shares of the image's height.
        left, right: The columns that they cover, as shares of its width.
    """

    features: Tensor
    logits: Tensor
    top: float
    bottom: float
    left: float = 0.0
    right: float = 1.0

    def crop(self, maps: Tensor, index: int, region: Region, size: tuple[int, int]) -> Tensor:
        """Cut `region` out of one photograph's map, bilinearly: `(C, *size)` in single precision."""
        columns, rows = region.grid(*size).unbind(-1)
        grid = torch.stack([_within(columns, self.left, self.right), _within(rows, self.top, self.bottom)], dim=-1)
        return F.grid_sample(maps[index : index + 1].float(), grid[None], padding_mode="border", align_corners=False)[0]


def _within(places: Tensor, start: float, end: float) -> Tensor:
    """Turn places (-1 to 1 across the image) into places across its part from `start` to `end` (0 to 1)."""
    if (start, end) == (0.0, 1.0):
        return places
    return ((places + 1) / 2 - start) / (end - start) * 2 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cover:
    """The whole patches that fit into an image, centred."""

    height: int
    width: int

    @property
    def rows(self) -> int:
        return self.height // PATCH

    @property
    def columns(self) -> int:
        return self.width // PATCH

    @property
    def top(self) -> int:
        return (self.height - self.rows * PATCH) // 2

    @property
    def left(self) -> int:
        return (self.width - self.columns * PATCH) // 2

    @property
    def bottom(self) -> int:
        return self.top + self.rows * PATCH

    @property
    def right(self) -> int:
        return self.left + self.columns * PATCH


def teach(
    backbone_file: Path, head_file: Path, frames: Sequence[LabelledFrame], progress: Callable[[int], None]
) -> TeacherMaps:
    """Run the teacher once over equally sized photographs, averaging each with its mirror image.

    Raises:
        CheckpointError: A file is absent, unreadable or does not fit.
        DataError: The photographs are of several sizes, or smaller than a patch.
        InputError: The library that holds the backbone is not installed.
    """
    cover = _cover(frames)
    head = _head(head_file)
    backbone = _backbone(backbone_file, cover.rows, cover.columns)
    mean, std = head["feature_mean"][:, None, None], head["feature_std"][:, None, None]
    features, logits = [], []
    for done, frame in enumerate(frames):
        image = torch.from_numpy(frame.image)[cover.top : cover.bottom, cover.left : cover.right]
        pixels = (image.permute(2, 0, 1)[None].float() / 255 - 0.5) / 0.5
        with torch.no_grad():
            both = _features(backbone, torch.cat([pixels, pixels.flip(3)]), cover.rows, cover.columns)
            standard = (both - mean) / std
            standard = (standard[0] + standard[1].flip(2)) / 2
            features.append(standard.half())
            logits.append(F.conv2d(standard[None], head["weight"], head["bias"])[0].half())
        progress(done + 1)
    return TeacherMaps(
        features=torch.stack(features),
        logits=torch.stack(logits),
        top=cover.top / cover.height,
        bottom=cover.bottom / cover.height,
        left=cover.left / cover.width,
        right=cover.right / cover.width,
    )


def _cover(frames: Sequence[LabelledFrame]) -> _Cover:
    sizes = [frame.labels.shape for frame in frames]
    if not sizes:
        raise DataError("no photograph for the teacher to look at")
    height, width = sizes[0]
    odd = next((index for index, size in enumerate(sizes) if size != sizes[0]), None)
    if odd is not None:
        raise DataError(
            f"photograph {odd} is {sizes[odd][1]}x{sizes[odd][0]}, but the first is {width}x{height} "
            "(width x height); the teacher takes photographs of one size: resize them, or do not distil"
        )
    if min(height, width) < PATCH:
        raise DataError(f"photographs are {width}x{height}, smaller than the teacher's {PATCH}x{PATCH} patch")
    return _Cover(height=height, width=width)


def _features(backbone: Any, pixels: Tensor, rows: int, columns: int) -> Tensor:
    tokens = backbone.forward_intermediates(
        pixels, indices=list(BLOCKS), norm=True, output_fmt="NLC", intermediates_only=True
    )
    joined = torch.cat(tokens, dim=-1).transpose(1, 2)
    return joined.reshape(*joined.shape[:2], rows, columns)


def _backbone(file: Path, rows: int, columns: int) -> Any:
    try:
        import timm  # only training with this teacher needs it
    except ImportError as error:
        raise InputError("the teacher needs timm; install it with: pip install 'gearshift[timm]'") from error
    state = _read(file)
    if "pos_embed" not in state:
        raise CheckpointError(f"{file} does not hold timm's vit_tiny_patch16_224: pos_embed is missing")
    model = timm.create_model("vit_tiny_patch16_224", img_size=(rows * PATCH, columns * PATCH))
    try:
        state["pos_embed"] = _resized_positions(state["pos_embed"], rows, columns)
        model.load_state_dict(state)
    except (RuntimeError, IndexError) as error:
        reason = " ".join(str(error).split())[:200]
        raise CheckpointError(f"{file} does not hold timm's vit_tiny_patch16_224: {reason}") from error
    return model.eval().requires_grad_(False)


def _resized_positions(position: Tensor, rows: int, columns: int) -> Tensor:
    """Resample the embeddings `(1, 1 + side^2, C)` to `(1, 1 + rows * columns, C)`; the first stays."""
    channels, side = position.shape[2], round((position.shape[1] - 1) ** 0.5)
    grid = position[:, 1:].reshape(1, side, side, channels).permute(0, 3, 1, 2)
    grid = F.interpolate(grid, size=(rows, columns), mode="bicubic", align_corners=False)
    return torch.cat([position[:, :1], grid.flatten(2).transpose(1, 2)], dim=1)


def _head(file: Path) -> dict[str, Tensor]:
    head = _read(file)
    for name, shape in HEAD.items():
        if name not in head:
            raise CheckpointError(f"{file} is no teacher's head: {name} is missing; it holds {', '.join(HEAD)}")
        classes = head["weight"].shape[:1].numel()
        wanted, got = tuple(size or classes for size in shape), tuple(head[name].shape)
        if got != wanted:
            raise CheckpointError(f"{file} is no head for this teacher: {name} is {got}, but should be {wanted}")
    return head


def _read(file: Path) -> dict[str, Tensor]:
    try:
        tensors: dict[str, Tensor] = load_file(file)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"cannot read the teacher's weights {file}: {error}") from error
    return tensors
