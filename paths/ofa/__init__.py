"""Once-for-All ResNet-50: an elastic supernet, and any of its subnets as a path over the same weights.

    Subnet              which subnet: data that prints, reads back and goes into JSON     space.py, net_config.py
    shape_of            its channels and blocks, and its multiply-accumulates in a formula   shape.py
    Supernet            the largest network, with the published parameter names           supernet.py, network.py
    SharedSubnet        a subnet over the supernet's tensors, with its own statistics     subnet.py
    recalibrate         batch-norm statistics of a subnet, from images                    recalibrate.py
    load_supernet       the published checkpoint, from a file or from the hub             checkpoint.py
    OnceForAllFamily    all this as a family of paths; not imported here                  family.py, statistics.py

Source: Cai et al., "Once-for-All: Train One Network and Specialize it for Efficient Deployment", ICLR 2020, and the
code published with it (`ofa` on PyPI). Names in checkpoints and settings are that code's; the code here is our own.
"""

from gearshift.paths.ofa.checkpoint import load_supernet
from gearshift.paths.ofa.net_config import subnet_from_net_config
from gearshift.paths.ofa.recalibrate import recalibrate
from gearshift.paths.ofa.shape import shape_of
from gearshift.paths.ofa.space import Subnet
from gearshift.paths.ofa.subnet import SharedSubnet
from gearshift.paths.ofa.supernet import Supernet

__all__ = [
    "SharedSubnet",
    "Subnet",
    "Supernet",
    "load_supernet",
    "recalibrate",
    "shape_of",
    "subnet_from_net_config",
]
