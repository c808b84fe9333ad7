"""`runtime build`: from a model and, if there are any, labelled frames to a bundle of paths."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from gearshift.errors import InputError
from gearshift.paths.build import family_of
from gearshift.paths.bundle import Bundle, check_destination
from gearshift.paths.data import IGNORE_INDEX, Frame, SceneStream
from gearshift.paths.family import Traits
from gearshift.paths.make import BuildRequest, make_bundle
from gearshift.paths.models import LoadedModel, load_model
from gearshift.paths.sharing import DerivedTensors
from gearshift.paths.space import Space
from gearshift.profiler.meters.discover import Kind
from gearshift.runtime.cli.output import (
    ERRORS,
    JsonTarget,
    check_targets,
    choose_device,
    choose_meter,
    emit_json,
    show,
    tell,
    tell_if_estimated,
)
from gearshift.runtime.cli.paths import path_table
from gearshift.runtime.cli.profile import parse_size
from gearshift.runtime.frames import FrameSource, scene_labels

RENDERED = "rendered street scenes"
RENDERED_FRAMES, RENDERED_SEED, RENDERED_SIZE = 40, 30_000, (360, 480)


@dataclass(frozen=True, kw_only=True)
class Build:
    """Search for paths, cost and judge them here, and write the frontier as a bundle.

    Stopped with Ctrl-C, the search goes on where it was when the command is given again.
    """

    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """One word such as segformer-b2 or vit_tiny_patch16_224, hf:NAME_OR_DIR, timm:NAME[=FILE], ofa:resnet50[=FILE],
    or config:NAME with --random-init."""
    out: Annotated[Path, tyro.conf.arg(metavar="BUNDLE")]
    """Folder of the bundle to write."""
    data: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder to judge on: images/ and labels/ to segment, images/ and labels.csv (or a folder per class) to
    classify; rendered street scenes if left out."""
    ignore_index: int = IGNORE_INDEX
    """Label value that means "not labelled"."""
    unlabelled: bool = False
    """Judge by agreement with the stock model, although (or because) --data holds no labels."""
    limit: Annotated[int | None, tyro.conf.arg(metavar="FRAMES")] = None
    """Judge on the first so many frames only."""
    calibration: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder of images (labels are not read) for transforms that need some; not those that paths are judged on."""
    calibration_limit: Annotated[int | None, tyro.conf.arg(metavar="FRAMES")] = None
    """Take the first so many of them only; 256 if left out, 2000 for Once-for-All."""
    size: Annotated[str | None, tyro.conf.arg(metavar="HxW")] = None
    """Height x width of the rendered scenes, where --data is left out; 360x480, or the model's own, if left out."""
    space: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
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
    json: JsonTarget = None
    """Write the bundle's record as JSON to this file, or to stdout for -."""

    def run(self) -> int:
        """Build it."""
        if self.size is not None:
            parse_size(self.size)
        if self.calibration_limit is not None and self.calibration_limit < 1:
            raise InputError(f"--calibration-limit {self.calibration_limit} must be at least 1")
        if self.limit is not None and self.limit < 1:
            raise InputError(f"--limit {self.limit} must be at least 1")
        check_destination(self.out)
        check_targets(self.json)
        space = Space() if self.space is None else Space.read(self.space)
        device = choose_device(self.device)
        model = self._model()
        family = family_of(model.module)
        traits = family.traits(model.module)
        space.check(family.knobs(model.module, DerivedTensors()))
        calibration = self._calibration(model, traits)
        frames, name = self._frames(model, traits)
        if (missing := family.missing(model.module)) is not None:
            tell(missing)
        request = BuildRequest(
            model=model,
            frames=frames,
            data_name=name,
            effort=space.effort(len(frames)),
            calibration=calibration,
            space=space,
            copy_checkpoint=self.copy_checkpoint,
            device=device,
        )
        bundle = self._make(request)
        tell(f"wrote {self.out}")
        if not emit_json(bundle.record.model_dump(), self.json):
            show(path_table(bundle))
        return 0

    def _make(self, request: BuildRequest) -> Bundle:
        meter = choose_meter(self.meter, request.device, not self.measured_only)
        tell_if_estimated(meter)
        try:
            with closing(meter), _spinner():
                return make_bundle(request, self.out, meter, tell)
        except KeyboardInterrupt:
            tell("the search goes on where it was when the command is given again")
            raise

    def _model(self) -> LoadedModel:
        if self.model.startswith("config:") and not self.random_init:
            raise InputError(
                f"{self.model} has random weights, so that the quality of its paths means nothing; "
                "give hf:NAME_OR_DIR, or add --random-init if only costs are of interest"
            )
        return load_model(self.model, random_init=self.random_init)

    def _frames(self, model: LoadedModel, traits: Traits) -> tuple[list[Frame], str]:
        if self.data is None:
            return self._rendered(model, traits)
        labels = "unwanted" if self.unlabelled or traits.task == "detection" else "required"
        frames = self._source(model, traits, labels).read(self.data, self.limit)
        return _named(frames, "/".join(self.data.resolve().parts[-2:]), by_labels=labels == "required")

    def _calibration(self, model: LoadedModel, traits: Traits) -> list[Frame]:
        if self.calibration is None:
            return []
        limit = self.calibration_limit or family_of(model.module).calibration_frames
        frames = self._source(model, traits, "unwanted").read(self.calibration, limit)
        return [frame.unlabelled() for frame in frames]

    def _source(self, model: LoadedModel, traits: Traits, labels: str) -> FrameSource:
        return FrameSource(
            task=traits.task,
            classes=traits.classes,
            preprocessing=model.preprocessing,
            ignore_index=self.ignore_index,
            labels=labels,
        )

    def _rendered(self, model: LoadedModel, traits: Traits) -> tuple[list[Frame], str]:
        """Rendered scenes; their labels serve only a model with the same classes."""
        height, width = self._size(model, traits)
        count = self.limit or RENDERED_FRAMES
        tell(f"no --data: drawing {count} street scenes of {height}x{width}")
        streams = [SceneStream(seed=RENDERED_SEED + n, height=height, width=width) for n in range(count)]
        frames = scene_labels(
            [stream.frame(number) for number, stream in enumerate(streams)], traits.task, traits.classes, tell
        )
        return _named(frames, RENDERED, by_labels=frames[0].labelled and not self.unlabelled)

    def _size(self, model: LoadedModel, traits: Traits) -> tuple[int, int]:
        if self.size is not None:
            return parse_size(self.size)
        return RENDERED_SIZE if traits.task == "segmentation" else model.image_size


def _named(frames: list[Frame], name: str, *, by_labels: bool) -> tuple[list[Frame], str]:
    return (frames, name) if by_labels else ([frame.unlabelled() for frame in frames], f"{name} (agreement)")


@contextmanager
def _spinner() -> Iterator[None]:
    """Show on a terminal that work goes on, and for how long."""
    columns = (SpinnerColumn(), TextColumn("searching"), TimeElapsedColumn())
    with Progress(*columns, console=ERRORS, transient=True, disable=not ERRORS.is_terminal) as bar:
        bar.add_task("")
        yield
