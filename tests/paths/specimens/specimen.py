"""One small random model of a family, with the paths that the properties of `test_every_path` are shown on."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from gearshift.paths.build import PathFactory


@dataclass(frozen=True, slots=True, kw_only=True)
class Specimen:
    """A stock model and what is known of its paths.

    Attributes:
        name: Unique.
        make: Makes the model with its own seed, in evaluation mode, norms and biases random: the same each time.
        sizes: Frame sizes (height, width) that it takes, odd ones among them; the first is used where one is enough.
        exact: Paths whose output must be the stock model's.
        masked: Paths with an independent reference: from (a deep copy of) the stock model to a module that computes
            what the path must, by zeroing weights or hooks rather than by cutting.
        macs: Paths with a formula: from height and width to multiply-accumulates at batch 1.
        others: Paths for the remaining properties.
        calibration_frames: How many random frames the factory is given.
    """

    name: str
    make: Callable[[], nn.Module]
    sizes: tuple[tuple[int, int], ...]
    exact: tuple[str, ...] = ()
    masked: Mapping[str, Callable[[Any], nn.Module]] = field(default_factory=dict)
    macs: Mapping[str, Callable[[int, int], int]] = field(default_factory=dict)
    others: tuple[str, ...] = ()
    calibration_frames: int = 0

    @property
    def paths(self) -> list[str]:
        """Every path, each once."""
        return list(dict.fromkeys(["stock", *self.exact, *self.masked, *self.macs, *self.others]))

    def factory(self, model: nn.Module | None = None) -> PathFactory:
        """A factory over a fresh model, or over the given one."""
        return PathFactory(model or self.make(), calibration=self.calibration())

    def calibration(self) -> list[Tensor]:
        """Random frames of the first size, the same each time."""
        generator = torch.Generator().manual_seed(1)
        return [torch.randn(1, 3, *self.sizes[0], generator=generator) for _ in range(self.calibration_frames)]


def seeded(make: Callable[[], nn.Module], seed: int = 0) -> nn.Module:
    """Make a model with weights from `seed`, norms and biases that matter, in evaluation mode."""
    from tests.paths.conftest import randomise  # the one list of what starts at 0 or 1

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = make()
        randomise(model)
    return model.eval()


def everything(output: Any) -> dict[str, Tensor]:
    """Every tensor that a model answers with, by name."""
    if isinstance(output, Tensor):
        return {"logits": output}
    return {name: value for name, value in output.items() if isinstance(value, Tensor)}
