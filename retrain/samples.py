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
from torchvision.transforms.v2 import functional

from gearshift.errors import DataError
from gearshift.paths.data import IGNORE_INDEX, LabelledFrame, normalise
from gearshift.retrain.recipe import Augmentation, Recipe


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """A crop in relative coordinates (0 to 1 across the image), perhaps mirrored."""

    top: float
    left: float
    height: float
    width: float
    mirrored: bool

    def grid(self, height: int, width: int) -> Tensor:
        """Return the sampling grid `(height, width, 2)` for `grid_sample` with `align_corners=False`."""
        y = self.top + self.height * (torch.arange(height) + 0.5) / height
        x = self.left + self.width * (torch.arange(width) + 0.5) / width
        if self.mirrored:
            x = x.flip(0)
        rows, columns = torch.meshgrid(y * 2 - 1, x * 2 - 1, indexing="ij")
        return torch.stack([columns, rows], dim=-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Crops ready for the model, photographs first, and where they came from.

    Attributes:
        pixel_values: `(B, 3, h, w)`, normalised.
        labels: `(B, h, w)`, int64; `IGNORE_INDEX` where a pixel does not count.
        regions: Where each crop was cut.
        sources: Index of each crop's labelled photograph; None for a rendered scene, which no teacher saw.
    """

    pixel_values: Tensor
    labels: Tensor
    regions: tuple[Region, ...]
    sources: tuple[int | None, ...]


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


def jitter(image: Tensor, strength: float, rng: random.Random) -> Tensor:
    """Change brightness, contrast and saturation by up to `strength`, and hue by up to a sixth of it."""
    for change in (functional.adjust_brightness, functional.adjust_contrast, functional.adjust_saturation):
        image = change(image, 1 + rng.uniform(-strength, strength))
    changed: Tensor = functional.adjust_hue(image, rng.uniform(-strength / 6, strength / 6))
    return changed


class Sampler:
    """Draws batches from photographs and rendered scenes.

    Raises:
        DataError: The recipe asks for photographs or scenes, and there are none.
    """

    def __init__(self, recipe: Recipe, labelled: Sequence[LabelledFrame], rendered: Sequence[LabelledFrame]) -> None:
        if not labelled:
            raise DataError("no labelled photograph to train on; give a folder with images and labels")
        if recipe.batch_rendered and not rendered:
            raise DataError(f"batch_rendered is {recipe.batch_rendered}, but there is no rendered scene; set it to 0")
        self._recipe = recipe
        self._labelled = labelled
        self._rendered = rendered

    def batch(self, step: int) -> Batch:
        """Return the batch of `step`, drawn from a generator of its own: it may be called from any thread."""
        rng = random.Random(f"{self._recipe.seed}/{step}")
        sources: list[int | None] = [*self._photographs(step)]
        frames = [self._labelled[index] for index in sources if index is not None]
        sources += [None] * self._recipe.batch_rendered
        frames += rng.choices(self._rendered, k=self._recipe.batch_rendered)
        regions = [self._region(frame, rng) for frame in frames]
        crops = [self._crop(frame, region, rng) for frame, region in zip(frames, regions, strict=True)]
        return Batch(
            pixel_values=torch.cat([image for image, _ in crops]),
            labels=torch.stack([labels for _, labels in crops]),
            regions=tuple(regions),
            sources=tuple(sources),
        )

    def _photographs(self, step: int) -> list[int]:
        """Indices of the step's photographs: each epoch is a fresh permutation, drawn from the seed alone."""
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

    def _crop(self, frame: LabelledFrame, region: Region, rng: random.Random) -> tuple[Tensor, Tensor]:
        size = (self._recipe.augmentation.crop_height, self._recipe.augmentation.crop_width)
        grid = region.grid(*size)[None]
        image = torch.from_numpy(frame.image).permute(2, 0, 1)[None].float()
        crop = F.grid_sample(image, grid, mode="bilinear", padding_mode="border", align_corners=False)
        strength = self._recipe.augmentation.colour_jitter
        coloured = jitter(crop.round().clamp(0, 255).to(torch.uint8), strength, rng)
        labels = torch.from_numpy(frame.labels)[None, None].float()
        moved = F.grid_sample(labels, grid, mode="nearest", padding_mode="border", align_corners=False)
        return normalise(coloured[0].permute(1, 2, 0).numpy()), moved[0, 0].long()


def class_weights(frames: Sequence[LabelledFrame], num_classes: int, exponent: float) -> Tensor:
    """Return `(median share / share) ** exponent` per class, scaled to mean 1 over the classes that occur.

    A class that never occurs weighs 0. With an even number of classes the median is the lower one.

    Raises:
        DataError: A label is no class of the model, or no pixel is labelled.
    """
    present = count_labels(frames, num_classes, "to train on")
    share = present.double() / present.sum()
    median = share[share > 0].median()
    weights = torch.where(share > 0, (median / share.clamp(min=1e-12)) ** exponent, torch.zeros(()).double())
    return (weights / weights[weights > 0].mean()).float()


def count_labels(frames: Sequence[LabelledFrame], num_classes: int, purpose: str) -> Tensor:
    """Count the pixels of each class: `(num_classes,)`, int64.

    Raises:
        DataError: A label is no class of the model, or no pixel is labelled; the message says for what
            `purpose` the frames were meant.
    """
    if num_classes > IGNORE_INDEX:
        raise DataError(f"the model has {num_classes} classes; labels of one byte allow {IGNORE_INDEX}")
    counts = torch.zeros(256, dtype=torch.long)
    for frame in frames:
        counts += torch.bincount(torch.from_numpy(frame.labels).flatten().long(), minlength=256)
    wrong = counts[num_classes:IGNORE_INDEX].nonzero().flatten() + num_classes
    if len(wrong):
        raise DataError(
            f"labels {purpose} hold class {int(wrong[0])}, but the model has classes 0..{num_classes - 1}; "
            "correct the labels, or leave out rendered scenes, which show the eleven street classes"
        )
    if not bool(counts[:num_classes].sum()):
        raise DataError(f"no labelled pixel {purpose}: every label is {IGNORE_INDEX}; give images with labels")
    return counts[:num_classes]
