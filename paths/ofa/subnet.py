"""A subnet as a module over the supernet's tensors: weights are views, batch-norm statistics its own.

The first channels of every layer are kept: training sorted them by importance. Statistics cannot be shared, since
they depend on all channels before them; published code copies the supernet's, which is wrong for any subnet but the
largest. A new subnet starts with these; `recalibrate` gives it its own.
"""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from gearshift.errors import CheckpointError
from gearshift.paths.ofa.network import ResNet50D, leaves
from gearshift.paths.ofa.shape import shape_of
from gearshift.paths.ofa.space import Subnet
from gearshift.paths.ofa.supernet import Supernet
from gearshift.paths.sharing import extra_bytes

_STATISTICS = ("running_mean", "running_var")


class SharedSubnet(ResNet50D):
    """A subnet in evaluation mode; its names are those of a single network in the published code.

    Training it trains the supernet, as both hold the same weights.

    Attributes:
        subnet: Which one.
        extra_bytes: Memory beyond the supernet's: the statistics.

    Args:
        supernet: Whose weights to use. Moved or converted later, it leaves its subnets behind: do that first.
        subnet: Which one.
        statistics: What `statistics` gave, used as they are; by default copies of the supernet's own.

    Raises:
        CheckpointError: The statistics are those of another subnet.
    """

    def __init__(self, supernet: Supernet, subnet: Subnet, statistics: Mapping[str, Tensor] | None = None) -> None:
        shape = shape_of(subnet)
        with torch.device("meta"):  # every tensor is replaced by one of the supernet's
            super().__init__(shape)
        self.subnet = subnet
        stem = [part for place, part in enumerate(supernet.input_stem) if place != 1 or shape.stem_block]
        parts = [*stem, *(supernet.blocks[block.index] for block in shape.blocks), supernet.classifier]
        with torch.inference_mode(mode=False), torch.no_grad():  # a path may still be trained
            for own, source in zip(leaves(self), (leaf for part in parts for leaf in leaves(part)), strict=True):
                _share(own, source)
        if statistics is not None:
            self._use(statistics)
        self.extra_bytes = extra_bytes(self, supernet)
        self.eval()

    def statistics(self) -> dict[str, Tensor]:
        """Mean and variance of every batch norm, by name: what tells this subnet from the supernet's weights."""
        return {name: tensor for name, tensor in self.named_buffers() if name.endswith(_STATISTICS)}

    def norms(self) -> Iterator[tuple[str, nn.BatchNorm2d]]:
        """Every batch norm with its name."""
        return ((name, part) for name, part in self.named_modules() if isinstance(part, nn.BatchNorm2d))

    def _use(self, statistics: Mapping[str, Tensor]) -> None:
        expected = self.statistics()
        for fault, names in (
            ("missing", expected.keys() - statistics.keys()),
            ("unexpected", statistics.keys() - expected.keys()),
            (
                "mismatched",
                {name for name in expected.keys() & statistics if expected[name].shape != statistics[name].shape},
            ),
        ):
            if names:
                raise CheckpointError(
                    f"these statistics are not of the subnet {self.subnet}: {fault} {min(names)}; "
                    "give its own, or recalibrate it"
                )
        for name, norm in self.norms():
            for kind in _STATISTICS:
                setattr(norm, kind, statistics[f"{name}.{kind}"])


def _share(own: nn.Module, source: nn.Module) -> None:
    """Give `own` the first channels of `source`: parameters as views, buffers as copies."""
    for name, parameter in source.named_parameters(recurse=False):
        kept = getattr(own, name).shape
        if kept != parameter.shape:
            parameter = nn.Parameter(_first(parameter.detach(), kept), requires_grad=parameter.requires_grad)
        setattr(own, name, parameter)
    for name, buffer in source.named_buffers(recurse=False):
        setattr(own, name, _first(buffer, getattr(own, name).shape).clone())


def _first(tensor: Tensor, shape: torch.Size) -> Tensor:
    return tensor[tuple(slice(size) for size in shape)]
