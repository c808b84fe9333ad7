"""Every architecture of the installed timm."""

import functools
import inspect
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

import timm
import torch

from gearshift.profiler.survey.library import Built, Facts
from gearshift.profiler.survey.years import year_of

USUAL_INPUT = (3, 224, 224)


class TimmLibrary:
    """Architectures that `timm.list_models()` knows, at the input size of their first set of weights."""

    def names(self) -> Sequence[str]:
        """All names, sorted as people do."""
        names: Sequence[str] = timm.list_models()
        return names

    def facts(self, name: str) -> Facts:
        """The file that defines an architecture is its family."""
        maker = timm.models.model_entrypoint(name)
        file = sys.modules[maker.__module__]
        year = year_of(name, inspect.getdoc(maker), inspect.getdoc(file))
        return Facts(
            family=maker.__module__.rpartition(".")[2],
            year=None if year is None else year.year,
            year_from=None if year is None else year.found_in,
            weights=_weights()[name],
        )

    def build(self, name: str) -> Built:
        """Build it without weights."""
        module: Any = timm.create_model(name, pretrained=False)
        size = (getattr(module, "pretrained_cfg", None) or {}).get("input_size", USUAL_INPUT)
        return Built(module=module.eval(), pixels=torch.empty(1, *size))


@functools.cache
def _weights() -> Counter[str]:
    """Published sets of weights by architecture: `resnet50.a1_in1k` is one of resnet50."""
    return Counter(tag.partition(".")[0] for tag in timm.list_models(pretrained=True))
