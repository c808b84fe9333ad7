"""Channels of a segmentation decoder that a path keeps."""

from dataclasses import dataclass
from typing import ClassVar

from gearshift.paths.transforms.base import Count


@dataclass(frozen=True, slots=True)
class FuseChannels(Count):
    """Keep the first N input channels of the decoder's fuse convolution, as the source paper slices it.

    The convolution's input holds the deepest stage first: small N drops the shallow, high-resolution stages.
    """

    name: ClassVar[str] = "fuse"


@dataclass(frozen=True, slots=True)
class DecoderChannels(Count):
    """Keep the N output channels of the fuse convolution that matter most to the classifier."""

    name: ClassVar[str] = "decoder"
