"""From images as they are stored to what an ImageNet-trained network is fed."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from gearshift.errors import DataError

IMAGENET_MEAN: tuple[float, float, float] = (0.485, 0.456, 0.406)
IMAGENET_STD: tuple[float, float, float] = (0.229, 0.224, 0.225)


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
