"""A frame and what is known of it: the class of each pixel, or of the whole."""

from dataclasses import dataclass, replace

import numpy as np

from gearshift.paths.data.classes import IGNORE_INDEX


@dataclass(frozen=True, slots=True, eq=False)  # arrays have no single truth
class LabelledFrame:
    """An image and the class of each of its pixels.

    Attributes:
        image: (height, width, 3) uint8, RGB.
        labels: (height, width) uint8, class ids; `IGNORE_INDEX` where a pixel does not count.
    """

    image: np.ndarray
    labels: np.ndarray

    @property
    def labelled(self) -> bool:
        """Whether any pixel counts."""
        return bool((self.labels != IGNORE_INDEX).any())

    def unlabelled(self) -> "LabelledFrame":
        """The same image with no pixel labelled."""
        return replace(self, labels=np.full_like(self.labels, IGNORE_INDEX))


@dataclass(frozen=True, slots=True, eq=False)
class LabelledImage:
    """An image and its class.

    Attributes:
        image: (height, width, 3) uint8, RGB.
        label: Class id; None where it is not known.
    """

    image: np.ndarray
    label: int | None = None

    @property
    def labelled(self) -> bool:
        """Whether the class is known."""
        return self.label is not None

    def unlabelled(self) -> "LabelledImage":
        """The same image without its class."""
        return replace(self, label=None)


Frame = LabelledFrame | LabelledImage
