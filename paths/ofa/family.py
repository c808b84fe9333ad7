"""Once-for-All ResNet-50 as a family: any subnet is a path over the supernet's tensors, with its own statistics.

The `lossless` form runs on channels-last maps: no weight is touched and no memory needed; whether it is faster depends
on device and network (on processors small networks gain, the whole one loses). Batch norm is not folded into
the convolution before it, exact as that would be: every path would then need weights of its own (up to 192 MB each),
where now twelve share one set.
"""

from typing import Any

import torch
from torch import Tensor, nn

from gearshift.paths.anatomy import Anatomy
from gearshift.paths.family import Family, Traits, dtype_of
from gearshift.paths.knobs import Knob, size_knob
from gearshift.paths.ofa.recalibrate import IMAGES, recalibrate
from gearshift.paths.ofa.shape import CLASSES
from gearshift.paths.ofa.space import STAGE_BLOCKS, Subnet
from gearshift.paths.ofa.statistics import batched, packed, use_packed
from gearshift.paths.ofa.subnet import SharedSubnet
from gearshift.paths.ofa.supernet import Supernet
from gearshift.paths.sharing import DerivedTensors, clone_structure
from gearshift.paths.spec import PathSpec
from gearshift.paths.transforms import ElasticSubnet, InputSize, Lossless


class OnceForAllFamily(Family):
    """The elastic supernet; its parts are chosen by `subnet` alone, so that no structural transform has a place."""

    name = "ofa"
    own = ("lossless", "subnet")
    calibration_frames = IMAGES

    def matches(self, module: nn.Module) -> bool:
        """Whether `module` is the supernet (one of its subnets has nothing left to choose)."""
        return type(module) is Supernet

    def traits(self, stock: Any) -> Traits:
        """Logits of a frame; the checkpoint names no classes, they are numbered."""
        return Traits(task="classification", classes=tuple(map(str, range(CLASSES))), structured=False)

    def anatomy(self, stock: Any) -> Anatomy:
        """Nothing that other transforms may change."""
        return Anatomy()

    def build(self, stock: Any, spec: PathSpec, derived: DerivedTensors) -> nn.Module:
        """Make the subnet of a path, with statistics found once, at the size at which the path runs.

        The largest network is the supernet with the statistics that it came with.

        Raises:
            PathRefusedError: Its statistics are not known, and there are no calibration frames to find them on.
        """
        network = _network(stock, spec, derived)
        return network if spec.get("lossless") is None else ChannelsLast(network)

    def base(self, stock: Any) -> list[PathSpec]:
        """Which layout is faster is for the device to say."""
        return [PathSpec(), PathSpec((Lossless(),))]

    def knobs(self, stock: Any, derived: DerivedTensors) -> list[Knob]:
        """Depth, width and expand ratio of each stage, the stem's block and width, sizes."""
        return [*_subnet_knobs(), size_knob()]


class ChannelsLast(nn.Module):
    """A network given channels-last frames, which its convolutions and norms then pass on without a copy."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, pixels: Tensor) -> Tensor:
        """`(B, 3, H, W)` to logits `(B, 1000)`."""
        logits: Tensor = self.network(pixels.contiguous(memory_format=torch.channels_last))
        return logits


def path_of(subnet: Subnet) -> PathSpec:
    """The path that runs a network of the space; for the largest it is the stock model."""
    return PathSpec() if subnet == Subnet.largest() else PathSpec((ElasticSubnet(subnet),))


def _network(stock: Any, spec: PathSpec, derived: DerivedTensors) -> nn.Module:
    setting, size = spec.get("subnet"), spec.get("size")
    if not isinstance(setting, ElasticSubnet):
        whole: nn.Module = clone_structure(stock)
        return whole
    module = SharedSubnet(stock, setting.subnet)
    _give_statistics(module, setting, size if isinstance(size, InputSize) else None, derived)
    return module


def _give_statistics(
    module: SharedSubnet, setting: ElasticSubnet, size: InputSize | None, derived: DerivedTensors
) -> None:
    """Those known for this subnet at this size of frames, on which they depend; found now where none are."""

    def find() -> Tensor:
        frames = derived.frames('"subnet" (batch-norm statistics of its own)')[:IMAGES]
        recalibrate(module, batched(frames, size, dtype_of(module)))
        return packed(module)

    key = f"statistics/{setting.value()}" + ("" if size is None else f"/size={size.value()}")
    use_packed(module, derived.get(key, find))


def _subnet_knobs() -> list[Knob]:
    """Each turned as far as the space goes; what is turned elsewhere adds up."""
    stages = [(str(stage), f"stage {stage}") for stage in range(1, 1 + len(STAGE_BLOCKS))]
    turned = [
        *((f"depth of {name}", (f"d{place}:1", f"d{place}:0")) for place, name in stages),
        *((f"expand ratio of {name}", (f"e{place}:25", f"e{place}:20")) for place, name in stages),
        *((f"width of {name}", (f"w{place}:80", f"w{place}:65")) for place, name in [*stages, ("0", "stem")]),
        ("stem block", ("d0:0",)),
    ]
    return [Knob(name, tuple(ElasticSubnet.read(text) for text in texts)) for name, texts in turned]
