"""DETR and Deformable DETR of a few thousand weights each, over a small ResNet."""

from collections.abc import Callable
from math import ceil
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    DeformableDetrConfig,
    DeformableDetrForObjectDetection,
    DetrConfig,
    DetrForObjectDetection,
    PreTrainedConfig,
)

from gearshift.paths.detr.backbone import FROZEN
from tests.paths.specimens.factored import of_low_rank
from tests.paths.specimens.masks import heads_cut, mlp_cut
from tests.paths.specimens.specimen import Specimen, seeded

STEM, CHANNELS, DEPTHS = 8, (16, 16, 32, 32), (2, 1, 2, 2)
WIDTH, HIDDEN, QUERIES, CLASSES, HEADS = 64, 48, 10, 5, 4
ENCODER, DECODER = 2, 3
SIZES = ((64, 96), (61, 99))
BACKBONE: dict[str, Any] = {
    "model_type": "resnet",
    "embedding_size": STEM,
    "hidden_sizes": list(CHANNELS),
    "depths": list(DEPTHS),
    "layer_type": "bottleneck",
}
COMMON: dict[str, Any] = {
    "use_timm_backbone": False,
    "use_pretrained_backbone": False,
    "d_model": WIDTH,
    "encoder_layers": ENCODER,
    "decoder_layers": DECODER,
    "encoder_attention_heads": HEADS,
    "decoder_attention_heads": HEADS,
    "encoder_ffn_dim": HIDDEN,
    "decoder_ffn_dim": HIDDEN,
    "num_queries": QUERIES,
    "num_labels": CLASSES,
}


def small(kind: type[nn.Module], config: type[PreTrainedConfig], maps: list[str], **changes: Any) -> nn.Module:
    """A model whose frozen norms and queries hide nothing."""

    def make() -> nn.Module:
        model = kind(config(backbone_config={**BACKBONE, "out_features": maps}, **(COMMON | changes)))
        with torch.no_grad():
            for module in model.modules():
                if isinstance(module, FROZEN):
                    module.running_mean.normal_(0, 0.5)
                    module.running_var.uniform_(0.3, 3)
                    module.weight.normal_(0, 1)
                if isinstance(module, nn.Embedding):
                    module.weight.normal_(0, 1)
        return model

    model = seeded(make)
    with torch.no_grad():
        for name, module in model.named_modules():
            if name.endswith("sampling_offsets") and isinstance(module, nn.Linear):
                module.weight.mul_(0.3)  # else what is rounding at one layer is another place to look at in the next
    return model


def small_detr(**changes: Any) -> Any:
    """DETR of `COMMON`."""
    return small(DetrForObjectDetection, DetrConfig, ["stage4"], **changes)


def small_deformable_detr(**changes: Any) -> Any:
    """Deformable DETR of `COMMON`, four levels."""
    maps = ["stage2", "stage3", "stage4"]
    return small(DeformableDetrForObjectDetection, DeformableDetrConfig, maps, **changes)


def skipping(*names: str) -> Callable[[Any], nn.Module]:
    """The stock model with hooks that give a block's input for its output."""

    def mask(model: Any) -> nn.Module:
        for name in names:
            model.get_submodule(name).register_forward_hook(_first_input)
        whole: nn.Module = model
        return whole

    return mask


def _first_input(_: nn.Module, inputs: tuple[Tensor, ...], __: Any) -> Tensor:
    return inputs[0]


def map_size(height: int, width: int, halvings: int) -> int:
    """Positions of a map: every halving rounds up."""
    for _ in range(halvings):
        height, width = ceil(height / 2), ceil(width / 2)
    return height * width


def backbone_macs(height: int, width: int) -> int:
    """Stem, then bottlenecks of 1x1, 3x3 and 1x1 with a quarter of the channels; the first has a shortcut."""
    total = map_size(height, width, 1) * 3 * STEM * 49
    channels = STEM
    for stage, (out, depth) in enumerate(zip(CHANNELS, DEPTHS, strict=True)):
        thin, after = out // 4, map_size(height, width, 2 + stage)
        for block in range(depth):
            before = map_size(height, width, 1 + stage) if block == 0 and stage else after
            total += before * channels * thin + after * (9 * thin * thin + thin * out)
            total += after * channels * out if block == 0 else 0
            channels = out
    return total


def attention_macs(queries: int, keys: int) -> int:
    """Four projections, scores and mixture."""
    return (2 * queries + 2 * keys) * WIDTH**2 + 2 * queries * keys * WIDTH


def detr_macs(height: int, width: int) -> int:
    """The lossless path: the first decoder layer has no self-attention, and no queries to project."""
    tokens = map_size(height, width, 5)
    mlp = 2 * WIDTH * HIDDEN
    encoder = ENCODER * (attention_macs(tokens, tokens) + tokens * mlp)
    decoder = DECODER * (attention_macs(QUERIES, tokens) + QUERIES * mlp)
    decoder += (DECODER - 1) * attention_macs(QUERIES, QUERIES) - QUERIES * WIDTH**2
    heads = QUERIES * (WIDTH * (CLASSES + 1) + 2 * WIDTH**2 + 4 * WIDTH)
    return backbone_macs(height, width) + tokens * CHANNELS[-1] * WIDTH + encoder + decoder + heads


def deformable_macs(height: int, width: int) -> int:
    """The lossless path: the first decoder layer has neither self-attention nor places to find; one head of each."""
    sizes = [map_size(height, width, halvings) for halvings in (3, 4, 5, 6)]
    tokens, points = sum(sizes), HEADS * 4 * 4
    mlp, places = 2 * WIDTH * HIDDEN, WIDTH * 3 * points
    projections = sum(
        size * inner * WIDTH for size, inner in zip(sizes, (*CHANNELS[1:], 9 * CHANNELS[-1]), strict=True)
    )
    encoder = ENCODER * tokens * (2 * WIDTH**2 + places + mlp)
    decoder = DECODER * (tokens * WIDTH**2 + QUERIES * (WIDTH**2 + mlp))
    decoder += (DECODER - 1) * (attention_macs(QUERIES, QUERIES) + QUERIES * places)
    heads = QUERIES * (WIDTH * CLASSES + 2 * WIDTH**2 + 4 * WIDTH)
    return backbone_macs(height, width) + projections + encoder + decoder + heads


ENCODER_LAYER, DECODER_LAYER = "model.encoder.layers.1", "model.decoder.layers.0"
BLOCK = "model.backbone.model.encoder.stages.2.layers.1"
MASKED = {
    "skip=0.1,1.0,4.0": skipping(ENCODER_LAYER, DECODER_LAYER, BLOCK),
    "lossless+norms+skip=0.1,1.0,4.0": skipping(ENCODER_LAYER, DECODER_LAYER, BLOCK),
    "lossless+skip=1.0,1.1": skipping("model.decoder.layers.0", "model.decoder.layers.1"),
    "blocks=1-2-1-0-1-0": skipping(
        ENCODER_LAYER, "model.decoder.layers.2", "model.backbone.model.encoder.stages.3.layers.1"
    ),
}
NO_DECODER = {"lossless+skip=1.0,1.1,1.2": skipping(*(f"model.decoder.layers.{index}" for index in range(DECODER)))}
CUT = {
    "heads=75%": heads_cut(75),
    "lossless+heads=50%": heads_cut(50),
    "mlp=50%": mlp_cut(50),
    "lossless+norms+mlp=50%": mlp_cut(50),
}
EXACT = ("lossless", "lossless+norms")

FRAMES = tuple(
    Specimen(name="frames", make=make, sizes=SIZES, calibration_frames=4).calibration()
    for make in (small_detr, small_deformable_detr)
)

SPECIMENS = (
    Specimen(
        name="detr",
        make=small_detr,
        sizes=SIZES,
        exact=EXACT,
        masked=MASKED | CUT | NO_DECODER,
        macs={"lossless": detr_macs, "lossless+norms": detr_macs},
        others=("lossless+size=75%", "size=50%"),
    ),
    Specimen(
        name="detr factored",
        make=small_detr,
        sizes=SIZES,
        calibration_frames=4,
        masked={
            "lowrank=0:6,5:7": of_low_rank({0: 6, 5: 7}, FRAMES[0]),
            "lossless+lowrank=12:5,17:9": of_low_rank({12: 5, 17: 9}, FRAMES[0]),
        },
    ),
    Specimen(
        name="deformable-detr factored",
        make=small_deformable_detr,
        sizes=SIZES,
        calibration_frames=4,
        masked={
            "lowrank=2:6,5:7": of_low_rank({2: 6, 5: 7}, FRAMES[1]),
            "lossless+lowrank=12:5,14:6": of_low_rank({12: 5, 14: 6}, FRAMES[1]),
        },
    ),
    Specimen(name="detr-auxiliary", make=lambda: small_detr(auxiliary_loss=True), sizes=SIZES, exact=EXACT[:1]),
    Specimen(
        name="deformable-detr",
        make=small_deformable_detr,
        sizes=SIZES,
        exact=EXACT,
        masked=MASKED | CUT,
        macs={"lossless": deformable_macs, "lossless+norms": deformable_macs},
        others=("lossless+size=75%", "size=50%"),
    ),
    Specimen(
        name="deformable-detr-refined",
        make=lambda: small_deformable_detr(with_box_refine=True),
        sizes=SIZES,
        exact=EXACT[:1],
    ),
)
