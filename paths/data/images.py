"""Images with one class each, or none: `ROOT/images/*` with `ROOT/labels.csv`, a folder per class, or images alone.

ROOT/images/NAME.jpg + ROOT/labels.csv    columns `file` and `label` (0-based class id, or a class name)
ROOT/CLASS/NAME.jpg                       CLASS a name of the model's, or as many folders as it has classes,
                                          numbered in the order of their names (as ImageNet's)
ROOT/NAME.jpg or ROOT/images/NAME.jpg     no labels
"""

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from gearshift.errors import DataError
from gearshift.paths.data.folder import IMAGE_SUFFIXES, files_in, read_image
from gearshift.paths.data.frames import LabelledImage
from gearshift.paths.data.preprocess import Preprocessing

LABELS_FILE = "labels.csv"


class ImageFolder:
    """A folder of images with their classes, as a sequence of `LabelledImage`, resized and cropped for the model.

    Args:
        root: The folder.
        classes: Names of the model's classes; None where labels are not wanted.
        preprocessing: What the model expects.

    Raises:
        DataError: The folder or its labels are missing, or a label is no class of the model.
    """

    def __init__(
        self, root: Path | str, *, classes: Sequence[str] | None, preprocessing: Preprocessing | None = None
    ) -> None:
        self.root = Path(root)
        self._preprocessing = preprocessing or Preprocessing()
        if not self.root.is_dir():
            kind = "is a file, not a folder" if self.root.exists() else "does not exist"
            raise DataError(f"data folder {self.root} {kind}; expected a folder of images")
        self.images, self.labels = _unlabelled(self.root) if classes is None else _labelled(self.root, classes)
        if not self.images:
            raise DataError(f"{self.root} holds no images; expected files that end in {', '.join(IMAGE_SUFFIXES)}")

    def __len__(self) -> int:
        return len(self.images)

    def __iter__(self) -> Iterator[LabelledImage]:
        return (self[index] for index in range(len(self)))

    def __getitem__(self, index: int) -> LabelledImage:
        """Read image `index`, resized and cropped."""
        image = self._preprocessing.fitted(read_image(self.images[index]))
        return LabelledImage(image=image, label=self.labels[index])


_Listing = tuple[list[Path], list[int | None]]


def _unlabelled(root: Path) -> _Listing:
    folder = root / "images" if (root / "images").is_dir() else root
    images = files_in(folder, IMAGE_SUFFIXES)
    if not images:  # a folder per class serves as well
        images = [image for part in _folders(root) for image in files_in(part, IMAGE_SUFFIXES)]
    return images, [None] * len(images)


def _labelled(root: Path, classes: Sequence[str]) -> _Listing:
    if (root / LABELS_FILE).is_file():
        return _from_table(root, classes)
    folders = [folder for folder in _folders(root) if files_in(folder, IMAGE_SUFFIXES)]
    if not folders or [folder.name for folder in folders] == ["images"]:
        raise DataError(
            f"{root} has no labels: expected {root / LABELS_FILE} with columns file and label, or a folder per class"
        )
    numbers = _numbered(root, [folder.name for folder in folders], classes)
    images: list[Path] = []
    labels: list[int | None] = []
    for folder in folders:
        found = files_in(folder, IMAGE_SUFFIXES)
        images += found
        labels += [numbers[folder.name]] * len(found)
    return images, labels


def _numbered(root: Path, names: Sequence[str], classes: Sequence[str]) -> Mapping[str, int]:
    """Class ids of folders: by the classes' names, or, where there is one for each, by their order."""
    by_name = {name: number for number, name in enumerate(classes)}
    if all(name in by_name for name in names):
        return by_name
    if len(names) == len(classes):
        return {name: number for number, name in enumerate(sorted(names))}
    odd = next(name for name in names if name not in by_name)
    raise DataError(
        f"{root / odd} is named after no class of the model, and there are {len(names)} folders for {len(classes)} "
        f"classes; name folders as the model does (such as {classes[0]}), or give one for every class"
    )


def _from_table(root: Path, classes: Sequence[str]) -> _Listing:
    table = root / LABELS_FILE
    try:
        with table.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"cannot read {table}: {error}; expected columns file and label") from error
    if not rows or not {"file", "label"} <= rows[0].keys():
        raise DataError(f"{table} has no columns file and label, or no rows; write one row per image")
    by_name = {name: number for number, name in enumerate(classes)}
    images: list[Path] = []
    labels: list[int | None] = []
    for number, row in enumerate(rows, 2):
        name, label = row["file"] or "", row["label"] or ""
        image = next((place for place in (root / "images" / name, root / name) if place.is_file()), None)
        if image is None:
            raise DataError(f"{table}, line {number}: there is no image {name} in {root}")
        images.append(image)
        labels.append(_class_id(label.strip(), by_name, f"{table}, line {number}"))
    return images, labels


def _class_id(label: str, by_name: Mapping[str, int], where: str) -> int:
    if label in by_name:
        return by_name[label]
    if label.isdecimal() and int(label) < len(by_name):
        return int(label)
    raise DataError(f'{where}: "{label}" is no class of the model; allowed are 0 to {len(by_name) - 1}, or a name')


def _folders(root: Path) -> list[Path]:
    return sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
