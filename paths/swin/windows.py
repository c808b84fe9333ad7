"""How a grid of tokens falls into attention windows: which token stands where, and which windows see which mask.

Nothing here depends on weights. A plan depends on the grid's size alone and is kept for the sizes used last; masks
depend on the window alone. The stock model pads, rolls, cuts and permutes for each block, and writes a mask for every
window; here one index does the former, and windows are sorted by the (at most four) masks that there are.
"""

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

# Four stages with two kinds of blocks for each size of frames: eight sizes in turn.
_PLANS_KEPT = 64
_APART = -100.0


class WindowPlan(NamedTuple):
    """Where the tokens of `B` grids of `height` x `width` stand in their windows.

    Attributes:
        source: `(windows * window**2,)`, the token that stands at each position of each window, counted through the
            batch; any token where the position lies beyond the grid.
        beyond: Positions beyond the grid, where the stock model pads; empty where windows divide the grid.
        target: `(B * height * width,)`, the position of each token: undoes `source`.
        groups: For each kind of mask that occurs, the number of the kind and how many windows have it, in order.
    """

    source: Tensor
    beyond: Tensor
    target: Tensor
    groups: tuple[tuple[int, int], ...]


def window_plan(tokens: Tensor, height: int, width: int, window: int, shift: int) -> WindowPlan:
    """The plan for tokens `(B, height * width, C)`, on their device.

    Tensors that only stand for others (those of a tracer) get a plan of their own, which is not kept.
    """
    plan = _kept_plan if type(tokens) in (Tensor, torch.nn.Parameter) else _plan
    return plan(len(tokens), height, width, window, shift, tokens.device)


def _plan(batch: int, height: int, width: int, window: int, shift: int, device: torch.device) -> WindowPlan:
    rows, columns = -(-height // window), -(-width // window)
    y = (torch.arange(rows * window, device=device) + shift) % (rows * window)
    x = (torch.arange(columns * window, device=device) + shift) % (columns * window)
    inside = (y < height)[:, None] & (x < width)
    token = torch.where(inside, y[:, None] * width + x, -1)
    token = token.view(rows, window, columns, window).transpose(1, 2).reshape(rows * columns, window * window)
    groups, sources = [], []
    for kind, members in enumerate(_members(rows, columns, shift)):
        if members:
            chosen = token[members]
            first = torch.arange(batch, device=device)[:, None, None] * (height * width)
            sources.append(torch.where(chosen < 0, -1, chosen + first).flatten())
            groups.append((kind, batch * len(members)))
    source = torch.cat(sources)
    at = torch.arange(len(source), device=device)
    # What lies beyond is written behind the end, and cut off.
    target = torch.empty(batch * height * width + 1, dtype=torch.long, device=device)
    target = target.index_copy(0, torch.where(source < 0, batch * height * width, source), at)[:-1]
    padding = batch * (rows * columns * window * window - height * width)
    beyond = (source >= 0).to(torch.uint8).argsort(stable=True)[:padding]
    return WindowPlan(source.clamp(min=0), beyond, target, tuple(groups))


@lru_cache(maxsize=_PLANS_KEPT)
def _kept_plan(batch: int, height: int, width: int, window: int, shift: int, device: torch.device) -> WindowPlan:
    with torch.inference_mode(mode=False):  # a tensor made in it could not be used where gradients are kept
        return _plan(batch, height, width, window, shift, device)


def _members(rows: int, columns: int, shift: int) -> list[list[int]]:
    """Windows by the kind of their mask: neither in the last row nor column, in the last column, row, in both."""
    kinds: list[list[int]] = [[], [], [], []]
    for row in range(rows):
        for column in range(columns):
            kind = 2 * (row == rows - 1) + (column == columns - 1) if shift else 0
            kinds[kind].append(row * columns + column)
    return kinds


def region_masks(window: int, shift: int) -> Tensor:
    """What the stock model adds to attention scores, for each kind of window: `(4, window**2, window**2)`.

    After the cyclic shift, windows of the last row and column hold tokens from both ends of the grid, which must not
    see each other.
    """
    far = torch.arange(window) >= window - shift if shift else torch.zeros(window, dtype=torch.bool)
    masks = []
    for last_row in (False, True):
        for last_column in (False, True):
            region = 2 * (far & last_row)[:, None].long() + (far & last_column)
            apart = region.flatten()[:, None] != region.flatten()
            masks.append(torch.zeros(apart.shape).masked_fill(apart, _APART))
    return torch.stack(masks)
