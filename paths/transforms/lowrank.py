"""Low rank: layers replaced by two thinner ones, by the directions that their outputs lie in."""

import re
from dataclasses import dataclass
from typing import ClassVar, Self

from torch import nn

from gearshift.errors import PathRefusedError, SpecError
from gearshift.paths.anatomy import Anatomy
from gearshift.paths.lowrank.basis import PREFIX, derive_bases
from gearshift.paths.lowrank.distil import derive_distilled, distilled, owner_of
from gearshift.paths.lowrank.factors import principal, put_in_place
from gearshift.paths.lowrank.layer import Layer
from gearshift.paths.sharing import DerivedTensors
from gearshift.paths.transforms.base import NUMBER, Structural
from gearshift.paths.transforms.depth import SkippedBlock

DISTILLED = "lockd:"


@dataclass(frozen=True, slots=True)
class LowRank(Structural):
    """Factor layers at the ranks given: `lowrank=3:48,7:40`, by number in the family's list of linear maps.

    `lowrank=lockd:3:48,7:40` distils the factors of all these layers together, so that the model's answer rather than
    each layer's output comes closest to the stock model's on the calibration frames.

    Attributes:
        ranks: (layer, rank) pairs.
        distilled: Whether the factors are trained, or principal directions as they are.
    """

    ranks: tuple[tuple[int, int], ...]
    distilled: bool = False
    name: ClassVar[str] = "lowrank"

    def __post_init__(self) -> None:
        """Sort, so that equal choices have equal ids."""
        layers = [layer for layer, _ in self.ranks]
        if not layers or len(set(layers)) != len(layers):
            raise SpecError(f'lowrank="{self.value()}" must name at least one layer, each once')
        if any(layer < 0 or rank < 1 for layer, rank in self.ranks):
            raise SpecError(f'lowrank="{self.value()}" needs layers counted from 0 and ranks of at least 1')
        object.__setattr__(self, "ranks", tuple(sorted(self.ranks)))

    def value(self) -> str:
        """Such as `3:48,7:40`."""
        pairs = ",".join(f"{layer}:{rank}" for layer, rank in self.ranks)
        return f"{DISTILLED}{pairs}" if self.distilled else pairs

    @classmethod
    def read(cls, text: str | None) -> Self:
        """Read `layer:rank` pairs joined by commas, after `lockd:` for distilled ones."""
        pair = f"{NUMBER}:{NUMBER}"
        if text is None or not re.fullmatch(f"({DISTILLED})?{pair}(,{pair})*", text):
            hint = "; a target belongs in a space file, which turns it into ranks" if (text or "").endswith("%") else ""
            raise SpecError(
                f'lowrank="{text or ""}" is not a list of layer:rank; write, e.g., "lowrank=3:48,7:40"{hint}'
            )
        pairs = (pair.split(":") for pair in text.removeprefix(DISTILLED).split(","))
        return cls(tuple((int(layer), int(rank)) for layer, rank in pairs), text.startswith(DISTILLED))

    @classmethod
    def fits(cls, anatomy: Anatomy) -> bool:
        """Where there are linear maps."""
        return bool(anatomy.linears)

    def onto(self, present: "LowRank | None") -> "LowRank":
        """Layers add up, at the rank set last; distilled factors belong together and do not."""
        if present is None or self.distilled or present.distilled:
            return self
        return LowRank(tuple((dict(present.ranks) | dict(self.ranks)).items()))

    def within(self, present: "LowRank | None") -> bool:
        """Whether each of these layers has this rank or a lower one."""
        if present is None or self.distilled or present.distilled:
            return self == present
        held = dict(present.ranks)
        return all(layer in held and held[layer] <= rank for layer, rank in self.ranks)

    def checked(self, stock: nn.Module, anatomy: Anatomy) -> dict[str, int]:
        """Ranks by name of the layer, refused where a layer does not exist or a rank does not save."""
        ranks = {}
        for number, rank in self.ranks:
            if number >= len(anatomy.linears):
                raise PathRefusedError(
                    f"lowrank={number}:{rank} does not exist; this model has layers 0 to {len(anatomy.linears) - 1}"
                )
            name = anatomy.linears[number]
            layer = Layer.of(stock.get_submodule(name), name)
            if rank > layer.largest_rank:
                allowed = f"1 to {layer.largest_rank}" if layer.largest_rank else "none"
                raise PathRefusedError(
                    f"lowrank={number}:{rank} costs as much as the layer {name} of {layer.inputs} inputs and "
                    f"{layer.outputs} outputs; ranks that save: {allowed}"
                )
            ranks[name] = rank
        return ranks

    def prepare(self, stock: nn.Module, anatomy: Anatomy, derived: DerivedTensors) -> None:
        """Take the directions from the stock model's features on the calibration frames, and distil if asked to."""
        ranks = self.checked(stock, anatomy)
        if self.distilled:
            derive_distilled(stock, anatomy.linears, ranks, self.value(), derived)
        else:
            derive_bases(stock, tuple(ranks), anatomy.linears, derived)

    def apply(self, model: nn.Module, anatomy: Anatomy, derived: DerivedTensors) -> None:
        """Put two layers in the place of each; layers of skipped blocks are passed over."""
        changed = False
        for number, rank in self.ranks:
            name = anatomy.linears[number]
            if _skipped(model, name):
                continue
            if self.distilled:
                factors, owner = distilled(name, self.value(), derived), f"{owner_of(self.value())}/{name}"
            else:
                factors, owner = principal(name, rank, derived), f"{PREFIX}{name}"
            self._check_present(model, name, rank, factors.read.shape[1])
            put_in_place(model, name, rank, factors, owner, derived)
            changed = True
        if not changed:
            raise PathRefusedError(f"lowrank={self.value()} changes nothing: all its blocks are skipped; drop it")

    def _check_present(self, model: nn.Module, name: str, rank: int, outputs: int) -> None:
        """Refuse a layer that an earlier transform of the path took away, or cut so that the factors do not fit."""
        try:
            module = model.get_submodule(name)
        except AttributeError as error:
            raise PathRefusedError(
                f"lowrank={self.value()} factors {name}, which another transform of this path replaces; "
                "drop one of the two"
            ) from error
        layer = Layer.of(module, name)
        if layer.outputs != outputs:
            raise PathRefusedError(
                f"lowrank factors {outputs} outputs of {name}, and this path has cut them to {layer.outputs}; "
                "leave the layer out of one of the two"
            )
        if rank > layer.largest_rank:
            raise PathRefusedError(
                f"lowrank at rank {rank} saves nothing on {name}, which this path has cut to {layer.inputs} inputs; "
                f"ranks that save: up to {layer.largest_rank}"
            )


def _skipped(model: nn.Module, name: str) -> bool:
    """Whether a layer was in a block that the path leaves out."""
    module = model
    for part in name.split("."):
        if isinstance(module, SkippedBlock):
            return True
        if not hasattr(module, part):
            return False
        module = getattr(module, part)
    return False
