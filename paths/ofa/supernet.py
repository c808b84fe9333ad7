"""The supernet: the largest network of the space, with the published names (`.conv.conv.weight`), 368 tensors."""

from collections import OrderedDict

from torch import nn

from gearshift.paths.ofa.network import LEAVES, ResNet50D
from gearshift.paths.ofa.shape import shape_of
from gearshift.paths.ofa.space import Subnet


class Supernet(ResNet50D):
    """All weights, in evaluation mode, drawn at random (He, by fan-out) until a checkpoint is loaded.

    Called, it is its own largest subnet. Its batch-norm statistics fit that one only; every other subnet needs its
    own (`SharedSubnet`, `recalibrate`).
    """

    def __init__(self) -> None:
        super().__init__(shape_of(Subnet.largest()))
        for part in self.modules():
            if isinstance(part, nn.Conv2d):
                nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")
        for part in list(self.modules()):
            _nest_leaves(part)
        self.eval()


def _nest_leaves(parent: nn.Module) -> None:
    """Put each leaf into a module of its own name, as the published code's elastic layers do."""
    for name, child in list(parent.named_children()):
        if isinstance(child, LEAVES):
            setattr(parent, name, nn.Sequential(OrderedDict([(name, child)])))
