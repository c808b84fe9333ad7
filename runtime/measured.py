"""Paths of a stock model, measured here and kept in memory: what `DynamicModel.build` serves."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from torch import Tensor, nn

from gearshift.errors import InputError
from gearshift.paths.build import PathFactory
from gearshift.paths.data import LabelledImage
from gearshift.paths.journal import Journal
from gearshift.paths.judge import Judge
from gearshift.paths.records import PathRecord
from gearshift.paths.search import Effort
from gearshift.paths.spec import PathSpec
from gearshift.paths.workbench import Workbench, idle_power
from gearshift.profiler.meters import Meter


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPaths:
    """Modules by id with their records, and the idle power that their net energy excludes."""

    paths: Mapping[str, nn.Module]
    records: Sequence[PathRecord]
    idle_power_w: float | None


def measure_paths(
    module: nn.Module,
    example: Tensor,
    meter: Meter,
    *,
    specs: Sequence[PathSpec] | None,
    effort: Effort | None,
    rounds: int,
    window_s: float,
    progress: Callable[[str], None],
) -> MeasuredPaths:
    """Search for paths, or take those of `specs`; cost them, and judge by agreement with the stock model.

    Raises:
        ModelError: No family knows the module.
        InputError: The example is no batch of frames.
        PathRefusedError: One of `specs` does not fit the model.
    """
    if example.ndim != 4 or not len(example):
        raise InputError(f"expected example frames (N, 3, H, W) with N >= 1, got {tuple(example.shape)}")
    factory = PathFactory(module)
    here = next(module.parameters()).device
    if example.device != here:
        raise InputError(f"the example frames are on {example.device} and the model on {here}; move one of them")
    with _evaluating(module):
        bench = Workbench(
            factory=factory,
            judge=_agreement_judge(module, example),
            examples=[example[number : number + 1] for number in range(len(example))],
            meter=meter,
            idle=idle_power(meter),
            device=example.device,
            rounds=rounds,
            window_s=window_s,
            progress=progress,
        )
        if specs is None:
            wanted, lossless = bench.search(effort or Effort(), Journal(None, ""))
        else:
            wanted, lossless = list(dict.fromkeys([PathSpec(), *specs])), bench.exact_among(specs)
        records = bench.measure(wanted, lossless)
        paths = {record.id: factory.build(record.spec) for record in records if specs is not None or record.roles}
        return MeasuredPaths(paths=paths, records=records, idle_power_w=bench.idle.power_w)


@contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    """Put a model in evaluation mode, and back as it was, part by part."""
    training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True


def _agreement_judge(module: nn.Module, example: Tensor) -> Judge:
    """Judge on the example itself, by the number of each frame: it has no label."""
    height, width = example.shape[2:]
    frames = [LabelledImage(image=np.broadcast_to(np.array(number), (height, width))) for number in range(len(example))]
    return Judge(module, frames, example.device, prepare=lambda image: example[int(image.flat[0])][None])
