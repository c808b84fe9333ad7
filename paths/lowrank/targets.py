"""Low rank by a target rather than by ranks: `falor:5%` or `lockd:5%`, the noise that the model's answers may gain."""

import re
from dataclasses import dataclass
from typing import Self

from torch import nn

from gearshift.errors import PathRefusedError, SpecError
from gearshift.paths.anatomy import Anatomy
from gearshift.paths.lowrank.choose import falor
from gearshift.paths.lowrank.lockd import lockd
from gearshift.paths.sharing import DerivedTensors
from gearshift.paths.transforms.lowrank import LowRank

METHODS = {"falor": falor, "lockd": lockd}
_FORM = re.compile(r"(falor|lockd):([0-9]{1,2}(?:\.[0-9]+)?)%")


@dataclass(frozen=True, slots=True)
class NoiseTarget:
    """Ranks found by a method so that the answers' noise-to-signal ratio on the calibration frames stays below a share.

    `falor` takes principal directions as they are; `lockd` learns ranks and distils the factors.
    """

    method: str
    percent: float

    @staticmethod
    def is_one(text: str) -> bool:
        """Whether a text names a target rather than ranks."""
        return text.endswith("%")

    @classmethod
    def read(cls, text: str) -> Self:
        """Read `falor:5%`.

        Raises:
            SpecError: It is none.
        """
        match = _FORM.fullmatch(text)
        if match is None or not float(match[2]):
            raise SpecError(f'lowrank="{text}" is no target; write "falor:5%" or "lockd:5%", above 0 and below 100')
        return cls(match[1], float(match[2]))

    def resolved(self, stock: nn.Module, anatomy: Anatomy, derived: DerivedTensors) -> LowRank:
        """The ranks; what they need is in `derived` afterwards.

        Raises:
            PathRefusedError: No calibration frames, or no choice that saves anything holds the target.
        """
        found = METHODS[self.method](stock, anatomy, derived, self.percent / 100)
        if found is None:
            raise PathRefusedError(
                f"no ranks that save anything keep the noise below {self.percent:g}% ({self.method}); allow more, or "
                "leave lowrank out"
            )
        return found
