"""Which frames a path takes, and the stock form at other sizes than its own.

A stock form takes the sizes that the stock model takes: mostly one. A lossless path, and a stock form with `size=`,
takes every size of whole patches: positions are then resampled as the library itself does where it is asked to
(timm's `dynamic_img_size`, transformers' `interpolate_pos_encoding`). A segmenter takes every size from one patch up.
"""

from collections.abc import Sequence
from typing import Any

from torch import nn

from gearshift.errors import InputError
from gearshift.paths.knobs import Knob, size_knob
from gearshift.paths.spec import PathSpec
from gearshift.paths.transforms import InputSize
from gearshift.paths.vit.embedding import embedding_of
from gearshift.paths.vit.faults import check_patches
from gearshift.paths.vit.layout import SEGMENTER, class_of, frame_size, layout_of, patch_size

FINE_PERCENT = (93, 86, 79, 71, 64, 57, 50, 43, 36)
"""Where sizes are named one by one: steps of a patch for the usual 14 by 14 patches."""


def check_frame(stock: Any, spec: PathSpec, height: int, width: int) -> None:
    """Raise `InputError` for a frame, after `size=`, that a path cannot take, naming what it can."""
    patch_height, patch_width = patch_size(stock)
    if class_of(stock) == SEGMENTER:
        if height < patch_height or width < patch_width:
            raise InputError(
                f"a frame of {height}x{width} is smaller than a patch; the minimum is {patch_height}x{patch_width}"
            )
        return
    own = own_size(stock)
    if own is not None and spec.get("lossless") is None and spec.get("size") is None:
        if (height, width) != own:
            needed = f"{own[0]}x{own[1]}"
            raise InputError(
                f"a frame of {height}x{width} does not fit: this model takes {needed} alone; resize frames, or use a "
                f'path with "size={needed}" (which resizes them) or "lossless" (which resamples positions, for '
                f"multiples of {patch_height}x{patch_width})"
            )
        return
    if not _pads(stock) and (height % patch_height or width % patch_width):
        raise InputError(
            f"a frame of {height}x{width} is not of whole patches; its height must be a multiple of {patch_height} "
            f"and its width one of {patch_width}"
        )


def at_any_size(clone: Any) -> nn.Module:
    """Let a clone of the stock model take other sizes than its own.

    Raises:
        PathRefusedError: Its embedding is none that positions can be resampled for.
    """
    layout = layout_of(clone)
    if class_of(clone) == SEGMENTER:
        return clone  # type: ignore[no-any-return]
    check_patches(clone, "size")
    if layout.library == "transformers":
        trunk = layout.trunk_of(clone)
        embedding = embedding_of(trunk, layout)
        embedding.patch_embeddings = trunk.embeddings.patch_embeddings  # the trunk asks it for its precision
        trunk.embeddings = embedding
        return clone  # type: ignore[no-any-return]
    from timm.layers import Format

    clone.dynamic_img_size = True
    patches = clone.patch_embed
    patches.strict_img_size, patches.flatten, patches.output_fmt = False, False, Format.NHWC
    return clone  # type: ignore[no-any-return]


def own_size(stock: Any) -> tuple[int, int] | None:
    """The one frame size (height, width) that the stock model takes, or None where it takes several."""
    if class_of(stock) == SEGMENTER:
        return None
    if layout_of(stock).library == "timm" and not getattr(stock.patch_embed, "strict_img_size", True):
        return None
    return frame_size(stock)


def sizes_knob(stock: Any) -> Knob:
    """Smaller frames of whole patches: percentages where frames may be of any size, else sizes by themselves."""
    own = own_size(stock)
    if own is None and all(32 % side == 0 for side in patch_size(stock)):
        return size_knob()
    height, width = own or frame_size(stock)
    smaller = [
        (_patches(height, percent, patch_size(stock)[0]), _patches(width, percent, patch_size(stock)[1]))
        for percent in FINE_PERCENT
    ]
    return Knob("size", _distinct([pair for pair in smaller if pair != (height, width)]))


def _patches(length: int, percent: int, patch: int) -> int:
    return max(1, round(length * percent / 100 / patch)) * patch


def _distinct(sizes: Sequence[tuple[int, int]]) -> tuple[InputSize, ...]:
    return tuple(InputSize(height=height, width=width) for height, width in dict.fromkeys(sizes))


def _pads(stock: Any) -> bool:
    return bool(getattr(getattr(stock, "patch_embed", None), "dynamic_img_pad", False))
