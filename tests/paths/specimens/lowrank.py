"""Factored layers of every family that has some, beside what its own specimens show."""

import math
from typing import Any

from transformers import ViTConfig, ViTForImageClassification

from tests.paths.conftest import SMALL, small_segformer
from tests.paths.specimens import segformer, vit
from tests.paths.specimens.factored import of_low_rank
from tests.paths.specimens.specimen import Specimen


def drawn(make: Any, sizes: tuple[tuple[int, int], ...]) -> Any:
    """The frames that a specimen of these sizes calibrates on."""
    return Specimen(name="frames", make=make, sizes=sizes, calibration_frames=4).calibration()


SEGFORMER_SIZES = ((61, 99), (64, 64), (47, 131))
SEGFORMER_FRAMES = drawn(small_segformer, SEGFORMER_SIZES)
VIT_FRAMES = drawn(vit.timm_vit, (vit.SIZE,))
SQUARE_FRAMES = drawn(vit.timm_vit, (vit.SQUARE,))


def transformers_vit() -> Any:
    return vit.transformers_vit(ViTForImageClassification, ViTConfig)


def segformer_macs(height: int, width: int) -> int:
    """fc1 of stage 0 (16 to 32) at rank 4, k_proj of stage 1 (24 to 24, on the reduced sequence) at rank 6."""
    first = math.ceil(height / 4) * math.ceil(width / 4)
    reduced = math.prod(math.ceil(side / 8) // SMALL["sr_ratios"][1] for side in (height, width))
    saved = first * (16 * 32 - 4 * (16 + 32)) + reduced * (24 * 24 - 6 * (24 + 24))
    return segformer.stock_macs(height, width) - saved


def vit_macs(height: int, width: int) -> int:
    """qkv (24 to 72) at rank 9, fc2 (96 to 24) at rank 10."""
    n = vit.patches(height, width)
    saved = (24 * 72 - 9 * (24 + 72)) + (96 * 24 - 10 * (96 + 24))
    return vit.stock_macs(n, 1, 4) - (n + 1) * saved


SPECIMENS = (
    Specimen(
        name="segformer factored",
        make=small_segformer,
        sizes=SEGFORMER_SIZES,
        calibration_frames=4,
        masked={
            "lowrank=4:4,13:6": of_low_rank({4: 4, 13: 6}, SEGFORMER_FRAMES),
            "lossless+lowrank=0:3,5:5,28:12,29:9": of_low_rank({0: 3, 5: 5, 28: 12, 29: 9}, SEGFORMER_FRAMES),
            "lossless+qkv+lowrank=3:4,40:20,41:17": of_low_rank({3: 4, 40: 20, 41: 17}, SEGFORMER_FRAMES),
        },
        macs={"lowrank=4:4,13:6": segformer_macs},
        others=("lossless+skip=2.1+lowrank=28:12,34:8+size=75%", "lowrank=lockd:4:3,34:6"),
    ),
    Specimen(
        name="vit of timm factored",
        make=vit.timm_vit,
        sizes=(vit.SIZE,),
        calibration_frames=4,
        masked={
            "lowrank=4:9,7:10": of_low_rank({4: 9, 7: 10}, VIT_FRAMES),
            "lossless+lowrank=1:8,2:9,14:12,15:7": of_low_rank({1: 8, 2: 9, 14: 12, 15: 7}, VIT_FRAMES),
            # The norm is folded into fc1 before it is factored: the same outputs, other weights.
            "lossless+norms+lowrank=2:9,6:12": of_low_rank({2: 9, 6: 12}, VIT_FRAMES),
        },
        macs={"lowrank=4:9,7:10": vit_macs},
        others=("lossless+skip=0.1+merge=2+lowrank=2:9,6:12", "lossless+norms+lowrank=lockd:2:6,7:6"),
    ),
    Specimen(
        name="vit of transformers factored",
        make=transformers_vit,
        sizes=(vit.SQUARE,),
        calibration_frames=4,
        masked={
            "lowrank=0:6,4:9,11:7": of_low_rank({0: 6, 4: 9, 11: 7}, SQUARE_FRAMES),
            "lossless+qkv+norms+lowrank=3:8,4:9,5:10": of_low_rank({3: 8, 4: 9, 5: 10}, SQUARE_FRAMES),
        },
    ),
)
