"""A camera-like stream: frames come due at a steady rate; one that nobody fetches in time is dropped.

camera                the frames, each as late as it is fetched      Shot      one of them
camera_frames         how many come due in a stretch of time
Pictures              what the frames show, prepared beforehand
rendered_frames       a drive down a rendered street
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gearshift.paths.data import Frame, LabelledFrame, SceneStream, normalise


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

    def __init__(
        self, frames: Sequence[Frame], device: torch.device, prepare: Callable[[np.ndarray], Tensor] = normalise
    ) -> None:
        self.frames = frames
        self._pixels = [prepare(frame.image).to(device) for frame in frames]

    def __len__(self) -> int:
        return len(self.frames)

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


def rendered_frames(seed: int, count: int, height: int, width: int, fps: float) -> list[LabelledFrame]:
    """Consecutive frames of a rendered drive, as a camera of `fps` sees them (within what can be drawn)."""
    drawn_fps = min(max(fps, 0.1), 999.0)
    drive = SceneStream(seed=seed, height=height, width=width, fps=drawn_fps)
    return [drive.frame(index) for index in range(count)]


def camera_frames(fps: float, seconds: float) -> int:
    """How many frames come due within `seconds`: the first at once, none at the very end."""
    return max(1, math.ceil(fps * seconds - 1e-9))


def camera(
    pictures: Pictures,
    fps: float,
    seconds: float,
    *,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Shot]:
    """Yield the newest frame whenever asked, waiting for the next one if that has been fetched already.

    Ends when `seconds` are over, and not with the last frame: so the last frame takes up its whole period, as
    every other does.
    """
    start = clock()

    def wait_until(moment_s: float) -> None:
        early = moment_s - (clock() - start)
        if early > 0:
            sleep(early)

    index, count = 0, camera_frames(fps, seconds)
    while index < count and clock() - start < seconds:
        wait_until(index / fps)
        picture = pictures.at(index)
        yield Shot(index=index, due_s=index / fps, pixels=pictures.pixels(picture), picture=picture)
        index = max(index + 1, math.floor((clock() - start) * fps))
    wait_until(seconds)
