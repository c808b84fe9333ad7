"""What a model keeps at some percentage: chosen once, checked, and recorded as indices that build it anywhere."""

import logging
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from gearshift.errors import PathRefusedError
from gearshift.paths.anatomy import Anatomy
from gearshift.paths.importance import head_importances
from gearshift.paths.pruning.checked import difference
from gearshift.paths.pruning.groups import UNIT, Removal, channel_removals, head_removals
from gearshift.paths.pruning.places import Kept, length_of
from gearshift.paths.sharing import DerivedTensors

log = logging.getLogger(__name__)

TOLERANCE = 1e-6
"""Largest difference from the silenced model, relative to its largest output, both in double precision."""


def kept(stock: nn.Module, anatomy: Anatomy, percent: int, derived: DerivedTensors) -> Kept:
    """Indices kept, by place: as recorded, else chosen now.

    Raises:
        PathRefusedError: Nothing would go, or what is left does not compute what the silenced model does.
    """
    prefix = f"prune/{percent}%/"
    known = {key: tensor for key, tensor in derived.tensors().items() if key.startswith(prefix)}
    chosen = known or {prefix + place: indices for place, indices in _choose(stock, anatomy, percent, derived).items()}
    # Asked for one by one, so that a bundle stores them.
    return {key.removeprefix(prefix): derived.get(key, partial(chosen.__getitem__, key)) for key in chosen}


def _choose(stock: nn.Module, anatomy: Anatomy, percent: int, derived: DerivedTensors) -> Kept:
    example = _example(stock, anatomy, derived)
    removals = [
        *head_removals(anatomy, head_importances(stock, anatomy, derived), percent),
        *channel_removals(stock, anatomy, example, percent),
    ]
    if not removals:
        raise PathRefusedError(
            f"prune={percent}% would remove nothing of this model: whole heads and multiples of {UNIT} channels stay; "
            "ask for more"
        )
    choice = _kept(stock, removals)
    if _wrong(stock, anatomy, choice, example) is None:
        return choice
    # One group that is no group spoils the rest: each is tried alone.
    wrong = {item.root: _wrong(stock, anatomy, _kept(stock, [item]), example) for item in removals}
    for root, reason in wrong.items():
        if reason is not None:
            log.info("prune=%d%% leaves %s as it is: %s", percent, root, reason)
    sound = [item for item in removals if wrong[item.root] is None]
    choice = _kept(stock, sound)
    if not sound or (reason := _wrong(stock, anatomy, choice, example)) is not None:
        spoilt = next((f"{root}: {reason}" for root, reason in wrong.items() if reason), reason if sound else "")
        raise PathRefusedError(
            f"prune={percent}% does not compute what this model does with the same channels silenced ({spoilt}); "
            "use paths without prune"
        )
    return choice


def _kept(stock: nn.Module, removals: Sequence[Removal]) -> dict[str, Tensor]:
    gone: dict[str, frozenset[int]] = {}
    for removal in removals:
        for place, indices in removal.places.items():
            gone[place] = gone.get(place, frozenset()) | indices
    device = next(stock.parameters()).device
    return {
        place: torch.tensor(sorted(set(range(length_of(stock, place))) - indices), dtype=torch.int32, device=device)
        for place, indices in sorted(gone.items())
    }


def _wrong(stock: nn.Module, anatomy: Anatomy, choice: Kept, example: Tensor) -> str | None:
    """What is wrong with a choice; None if the pruned model computes what the silenced one does."""
    empty = next((place for place, indices in choice.items() if not len(indices)), None)
    if empty is not None:
        return f"nothing is left of {empty}"
    try:
        found = difference(stock, anatomy, choice, example)
    except (RuntimeError, ValueError, TypeError, IndexError, AssertionError) as error:  # shapes that do not fit
        return " ".join(str(error).split())[:120]
    return None if found <= TOLERANCE else f"outputs differ by {found:.1g} of the largest"


def _example(stock: nn.Module, anatomy: Anatomy, derived: DerivedTensors) -> Tensor:
    parameter = next(stock.parameters())
    if derived.calibration:
        return derived.calibration[0].to(parameter.device, parameter.dtype)
    if anatomy.example_shape is None:
        raise PathRefusedError("prune traces a frame, and this model does not say which size it takes; give some")
    generator = torch.Generator().manual_seed(0)
    return torch.randn(1, *anatomy.example_shape, generator=generator).to(parameter.device, parameter.dtype)
