"""What a subnet consists of: channels and strides of every block, and its multiply-accumulates in a formula.

Rounding and order are the published code's: channels are multiples of 8 (`make_divisible` of MobileNet).
"""

from dataclasses import dataclass

from gearshift.paths.ofa.space import BASE_DEPTHS, DEPTHS, STAGE_BLOCKS, Subnet

CLASSES = 1000
STEM_CHANNELS = 64
STAGE_CHANNELS = (256, 512, 1024, 2048)
STAGE_STRIDES = (1, 2, 2, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockShape:
    """A bottleneck: 1x1, 3x3 with the stride, 1x1; the first of a stage has a convolution in its shortcut.

    Attributes:
        index: Its place among the supernet's blocks.
    """

    index: int
    in_channels: int
    middle_channels: int
    out_channels: int
    stride: int
    downsamples: bool

    def macs(self, positions_in: int, positions_out: int) -> int:
        """From the number of positions of its input and of its output."""
        before = self.in_channels * self.middle_channels * positions_in
        behind = self.middle_channels * (9 * self.middle_channels + self.out_channels) * positions_out
        shortcut = self.in_channels * self.out_channels * positions_out if self.downsamples else 0
        return before + behind + shortcut


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A whole network.

    Attributes:
        stem_middle, stem_out: Channels of the stem's first and last convolution.
        stem_block: Whether the stem has its residual block.
        blocks: In order.
    """

    stem_middle: int
    stem_out: int
    stem_block: bool
    blocks: tuple[BlockShape, ...]

    def macs(self, height: int, width: int) -> int:
        """Multiply-accumulates of one image: all convolutions and the classifier."""
        height, width = _halved(height), _halved(width)
        stem = 9 * self.stem_middle * (3 + self.stem_out + (self.stem_middle if self.stem_block else 0))
        total = stem * height * width
        height, width = _halved(height), _halved(width)
        for block in self.blocks:
            positions_in = height * width
            if block.stride == 2:
                height, width = _halved(height), _halved(width)
            total += block.macs(positions_in, height * width)
        return total + self.blocks[-1].out_channels * CLASSES


def shape_of(subnet: Subnet) -> Shape:
    """Channels and blocks of a subnet."""
    stem_middle, stem_out = stem_channels(subnet.widths[0])[0], stem_channels(subnet.widths[1])[1]
    kept = set(subnet.kept_blocks)
    blocks: list[BlockShape] = []
    index = 0
    for stage in range(len(BASE_DEPTHS)):
        out_channels = divisible(STAGE_CHANNELS[stage] * subnet.widths[2 + stage])
        for number in range(STAGE_BLOCKS[stage]):
            if index in kept:
                blocks.append(
                    BlockShape(
                        index=index,
                        in_channels=blocks[-1].out_channels if blocks else stem_out,
                        middle_channels=divisible(round(out_channels * subnet.expand_ratios[index])),
                        out_channels=out_channels,
                        stride=1 if number else STAGE_STRIDES[stage],
                        downsamples=number == 0,
                    )
                )
            index += 1
    has_block = subnet.depths[0] == max(DEPTHS)
    return Shape(stem_middle=stem_middle, stem_out=stem_out, stem_block=has_block, blocks=tuple(blocks))


def divisible(channels: float) -> int:
    """The nearest multiple of 8.

    The published rule goes up where that would lose more than a tenth; with 20 channels or more it never does.
    """
    return int(channels + 4) // 8 * 8


def stem_channels(factor: float) -> tuple[int, int]:
    """Channels of the stem's first and last convolution."""
    last = divisible(STEM_CHANNELS * factor)
    return divisible(last // 2), last


def _halved(size: int) -> int:
    """Positions behind a stride of 2: a padded 3x3 kernel and pooling in ceiling mode agree."""
    return (size + 1) // 2
