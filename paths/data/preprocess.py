"""From images as they are stored to what a network is fed: resized, cropped, normalised."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from gearshift.errors import DataError

IMAGENET_MEAN: tuple[float, float, float] = (0.485, 0.456, 0.406)
IMAGENET_STD: tuple[float, float, float] = (0.229, 0.224, 0.225)

Interpolation = Literal["bilinear", "bicubic", "nearest", "lanczos"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preprocessing:
    """What a model expects of its frames.

    Attributes:
        mean: Of each channel, for images in 0..1.
        std: Of each channel.
        resize: Length of the shorter side after resizing (the longer one keeps the proportion), or None for images
            as they are.
        crop: Height and width of the central part that is kept after that, or None for all of it.
        size: Height and width that every image is brought to, whatever its proportion; instead of `resize`.
        interpolation: How images are resized.
    """

    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD
    resize: int | None = None
    crop: tuple[int, int] | None = None
    size: tuple[int, int] | None = None
    interpolation: Interpolation = "bilinear"

    def fitted(self, image: np.ndarray) -> np.ndarray:
        """Resize and crop an image (height, width, 3), uint8, as Pillow does it.

        Raises:
            DataError: It is smaller than the part to be cropped.
        """
        height, width = image.shape[:2]
        wanted = self.size or (_shorter_to(height, width, self.resize) if self.resize else (height, width))
        if wanted != (height, width):
            method = Image.Resampling[self.interpolation.upper()]
            image = np.asarray(Image.fromarray(image).resize((wanted[1], wanted[0]), method))
        return image if self.crop is None else _central(image, *self.crop)

    def prepared(self, image: np.ndarray) -> Tensor:
        """Normalise an image that is fitted already: `(1, 3, height, width)`."""
        return normalise(image, self.mean, self.std)


def _shorter_to(height: int, width: int, side: int) -> tuple[int, int]:
    """As torchvision's `Resize` rounds: the longer side is cut to whole pixels."""
    return (side, int(side * width / height)) if height <= width else (int(side * height / width), side)


def _central(image: np.ndarray, height: int, width: int) -> np.ndarray:
    top, left = (image.shape[0] - height) / 2, (image.shape[1] - width) / 2
    if min(top, left) < 0:
        raise DataError(
            f"an image of {image.shape[0]}x{image.shape[1]} is smaller than the {height}x{width} to be cropped from it"
        )
    top, left = round(top), round(left)
    return np.ascontiguousarray(image[top : top + height, left : left + width])


def normalise(
    images: np.ndarray | Sequence[np.ndarray],
    mean: tuple[float, float, float] = IMAGENET_MEAN,
    std: tuple[float, float, float] = IMAGENET_STD,
) -> Tensor:
    """Return `(images / 255 - mean) / std` as a contiguous float32 (n, 3, height, width) tensor.

    Args:
        images: uint8 RGB: one (height, width, 3) image, a batch (n, height, width, 3), or a list of images of
            one size.
        mean: Of each channel, for images in 0..1.
        std: Of each channel.

    Raises:
        DataError: The images are not uint8, not RGB, or of several sizes.
    """
    batch = _batch(images)
    gain = torch.tensor([1 / (255 * deviation) for deviation in std]).view(1, 3, 1, 1)
    shift = torch.tensor([level / deviation for level, deviation in zip(mean, std, strict=True)])
    planes = torch.from_numpy(batch).permute(0, 3, 1, 2).to(torch.float32)
    return planes.mul_(gain).sub_(shift.view(1, 3, 1, 1)).contiguous()


def _batch(images: np.ndarray | Sequence[np.ndarray]) -> np.ndarray:
    if isinstance(images, np.ndarray):
        batch = images[None] if images.ndim == 3 else images
    else:
        shapes = sorted({image.shape for image in images})
        if len(shapes) != 1:
            raise DataError(
                f"a list of {len(images)} images holds {len(shapes)} sizes ({_several(shapes)}); "
                "one batch takes images of one size: resize them first, or pass them one by one"
            )
        batch = np.stack(images)
    if batch.ndim != 4 or batch.shape[-1] != 3 or batch.dtype != np.uint8:
        raise DataError(
            f"images are {batch.dtype} of shape {batch.shape}; expected uint8 RGB, height x width x 3 "
            "or a batch of these"
        )
    return np.array(batch)  # a copy of its own: torch refuses read-only memory


def _several(shapes: Sequence[tuple[int, ...]]) -> str:
    shown = ", ".join("x".join(map(str, shape)) for shape in shapes[:3])
    return shown + (", ..." if len(shapes) > 3 else "")
