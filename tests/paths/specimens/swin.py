"""Swin and ConvNeXt for classification among the specimens; `test_swin.py` goes further."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from transformers import ConvNextConfig, ConvNextForImageClassification, SwinConfig, SwinForImageClassification

from tests.paths.specimens.factored import of_low_rank
from tests.paths.specimens.masks import heads_cut, mlp_cut
from tests.paths.specimens.specimen import Specimen, seeded

WIDTH, DEPTHS, HEADS, WINDOW, PATCH, CLASSES = 16, (2, 2, 2), (2, 2, 4), 4, 4, 7
# Grids of all stages exceed the window: the stock model remembers the first that does not.
SIZES = ((72, 99), (80, 80), (68, 131))
CONVNEXT = {"hidden_sizes": [16, 24, 32, 40], "depths": [1, 2, 2, 1]}
CONVNEXT_SIZES = ((61, 99), (64, 64), (47, 131))


def small_swin(**changes: Any) -> Any:
    """A classifier; position biases matter."""
    config = {
        "embed_dim": WIDTH,
        "depths": list(DEPTHS),
        "num_heads": list(HEADS),
        "window_size": WINDOW,
        "mlp_ratio": 2.0,
        "num_labels": CLASSES,
    }
    return seeded(lambda: placed(SwinForImageClassification(SwinConfig(**(config | changes)))))


def small_convnext() -> Any:
    """A classifier; layer scales matter."""
    config = ConvNextConfig(num_labels=CLASSES, **CONVNEXT)
    return seeded(lambda: placed(ConvNextForImageClassification(config)))


def placed(model: nn.Module) -> nn.Module:
    """Give position biases and layer scales values that matter."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("relative_position_bias_table", "layer_scale_parameter", "position_embeddings")):
                parameter.normal_()
    return model


def silenced(*blocks: str) -> Callable[[Any], nn.Module]:
    """The stock model with these blocks adding nothing: what they add is multiplied by 0."""

    def mask(model: Any) -> nn.Module:
        with torch.no_grad():
            for block in blocks:
                for name, parameter in model.get_submodule(block).named_parameters():
                    if any(part in name for part in ("o_proj.", "fc2.", "pwconv2.")):
                        parameter.zero_()
        return model

    return mask


def swin_pair(stage: int, first: int = 0, root: str = "swin") -> list[str]:
    return [f"{root}.encoder.layers.{stage}.blocks.{number}" for number in (first, first + 1)]


def swin_macs(
    height: int,
    width: int,
    *,
    lean: bool,
    embed: int = WIDTH,
    depths: Sequence[int] = DEPTHS,
    window: int = WINDOW,
    ratio: int = 2,
) -> int:
    """Of the encoder. The exact form maps tokens, and for each stage's padding one key and one value in every block."""
    h, w, c = math.ceil(height / PATCH), math.ceil(width / PATCH), embed
    total = h * w * c * 3 * PATCH**2
    for stage, depth in enumerate(depths):
        n = h * w
        whole = math.ceil(h / window) * math.ceil(w / window) * window**2
        mapped = 4 * n * c * c + (2 * c * c if whole > n else 0) if lean else 4 * whole * c * c
        total += depth * (mapped + 2 * whole * window**2 * c + 2 * n * c * ratio * c)
        if stage + 1 < len(depths):
            h, w = math.ceil(h / 2), math.ceil(w / 2)
            total += h * w * 4 * c * 2 * c
            c *= 2
    return total


def classifier_macs(lean: bool, depths: Sequence[int] = DEPTHS) -> Callable[[int, int], int]:
    head = WIDTH * 2 ** (len(DEPTHS) - 1) * CLASSES
    return lambda height, width: swin_macs(height, width, lean=lean, depths=depths) + head


SWIN_FRAMES = Specimen(name="frames", make=small_swin, sizes=SIZES, calibration_frames=2).calibration()
CONVNEXT_FRAMES = Specimen(name="frames", make=small_swin, sizes=CONVNEXT_SIZES, calibration_frames=2).calibration()

SPECIMENS = (
    Specimen(
        name="swin",
        make=small_swin,
        sizes=SIZES,
        exact=("lossless",),
        masked={
            "skip=1.0,1.1": silenced(*swin_pair(1)),
            "lossless+skip=0.0,0.1": silenced(*swin_pair(0)),
            "lossless+skip=0.0,0.1,2.0,2.1": silenced(*swin_pair(0), *swin_pair(2)),
            "blocks=2-0-2": silenced(*swin_pair(1)),
            "heads=60%": heads_cut(60),
            "lossless+heads=60%+mlp=50%": lambda model: mlp_cut(50)(heads_cut(60)(model)),
            "lossless+skip=0.0,0.1+mlp=50%": lambda model: silenced(*swin_pair(0))(mlp_cut(50)(model)),
        },
        macs={
            "stock": classifier_macs(lean=False),
            "lossless": classifier_macs(lean=True),
            "lossless+skip=1.0,1.1": classifier_macs(lean=True, depths=(2, 0, 2)),
        },
        others=("lossless+heads=80%", "size=75x104", "lossless+skip=2.0,2.1+size=110%"),
    ),
    Specimen(
        name="swin factored",
        make=small_swin,
        sizes=SIZES,
        calibration_frames=2,
        masked={
            # A key of stage 0, whose padding is a key of zeros; the first merging; fc2 of stage 2.
            "lowrank=1:5,12:12": of_low_rank({1: 5, 12: 12}, SWIN_FRAMES),
            "lossless+lowrank=1:5,2:6,12:12,31:20": of_low_rank({1: 5, 2: 6, 12: 12, 31: 20}, SWIN_FRAMES),
        },
    ),
    Specimen(
        name="convnext",
        make=small_convnext,
        sizes=CONVNEXT_SIZES,
        masked={
            "skip=1.1": silenced("convnext.encoder.stages.1.layers.1"),
            "blocks=1-2-1-0": silenced("convnext.encoder.stages.2.layers.1", "convnext.encoder.stages.3.layers.0"),
            "mlp=50%": mlp_cut(50),
        },
        others=("skip=0.0,2.0+mlp=75%+size=64x96", "size=75%"),
    ),
    Specimen(
        name="convnext factored",
        make=small_convnext,
        sizes=CONVNEXT_SIZES,
        calibration_frames=2,
        masked={"lowrank=0:8,7:15": of_low_rank({0: 8, 7: 15}, CONVNEXT_FRAMES)},
    ),
)
