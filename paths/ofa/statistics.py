"""The batch-norm statistics of one subnet as one tensor: what a bundle stores, and what its norms view."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from gearshift.errors import CheckpointError
from gearshift.paths.family import resized
from gearshift.paths.ofa.subnet import SharedSubnet
from gearshift.paths.transforms import InputSize

BATCH_POSITIONS = 100 * 224 * 224
"""Pixels of a batch: 100 images of the usual size, some 2 GB of activations for a moment."""


def packed(module: SharedSubnet) -> Tensor:
    """`(2, C)`: means, then variances, of all norms in the order of their names."""
    norms = [norm for _, norm in module.norms()]
    return torch.stack([torch.cat([getattr(norm, kind) for norm in norms]) for kind in ("running_mean", "running_var")])


def use_packed(module: SharedSubnet, statistics: Tensor) -> None:
    """Make the norms' statistics views of what `packed` gave.

    Raises:
        CheckpointError: It is of another subnet.
    """
    norms = [norm for _, norm in module.norms()]
    channels = [norm.num_features for norm in norms]
    if statistics.shape != (2, sum(channels)):
        raise CheckpointError(
            f"statistics of shape {tuple(statistics.shape)} are not of the subnet {module.subnet}, "
            f"which has {(2, sum(channels))}; build the bundle again"
        )
    means, variances = (part.split(channels) for part in statistics)
    for norm, mean, variance in zip(norms, means, variances, strict=True):
        norm.running_mean, norm.running_var = mean, variance


def batched(frames: Sequence[Tensor], size: InputSize | None, dtype: torch.dtype) -> Iterator[Tensor]:
    """Join frames `(1, C, H, W)` to batches, each of one size, brought to the size at which a path runs.

    As large as they may be, and even: the variance of a single small frame that is left over would mean little.
    """
    by_size: dict[tuple[int, int], list[Tensor]] = {}
    for frame in frames:
        by_size.setdefault((frame.shape[2], frame.shape[3]), []).append(frame)
    for found, group in by_size.items():
        height, width = found if size is None else size.resolve(*found)
        count = -(-len(group) // max(1, BATCH_POSITIONS // (height * width)))
        for number in range(count):
            yield resized(torch.cat(group[number::count]).to(dtype), (height, width))
