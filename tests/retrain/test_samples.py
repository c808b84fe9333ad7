"""Batches: a pure function of (recipe, step), in which image, labels and teacher's maps move together."""

import itertools
import math
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from gearshift.errors import DataError
from gearshift.paths.data import IGNORE_INDEX, IMAGENET_MEAN, IMAGENET_STD, LabelledFrame
from gearshift.retrain.recipe import Augmentation, Recipe
from gearshift.retrain.samples import Batch, Region, Sampler, class_weights, count_labels, draw_region, jitter
from gearshift.retrain.teacher import TeacherMaps

HEIGHT, WIDTH = 64, 96
BLOCK = 8
ROW_STEP, COLUMN_STEP = 3, 2
# What a decoded place may be off, in pixels: colours are rounded twice, the hue's way through HSV once more.
PLACE_TOLERANCE = 1.0

MakeRecipe = Callable[..., Recipe]
MakeFrames = Callable[..., list[LabelledFrame]]

shares = st.floats(0, 1)


@st.composite
def regions(draw: st.DrawFn) -> Region:
    height, width = draw(st.floats(0.2, 1)), draw(st.floats(0.2, 1))
    return Region(
        top=draw(shares) * (1 - height),
        left=draw(shares) * (1 - width),
        height=height,
        width=width,
        mirrored=draw(st.booleans()),
    )


def frame_of_places() -> LabelledFrame:
    """Red says the row, green the column, and each 8x8 block has a class of its own."""
    rows, columns = np.mgrid[:HEIGHT, :WIDTH]
    image = np.stack([ROW_STEP * rows, COLUMN_STEP * columns, 0 * rows], axis=-1)
    labels = rows // BLOCK * (WIDTH // BLOCK) + columns // BLOCK
    return LabelledFrame(image=image.astype(np.uint8), labels=labels.astype(np.uint8))


def places(pixel_values: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns `(h, w)` that the colours of a normalised crop `(3, h, w)` say."""
    mean, std = (torch.tensor(values)[:, None, None] for values in (IMAGENET_MEAN, IMAGENET_STD))
    colours = ((pixel_values * std + mean) * 255).numpy()
    return colours[0] / ROW_STEP, colours[1] / COLUMN_STEP


def expected_places(region: Region, height: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Row of each line and column of each pixel in a crop: centres of `height` x `width` equal cells."""
    rows = (region.top + region.height * (np.arange(height) + 0.5) / height) * HEIGHT - 0.5
    columns = (region.left + region.width * (np.arange(width) + 0.5) / width) * WIDTH - 0.5
    if region.mirrored:
        columns = columns[::-1]
    return rows.clip(0, HEIGHT - 1), columns.clip(0, WIDTH - 1)


def same(one: Batch, other: Batch) -> bool:
    return (
        torch.equal(one.pixel_values, other.pixel_values)
        and torch.equal(one.labels, other.labels)
        and one.regions == other.regions
        and one.sources == other.sources
    )


@pytest.fixture
def placed(make_recipe: MakeRecipe) -> list[Batch]:
    """Batches of crops whose colours say where they come from."""
    sampler = Sampler(make_recipe(colour_jitter=0.0), [frame_of_places()], [frame_of_places()])
    return [sampler.batch(step) for step in range(8)]


def test_a_crop_shows_the_region_that_it_names(placed: list[Batch]) -> None:
    for batch in placed:
        for pixels, region in zip(batch.pixel_values, batch.regions, strict=True):
            rows, columns = places(pixels)
            wanted_rows, wanted_columns = expected_places(region, *rows.shape)
            assert np.abs(rows - wanted_rows[:, None]).max() < PLACE_TOLERANCE
            assert np.abs(columns - wanted_columns[None, :]).max() < PLACE_TOLERANCE


def test_labels_move_with_the_image(placed: list[Batch]) -> None:
    for batch in placed:
        for pixels, labels in zip(batch.pixel_values, batch.labels.numpy(), strict=True):
            rows, columns = places(pixels)
            for place, first in ((rows, labels // (WIDTH // BLOCK)), (columns, labels % (WIDTH // BLOCK))):
                middle = first * BLOCK + (BLOCK - 1) / 2
                assert np.abs(place - middle).max() <= BLOCK / 2 + PLACE_TOLERANCE


def test_some_crops_are_mirrored_and_some_are_not(placed: list[Batch]) -> None:
    mirrored = {region.mirrored for batch in placed for region in batch.regions}
    assert mirrored == {True, False}
    for batch in placed:
        for pixels, region in zip(batch.pixel_values, batch.regions, strict=True):
            _, columns = places(pixels)
            assert (columns[0, 0] > columns[0, -1]) == region.mirrored


@given(region=regions(), size=st.tuples(st.integers(1, 9), st.integers(1, 9)), part=st.tuples(shares, shares))
def test_the_teachers_crop_is_the_same_region_of_its_maps(
    region: Region, size: tuple[int, int], part: tuple[float, float]
) -> None:
    """Against bilinear interpolation written out, for maps that leave out a margin of the image."""
    top, left = part[0] / 8, part[1] / 8
    maps = TeacherMaps(
        features=torch.rand(2, 3, 5, 7, generator=torch.Generator().manual_seed(0)),
        logits=torch.zeros(2, 1, 5, 7),
        top=top,
        bottom=1 - top / 2,
        left=left,
        right=1 - left / 2,
    )
    rows = region.top + region.height * (np.arange(size[0]) + 0.5) / size[0]
    columns = region.left + region.width * (np.arange(size[1]) + 0.5) / size[1]
    columns = columns[::-1] if region.mirrored else columns
    wanted = bilinear(
        maps.features[1].double().numpy(),
        (rows - top) / (1 - top / 2 - top) * 5 - 0.5,
        (columns - left) / (1 - left / 2 - left) * 7 - 0.5,
    )
    got = maps.crop(maps.features, 1, region, size)
    assert got.dtype == torch.float32
    assert np.allclose(got.numpy(), wanted, atol=1e-5)


def bilinear(image: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Values of `image` (C, h, w) at fractional `rows` x `columns`; beyond the border, the border's."""

    def along(values: np.ndarray, at: np.ndarray, axis: int) -> np.ndarray:
        at = at.clip(0, values.shape[axis] - 1)
        low = np.floor(at).astype(int)
        high = np.minimum(low + 1, values.shape[axis] - 1)
        share = (at - low).reshape(-1, *[1] * (values.ndim - 1 - axis))
        return values.take(low, axis) * (1 - share) + values.take(high, axis) * share

    return along(along(image, rows, 1), columns, 2)


def test_image_and_teacher_agree_on_where_a_crop_lies(placed: list[Batch]) -> None:
    """Maps that hold the mean place of each 16x16 patch say, once cropped, what the image's colours say."""
    rows, columns = np.mgrid[: HEIGHT // 16, : WIDTH // 16] * 16 + 7.5
    stack = torch.from_numpy(np.stack([rows, columns]))[None].float()
    maps = TeacherMaps(features=stack, logits=stack, top=0.0, bottom=1.0)
    for batch in placed:
        for pixels, region in zip(batch.pixel_values, batch.regions, strict=True):
            inside = np.s_[4:-4, 4:-4]  # within half a patch of the border, the maps are constant
            for got, said, limit in zip(
                maps.crop(stack, 0, region, (32, 48)).numpy(), places(pixels), (HEIGHT, WIDTH), strict=True
            ):
                said = said.clip(7.5, limit - 8.5)
                assert np.abs(got - said)[inside].max() < PLACE_TOLERANCE + 0.1


@given(
    crop=st.tuples(st.integers(8, 64), st.integers(8, 64)),
    min_region=st.floats(0.05, 1),
    aspect_jitter=st.floats(0, 0.99),
    image=st.tuples(st.integers(1, 2000), st.integers(1, 2000)),
    seed=st.integers(0, 999),
)
def test_regions_lie_inside_the_image(
    crop: tuple[int, int], min_region: float, aspect_jitter: float, image: tuple[int, int], seed: int
) -> None:
    augmentation = Augmentation(
        crop_height=crop[0] * 4, crop_width=crop[1] * 4, min_region=min_region, aspect_jitter=aspect_jitter
    )
    region = draw_region(augmentation, *image, random.Random(seed))
    assert min_region * (1 - 1e-9) <= region.height <= 1
    assert 0 < region.width <= 1
    assert region.top >= 0 <= region.left
    assert max(region.top + region.height, region.left + region.width) <= 1 + 1e-9
    assert region == draw_region(augmentation, *image, random.Random(seed))
    stretch = (region.width * image[1]) / (region.height * image[0]) / (crop[1] / crop[0])
    if region.width < 1:
        assert abs(stretch - 1) <= aspect_jitter + 1e-9
    else:
        assert stretch <= 1 + aspect_jitter + 1e-9


@settings(max_examples=25)
@given(steps=st.lists(st.integers(0, 200), min_size=1, max_size=4))
def test_a_batch_depends_on_recipe_and_step_alone(
    make_recipe: MakeRecipe, make_frames: MakeFrames, steps: list[int]
) -> None:
    """Neither on the batches before, nor on the global random state, nor on the thread."""
    labelled, rendered = make_frames(5, seed=1), make_frames(3, seed=2)
    used = Sampler(make_recipe(), labelled, rendered)
    for step in steps:
        torch.manual_seed(step + 1)
        random.seed(step + 2)
        used.batch(step)
    fresh = Sampler(make_recipe(), labelled, rendered)
    with ThreadPoolExecutor(1) as pool:
        elsewhere = pool.submit(fresh.batch, steps[0]).result()
    assert same(used.batch(steps[0]), elsewhere)


def test_a_batch_leaves_the_random_states_as_they_were(make_recipe: MakeRecipe, make_frames: MakeFrames) -> None:
    torch_state, python_state = torch.get_rng_state(), random.getstate()
    Sampler(make_recipe(), make_frames(2), make_frames(1)).batch(4)
    assert torch.equal(torch_state, torch.get_rng_state())
    assert python_state == random.getstate()


def test_steps_and_seeds_differ(make_recipe: MakeRecipe, make_frames: MakeFrames) -> None:
    frames = make_frames(3)
    batches = [Sampler(make_recipe(seed=seed), frames, frames).batch(step) for seed in (0, 1) for step in (0, 1, 2)]
    assert len({batch.regions for batch in batches}) == len(batches)


def test_a_batch_is_what_the_model_takes(make_recipe: MakeRecipe, make_frames: MakeFrames) -> None:
    batch = Sampler(make_recipe(), make_frames(3), make_frames(2)).batch(0)
    assert batch.pixel_values.shape == (3, 3, 32, 48)
    assert batch.labels.shape == (3, 32, 48)
    assert batch.pixel_values.dtype == torch.float32
    assert batch.labels.dtype == torch.int64
    assert [source is None for source in batch.sources] == [False, False, True]
    assert set(batch.labels.unique().tolist()) <= {0, 1, 2, 3, 4, IGNORE_INDEX}


def test_photographs_of_several_sizes_share_a_batch(make_recipe: MakeRecipe, make_frames: MakeFrames) -> None:
    frames = [*make_frames(1), *make_frames(1, size=(33, 80))]
    assert Sampler(make_recipe(), frames, frames).batch(0).pixel_values.shape == (3, 3, 32, 48)


@settings(max_examples=25)
@given(count=st.integers(1, 7), size=st.integers(1, 5), seed=st.integers(0, 99))
def test_every_epoch_visits_each_photograph_once(
    make_recipe: MakeRecipe, make_frames: MakeFrames, count: int, size: int, seed: int
) -> None:
    recipe = make_recipe(seed=seed, batch_labelled=size, batch_rendered=0)
    sampler = Sampler(recipe, make_frames(count, size=(4, 4)), [])
    visits = [source for step in range(count * 2) for source in sampler.batch(step).sources]
    for epoch in range(2 * size):
        assert sorted(visits[epoch * count : (epoch + 1) * count]) == list(range(count))


def test_epochs_are_in_orders_of_their_own(make_recipe: MakeRecipe, make_frames: MakeFrames) -> None:
    sampler = Sampler(make_recipe(batch_labelled=12, batch_rendered=0), make_frames(12, size=(4, 4)), [])
    assert len({sampler.batch(epoch).sources for epoch in range(4)}) == 4


@given(strength=st.floats(0, 0.99), seed=st.integers(0, 99))
def test_colours_change_within_limits(strength: float, seed: int) -> None:
    """A grey image has neither hue nor saturation, and is its own mean: what is left is the brightness."""
    grey = torch.full((1, 3, 2, 2), 100, dtype=torch.uint8)
    changed = jitter(grey, strength, random.Random(seed)).float()
    assert changed.shape == grey.shape
    cut_off = 4  # each of the four changes drops what is beyond whole levels
    assert (changed - 100).abs().max() <= 100 * strength + cut_off
    assert changed.max() - changed.min() <= 1


def test_colours_stay_without_jitter_and_repeat_with_it() -> None:
    image = torch.randint(0, 256, (1, 3, 16, 16), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    assert (jitter(image, 0.0, random.Random(0)).int() - image.int()).abs().max() <= 1
    once, again, other = (jitter(image, 0.5, random.Random(seed)) for seed in (1, 1, 2))
    assert torch.equal(once, again)
    assert not torch.equal(once, other)


def frame_of(*counts: int) -> LabelledFrame:
    """A frame with `counts[k]` pixels of class k, and one that is ignored."""
    labels = np.repeat([*range(len(counts)), IGNORE_INDEX], [*counts, 1]).astype(np.uint8)[None]
    return LabelledFrame(image=np.zeros((*labels.shape, 3), np.uint8), labels=labels)


def test_class_weights_by_hand() -> None:
    """Shares 1/2, 1/4, 1/4 and none; median 1/4. To the power 1/2: 0.7071, 1, 1, whose mean is 0.9024."""
    frames = [frame_of(5, 1, 4), frame_of(3, 3, 0)]
    root = math.sqrt(0.5)
    mean = (root + 1 + 1) / 3
    wanted = torch.tensor([root / mean, 1 / mean, 1 / mean, 0.0])
    assert torch.allclose(class_weights(frames, 4, 0.5), wanted)
    assert torch.allclose(class_weights(frames, 4, 1.0), torch.tensor([0.5, 1, 1, 0]) / (2.5 / 3))
    assert torch.equal(class_weights(frames, 4, 0.0), torch.tensor([1.0, 1, 1, 0]))


def test_of_an_even_number_of_classes_the_lower_median_counts() -> None:
    weights = class_weights([frame_of(1, 2, 3, 4)], 4, 1.0)
    assert torch.allclose(weights / weights[1], torch.tensor([2.0, 1, 2 / 3, 1 / 2]))


@given(counts=st.lists(st.integers(0, 50), min_size=1, max_size=8), exponent=st.floats(0, 1))
def test_rarer_classes_never_weigh_less(counts: list[int], exponent: float) -> None:
    assume(any(counts))
    weights = class_weights([frame_of(*counts)], len(counts), exponent).tolist()
    occurring = sorted((count, -weight) for count, weight in zip(counts, weights, strict=True) if count)
    assert sum(-weight for _, weight in occurring) / len(occurring) == pytest.approx(1, rel=1e-5)
    assert all(one[1] <= two[1] + 1e-6 for one, two in itertools.pairwise(occurring))
    assert all(weight == 0 for count, weight in zip(counts, weights, strict=True) if not count)


def test_counts_by_hand() -> None:
    assert count_labels([frame_of(5, 1), frame_of(0, 3)], 3, "here").tolist() == [5, 4, 0]


def test_labels_that_no_class_answers_to_are_refused(make_frames: MakeFrames) -> None:
    with pytest.raises(DataError, match=r"labels to train on hold class 3, .* classes 0\.\.2"):
        class_weights(make_frames(1), 3, 0.5)
    with pytest.raises(DataError, match="300 classes; labels of one byte allow 255"):
        class_weights(make_frames(1), 300, 0.5)


def test_frames_without_any_label_are_refused(make_frames: MakeFrames) -> None:
    blank = [replace(frame, labels=np.full_like(frame.labels, IGNORE_INDEX)) for frame in make_frames(2)]
    with pytest.raises(DataError, match="no labelled pixel to train on"):
        class_weights(blank, 3, 0.5)
    with pytest.raises(DataError, match="no labelled pixel"):
        class_weights([], 3, 0.5)


def test_a_sampler_wants_what_its_recipe_draws(make_recipe: MakeRecipe, make_frames: MakeFrames) -> None:
    with pytest.raises(DataError, match="no labelled photograph"):
        Sampler(make_recipe(), [], make_frames(1))
    with pytest.raises(DataError, match="batch_rendered is 1, but there is no rendered scene"):
        Sampler(make_recipe(), make_frames(1), [])
