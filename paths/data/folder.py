"""Labelled images in a folder: `ROOT/images/NAME.jpg|jpeg|png` with `ROOT/labels/NAME.png`.

A label image holds one class number per pixel, as a grey or palette PNG. What is wrong with a folder is said
when it is opened, as far as names and sizes show it; `check()` reads every label once; reading one frame
checks that frame.
"""

import contextlib
import struct
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from gearshift.errors import DataError
from gearshift.paths.data.classes import IGNORE_INDEX
from gearshift.paths.data.frames import LabelledFrame

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png")
EXIF_ORIENTATION = 274
QUARTER_TURNS = 5  # orientations from here on swap width and height
LABEL_MODES = ("1", "L", "P", "I", "I;16", "I;16B", "I;16L")
Progress = Callable[[int, int], None]


class SegmentationFolder:
    """A folder of images and their labels, as a sequence of `LabelledFrame`, in the order of their names.

    Labels come back with `ignore_index` mapped to 255. Where labels are not required and the folder has none,
    every pixel is 255.

    Args:
        root: Folder that holds `images` and `labels`.
        num_classes: Classes of the model: labels are 0..num_classes-1. None: not known, any.
        ignore_index: Value of pixels that do not count.
        labels_required: Whether a folder without labels is refused.

    Raises:
        DataError: The folder, an image or a label is missing, or a label is of another size than its image.
    """

    def __init__(
        self,
        root: Path | str,
        *,
        num_classes: int | None = None,
        ignore_index: int = IGNORE_INDEX,
        labels_required: bool = True,
    ) -> None:
        if num_classes is not None and not 1 <= num_classes <= IGNORE_INDEX:
            raise DataError(f"num_classes is {num_classes}, but labels of one byte take 1 to {IGNORE_INDEX}")
        self.root, self.num_classes, self.ignore_index = Path(root), num_classes, ignore_index
        self.images = _find_images(self.root)
        self.labels = _find_labels(self.root, self.images, labels_required)
        for image, label in zip(self.images, self.labels, strict=False):
            _check_sizes(image, label)

    @property
    def labelled(self) -> bool:
        """Whether the folder has labels."""
        return bool(self.labels)

    def __len__(self) -> int:
        return len(self.images)

    def __iter__(self) -> Iterator[LabelledFrame]:
        return (self[index] for index in range(len(self)))

    def __getitem__(self, index: int) -> LabelledFrame:
        """Read frame `index`; negative numbers count from the end.

        Raises:
            DataError: A file cannot be read, or its label holds a value that is no class.
            IndexError: There is no such frame.
        """
        image = read_image(self.images[index])
        if not self.labels:
            return LabelledFrame(image=image, labels=np.full(image.shape[:2], IGNORE_INDEX, np.uint8))
        return LabelledFrame(image=image, labels=self._read_label(self.labels[index]))

    def check(self, progress: Progress | None = None) -> None:
        """Read every label once.

        Args:
            progress: Called with (labels read, labels in all) after each.

        Raises:
            DataError: A label cannot be read, or holds a value that is no class; or no pixel of any counts;
                or only 0 and 255 occur with two classes, as in masks that mean 255 as a class.
        """
        seen: set[int] = set()
        for done, path in enumerate(self.labels, 1):
            values = _distinct(read_label(path))
            self._check_values(path, values)
            seen.update(values.tolist())
            if progress is not None:
                progress(done, len(self.labels))
        self._check_seen(seen)

    def _check_seen(self, seen: set[int]) -> None:
        folder, ignored = self.root / "labels", self.ignore_index
        if seen == {ignored}:
            raise DataError(
                f"every pixel of the labels in {folder} holds {ignored}, the value that is ignored: "
                "nothing is left to learn from or to score"
            )
        if self.num_classes == 2 and seen == {0, ignored}:
            raise DataError(
                f"the labels in {folder} hold 0 and {ignored} alone, and {ignored} is the value that is "
                f"ignored, so class 1 never occurs; if {ignored} means class 1 here, rewrite {ignored} as 1"
            )

    def _read_label(self, path: Path) -> np.ndarray:
        values = read_label(path)
        self._check_values(path, _distinct(values))
        labels = values.astype(np.uint8)
        labels[values == self.ignore_index] = IGNORE_INDEX
        return labels

    def _check_values(self, path: Path, values: np.ndarray) -> None:
        classes = values[values != self.ignore_index]
        limit = IGNORE_INDEX if self.num_classes is None else self.num_classes
        wrong = classes[(classes < 0) | (classes >= limit)]
        if wrong.size == 0:
            return
        name, value = path.relative_to(self.root), int(wrong[0])
        owner = "labels of one byte hold" if self.num_classes is None else "the model has classes"
        more = f" (and {wrong.size - 1} more such values)" if wrong.size > 1 else ""
        raise DataError(
            f"{name} holds class {value}{more}, but {owner} 0..{limit - 1}; " + self._advice(value, wrong.size)
        )

    def _advice(self, value: int, wrong: int) -> str:
        if self.num_classes == 2 and value == IGNORE_INDEX:
            return "if 255 means class 1, rewrite 255 as 1"
        if wrong > 1:
            return "check that these labels are class numbers, and of the classes that this model knows"
        if self.ignore_index != IGNORE_INDEX:
            return (
                f"the ignored value is {self.ignore_index}; "
                f'if {value} is what means "not labelled", pass --ignore-index {value}'
            )
        return f'if {value} means "not labelled", pass --ignore-index {value}'


def read_image(path: Path) -> np.ndarray:
    """Return an image as (height, width, 3) uint8 RGB, turned as its EXIF orientation says.

    Grey, palette and transparent images are converted; of 16-bit grey the upper eight bits are kept.

    Raises:
        DataError: The file is missing, no image, or cut short.
    """
    with _opened(path, "image") as opened:
        image = ImageOps.exif_transpose(opened)
        if image.mode.startswith("I"):  # Pillow's own conversion would clip 16 bits at 255
            upper = np.clip(np.asarray(image).astype(np.int64) >> 8, 0, 255).astype(np.uint8)
            return np.repeat(upper[..., None], 3, axis=2)
        if "transparency" in image.info:
            image = image.convert("RGBA")
        return np.array(image.convert("RGB"))


def read_label(path: Path) -> np.ndarray:
    """Return a label image's own numbers, (height, width); those of a palette image are its indices.

    Raises:
        DataError: The file is missing, no image, cut short, or an image in colours.
    """
    with _opened(path, "label") as image:
        if image.mode not in LABEL_MODES:
            raise DataError(
                f"label {path} is an image in colours ({image.mode}), but a label holds one class number per "
                "pixel; save it as a grey or palette PNG of class numbers"
            )
        values = np.array(image)
        return values.astype(np.uint8) if values.dtype == np.bool_ else values


def _distinct(values: np.ndarray) -> np.ndarray:
    """Return the values that occur, ascending; for bytes far faster than sorting them."""
    if values.dtype == np.uint8:
        return np.flatnonzero(np.bincount(values.ravel()))
    return np.unique(values)


@contextlib.contextmanager
def _opened(path: Path, what: str) -> Iterator[Image.Image]:
    """Open an image; whatever goes wrong while it is read becomes a `DataError` that names the file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # odd metadata and large sizes: what matters raises
            with Image.open(path) as image:
                yield image
    except (OSError, SyntaxError, ValueError, struct.error, Image.DecompressionBombError) as error:
        raise DataError(f"cannot read {what} {path}: {_reason(error)}; replace or remove the file") from error


def _reason(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return "it is no image that can be decoded"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def _find_images(root: Path) -> tuple[Path, ...]:
    if not root.is_dir():
        kind = "is a file, not a folder" if root.exists() else "does not exist"
        raise DataError(f"data folder {root} {kind}; expected a folder with images/ and labels/ in it")
    folder = root / "images"
    if not folder.is_dir():
        raise DataError(f"{root} has no folder images; expected {folder}/NAME.png (or .jpg) and {root}/labels/NAME.png")
    images = files_in(folder, IMAGE_SUFFIXES)
    if not images:
        raise DataError(f"{folder} holds no images; expected files that end in {', '.join(IMAGE_SUFFIXES)}")
    first: dict[str, Path] = {}
    for image in images:
        if image.stem in first:
            raise DataError(
                f"{folder} holds both {first[image.stem].name} and {image.name}, which share the label "
                f"{image.stem}.png; rename or remove one"
            )
        first[image.stem] = image
    return tuple(images)


def files_in(folder: Path, suffixes: tuple[str, ...]) -> list[Path]:
    """Files of a folder whose names end so, in the order of their names; hidden ones are left out."""
    try:
        paths = sorted(folder.iterdir())
    except OSError as error:
        raise DataError(f"cannot list {folder}: {error.strerror or error}; check who may read it") from error
    wanted = (path for path in paths if path.suffix.lower() in suffixes)
    return [path for path in wanted if path.is_file() and not path.name.startswith(".")]


def _find_labels(root: Path, images: tuple[Path, ...], required: bool) -> tuple[Path, ...]:
    folder = root / "labels"
    if not folder.is_dir():
        if not required:
            return ()
        raise DataError(f"{root} has images but no folder labels; expected {folder}/{images[0].stem}.png")
    found = {path.stem: path for path in files_in(folder, (".png",))}
    missing = [image for image in images if image.stem not in found]
    if missing:
        others = f", nor have {len(missing) - 1} other images" if len(missing) > 1 else ""
        raise DataError(
            f"images/{missing[0].name} in {root} has no label{others}; expected labels/{missing[0].stem}.png"
        )
    return tuple(found[image.stem] for image in images)


def _check_sizes(image: Path, label: Path) -> None:
    """Compare sizes as far as the headers tell them."""
    with _opened(label, "label") as opened:
        label_size = opened.size
    with _opened(image, "image") as opened:
        turned = opened.getexif().get(EXIF_ORIENTATION, 1) >= QUARTER_TURNS
        size = opened.size[::-1] if turned else opened.size
    if size == label_size:
        return
    advice = "resize the label by nearest neighbour"
    if turned and size == label_size[::-1]:
        advice = "the image is turned by its EXIF orientation: store it upright, or turn the label"
    raise DataError(
        f"label {label} is {label_size[0]}x{label_size[1]}, but its image {image} is {size[0]}x{size[1]} "
        f"(width x height); {advice}"
    )
