"""Once-for-All ResNet-50 among the specimens: the supernet is large, hence few and small frames."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from gearshift.paths.ofa import Subnet
from tests.paths.ofa.conftest import random_supernet
from tests.paths.ofa.published import FIRST_BLOCKS, STEM_MIDDLE, STEM_OUT, blocks_of
from tests.paths.specimens.specimen import Specimen

SMALLEST = "subnet=d:0,w:65,e:20"
MIXED = "subnet=d0:0,d1:1,d3:0,w0.1:80,w2:65,w4:80,e1:20,e3:25,e4.2:20"
SUBNETS = {
    SMALLEST: Subnet(depths=(0,) * 5, widths=(0.65,) * 6, expand_ratios=(0.2,) * 18),
    MIXED: Subnet(
        depths=(0, 1, 2, 0, 2),
        widths=(1.0, 0.8, 1.0, 0.65, 1.0, 0.8),
        expand_ratios=(*(0.2,) * 4, *(0.35,) * 4, *(0.25,) * 6, 0.35, 0.35, 0.2, 0.35),
    ),
    "subnet=e2:25": Subnet(
        depths=(2,) * 5, widths=(1.0,) * 6, expand_ratios=(*(0.35,) * 4, *(0.25,) * 4, *(0.35,) * 10)
    ),
}


def supernet() -> nn.Module:
    return random_supernet(3)


class Masked(nn.Module):
    """The supernet with all but a subnet's channels at 0, and the statistics that one batch gives it."""

    def __init__(self, subnet: Subnet, size: tuple[int, int] | None, supernet: Any) -> None:
        super().__init__()
        self.supernet, self.size = supernet, size
        with torch.no_grad():
            cut(supernet, subnet)
            norms = [part for part in supernet.modules() if isinstance(part, nn.BatchNorm2d)]
            handles = [norm.register_forward_hook(of_all_values) for norm in norms]
            for norm in norms:
                norm.train().momentum = 1.0  # what was before counts for nothing
            self(torch.cat(OFA.calibration()))
            for handle, norm in zip(handles, norms, strict=True):
                handle.remove()
                norm.eval()

    def forward(self, pixels: Tensor) -> Tensor:
        if self.size is not None:
            pixels = nn.functional.interpolate(pixels, self.size, mode="bilinear", align_corners=False)
        logits: Tensor = self.supernet(pixels)
        return logits


def of_all_values(norm: Any, arguments: tuple[Tensor], _: Tensor) -> None:
    """Turn the unbiased variance that training keeps into that of the batch."""
    count = arguments[0][:, 0].numel()
    norm.running_var.mul_((count - 1) / count)


def cut(supernet: Any, subnet: Subnet) -> None:
    """A norm with neither scale nor shift gives 0: so does its channel, and what reads it takes nothing from it."""
    first, last = (int(index) for index in subnet.to_json()["w"][:2])
    stem = supernet.input_stem
    keep(stem[0], STEM_MIDDLE[first])
    keep(stem[2], STEM_OUT[last])
    if subnet.depths[0] < 2:
        stem[1] = nn.Identity()
    else:
        keep(stem[1], STEM_MIDDLE[first])
    kept = {index: channels for index, *channels in blocks_of(subnet)}
    for index, block in enumerate(supernet.blocks):
        if index not in kept:
            supernet.blocks[index] = nn.Identity()
            continue
        middle, out, _ = kept[index]
        for part, channels in ((block.conv1, middle), (block.conv2, middle), (block.conv3, out)):
            keep(part, channels)
        if index in FIRST_BLOCKS:
            keep(block.downsample, out)


def keep(part: nn.Module, channels: int) -> None:
    for norm in (found for found in part.modules() if isinstance(found, nn.BatchNorm2d)):
        norm.weight[channels:] = 0
        norm.bias[channels:] = 0


def macs(subnet: Subnet, height: int, width: int) -> int:
    """Convolutions by their weights and places, then the classifier."""
    first, last = (int(index) for index in subnet.to_json()["w"][:2])
    middle, channels = STEM_MIDDLE[first], STEM_OUT[last]
    places = [-(-height // 2**halvings) * -(-width // 2**halvings) for halvings in range(6)]
    stem_block = 9 * middle**2 if subnet.depths[0] == 2 else 0
    total = places[1] * (27 * middle + stem_block + 9 * middle * channels)
    at = 2
    for index, inner, out, stride in blocks_of(subnet):
        total += places[at] * channels * inner
        at += stride - 1
        total += places[at] * (9 * inner**2 + inner * out + (channels * out if index in FIRST_BLOCKS else 0))
        channels = out
    return total + 1000 * channels


MASKED: dict[str, Callable[[Any], nn.Module]] = {
    path: partial(Masked, subnet, None) for path, subnet in SUBNETS.items()
}
OFA = Specimen(
    name="ofa",
    make=supernet,
    sizes=((64, 64), (61, 75)),
    exact=("lossless",),
    masked=MASKED | {f"{SMALLEST}+size=96x64": partial(Masked, SUBNETS[SMALLEST], (96, 64))},
    macs={"stock": partial(macs, Subnet.largest())} | {path: partial(macs, subnet) for path, subnet in SUBNETS.items()},
    others=("size=50%", "lossless+subnet=d4:1,w0:80+size=50%"),
    calibration_frames=4,
)
SPECIMENS = (OFA,)
