"""Frames that a model is judged on or shown: a folder of them, or rendered street scenes where there is none.

Labels serve only a model that can be judged by them; otherwise quality is agreement with the stock model.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gearshift.errors import DataError, InputError
from gearshift.paths.data import CAMVID_CLASSES, IGNORE_INDEX, Frame, ImageFolder, Preprocessing, SegmentationFolder
from gearshift.paths.family import TaskName

OTHER_CLASSES = "the model has other classes than the scenes: quality is agreement with the stock model"


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameSource:
    """Where frames of a folder come from, and how they are read.

    Attributes:
        task: What the model is for.
        classes: Its classes.
        preprocessing: What it expects of images.
        ignore_index: Label value that means "not labelled", of segmentation labels.
        labels: `required`, `optional`, or `unwanted`.
    """

    task: TaskName
    classes: Sequence[str]
    preprocessing: Preprocessing
    ignore_index: int = IGNORE_INDEX
    labels: str = "required"

    def read(self, root: Path, limit: int | None = None) -> list[Frame]:
        """The first frames of a folder, all of one size.

        Raises:
            DataError: The folder, an image or a label is missing or wrong, or frames are of several sizes.
        """
        if self.task == "segmentation":
            return self._segmented(root, limit)
        if self.ignore_index != IGNORE_INDEX:
            raise InputError(f"--ignore-index {self.ignore_index} is for segmentation labels, and this is {self.task}")
        folder = self._images(root)
        chosen = folder.images[:limit]
        frames: list[Frame] = [folder[index] for index in range(len(chosen))]
        return _of_one_size(frames, chosen)

    def _segmented(self, root: Path, limit: int | None) -> list[Frame]:
        folder = SegmentationFolder(
            root,
            num_classes=len(self.classes),
            ignore_index=self.ignore_index,
            labels_required=self.labels == "required",
        )
        if self.labels == "required":
            folder.check()
        chosen = folder.images[:limit]
        frames: list[Frame] = [folder[index] for index in range(len(chosen))]
        return _of_one_size(frames, chosen)

    def _images(self, root: Path) -> ImageFolder:
        """Images with their classes; without, where labels are unwanted, or optional and absent."""
        wanted = self.task == "classification" and self.labels != "unwanted"
        try:
            return ImageFolder(root, classes=self.classes if wanted else None, preprocessing=self.preprocessing)
        except DataError:
            if not wanted or self.labels == "required" or (root / "labels.csv").exists():
                raise
            return ImageFolder(root, classes=None, preprocessing=self.preprocessing)


def scene_labels(
    frames: Sequence[Frame], task: TaskName, classes: Sequence[str], tell: Callable[[str], None]
) -> list[Frame]:
    """Rendered scenes as they are, or without labels where the model has other classes."""
    if task == "segmentation" and tuple(classes) == CAMVID_CLASSES:
        return list(frames)
    tell(OTHER_CLASSES)
    return [frame.unlabelled() for frame in frames]


def _of_one_size(frames: list[Frame], files: Sequence[Path]) -> list[Frame]:
    for file, frame in zip(files, frames, strict=True):
        if frame.image.shape != frames[0].image.shape:
            (height, width), (wanted_height, wanted_width) = frame.image.shape[:2], frames[0].image.shape[:2]
            raise DataError(
                f"{file} is {height}x{width}, but the first frame is {wanted_height}x{wanted_width} "
                "(height x width); a stream has frames of one size: resize or remove it"
            )
    return frames
