"""The camera: its rate, what it drops, what it shows. Clock and sleep are the test's own."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gearshift.paths.data import IGNORE_INDEX, LabelledFrame, normalise
from gearshift.runtime.stream import (
    Pictures,
    Shot,
    camera,
    camera_frames,
    rendered_frames,
)

CPU = torch.device("cpu")


class Time:
    """Stands still but for sleeping and for `work`."""

    def __init__(self, start_s: float = 1000.0) -> None:
        self.start_s = self.now_s = start_s
        self.slept_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now_s += seconds
        self.slept_s += seconds

    @property
    def elapsed_s(self) -> float:
        return self.now_s - self.start_s


def frame(value: int, label: int = 0) -> LabelledFrame:
    return LabelledFrame(image=np.full((8, 8, 3), value, np.uint8), labels=np.full((8, 8), label, np.uint8))


def pictures(count: int) -> Pictures:
    return Pictures([frame(value) for value in range(count)], CPU)


def run(
    fps: float, seconds: float, work_s: Callable[[int], float], count: int = 4
) -> tuple[list[Shot], list[float], Time]:
    """The shots of a run, when each was fetched, and the clock at its end."""
    time = Time()
    shots, fetched = [], []
    for shot in camera(pictures(count), fps, seconds, clock=time, sleep=time.sleep):
        shots.append(shot)
        fetched.append(time.elapsed_s)
        time.now_s += work_s(shot.index)
    return shots, fetched, time


def test_frames_that_are_fetched_in_time_come_at_the_camera_s_rate() -> None:
    shots, fetched, time = run(10.0, 1.0, lambda _: 0.03)
    assert [shot.index for shot in shots] == list(range(10))
    assert fetched == pytest.approx([0.1 * index for index in range(10)])
    assert [shot.due_s for shot in shots] == pytest.approx(fetched)
    assert time.elapsed_s == pytest.approx(1.0)  # the last frame's period is part of the run
    assert time.slept_s == pytest.approx(1.0 - 10 * 0.03)


def test_a_slow_reader_gets_the_newest_frame_and_never_waits() -> None:
    shots, fetched, time = run(10.0, 1.0, lambda _: 0.25)
    # Fetched at 0, 0.25, 0.5 and 0.75 s: the newest frames then are 0, 2, 5 and 7.
    assert [shot.index for shot in shots] == [0, 2, 5, 7]
    assert fetched == pytest.approx([0.0, 0.25, 0.5, 0.75])
    assert time.slept_s == 0


def test_one_slow_frame_drops_only_what_it_covers() -> None:
    shots, _, _ = run(10.0, 1.0, lambda index: 0.35 if index == 2 else 0.01)
    # Frame 2 ends at 0.55 s: frame 5 is the newest, and waits for no one.
    assert [shot.index for shot in shots] == [0, 1, 2, 5, 6, 7, 8, 9]


def test_a_frame_longer_than_the_run_ends_it() -> None:
    shots, _, time = run(10.0, 1.0, lambda _: 5.0)
    assert [shot.index for shot in shots] == [0]
    assert time.elapsed_s == 5.0


def test_no_frame_begins_after_the_run() -> None:
    shots, fetched, _ = run(1.0, 2.5, lambda _: 2.6)
    assert ([shot.index for shot in shots], fetched) == ([0], [0.0])


@given(
    fps=st.floats(0.5, 1000.0),
    frames=st.floats(0.1, 200.0),
    work=st.lists(st.floats(0.0, 5.0), min_size=1, max_size=8),
)
def test_whatever_the_reader_does_frames_are_due_new_and_in_order(fps: float, frames: float, work: list[float]) -> None:
    seconds = frames / fps
    shots, fetched, time = run(fps, seconds, lambda index: work[index % len(work)] / fps)

    indices = [shot.index for shot in shots]
    assert all(later > earlier for earlier, later in pairwise(indices))
    assert indices[0] == 0
    assert indices[-1] < camera_frames(fps, seconds)
    tiny = 1e-6
    for shot, moment in zip(shots, fetched, strict=True):
        assert shot.due_s == shot.index / fps
        assert shot.due_s <= moment + tiny
        assert moment < seconds + tiny
    for shot, moment, earlier in zip(shots[1:], fetched[1:], indices, strict=False):
        assert moment < (shot.index + 1) / fps + tiny, "a newer frame was there already"
        assert shot.index > earlier
    assert time.elapsed_s >= seconds - tiny


@given(fps=st.integers(1, 240), seconds=st.integers(1, 100))
def test_whole_seconds_hold_whole_numbers_of_frames(fps: int, seconds: int) -> None:
    assert camera_frames(fps, seconds) == fps * seconds
    assert camera_frames(fps, seconds / fps) == seconds


def test_a_run_shorter_than_a_period_has_one_frame() -> None:
    assert camera_frames(1.0, 0.1) == 1
    assert camera_frames(30.0, 0.34) == 11  # due at 0, ..., 10/30 s


def test_pictures_go_to_the_end_and_back() -> None:
    shown = pictures(4)
    assert [shown.at(index) for index in range(13)] == [0, 1, 2, 3, 2, 1, 0, 1, 2, 3, 2, 1, 0]
    assert [pictures(2).at(index) for index in range(5)] == [0, 1, 0, 1, 0]
    assert [pictures(1).at(index) for index in range(3)] == [0, 0, 0]


@given(count=st.integers(1, 20), index=st.integers(0, 10_000))
def test_neighbouring_frames_show_neighbouring_pictures(count: int, index: int) -> None:
    shown = pictures(count)
    assert 0 <= shown.at(index) < count
    assert abs(shown.at(index + 1) - shown.at(index)) == min(1, count - 1)


def test_a_shot_holds_its_picture_s_pixels() -> None:
    shots, _, _ = run(10.0, 0.7, lambda _: 0.0, count=3)
    assert [shot.picture for shot in shots] == [0, 1, 2, 1, 0, 1, 2]
    for shot in shots:
        assert torch.equal(shot.pixels, normalise(frame(shot.picture).image))


def test_frames_without_labels_are_otherwise_the_same() -> None:
    labelled = frame(0, label=3)
    bare = labelled.unlabelled()
    assert (labelled.labelled, bare.labelled) == (True, False)
    assert (bare.labels == IGNORE_INDEX).all()
    assert (bare.image == labelled.image).all()
    assert int(labelled.labels[0, 0]) == 3


@pytest.mark.parametrize("fps", [0.01, 30.0, 5000.0])
def test_a_drive_is_drawn_for_any_camera(fps: float) -> None:
    shown, again = (rendered_frames(1, 2, 32, 48, fps) for _ in range(2))
    assert len(shown) == 2
    assert shown[0].image.shape == (32, 48, 3)
    assert (shown[1].image == again[1].image).all()
    assert shown[0].labelled
