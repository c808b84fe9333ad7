"""`python -m gearshift.retrain RECIPE --images DIR --out DIR`: train a model from random weights.

Run again, the same command goes on from its last checkpoint.
"""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from gearshift.errors import InputError, OutputError
from gearshift.paths.data import IGNORE_INDEX, LabelledFrame, SceneStream, SegmentationFolder
from gearshift.paths.models import build_described, save_checkpoint
from gearshift.retrain.recipe import HELD_OUT_SCENES, Recipe
from gearshift.retrain.teacher import teach
from gearshift.retrain.train import Trainer, TrainingData


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Train a SegFormer from random weights as a recipe says; run again to go on after an interruption."""

    recipe: Annotated[Path, tyro.conf.Positional]
    """Recipe file, e.g. configs/recipes/segformer-street.yaml."""
    images: Path
    """Folder with images/ and labels/ to train on."""
    validation: Path | None = None
    """Folder with images/ and labels/ to judge on."""
    ignore_index: int = IGNORE_INDEX
    """Label value that means "not labelled" in both folders."""
    teacher: tuple[Path, Path] | None = None
    """Backbone and head of the teacher, as safetensors; needed if the recipe distils."""
    scenes_held_out: int = 60
    """Rendered scenes to judge on, none of which was trained on; 0 judges on none."""
    out: Path = Path("runs/train")
    """Folder for checkpoint, log and final weights."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 0 when training has ended, 2 on bad input, 130 when stopped by Ctrl-C."""
    arguments = tyro.cli(Arguments, prog="python -m gearshift.retrain", args=argv)
    try:
        train(arguments)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"stopped; run the same command again to go on from {arguments.out}", file=sys.stderr)
        return 130
    return 0


def train(arguments: Arguments) -> None:
    """Prepare the data, train, and write the averaged weights as a checkpoint that `hf:OUT` loads.

    Raises:
        InputError: Something that was given cannot be used; the message says what.
    """
    recipe = Recipe.read(arguments.recipe)
    if recipe.distillation is not None and arguments.teacher is None:
        raise InputError(f"{arguments.recipe} distils: give --teacher BACKBONE HEAD, or drop its distillation")
    if arguments.scenes_held_out < 0:
        raise InputError(f"--scenes-held-out is {arguments.scenes_held_out}, but 0 or more are possible")
    _make_folder(arguments.out)
    torch.manual_seed(recipe.seed)
    model = build_described(recipe.model)
    with _progress() as bar:
        data = _prepare(arguments, recipe, model.config.num_labels, bar)
        trainer = Trainer(model, recipe, data, arguments.out)
        task = bar.add_task("training", total=recipe.steps)

        def show(step: int, terms: dict[str, float]) -> None:
            shown = "  ".join(f"{name} {value:.3g}" for name, value in terms.items())
            bar.update(task, completed=step, description=f"training  {shown}")

        results = trainer.run(show)
    model.load_state_dict(trainer.averaged_weights())
    save_checkpoint(model, arguments.out)
    for name, quality in results.items():
        print(f"{name}: mIoU {quality.value:.4f} on {quality.images} images")


def _prepare(arguments: Arguments, recipe: Recipe, classes: int, bar: Progress) -> TrainingData:
    """Load photographs, render scenes, and let the teacher look at the photographs."""
    photographs = _load(arguments.images, classes, arguments.ignore_index)
    validation = {}
    if arguments.scenes_held_out:
        validation["rendered"] = _scenes(HELD_OUT_SCENES, arguments.scenes_held_out, bar)
    if arguments.validation is not None:
        name = arguments.validation.absolute().parent.name
        name = f"{name}/{arguments.validation.name}" if name in validation else name
        validation[name] = _load(arguments.validation, classes, arguments.ignore_index)
    rendered = _scenes(0, recipe.rendered_pool, bar)
    teacher = None
    if arguments.teacher is not None and recipe.distillation is not None:
        task = bar.add_task("teacher", total=len(photographs))
        teacher = teach(*arguments.teacher, photographs, lambda done: bar.update(task, completed=done))
    return TrainingData(labelled=photographs, rendered=rendered, validation=validation, teacher=teacher)


def _load(folder: Path, classes: int, ignore_index: int) -> list[LabelledFrame]:
    data = SegmentationFolder(folder, num_classes=classes, ignore_index=ignore_index)
    data.check()
    return list(data)


def _scenes(first_seed: int, count: int, bar: Progress) -> list[LabelledFrame]:
    """Render one frame from each of `count` drives, at differing points of the drive."""
    if not count:
        return []
    task = bar.add_task("rendering scenes", total=count)
    frames = []
    for seed in range(first_seed, first_seed + count):
        frames.append(SceneStream(seed=seed).frame(seed * 7 % 240))
        bar.advance(task)
    return frames


def _make_folder(folder: Path) -> None:
    """Make the run's folder, so that one that cannot be written is said before hours of work."""
    reason = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or str(error)
    if reason is None and not os.access(folder, os.W_OK):
        reason = "permission denied"
    if reason is not None:
        raise OutputError(f"cannot write into {folder}: {reason}; give --out a folder that you may write to")


def _progress() -> Progress:
    """Return the progress bars on stderr, which stay away where that is no terminal."""
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    )


if __name__ == "__main__":
    raise SystemExit(main())
