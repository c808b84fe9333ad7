"""UPerNet on Swin, on ConvNeXt and on a backbone without a file of its own; `test_upernet*.py` go further."""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from typing import Any

import torch
from scipy.stats import norm as normal
from torch import nn
from transformers import ConvNextConfig, ResNetConfig, SwinConfig, UperNetConfig, UperNetForSemanticSegmentation

from tests.paths.specimens.factored import of_low_rank
from tests.paths.specimens.masks import heads_cut, mlp_cut
from tests.paths.specimens.specimen import Specimen, seeded
from tests.paths.specimens.swin import CONVNEXT, placed, silenced, swin_macs, swin_pair

WIDTH, DEPTHS, WINDOW, HIDDEN, CLASSES, AUXILIARY = 16, (2, 2, 2, 2), 4, 32, 7, 8
SCALES = (1, 2, 3, 6)
STAGES = ["stage1", "stage2", "stage3", "stage4"]
SIZES = ((61, 99), (64, 64), (47, 131), (5, 9))
CONVNEXT_SIZES = ((61, 99), (64, 64), (47, 131))
TILE = 16


def small_upernet(backbone: Any, **changes: Any) -> Any:
    """A segmenter on any backbone, with the auxiliary head that a checkpoint has."""
    config = {"hidden_size": HIDDEN, "num_labels": CLASSES, "auxiliary_channels": AUXILIARY}
    return seeded(
        lambda: placed(UperNetForSemanticSegmentation(UperNetConfig(backbone_config=backbone, **(config | changes))))
    )


def on_swin(stages: Sequence[str] = STAGES, **changes: Any) -> Any:
    backbone = SwinConfig(
        embed_dim=WIDTH,
        depths=list(DEPTHS),
        num_heads=[2, 2, 4, 4],
        window_size=WINDOW,
        mlp_ratio=2.0,
        out_features=list(stages),
    )
    return small_upernet(backbone, **changes)


def on_convnext() -> Any:
    return small_upernet(ConvNextConfig(out_features=STAGES, **CONVNEXT))


def on_resnet() -> Any:
    sizes = {"embedding_size": 8, "hidden_sizes": [16, 24, 32, 40], "depths": [1, 1, 1, 1]}
    return small_upernet(ResNetConfig(out_features=STAGES, **sizes))


def decoder_cut(kept: int) -> Callable[[Any], nn.Module]:
    """The stock model whose classifier reads the most important channels alone, and the mean of each other."""

    def mask(model: Any) -> nn.Module:
        head = model.decode_head
        mean, deviation = (
            part.detach().double()
            for part in (head.fpn_bottleneck.batch_norm.bias, head.fpn_bottleneck.batch_norm.weight)
        )
        deviation = deviation.abs()
        means, seconds = [], []
        for m, s in zip(mean.tolist(), deviation.tolist(), strict=True):
            means.append(float(normal.expect(lambda x: max(x, 0.0), loc=m, scale=s, lb=0)) if s else max(m, 0.0))
            seconds.append(float(normal.expect(lambda x: x * x, loc=m, scale=s, lb=0)) if s else max(m, 0.0) ** 2)
        weight = head.classifier.weight.detach()
        importance = [
            math.sqrt(second) * float(weight[:, index].double().norm()) for index, second in enumerate(seconds)
        ]
        dropped = sorted(range(len(importance)), key=importance.__getitem__)[: len(importance) - kept]
        with torch.no_grad():
            for index in dropped:
                head.classifier.bias += weight[:, index, 0, 0] * means[index]
                weight[:, index] = 0
        return model

    return mask


def grids(height: int, width: int, stages: int = 4) -> list[tuple[int, int]]:
    """Sizes of Swin's maps."""
    found = [(math.ceil(height / 4), math.ceil(width / 4))]
    for _ in range(stages - 1):
        found.append((math.ceil(found[-1][0] / 2), math.ceil(found[-1][1] / 2)))
    return found


def stock_macs(
    height: int,
    width: int,
    *,
    embed: int = WIDTH,
    depths: Sequence[int] = DEPTHS,
    window: int = WINDOW,
    ratio: int = 2,
    hidden: int = HIDDEN,
    classes: int = CLASSES,
    auxiliary: int = AUXILIARY,
) -> int:
    """On Swin, term by term, with the auxiliary head (of `auxiliary` channels; 0 for none)."""
    maps = grids(height, width)
    sizes, widths = [h * w for h, w in maps], [embed * 2**stage for stage in range(4)]
    total = swin_macs(height, width, lean=False, embed=embed, depths=depths, window=window, ratio=ratio)
    total += sum(sizes[level] * (widths[level] * hidden + 9 * hidden * hidden) for level in range(3))
    total += sum(scale**2 for scale in SCALES) * widths[3] * hidden
    total += sizes[3] * 9 * (widths[3] + len(SCALES) * hidden) * hidden
    total += sizes[0] * (9 * 4 * hidden * hidden + hidden * classes)
    return total + sizes[2] * auxiliary * (9 * widths[2] + classes)


def lossless_macs(
    height: int,
    width: int,
    *,
    embed: int = WIDTH,
    depths: Sequence[int] = DEPTHS,
    window: int = WINDOW,
    ratio: int = 2,
    hidden: int = HIDDEN,
    classes: int = CLASSES,
    decoder: int | None = None,
) -> int:
    """The same below the upsampling, without the auxiliary head."""
    maps = grids(height, width)
    sizes, widths = [h * w for h, w in maps], [embed * 2**stage for stage in range(4)]
    fused = decoder or hidden
    total = swin_macs(height, width, lean=True, embed=embed, depths=depths, window=window, ratio=ratio)
    total += sum(sizes[level] * (widths[level] * hidden + 9 * hidden * hidden) for level in range(3))
    total += sum(scale**2 for scale in SCALES) * widths[3] * hidden
    total += sizes[3] * 9 * widths[3] * hidden
    total += sum(shifted_macs((scale, scale), maps[3], hidden, hidden) for scale in SCALES)
    total += sizes[0] * 9 * hidden * fused
    total += sum(shifted_macs(maps[level], maps[0], hidden, fused) for level in (1, 2, 3))
    return total + sizes[0] * fused * classes


def shifted_macs(small: tuple[int, int], large: tuple[int, int], inputs: int, outputs: int) -> int:
    """Channel mixes of nine taps on the small map, then its columns and its rows spread, tile by tile.

    Where the small map has no fewer pixels, it is upsampled and convolved as it is.
    """
    if math.prod(small) >= math.prod(large):
        return math.prod(large) * 9 * inputs * outputs
    total = math.prod(small) * 9 * inputs * outputs
    for rows, reached_rows in reach(small[0], large[0]):
        for columns, reached_columns in reach(small[1], large[1]):
            total += 3 * rows * reached_columns * 3 * columns * outputs
            total += reached_rows * 3 * rows * reached_columns * outputs
    return total


@cache
def reach(small: int, large: int) -> list[tuple[int, int]]:
    """For each tile of an axis, its positions and how many of the large axis read any of them through some tap."""
    found = []
    for start in range(0, small, TILE):
        stop = min(start + TILE, small)
        readers = {
            position
            for position in range(large)
            for tap in (-1, 0, 1)
            if (start == 0 or at(position + tap, small, large) > start - 1)
            and (stop == small or at(position + tap, small, large) < stop)
        }
        if readers:
            found.append((stop - start, max(readers) - min(readers) + 1))
    return found


def at(position: int, small: int, large: int) -> Fraction:
    """Where a position of the large axis stands on the small one."""
    return (position + Fraction(1, 2)) * small / large - Fraction(1, 2)


FRAMES = Specimen(name="frames", make=on_swin, sizes=SIZES, calibration_frames=2).calibration()

SPECIMENS = (
    Specimen(
        name="upernet on swin",
        make=on_swin,
        sizes=SIZES,
        exact=("lossless",),
        masked={
            "skip=1.0,1.1": silenced(*swin_pair(1, root="backbone.swin")),
            "lossless+skip=0.0,0.1,3.0,3.1": silenced(
                *swin_pair(0, root="backbone.swin"), *swin_pair(3, root="backbone.swin")
            ),
            "decoder=24": decoder_cut(24),
            "lossless+decoder=5": decoder_cut(5),
            "lossless+heads=60%+mlp=50%": lambda model: mlp_cut(50)(heads_cut(60)(model)),
            "lossless+skip=2.0,2.1+decoder=24": lambda model: silenced(*swin_pair(2, root="backbone.swin"))(
                decoder_cut(24)(model)
            ),
        },
        macs={
            "stock": stock_macs,
            "lossless": lossless_macs,
            "lossless+decoder=24": lambda height, width: lossless_macs(height, width, decoder=24),
        },
        others=("lossless+decoder=24+size=75%", "blocks=2-2-0-2+decoder=32", "size=64x96", "lossless+decoder=32"),
    ),
    Specimen(
        name="upernet on two stages of swin",
        make=lambda: on_swin(("stage1", "stage3"), use_auxiliary_head=False),
        sizes=SIZES[:2],
        exact=("lossless",),
    ),
    Specimen(
        name="upernet factored",
        make=on_swin,
        sizes=SIZES[:3],
        calibration_frames=2,
        masked={
            # A lateral convolution, 3x3 convolutions of the pyramid, and linear maps below them.
            "lowrank=51:10,55:20": of_low_rank({51: 10, 55: 20}, FRAMES),
            "lossless+lowrank=1:5,51:10,54:20,56:18": of_low_rank({1: 5, 51: 10, 54: 20, 56: 18}, FRAMES),
        },
    ),
    Specimen(
        name="upernet on convnext",
        make=on_convnext,
        sizes=CONVNEXT_SIZES,
        exact=("lossless",),
        masked={
            "skip=1.1": silenced("backbone.encoder.stages.1.layers.1"),
            "lossless+skip=0.0,2.1+mlp=50%": lambda model: silenced(
                "backbone.encoder.stages.0.layers.0", "backbone.encoder.stages.2.layers.1"
            )(mlp_cut(50)(model)),
        },
        others=("blocks=1-2-1-0", "lossless+decoder=16+size=75%"),
    ),
    Specimen(
        name="upernet on resnet",
        make=on_resnet,
        sizes=CONVNEXT_SIZES[:1],
        exact=("lossless",),
        masked={"lossless+decoder=16": decoder_cut(16)},
        others=("decoder=16+size=75%",),
    ),
)
