"""SegFormer among the specimens; its own tests go further."""

import math

from tests.paths.conftest import SMALL, small_segformer
from tests.paths.specimens.masks import heads_cut, mlp_cut, pruned
from tests.paths.specimens.specimen import Specimen

SIZES = ((61, 99), (64, 64), (47, 131))


def stock_macs(height: int, width: int, hidden: tuple[int, ...] = (32, 48, 80, 96)) -> int:
    """Patch embeddings, blocks with these hidden channels, and the decoder as the stock model runs it."""
    total, before, decoder = 0, 3, SMALL["decoder_hidden_size"]
    for stage, stride in enumerate((4, 2, 2, 2)):
        height, width = math.ceil(height / stride), math.ceil(width / stride)
        n, c, ratio = height * width, SMALL["hidden_sizes"][stage], SMALL["sr_ratios"][stage]
        m = (height // ratio) * (width // ratio)
        attention = 2 * n * c * c + 2 * m * c * c + 2 * n * m * c + (m * c * c * ratio**2 if ratio > 1 else 0)
        mix = hidden[stage] * n * (2 * c + 9)
        total += n * c * before * (49 if stage == 0 else 9) + SMALL["depths"][stage] * (attention + mix)
        total += n * c * decoder
        if stage == 0:
            total += n * (4 * decoder * decoder + decoder * SMALL["num_labels"])
        before = c
    return total


DRAWN = Specimen(
    name="segformer on frames", make=small_segformer, sizes=((61, 99), (64, 64)), calibration_frames=3
).calibration()

SPECIMENS = (
    Specimen(
        name="segformer",
        make=small_segformer,
        sizes=SIZES,
        exact=("lossless", "lossless+qkv"),
        masked={
            "heads=75%": heads_cut(75),
            "lossless+qkv+heads=50%": heads_cut(50),
            "mlp=50%": mlp_cut(50),
            "lossless+mlp=75%": mlp_cut(75),
            "lossless+prune=50%": pruned(50),
            "lossless+qkv+heads=60%+mlp=40%": lambda model: mlp_cut(40)(heads_cut(60)(model)),
        },
        macs={"stock": stock_macs, "mlp=50%": lambda height, width: stock_macs(height, width, (16, 24, 40, 48))},
        others=(
            "skip=2.1",
            "lossless+qkv+prune=30%+skip=2.1",
            "blocks=1-1-2-0",
            "lossless+skip=0.1+fuse=600+decoder=64+size=75%",
            "decoder=96",
        ),
    ),
    Specimen(
        name="segformer on frames",
        make=small_segformer,
        sizes=((61, 99), (64, 64)),
        calibration_frames=3,
        masked={"lossless+heads=60%": heads_cut(60, DRAWN), "lossless+mlp=50%": mlp_cut(50, DRAWN)},
        others=("lossless+skip=2.1,3.0+heads=60%+mlp=50%",),
    ),
)
