"""A camera-like stream: frames become available at a steady rate, and one that nobody fetched in time is dropped."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gearshift.paths.data import IGNORE_INDEX, LabelledFrame, SceneStream, normalise


@dataclass(frozen=True, slots=True, kw_only=True)
class Shot:
    """One frame as it is fetched.

    Attributes:
        index: Which of the camera's frames; gaps are frames dropped.
        due_s: When it became available, from the stream's start.
        pixels: `(1, 3, H, W)`.
        picture: Which of the stream's pictures it shows.
    """

    index: int
    due_s: float
    pixels: Tensor
    picture: int


class Pictures:
    """Labelled frames prepared once, so that drawing and decoding cost nothing while the stream runs."""

    def __init__(self, frames: Sequence[LabelledFrame], device: torch.device) -> None:
        self.frames = frames
        self._pixels = [normalise(frame.image).to(device) for frame in frames]

    def __len__(self) -> int:
        return len(self.frames)

    @property
    def labelled(self) -> bool:
        """Whether any pixel of any picture has a label."""
        return any(bool((frame.labels != IGNORE_INDEX).any()) for frame in self.frames)

    def at(self, index: int) -> int:
        """Which picture the camera's frame `index` shows: to the end and back, so that motion never jumps."""
        count = len(self.frames)
        if count == 1:
            return 0
        position = index % (2 * count - 2)
        return position if position < count else 2 * count - 2 - position

    def pixels(self, picture: int) -> Tensor:
        """Pixel values `(1, 3, H, W)` of a picture."""
        return self._pixels[picture]


def rendered_pictures(seed: int, count: int, height: int, width: int, fps: float, device: torch.device) -> Pictures:
    """Consecutive frames of a rendered drive, as a camera of `fps` sees them."""
    drive = SceneStream(seed=seed, height=height, width=width, fps=fps)
    return Pictures([drive.frame(index) for index in range(count)], device)


def camera(
    pictures: Pictures,
    fps: float,
    seconds: float,
    *,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Shot]:
    """Yield the newest frame whenever asked, waiting for the next one if it has been fetched already."""
    start = clock()
    index = 0
    while True:
        now = clock() - start
        due = index / fps
        if due >= seconds or now >= seconds:
            return
        if now < due:
            sleep(due - now)
        picture = pictures.at(index)
        yield Shot(index=index, due_s=due, pixels=pictures.pixels(picture), picture=picture)
        index = max(index + 1, int((clock() - start) * fps))
