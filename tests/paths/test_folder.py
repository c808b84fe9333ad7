"""Labelled folders: what is read, and what each fault says."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image

from gearshift.errors import DataError
from gearshift.paths.data import (
    IGNORE_INDEX,
    IMAGENET_MEAN,
    IMAGENET_STD,
    SegmentationFolder,
    normalise,
)

SIZE = (6, 8)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two images, 0001.png and 0002.jpg, with labels of classes 0..2 and 255."""
    (tmp_path / "images").mkdir()
    (tmp_path / "labels").mkdir()
    rng = np.random.default_rng(0)
    for name in ("0001.png", "0002.jpg"):
        Image.fromarray(rng.integers(0, 256, (*SIZE, 3), np.uint8)).save(tmp_path / "images" / name)
        save_label(tmp_path, name[:4], rng.choice([0, 1, 2, 255], SIZE).astype(np.uint8))
    return tmp_path


def save_label(root: Path, stem: str, values: np.ndarray) -> None:
    Image.fromarray(values).save(root / "labels" / f"{stem}.png")


def refusal(root: Path, **settings: object) -> str:
    """Return the one line with which opening, or checking, `root` is refused."""
    with pytest.raises(DataError) as caught:
        SegmentationFolder(root, **settings).check()  # type: ignore[arg-type]
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_frames_come_in_the_order_of_names_with_their_labels(root: Path) -> None:
    folder = SegmentationFolder(root, num_classes=3)
    folder.check()
    frames = list(folder)
    assert len(folder) == len(frames) == 2
    assert folder.labelled
    for frame, stem in zip(frames, ("0001", "0002"), strict=True):
        assert frame.image.shape == (*SIZE, 3)
        assert frame.image.dtype == frame.labels.dtype == np.uint8
        assert np.array_equal(frame.labels, np.asarray(Image.open(root / "labels" / f"{stem}.png")))
    assert np.array_equal(frames[0].image, np.asarray(Image.open(root / "images" / "0001.png")))
    assert np.array_equal(folder[-1].image, frames[1].image)
    with pytest.raises(IndexError):
        folder[2]


def test_progress_counts_every_label(root: Path) -> None:
    calls: list[tuple[int, int]] = []
    SegmentationFolder(root, num_classes=3).check(lambda done, total: calls.append((done, total)))
    assert calls == [(1, 2), (2, 2)]


# --- folders


def test_absent_root(tmp_path: Path) -> None:
    assert "nowhere does not exist" in refusal(tmp_path / "nowhere")


def test_root_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "is a file, not a folder" in refusal(tmp_path / "file")


def test_no_images_folder(tmp_path: Path) -> None:
    assert "has no folder images" in refusal(tmp_path)


def test_empty_images_folder(root: Path) -> None:
    for image in (root / "images").iterdir():
        image.unlink()
    (root / "images" / "notes.txt").touch()
    (root / "images" / ".hidden.png").touch()
    message = refusal(root)
    assert "holds no images" in message
    assert ".jpeg" in message


def test_no_labels_folder(root: Path) -> None:
    (root / "labels").rename(root / "masks")
    message = refusal(root)
    assert "no folder labels" in message
    assert "labels/0001.png" in message


def test_labels_may_be_absent_where_none_are_needed(root: Path) -> None:
    (root / "labels").rename(root / "masks")
    folder = SegmentationFolder(root, num_classes=3, labels_required=False)
    folder.check()
    assert not folder.labelled
    assert np.all(folder[0].labels == IGNORE_INDEX)
    assert folder[0].labels.shape == SIZE


def test_image_without_label_names_the_first_and_counts(root: Path) -> None:
    (root / "labels" / "0002.png").unlink()
    assert "images/0002.jpg" in refusal(root)
    (root / "labels" / "0001.png").unlink()
    message = refusal(root)
    assert "images/0001.png" in message
    assert "1 other image" in message


def test_two_images_of_one_stem(root: Path) -> None:
    Image.new("RGB", SIZE[::-1]).save(root / "images" / "0001.jpg")
    message = refusal(root)
    assert "0001.jpg" in message
    assert "0001.png" in message


def test_sizes_must_agree(root: Path) -> None:
    save_label(root, "0002", np.zeros((3, 4), np.uint8))
    message = refusal(root)
    assert "0002.png is 4x3" in message
    assert "0002.jpg is 8x6" in message


# --- labels


@pytest.mark.parametrize("read", ["check", "get"])
def test_value_beyond_the_classes_names_file_value_range_and_remedy(root: Path, read: str) -> None:
    save_label(root, "0001", np.full(SIZE, 11, np.uint8))
    folder = SegmentationFolder(root, num_classes=11)
    with pytest.raises(DataError) as caught:
        folder.check() if read == "check" else folder[0]
    assert str(caught.value) == (
        "labels/0001.png holds class 11, but the model has classes 0..10; "
        'if 11 means "not labelled", pass --ignore-index 11'
    )


def test_another_ignored_value_comes_back_as_255(root: Path) -> None:
    values = np.array([[0, 1, 2, 11] * 2] * 6, np.uint8)
    save_label(root, "0001", values)
    save_label(root, "0002", values)
    folder = SegmentationFolder(root, num_classes=11, ignore_index=11)
    folder.check()
    assert np.array_equal(folder[0].labels, np.where(values == 11, 255, values))
    assert refusal(root, num_classes=2, ignore_index=11).endswith("pass --ignore-index 2")


def test_ignoring_a_class_inside_the_range(root: Path) -> None:
    save_label(root, "0001", np.array([[0, 1] * 4] * 6, np.uint8))
    labels = SegmentationFolder(root, num_classes=3, ignore_index=0)[0].labels
    assert set(np.unique(labels)) == {1, IGNORE_INDEX}


def test_many_wrong_values_do_not_suggest_to_ignore_one(root: Path) -> None:
    save_label(root, "0001", np.arange(48, dtype=np.uint8).reshape(SIZE))
    message = refusal(root, num_classes=11)
    assert "class 11 (and 36 more such values)" in message
    assert "--ignore-index" not in message


def test_masks_of_0_and_255_with_two_classes(root: Path) -> None:
    for stem in ("0001", "0002"):
        save_label(root, stem, np.array([[0, 255] * 4] * 6, np.uint8))
    message = refusal(root, num_classes=2)
    assert "255" in message
    assert "ignored" in message
    assert "rewrite 255 as 1" in message
    assert "rewrite 255 as 1" in refusal(root, num_classes=2, ignore_index=7)


def test_labels_without_a_pixel_that_counts(root: Path) -> None:
    for stem in ("0001", "0002"):
        save_label(root, stem, np.full(SIZE, 255, np.uint8))
    assert "every pixel" in refusal(root, num_classes=3)


def test_palette_labels_are_read_as_indices(root: Path) -> None:
    values = np.array([[0, 1, 2, 255] * 2] * 6, np.uint8)
    label = Image.fromarray(values)
    label.putpalette([index ^ 170 for index in range(256) for _ in range(3)])
    assert label.mode == "P"
    label.save(root / "labels" / "0001.png")
    assert np.array_equal(SegmentationFolder(root, num_classes=3)[0].labels, values)


def test_one_bit_and_16_bit_labels(root: Path) -> None:
    values = np.array([[0, 1] * 4] * 6, np.uint8)
    Image.fromarray(values * 255).convert("1").save(root / "labels" / "0001.png")
    Image.fromarray(values.astype(np.uint16)).save(root / "labels" / "0002.png")
    folder = SegmentationFolder(root, num_classes=2)
    folder.check()
    assert np.array_equal(folder[0].labels, values)
    assert np.array_equal(folder[1].labels, values)
    Image.fromarray(values.astype(np.uint16) * 300).save(root / "labels" / "0002.png")
    assert "holds class 300" in refusal(root, num_classes=2)
    assert "holds class 300" in refusal(root)


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "LA"])
def test_labels_in_colours_are_refused(root: Path, mode: str) -> None:
    Image.new(mode, SIZE[::-1]).save(root / "labels" / "0001.png")
    message = refusal(root, num_classes=3)
    assert "0001.png is an image in colours" in message
    assert mode in message


@pytest.mark.parametrize("num_classes", [0, -3, 256])
def test_num_classes_that_bytes_cannot_hold(root: Path, num_classes: int) -> None:
    assert "num_classes" in refusal(root, num_classes=num_classes)


@given(values=arrays.arrays(np.uint8, SIZE, elements=st.integers(0, 255)), ignored=st.integers(0, 255))
def test_labels_round_trip(tmp_path_factory: pytest.TempPathFactory, values: np.ndarray, ignored: int) -> None:
    root = tmp_path_factory.mktemp("folder")
    (root / "images").mkdir()
    (root / "labels").mkdir()
    Image.new("RGB", SIZE[::-1]).save(root / "images" / "a.png")
    save_label(root, "a", values)
    folder = SegmentationFolder(root, num_classes=100, ignore_index=ignored)
    if np.all((values < 100) | (values == ignored)):
        assert np.array_equal(folder[0].labels, np.where(values == ignored, 255, values))
    else:
        with pytest.raises(DataError, match=r"holds class \d+"):
            folder[0]


# --- images


@pytest.mark.parametrize("mode", ["L", "1", "P", "LA", "RGBA", "CMYK"])
def test_images_of_any_mode_become_rgb(root: Path, mode: str) -> None:
    (root / "images" / "0002.jpg").unlink()
    name = "0002.jpg" if mode == "CMYK" else "0002.png"
    Image.new("RGB", SIZE[::-1], (255, 255, 255)).convert(mode).save(root / "images" / name)
    frame = SegmentationFolder(root)[1]
    assert frame.image.shape == (*SIZE, 3)
    assert frame.image.min() >= 254


def test_palette_image_with_transparency_is_read_without_a_warning(root: Path) -> None:
    picture = Image.new("P", SIZE[::-1], 1)
    picture.putpalette([0, 0, 0, 10, 20, 30])
    picture.save(root / "images" / "0001.png", transparency=bytes([0, 128]))
    assert SegmentationFolder(root)[0].image[0, 0].tolist() == [10, 20, 30]


def test_16_bit_grey_image_keeps_its_upper_byte(root: Path) -> None:
    Image.fromarray(np.full(SIZE, 0x8040, np.uint16)).save(root / "images" / "0001.png")
    assert np.all(SegmentationFolder(root)[0].image == 0x80)


def test_image_is_turned_as_its_exif_says(root: Path) -> None:
    exif = Image.Exif()
    exif[274] = 6
    Image.new("RGB", SIZE).save(root / "images" / "0002.jpg", exif=exif)  # stored 6 wide, shown 8 wide
    assert SegmentationFolder(root)[1].image.shape == (*SIZE, 3)
    Image.new("RGB", SIZE[::-1]).save(root / "images" / "0002.jpg", exif=exif)
    assert "EXIF" in refusal(root)


@pytest.mark.parametrize("damage", ["cut", "text", "empty"])
@pytest.mark.parametrize(("folder", "name"), [("images", "0002.jpg"), ("labels", "0002.png")])
def test_damaged_files_are_named(root: Path, damage: str, folder: str, name: str) -> None:
    path = root / folder / name
    if damage == "cut":
        noise = np.random.default_rng(1).integers(0, 3, (200, 200), np.uint8)
        for sibling in (root / "images" / "0002.jpg", root / "labels" / "0002.png"):
            Image.fromarray(noise).save(sibling)
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    else:
        path.write_bytes(b"not an image" if damage == "text" else b"")
    with pytest.raises(DataError, match=f"cannot read {folder[:-1]} .*{name}"):
        SegmentationFolder(root)[1]


# --- preprocessing


def test_normalise_equals_the_formula() -> None:
    image = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)
    expected = (image / 255 - np.array(IMAGENET_MEAN)) / np.array(IMAGENET_STD)
    batch = normalise(image)
    assert batch.shape == (1, 3, 5, 7)
    assert batch.dtype == torch.float32
    assert batch.is_contiguous()
    torch.testing.assert_close(batch[0].permute(1, 2, 0).double(), torch.from_numpy(expected), rtol=0, atol=1e-6)


def test_normalise_takes_one_a_batch_or_a_list() -> None:
    images = np.random.default_rng(0).integers(0, 256, (3, 5, 7, 3), np.uint8)
    images.flags.writeable = False
    batch = normalise(images)
    assert torch.equal(batch, normalise(list(images)))
    assert torch.equal(batch[1:2], normalise(images[1]))


@pytest.mark.parametrize(
    ("images", "says"),
    [
        ([], "0 sizes"),
        ([np.zeros((2, 2, 3), np.uint8), np.zeros((2, 3, 3), np.uint8)], "2x2x3, 2x3x3"),
        (np.zeros((2, 2, 3), np.float32), "float32"),
        (np.zeros((3, 2, 2), np.uint8), r"\(1, 3, 2, 2\)"),
        (np.zeros((2, 2), np.uint8), r"\(2, 2\)"),
    ],
)
def test_normalise_refuses_what_is_no_image(images: object, says: str) -> None:
    with pytest.raises(DataError, match=says):
        normalise(images)  # type: ignore[arg-type]
