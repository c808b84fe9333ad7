"""Which layers to factor, and at which ranks: from the energies alone, or so that a threshold on the answers is held.

`choose_ranks` runs nothing beyond the one pass that the bases take: a layer's noise at every rank is known from its
energies. `falor` finds the strongest such choice for which the *whole* path, all layers factored together, stays under
a threshold on the model's answers: some eight runs over the frames, where the package that published the method takes
hundreds for each layer, tunes each against an otherwise untouched model, and builds the last rank tried.
"""

from collections.abc import Sequence

from torch import nn

from gearshift.errors import PathRefusedError
from gearshift.paths.anatomy import Anatomy
from gearshift.paths.knobs import Knob
from gearshift.paths.lowrank.basis import derive_bases, energies_of, factorable, lost_share
from gearshift.paths.lowrank.noise import Reference, in_batches
from gearshift.paths.sharing import DerivedTensors, clone_structure
from gearshift.paths.transforms.lowrank import LowRank

MULTIPLE = 8
"""Ranks are multiples of this: odd channel counts are slow."""
LOST = (0.005, 0.01, 0.02, 0.05, 0.1)
"""Shares of each layer's output variance that the knob's settings give up, mild to strong."""
LADDER = tuple(0.5 / 1.5**step for step in range(24, -1, -1))
"""The same for `falor`, which chooses among them: 3e-5 to 0.5."""
BATCH = 8


def choose_ranks(
    stock: nn.Module,
    anatomy: Anatomy,
    derived: DerivedTensors,
    lost: float,
    *,
    layers: Sequence[str] | None = None,
    multiple: int = MULTIPLE,
) -> LowRank | None:
    """The smallest rank of each layer that loses at most a share of its output's variance; None if none saves.

    Args:
        stock: The model.
        anatomy: Of it.
        derived: With calibration frames, unless the energies were made before.
        lost: Share of the variance, 0 to 1.
        layers: Names of those to choose among; all of `anatomy.linears` if None.
        multiple: Of which ranks are.
    """
    names = factorable(stock, anatomy.linears if layers is None else layers)
    derive_bases(stock, tuple(names), anatomy.linears, derived, spectra=True)
    ranks = []
    for name, layer in names.items():
        energies = energies_of(name, derived)
        saving = range(multiple, layer.largest_rank + 1, multiple)
        rank = next((rank for rank in saving if lost_share(energies, rank) <= lost), None)
        if rank is not None:
            ranks.append((anatomy.linears.index(name), rank))
    return LowRank(tuple(ranks)) if ranks else None


def measured_noise(stock: nn.Module, anatomy: Anatomy, derived: DerivedTensors, transform: LowRank) -> float:
    """Noise-to-signal ratio of the model's answers with this transform alone, on the calibration frames."""
    reference = _reference(stock, derived)
    return reference.ratio(carried_out(stock, anatomy, derived, transform))


def carried_out(stock: nn.Module, anatomy: Anatomy, derived: DerivedTensors, transform: LowRank) -> nn.Module:
    """The stock model with this transform alone, in evaluation mode."""
    transform.prepare(stock, anatomy, derived)
    model = clone_structure(stock).eval()
    transform.apply(model, anatomy, derived)
    return model


def falor(
    stock: nn.Module,
    anatomy: Anatomy,
    derived: DerivedTensors,
    threshold: float,
    *,
    layers: Sequence[str] | None = None,
    multiple: int = MULTIPLE,
) -> LowRank | None:
    """The strongest choice of ranks whose measured noise on the calibration frames is at most `threshold`.

    What is returned was built and measured; None where no choice that saves holds the threshold.

    Args:
        stock: The model.
        anatomy: Of it.
        derived: With calibration frames.
        threshold: Noise-to-signal ratio of the model's answers (its logits), 0 to 1.
        layers: As for `choose_ranks`.
        multiple: As for `choose_ranks`.
    """
    choices = [choose_ranks(stock, anatomy, derived, lost, layers=layers, multiple=multiple) for lost in LADDER]
    distinct = [choice for choice in dict.fromkeys(choices) if choice is not None]
    reference = _reference(stock, derived)
    held, low, high = None, 0, len(distinct)
    while low < high:
        middle = (low + high) // 2
        if reference.ratio(carried_out(stock, anatomy, derived, distinct[middle])) <= threshold:
            held, low = distinct[middle], middle + 1
        else:
            high = middle
    return held


def lowrank_knob(stock: nn.Module, anatomy: Anatomy, derived: DerivedTensors) -> Knob | None:
    """Ranks by the share of each layer's output variance given up; None where nothing saves or no frames are given."""
    try:
        choices = [choose_ranks(stock, anatomy, derived, lost) for lost in LOST]
    except PathRefusedError:
        return None
    settings = tuple(choice for choice in dict.fromkeys(choices) if choice is not None)
    return Knob("lowrank", settings) if settings else None


def _reference(stock: nn.Module, derived: DerivedTensors) -> Reference:
    return Reference(clone_structure(stock).eval(), in_batches(derived.frames("lowrank"), BATCH))
