"""Batch-norm statistics of a subnet, from images: once, when a path is built, and never when shifting to it.

As published with Once-for-All: every batch is normalised by its own mean and (biased) variance on its way through
the network, and a layer's statistics are these means and variances, averaged with the batches' sizes as weights. It
differs from training's running averages, which weigh late batches more and use the unbiased variance.
"""

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gearshift.errors import DataError
from gearshift.paths.ofa.subnet import SharedSubnet
from gearshift.paths.sharing import clone_structure

IMAGES = 2000
"""Images that the published code takes, in batches of 200."""


def recalibrate(module: SharedSubnet, batches: Iterable[Tensor], *, images: int = IMAGES) -> int:
    """Replace the subnet's statistics by those of given images, at the size at which it will run.

    The supernet and all other subnets stay as they are; so does this one where an error is raised.

    Args:
        module: The subnet.
        batches: Normalised training images `(B, 3, H, W)`, shuffled; larger batches give better statistics.
        images: How many to take at most; the last batch is cut.

    Returns:
        How many images there were.

    Raises:
        DataError: No images, batches of another shape, or values that are not finite.
    """
    recording = clone_structure(module)
    recorders = {name: _RecordingNorm(norm) for name, norm in module.norms()}
    for name, recorder in recorders.items():
        recording.set_submodule(name, recorder)
    used = 0
    with torch.no_grad():
        for batch in _limited(batches, images):
            recording(batch)
            used += len(batch)
        if not used:
            raise DataError(f"no images to recalibrate {module.subnet} on; give at least one batch of (B, 3, H, W)")
        found = {name: recorder.averages(used) for name, recorder in recorders.items()}
        for name, (mean, variance) in found.items():
            if not (mean.isfinite().all() and variance.isfinite().all()):
                raise DataError(f"statistics of {name} are not finite after {used} images; check images and weights")
        for name, norm in module.norms():
            for target, value in zip((norm.running_mean, norm.running_var), found[name], strict=True):
                assert target is not None  # every norm of ResNet50D tracks its statistics
                target.copy_(value)
    return used


def _limited(batches: Iterable[Tensor], images: int) -> Iterator[Tensor]:
    """Batches until `images` are reached, the last one cut."""
    if images < 1:
        raise DataError(f"cannot recalibrate on {images} images; give at least 1")
    left = images
    for batch in batches:
        if batch.dim() != 4 or batch.shape[1] != 3:
            raise DataError(f"a batch of images has shape {tuple(batch.shape)}; give (B, 3, H, W)")
        if len(batch):
            yield batch[:left]
        left -= len(batch)
        if left <= 0:
            return


class _RecordingNorm(nn.Module):
    """Normalises by the batch's own statistics and sums them up, in double precision."""

    def __init__(self, norm: nn.BatchNorm2d) -> None:
        super().__init__()
        self.weight, self.bias, self.eps = norm.weight, norm.bias, norm.eps
        self._sums: tuple[Tensor | float, Tensor | float] = (0.0, 0.0)

    def forward(self, features: Tensor) -> Tensor:
        if features[:, 0].numel() < 2:
            raise DataError(
                "a batch leaves one value per channel, which has no variance; give more images a batch or larger ones"
            )
        variance, mean = torch.var_mean(features, dim=(0, 2, 3), correction=0)
        means, variances = self._sums
        self._sums = (means + len(features) * mean.double(), variances + len(features) * variance.double())
        return F.batch_norm(features, mean, variance, self.weight, self.bias, eps=self.eps)

    def averages(self, images: int) -> tuple[Tensor, Tensor]:
        """Mean and variance over all batches."""
        means, variances = (torch.as_tensor(total) / images for total in self._sums)
        return means, variances
