"""Patches and prefix tokens (class, distillation, registers) with their positions, at any size of whole patches."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gearshift.paths.family import resized
from gearshift.paths.vit.affine import unflatten
from gearshift.paths.vit.layout import Layout

Whole = Literal["as it is", "pad", "resize"]
KEPT_SIZES = 8
"""Grids whose resampled positions an embedding keeps."""


class Embedding(nn.Module):
    """What the stock embedding computes, over its own parameters, in evaluation mode.

    Positions of another grid are resampled bicubically as the library of the stock model does, once per grid:
    timm antialiases and works in single precision (`resample_abs_pos_embed`), transformers does neither
    (`interpolate_pos_encoding`).

    Args:
        patch: The convolution.
        norm: Of the patches; mostly an identity.
        prefix: Tokens `(1, n, C)` before the patches.
        positions: `(1, N, C)`, those of the prefix first where it has some; None where there are none.
        prefix_placed: Whether the prefix tokens have positions.
        grid: Rows and columns that `positions` are for.
        antialias: Whether positions are resampled as timm does.
        whole: What is done to frames that are not of whole patches: nothing (they are refused before), `pad` right
            and below, or `resize` bilinearly to the next smaller size of whole patches.
    """

    def __init__(
        self,
        *,
        patch: nn.Conv2d,
        norm: nn.Module,
        prefix: Sequence[nn.Parameter],
        positions: nn.Parameter | None,
        prefix_placed: bool,
        grid: tuple[int, int],
        antialias: bool,
        whole: Whole = "as it is",
    ) -> None:
        super().__init__()
        self.patch = patch
        self.norm = norm
        self.prefix = nn.ParameterList(prefix)
        self.positions = positions
        self._grid = grid
        self._antialias = antialias
        self._whole = whole
        self.length = sum(token.shape[1] for token in prefix)
        self._placed = self.length if prefix_placed and positions is not None else 0
        self._resampled: dict[tuple[Any, ...], Tensor] = {}

    def forward(self, pixel_values: Tensor, **_: Any) -> Tensor:
        """Frames `(B, 3, H, W)` to tokens `(B, N, C)`."""
        patches = self.patch(whole_patches(pixel_values, self._patch_size, self._whole))
        tokens = self.norm(patches.flatten(2).transpose(1, 2))
        if self.positions is not None:
            tokens = tokens + self._positions((patches.shape[2], patches.shape[3]))
        if not self.length:
            return tokens  # type: ignore[no-any-return]
        prefix = torch.cat(list(self.prefix), dim=1)
        if self._placed and self.positions is not None:
            prefix = prefix + self.positions[:, : self._placed]
        return torch.cat([prefix.expand(len(tokens), -1, -1), tokens], dim=1)

    def grid_of(self, pixel_values: Tensor) -> tuple[int, int]:
        """Rows and columns of the patches of a frame."""
        rows, columns = (
            max(1, side // step) for side, step in zip(pixel_values.shape[2:], self._patch_size, strict=True)
        )
        return rows, columns

    @property
    def _patch_size(self) -> tuple[int, int]:
        height, width = self.patch.stride
        return height, width

    def _positions(self, grid: tuple[int, int]) -> Tensor:
        """Those of the patches; resampled ones are kept while the parameter they come from is unchanged."""
        positions: Any = self.positions
        if grid == self._grid:
            own: Tensor = positions[:, self._placed :]
            return own
        if torch.compiler.is_compiling() or (torch.is_grad_enabled() and positions.requires_grad):
            return self._resample(positions, grid)
        version = 0 if positions.is_inference() else positions._version
        key = (grid, positions.device, positions.dtype, id(positions), version)
        if (kept := self._resampled.get(key)) is not None:
            return kept
        with torch.inference_mode(mode=False), torch.no_grad():
            resampled = self._resample(positions, grid)
        if len(self._resampled) >= KEPT_SIZES:
            self._resampled.clear()
        self._resampled[key] = resampled
        return resampled

    def _resample(self, positions: Tensor, grid: tuple[int, int]) -> Tensor:
        image = unflatten(positions[:, self._placed :].mT, 2, self._grid)
        if self._antialias:
            image = image.float()
        image = F.interpolate(image, size=grid, mode="bicubic", align_corners=False, antialias=self._antialias)
        return image.flatten(2).transpose(1, 2).to(positions.dtype)


def whole_patches(pixels: Tensor, patch: tuple[int, int], how: Whole) -> Tensor:
    """Bring frames `(B, C, H, W)` to whole patches; those that are stay as they are."""
    height, width = pixels.shape[2:]
    below, right = -height % patch[0], -width % patch[1]
    if how == "as it is" or not (below or right):
        return pixels
    if how == "pad":
        return F.pad(pixels, (0, right, 0, below))
    return resized(pixels, (max(1, height // patch[0]) * patch[0], max(1, width // patch[1]) * patch[1]))


def embedding_of(trunk: Any, layout: Layout, *, segmenter: bool = False) -> Embedding:
    """The embedding of a stock model's trunk; a segmenter has its own way with sizes."""
    return _timm(trunk, segmenter) if layout.library == "timm" else _transformers(trunk.embeddings)


def _timm(trunk: Any, segmenter: bool) -> Embedding:
    other_sizes: Whole = "pad" if trunk.patch_embed.dynamic_img_pad else "as it is"
    prefix = [trunk.cls_token, getattr(trunk, "dist_token", trunk.reg_token)]
    return Embedding(
        patch=trunk.patch_embed.proj,
        norm=trunk.patch_embed.norm,
        prefix=[token for token in prefix if token is not None],
        positions=trunk.pos_embed,
        prefix_placed=not trunk.no_embed_class,
        grid=trunk.patch_embed.grid_size,
        antialias=not segmenter,
        whole="resize" if segmenter else other_sizes,
    )


def _transformers(embeddings: Any) -> Embedding:
    prefix = [embeddings.cls_token, getattr(embeddings, "distillation_token", None)]
    patches = embeddings.patch_embeddings
    height, width = patches.image_size
    patch_height, patch_width = patches.projection.kernel_size
    return Embedding(
        patch=patches.projection,
        norm=nn.Identity(),
        prefix=[token for token in prefix if token is not None],
        positions=embeddings.position_embeddings,
        prefix_placed=True,
        grid=(height // patch_height, width // patch_width),
        antialias=False,
    )
