"""Augmented crops of image, labels and teacher's maps, all three moved together.

A batch is a pure function of (recipe, step), so that a resumed run sees exactly what an unbroken one would.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F
from torchvision.transforms import v2

from gearshift.paths.data import IGNORE_INDEX, LabelledFrame, normalise
from gearshift.retrain.recipe import Augmentation, Recipe


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """A crop in relative coordinates (0 to 1), perhaps mirrored."""

    top: float
    left: float
    height: float
    width: float
    mirrored: bool

    def grid(self, height: int, width: int) -> Tensor:
        """Sampling grid `(height, width, 2)` for `grid_sample` with `align_corners=False`."""
        y = self.top + self.height * (torch.arange(height) + 0.5) / height
        x = self.left + self.width * (torch.arange(width) + 0.5) / width
        if self.mirrored:
            x = x.flip(0)
        rows, columns = torch.meshgrid(y * 2 - 1, x * 2 - 1, indexing="ij")
        return torch.stack([columns, rows], dim=-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Crops ready for the model: `pixel_values` (B, 3, h, w), `labels` (B, h, w), and where they came from."""

    pixel_values: Tensor
    labels: Tensor
    regions: tuple[Region, ...]
    sources: tuple[int | None, ...]
    """Index of each crop's labelled photograph; None for a rendered scene, which no teacher has seen."""


def draw_region(augmentation: Augmentation, image_height: int, image_width: int, rng: random.Random) -> Region:
    """Draw a crop whose height is log-uniform in [min_region, 1], with the crop's aspect, jittered."""
    height = math.exp(rng.uniform(math.log(augmentation.min_region), 0.0))
    aspect = augmentation.crop_width / augmentation.crop_height * image_height / image_width
    stretch = 1 + rng.uniform(-augmentation.aspect_jitter, augmentation.aspect_jitter)
    width = min(1.0, height * aspect * stretch)
    return Region(
        top=rng.uniform(0, 1 - height),
        left=rng.uniform(0, 1 - width),
        height=height,
        width=width,
        mirrored=rng.random() < 0.5,
    )


class Sampler:
    """Draws batches from photographs and rendered scenes."""

    def __init__(
        self, recipe: Recipe, labelled: Sequence[LabelledFrame], rendered: Sequence[LabelledFrame]
    ) -> None:
        self._recipe = recipe
        self._labelled = labelled
        self._rendered = rendered
        strength = recipe.augmentation.colour_jitter
        self._jitter = v2.ColorJitter(strength, strength, strength, hue=strength / 6)

    def batch(self, step: int) -> Batch:
        """Return the batch of `step`; seeds torch's global generator, which dropout and colour jitter use."""
        rng = random.Random(f"{self._recipe.seed}/{step}")
        torch.manual_seed(rng.getrandbits(63))
        sources: list[int | None] = [*self._photographs(step)]
        frames = [self._labelled[index] for index in sources if index is not None]
        sources += [None] * self._recipe.batch_rendered
        frames += rng.choices(self._rendered, k=self._recipe.batch_rendered)
        regions = [self._region(frame, rng) for frame in frames]
        crops = [self._crop(frame, region) for frame, region in zip(frames, regions, strict=True)]
        return Batch(
            pixel_values=torch.cat([image for image, _ in crops]),
            labels=torch.stack([labels for _, labels in crops]),
            regions=tuple(regions),
            sources=tuple(sources),
        )

    def _photographs(self, step: int) -> list[int]:
        """Indices of the step's photographs: each epoch is a fresh permutation, derived from the seed alone."""
        count, size = len(self._labelled), self._recipe.batch_labelled
        chosen = []
        for position in range(step * size, (step + 1) * size):
            order = list(range(count))
            random.Random(f"{self._recipe.seed}/epoch/{position // count}").shuffle(order)
            chosen.append(order[position % count])
        return chosen

    def _region(self, frame: LabelledFrame, rng: random.Random) -> Region:
        height, width = frame.labels.shape
        return draw_region(self._recipe.augmentation, height, width, rng)

    def _crop(self, frame: LabelledFrame, region: Region) -> tuple[Tensor, Tensor]:
        size = (self._recipe.augmentation.crop_height, self._recipe.augmentation.crop_width)
        grid = region.grid(*size)[None]
        image = torch.from_numpy(frame.image).permute(2, 0, 1)[None].float()
        crop = F.grid_sample(image, grid, mode="bilinear", padding_mode="border", align_corners=False)
        coloured = self._jitter(crop.round().clamp(0, 255).to(torch.uint8))
        labels = torch.from_numpy(frame.labels)[None, None].float()
        moved = F.grid_sample(labels, grid, mode="nearest", padding_mode="border", align_corners=False)
        return normalise(coloured[0].permute(1, 2, 0).numpy()), moved[0, 0].long()


def class_weights(frames: Sequence[LabelledFrame], num_classes: int, exponent: float) -> Tensor:
    """Weights `(median share / share) ** exponent`, mean 1 over classes that occur; 0 for one that never does."""
    counts = torch.zeros(256, dtype=torch.long)
    for frame in frames:
        counts += torch.bincount(torch.from_numpy(frame.labels).flatten().long(), minlength=256)
    present = counts[:num_classes]
    if IGNORE_INDEX < num_classes:
        raise ValueError(f"num_classes {num_classes} leaves no room for the ignore index {IGNORE_INDEX}")
    share = present.double() / present.sum().clamp(min=1)
    median = share[share > 0].median()
    weights = torch.where(share > 0, (median / share.clamp(min=1e-12)) ** exponent, torch.zeros(()).double())
    return (weights / weights[weights > 0].mean()).float()
