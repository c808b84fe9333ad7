"""Folders of images with classes, and how images are resized and cropped for a model."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as TF

from gearshift.errors import DataError
from gearshift.paths.data import ImageFolder, Preprocessing
from gearshift.paths.data.preprocess import Interpolation

CLASSES = ("ant", "bee", "cat")


def write(file: Path, seed: int = 0, size: tuple[int, int] = (20, 30)) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 255, (*size, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file)
    return file


def table(root: Path, rows: list[str], header: str = "file,label") -> Path:
    for number, row in enumerate(rows):
        if row.startswith("ok"):
            write(root / "images" / row.partition(",")[0], number)
    (root / "labels.csv").write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return root


def test_a_table_gives_each_image_its_class_by_number_or_name(tmp_path: Path) -> None:
    folder = ImageFolder(table(tmp_path, ["ok1.png,2", "ok0.png,ant", "ok2.png,1"]), classes=CLASSES)
    assert [image.label for image in folder] == [2, 0, 1]
    assert [file.name for file in folder.images] == ["ok1.png", "ok0.png", "ok2.png"]
    assert folder[0].image.shape == (20, 30, 3)


def test_a_folder_per_class_is_matched_by_name_or_by_order(tmp_path: Path) -> None:
    for name in ("cat", "ant"):
        write(tmp_path / "named" / name / "x.png")
    assert [image.label for image in ImageFolder(tmp_path / "named", classes=CLASSES)] == [0, 2]
    for name in ("n03", "n01", "n02"):
        write(tmp_path / "numbered" / name / "x.png")
    assert [image.label for image in ImageFolder(tmp_path / "numbered", classes=CLASSES)] == [0, 1, 2]


@pytest.mark.parametrize("place", ["images/x.png", "x.png", "some/x.png"])
def test_images_without_labels_are_found(place: str, tmp_path: Path) -> None:
    write(tmp_path / place)
    folder = ImageFolder(tmp_path, classes=None)
    assert [image.label for image in folder] == [None]


@pytest.mark.parametrize(
    ("rows", "header", "said"),
    [
        (["ok.png,3"], "file,label", 'labels.csv, line 2: "3" is no class of the model; allowed are 0 to 2, or a name'),
        (["ok.png,-1"], "file,label", '"-1" is no class'),
        (["ok.png,"], "file,label", '"" is no class'),
        (["ok.png,0", "gone.png,1"], "file,label", "line 3: there is no image gone.png"),
        (["ok.png,0"], "name,class", "has no columns file and label"),
        ([], "file,label", "has no columns file and label, or no rows"),
    ],
)
def test_a_table_with_a_fault_is_refused_with_its_line(rows: list[str], header: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        ImageFolder(table(tmp_path, rows, header), classes=CLASSES)
    assert said in str(caught.value)


def test_a_folder_that_cannot_be_matched_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "dog" / "x.png")
    with pytest.raises(DataError, match="is named after no class of the model, and there are 1 folders for 3 classes"):
        ImageFolder(tmp_path, classes=CLASSES)
    write(tmp_path / "other" / "images" / "x.png")
    with pytest.raises(DataError, match="has no labels: expected"):
        ImageFolder(tmp_path / "other", classes=CLASSES)
    with pytest.raises(DataError, match="does not exist"):
        ImageFolder(tmp_path / "nowhere", classes=CLASSES)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="holds no images"):
        ImageFolder(tmp_path / "empty", classes=None)


@pytest.mark.parametrize("size", [(30, 47), (47, 30), (41, 41)])
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_resizing_and_cropping_are_torchvision_s(size: tuple[int, int], interpolation: Interpolation) -> None:
    pixels = np.random.default_rng(1).integers(0, 255, (*size, 3), dtype=np.uint8)
    ours = Preprocessing(resize=24, crop=(20, 20), interpolation=interpolation).fitted(pixels)
    picture = TF.resize(Image.fromarray(pixels), [24], v2.InterpolationMode[interpolation.upper()])
    assert np.array_equal(ours, np.asarray(TF.center_crop(picture, [20, 20])))


def test_a_size_ignores_proportions_and_nothing_leaves_an_image_alone() -> None:
    pixels = np.random.default_rng(1).integers(0, 255, (30, 47, 3), dtype=np.uint8)
    assert Preprocessing(size=(16, 24)).fitted(pixels).shape == (16, 24, 3)
    assert Preprocessing().fitted(pixels) is pixels


def test_a_crop_larger_than_the_image_is_refused() -> None:
    with pytest.raises(DataError, match="an image of 4x5 is smaller than the 6x6 to be cropped from it"):
        Preprocessing(crop=(6, 6)).fitted(np.zeros((4, 5, 3), np.uint8))


def test_pixels_are_normalised_by_the_model_s_own_mean_and_deviation() -> None:
    image = np.full((2, 2, 3), 255, np.uint8)
    half = Preprocessing(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5)).prepared(image)
    assert torch.allclose(half, torch.ones(1, 3, 2, 2))
