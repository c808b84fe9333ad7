"""A frozen ViT under a linear head (`VitSegmenter`) as teacher: features and logits, once per photograph."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from gearshift.errors import DataError
from gearshift.paths.data import LabelledFrame
from gearshift.paths.vit.segmenter import PATCH, load_segmenter
from gearshift.retrain.samples import Region


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
    teacher = load_segmenter(backbone_file, head_file, role="teacher").requires_grad_(False)
    features, logits = [], []
    for done, frame in enumerate(frames):
        image = torch.from_numpy(frame.image)[cover.top : cover.bottom, cover.left : cover.right]
        pixels = (image.permute(2, 0, 1)[None].float() / 255 - 0.5) / 0.5
        with torch.no_grad():
            standard = teacher.features(torch.cat([pixels, pixels.flip(3)]))
            standard = (standard[0] + standard[1].flip(2)) / 2
            features.append(standard.half())
            logits.append(teacher.classifier(standard[None])[0].half())
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
