"""One architecture: build it on the meta device, list its layers, count one forward pass."""

import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch

from gearshift.profiler.calls import totals_by_type
from gearshift.profiler.recorder import CallRecorder
from gearshift.profiler.survey.assumed import TruthAssumed
from gearshift.profiler.survey.layers import layers_of
from gearshift.profiler.survey.library import Built, Facts, Library
from gearshift.profiler.survey.remembered import RememberedShapes
from gearshift.profiler.survey.row import Row, failed, one_line
from gearshift.profiler.survey.without_values import WithoutValues


def measure(library: Library, name: str, shapes: RememberedShapes) -> Row:
    """Measure one architecture; whatever its own code raises becomes the row's reason.

    Args:
        library: Where it is from.
        name: Its name there.
        shapes: What is remembered of others; it grows.
    """
    began = time.process_time()
    row = _measure(library, name, shapes)
    return replace(row, cpu_s=round(time.process_time() - began, 4))


def _measure(library: Library, name: str, shapes: RememberedShapes) -> Row:
    facts: Facts | None = None
    with _quiet():
        try:
            facts = library.facts(name)
            with torch.device("meta"), WithoutValues():
                built = library.build(name)
        except Exception as error:  # the code of a stranger: one architecture never ends the survey
            return failed(name, _told(error), facts)
        run = _counted(built, shapes)
    return Row(
        name=name,
        status="ok",
        facts=replace(facts, model_class=type(built.module).__name__),
        input_shape=tuple(built.pixels.shape),
        params=sum(parameter.numel() for parameter in built.module.parameters()),
        layers=layers_of(built.module),
        macs=run.macs,
        macs_reason=run.reason,
        uncounted=run.uncounted,
        assumed=run.assumed,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counted:
    """MACs by type, or why there are none; see `Row`."""

    macs: Mapping[str, int] | None = None
    uncounted: Mapping[str, int] = field(default_factory=dict)
    assumed: int = 0
    reason: str | None = None


def _counted(built: Built, shapes: RememberedShapes) -> _Counted:
    """Count one pass as `count` does; the module is thrown away afterwards, so nothing is put back."""
    recorder, truth = CallRecorder(built.module), TruthAssumed()
    try:
        with torch.device("meta"), truth, torch.no_grad(), shapes, torch._C._AutoDispatchBelowAutograd(), recorder:
            built.module(built.pixels)
    except Exception as error:  # control flow that depends on values, or inputs of another kind
        return _Counted(reason=_told(error))
    macs = {str(kind): totals.macs for kind, totals in totals_by_type(recorder.calls).items() if totals.macs}
    unknown = Counter(call.operator for call in recorder.calls if not call.is_counted)
    return _Counted(macs=macs, uncounted=unknown, assumed=truth.answers)


def _told(error: Exception) -> str:
    return one_line(f"{type(error).__name__}: {error}")


@contextmanager
def _quiet() -> Iterator[None]:
    """Libraries warn of what does not matter without weights."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
