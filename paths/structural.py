"""Knobs of the transforms that know no family, for every family to offer: one list, made from a model's anatomy."""

from torch import nn

from gearshift.paths.anatomy import Anatomy
from gearshift.paths.knobs import Knob, heads_knob, mlp_knob, skip_knobs
from gearshift.paths.lowrank.choose import lowrank_knob
from gearshift.paths.sharing import DerivedTensors
from gearshift.paths.transforms import Prune

PRUNED_PERCENT = (10, 20, 30, 40, 50)


def structural_knobs(stock: nn.Module, anatomy: Anatomy, derived: DerivedTensors) -> list[Knob]:
    """Blocks left out, heads, hidden channels, ranks (where there are calibration frames), pruned channels.

    Pruning by a traced graph is offered where the anatomy names neither heads nor hidden channels: those two are cut by
    measured importance and over shared weights, and exclude it. A space file may ask for it all the same.
    """
    named = bool(anatomy.attentions or anatomy.mlps)
    prune = Knob("prune", tuple(Prune(percent) for percent in PRUNED_PERCENT if not named and Prune.fits(anatomy)))
    offered = [heads_knob(anatomy), mlp_knob(anatomy), prune, lowrank_knob(stock, anatomy, derived)]
    return [*skip_knobs(anatomy), *(knob for knob in offered if knob is not None and knob.settings)]
