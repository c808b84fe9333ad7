"""`runtime build`: from a model and, if there are any, labelled frames to a bundle of paths."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from gearshift.errors import InputError
from gearshift.paths.build import family_of
from gearshift.paths.bundle import check_destination
from gearshift.paths.data import CAMVID_CLASSES, IGNORE_INDEX, LabelledFrame, SceneStream, SegmentationFolder
from gearshift.paths.make import BuildRequest, make_bundle
from gearshift.paths.models import LoadedModel, load_model
from gearshift.paths.space import Space
from gearshift.profiler.meters.discover import Kind
from gearshift.runtime.cli.output import choose_device, choose_meter, emit_json, show, tell
from gearshift.runtime.cli.paths import path_table
from gearshift.runtime.cli.profile import parse_size


@dataclass(frozen=True, kw_only=True)
class Build:
    """Search for paths, cost and judge them here, and write the frontier as a bundle.

    Stopped with Ctrl-C, the search goes on where it was when the command is given again.
    """

    model: Annotated[str, tyro.conf.Positional]
    """hf:NAME_OR_DIR, or config:NAME with --random-init."""
    out: Path
    """Folder of the bundle to write."""
    data: Path | None = None
    """Folder with images/ and labels/ to judge on; rendered street scenes if left out."""
    ignore_index: int = IGNORE_INDEX
    """Label value that means "not labelled"."""
    unlabelled: bool = False
    """Judge by agreement with the stock model, although (or because) --data holds no labels."""
    limit: int | None = None
    """Judge on the first so many frames only."""
    size: str = "360x480"
    """Height x width of the rendered scenes, where --data is left out."""
    space: Path | None = None
    """YAML file that limits the search; see configs/spaces."""
    copy_checkpoint: bool = False
    """Carry the weights inside the bundle, so that it can be moved."""
    random_init: bool = False
    """Allow a model with random weights: costs are real, quality means nothing."""
    meter: Kind = "auto"
    """Where energy is read."""
    measured_only: bool = False
    """Refuse to estimate energy where no meter works; energy is then not measured."""
    device: str = "cpu"
    """cpu, cuda or cuda:N."""
    json: str | None = None
    """Write the bundle's record as JSON to this file, or to stdout for -."""

    def run(self) -> int:
        """Build it."""
        check_destination(self.out)
        space = Space() if self.space is None else Space.read(self.space)
        device = choose_device(self.device)
        model = self._model()
        frames, name = self._frames(model)
        request = BuildRequest(
            model=model,
            frames=frames,
            data_name=name,
            effort=space.effort(len(frames)),
            knobs=space.knobs(family_of(model.module).knobs(model.module)),
            copy_checkpoint=self.copy_checkpoint,
            device=device,
        )
        meter = choose_meter(self.meter, device, not self.measured_only)
        with _progress() as bar:
            task = bar.add_task("searching")

            def progress(message: str) -> None:
                bar.console.print(message, style="dim", markup=False)
                bar.update(task, description=message)

            bundle = make_bundle(request, self.out, meter, progress)
        meter.close()
        tell(f"wrote {self.out}")
        if not emit_json(bundle.record.model_dump(), self.json):
            show(path_table(bundle))
        return 0

    def _model(self) -> LoadedModel:
        if self.model.startswith("config:") and not self.random_init:
            raise InputError(
                f"{self.model} has random weights, so that the quality of its paths means nothing; "
                "give hf:NAME_OR_DIR, or add --random-init if only costs are of interest"
            )
        tell(f"loading {self.model}")
        return load_model(self.model)

    def _frames(self, model: LoadedModel) -> tuple[list[LabelledFrame], str]:
        classes = [model.module.config.id2label[index] for index in range(model.module.config.num_labels)]
        if self.data is None:
            return self._rendered(classes)
        folder = SegmentationFolder(
            self.data,
            num_classes=len(classes),
            ignore_index=self.ignore_index,
            labels_required=not self.unlabelled,
        )
        if not self.unlabelled:
            folder.check()
        count = len(folder) if self.limit is None else min(self.limit, len(folder))
        frames = [folder[index] for index in range(count)]
        name = "/".join(self.data.resolve().parts[-2:])
        return (_without_labels(frames), f"{name} (agreement)") if self.unlabelled else (frames, name)

    def _rendered(self, classes: list[str]) -> tuple[list[LabelledFrame], str]:
        """Rendered scenes; their labels serve only a model with the same classes."""
        height, width = parse_size(self.size)
        count = 40 if self.limit is None else self.limit
        tell(f"no --data: drawing {count} street scenes of {height}x{width}")
        frames = [SceneStream(seed=30_000 + seed, height=height, width=width).frame(seed) for seed in range(count)]
        if tuple(classes) == CAMVID_CLASSES:
            return frames, "rendered street scenes"
        tell("the model has other classes than the scenes: paths are judged by agreement with the stock model")
        return _without_labels(frames), "rendered street scenes (agreement)"


def _without_labels(frames: list[LabelledFrame]) -> list[LabelledFrame]:
    return [replace(frame, labels=np.full_like(frame.labels, IGNORE_INDEX)) for frame in frames]


def _progress() -> Any:
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
