"""A 3x3 convolution of an upsampled map, computed below the upsampling: shifted sums, tile by tile.

    conv3x3(up(x)) = sum over taps t of shift_t(up(W_t x))        zero fill, as the convolution's padding

Bilinear interpolation acts on rows and columns one after the other, each time as a matrix `U`; a tap's shift moves the
rows of `U`, and what moves beyond the edge is dropped. For one tile of the small map: mix channels for all nine taps,
then spread the columns of the tile by the shifted `U` of the three horizontal taps, stacked, then its rows, added in
place to the sum. All three are matrix products; interpolation is not done nine times, and what lies between fits the
processor's caches. `U` is what the interpolation makes of the unit vectors, so that any two sizes will do.
"""

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

# Rows and columns of a tile on processors; 16 was fastest of 4, 8, 16, 32 and the whole at 512 channels.
_TILE = 16
_AXES_KEPT = 64


class Strip(NamedTuple):
    """Neighbouring positions of one axis of the small map, and what their taps reach of the large one.

    Attributes:
        start: First position on the small map, and `stop`, one behind the last.
        first: First position reached on the large map, and `last`, one behind the last.
        by_tap: `(last - first, 3 * (stop - start))`, columns by tap, then position.
        by_position: The same, columns by position, then tap.
    """

    start: int
    stop: int
    first: int
    last: int
    by_tap: Tensor
    by_position: Tensor


def stacked_taps(weight: Tensor) -> Tensor:
    """A 3x3 kernel `(D, C, 3, 3)` as channel mixes of its taps: `(3, C, 3 * D)`, by row, input, (column, output)."""
    return weight.permute(2, 1, 3, 0).flatten(2)


def add_shifted(total: Tensor, image: Tensor, taps: Tensor) -> None:
    """Add `conv3x3(up(image))` to `total`, in place.

    Args:
        total: `(B, H, W, D)`, contiguous.
        image: `(B, C, h, w)`, best channels-last; upsampled bilinearly to `H` x `W`, without aligned corners.
        taps: `(3, C, 3 * D)`, from `stacked_taps`.
    """
    batch, height, width, channels = total.shape
    maps = image.permute(0, 2, 3, 1)
    rows = strips(maps, image.shape[2], height)
    columns = strips(maps, image.shape[3], width)
    for index in range(batch):
        flat = total[index].view(height, width * channels)
        for row in rows:
            for column in columns:
                tile = maps[index, row.start : row.stop, column.start : column.stop]
                mixed = torch.matmul(tile.reshape(1, -1, tile.shape[-1]), taps)
                spread = torch.matmul(column.by_position, mixed.view(3 * len(tile), -1, channels))
                reached = flat[row.first : row.last, column.first * channels : column.last * channels]
                reached.addmm_(row.by_tap, spread.view(3 * len(tile), -1))


def strips(like: Tensor, small: int, large: int) -> tuple[Strip, ...]:
    """The strips of an axis of `small` positions upsampled to `large`, in the type and on the device of `like`.

    Tensors that only stand for others (those of a tracer) get strips of their own, which are not kept.
    """
    make = _kept_strips if type(like) in (Tensor, torch.nn.Parameter) else _strips
    return make(small, large, like.dtype, like.device)


def _strips(small: int, large: int, dtype: torch.dtype, device: torch.device) -> tuple[Strip, ...]:
    taps = _shifted_interpolation(small, large, dtype, device)
    tile = small if device.type == "cuda" else _TILE  # many small products are slow where each is a launch
    found = []
    for start in range(0, small, tile):
        stop = min(start + tile, small)
        first, last = _reach(start, stop, small, large)
        if first < last:
            spread = taps[:, first:last, start:stop].transpose(0, 1)
            found.append(Strip(start, stop, first, last, spread.flatten(1), spread.transpose(1, 2).flatten(1)))
    return tuple(found)


def _reach(start: int, stop: int, small: int, large: int) -> tuple[int, int]:
    """Positions on the large map that interpolation and taps reach from `start:stop` on the small one."""
    # Position i stands at (i + 1/2) * small / large - 1/2 on the small map, between the two positions that it reads;
    # its taps stand at i - 1 and i + 1. In whole numbers, so that every machine cuts alike.
    first = 0 if start == 0 else ((2 * start - 1) * large - small) // (2 * small)
    last = large if stop == small else -(((-2 * stop - 1) * large + small) // (2 * small)) + 1
    return max(first, 0), min(last, large)


@lru_cache(maxsize=_AXES_KEPT)
def _kept_strips(small: int, large: int, dtype: torch.dtype, device: torch.device) -> tuple[Strip, ...]:
    with torch.inference_mode(mode=False), torch.no_grad():  # of use where gradients are kept, too
        return _strips(small, large, dtype, device)


def _shifted_interpolation(small: int, large: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Linear interpolation along one axis, moved by -1, 0 and 1 with zero fill: `(3, large, small)`."""
    units = torch.eye(small, dtype=dtype, device=device)[None]
    plain = F.interpolate(units, size=large, mode="linear", align_corners=False)[0].T
    edge = plain.new_zeros(1, small)
    return torch.stack([torch.cat([edge, plain[:-1]]), plain, torch.cat([plain[1:], edge])])
