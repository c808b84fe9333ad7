"""`python -m gearshift.retrain RECIPE --images DIR --out DIR`: train a model from random weights, resumably."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import torch
import tyro
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from safetensors.torch import save_file

from gearshift.errors import InputError
from gearshift.files import write_atomic
from gearshift.paths.data import IGNORE_INDEX, LabelledFrame, SceneStream, SegmentationFolder
from gearshift.paths.models import build_described
from gearshift.retrain.recipe import Recipe
from gearshift.retrain.teacher import teach
from gearshift.retrain.train import Trainer, TrainingData

HELD_OUT_SCENES = 10_000
"""Rendered validation scenes use seeds from here on; training scenes use seeds below."""


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
    """Rendered scenes to judge on, none of which was trained on."""
    out: Path = field(default=Path("runs/train"))
    """Folder for checkpoint, log and final weights."""


def main() -> int:
    """Run the command line; 0 when training has ended, 2 on bad input."""
    arguments = tyro.cli(Arguments)
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
    """Prepare the data, train, and write `model.safetensors` (averaged weights, single precision)."""
    recipe = Recipe.read(arguments.recipe)
    if recipe.distillation is not None and arguments.teacher is None:
        raise InputError(f"{arguments.recipe} distils: give --teacher BACKBONE HEAD, or drop its distillation")
    torch.manual_seed(recipe.seed)
    model = build_described(recipe.model)
    classes = model.config.num_labels
    console = Console(stderr=True)
    with _progress(console) as bar:
        photographs = _load(arguments.images, classes, arguments.ignore_index)
        validation = {"rendered": _scenes(HELD_OUT_SCENES, arguments.scenes_held_out, bar)}
        if arguments.validation is not None:
            validation[arguments.validation.parent.name] = _load(
                arguments.validation, classes, arguments.ignore_index
            )
        rendered = _scenes(0, recipe.rendered_pool, bar)
        teacher = None
        if arguments.teacher is not None and recipe.distillation is not None:
            task = bar.add_task("teacher", total=len(photographs))
            teacher = teach(*arguments.teacher, photographs, lambda done: bar.update(task, completed=done))
        data = TrainingData(labelled=photographs, rendered=rendered, validation=validation, teacher=teacher)
        trainer = Trainer(model, recipe, data, arguments.out)
        task = bar.add_task("training", total=recipe.steps)

        def show(step: int, terms: dict[str, float]) -> None:
            shown = "  ".join(f"{name} {value:.3g}" for name, value in terms.items())
            bar.update(task, completed=step, description=f"training  {shown}")

        results = trainer.run(show)
    weights = {name: value.contiguous() for name, value in trainer.averaged_weights().items()}
    write_atomic(arguments.out / "model.safetensors", lambda path: save_file(weights, path, {"format": "pt"}))
    for name, quality in results.items():
        print(f"{name}: mIoU {quality.value:.4f} on {quality.images} images")


def _load(folder: Path, classes: int, ignore_index: int) -> list[LabelledFrame]:
    return list(SegmentationFolder(folder, num_classes=classes, ignore_index=ignore_index))


def _scenes(first_seed: int, count: int, bar: Progress) -> list[LabelledFrame]:
    """One frame from each of `count` drives, at differing points of the drive."""
    task = bar.add_task("rendering scenes", total=count)
    frames = []
    for seed in range(first_seed, first_seed + count):
        frames.append(SceneStream(seed=seed).frame(seed * 7 % 240))
        bar.advance(task)
    return frames


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=console
    )


if __name__ == "__main__":
    raise SystemExit(main())
