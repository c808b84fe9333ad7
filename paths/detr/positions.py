"""What depends on the size of the frames alone, made once for the size that came last."""

from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Value = TypeVar("Value")


class LastSize(Generic[Value]):
    """The value for the last key asked for: frames of one stream are of one size. No gradients flow into it."""

    def __init__(self) -> None:
        self._last: tuple[Hashable, Value] | None = None

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The value of `key`, made anew where another one was asked for in between."""
        last = self._last
        if last is None or last[0] != key:
            # An ordinary tensor even where the caller is in inference mode: a path may still be trained.
            with torch.inference_mode(mode=False), torch.no_grad():
                last = (key, make())
            self._last = last
        return last[1]

    def __deepcopy__(self, memo: dict[int, Any]) -> "LastSize[Value]":
        return LastSize()


def tokens_of(image: Tensor) -> Tensor:
    """`(B, C, H, W)` to `(B, H*W, C)`, a view of what lies channels last."""
    return image.flatten(2).transpose(1, 2)


def encode_positions(embedding: nn.Module, image: Tensor, mask: Tensor | None) -> Tensor:
    """Position encodings of a map `(B, C, H, W)` as tokens, `(1, H*W, C)` without a mask.

    Args:
        embedding: The stock model's.
        image: Only its shape, device and type count.
        mask: `(B, H, W)`, true where the image is no padding.
    """
    shape = image.shape if mask is not None else torch.Size((1, *image.shape[1:]))
    return tokens_of(embedding(shape=shape, device=image.device, dtype=image.dtype, mask=mask))


def shrink_mask(pixel_mask: Tensor, image: Tensor) -> Tensor:
    """The mask of frames, `(B, H_0, W_0)`, at the size of a map `(B, C, H, W)`: nearest entries, as the stock does it.

    Its precision plays no role: a mask holds zeros and ones.
    """
    return F.interpolate(pixel_mask[None].float(), size=image.shape[-2:]).to(torch.bool)[0]
