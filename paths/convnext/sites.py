"""Where the parts of a ConvNeXt encoder are, and the frames that it takes."""

from typing import Any

from gearshift.errors import InputError
from gearshift.paths.anatomy import Anatomy, MlpSite


def convnext_anatomy(encoder: Any, name: str) -> Anatomy:
    """Blocks and their inverted bottlenecks; `name` is the encoder's own."""
    stages, mlps = [], []
    for index, stage in enumerate(encoder.stages):
        names = tuple(f"{name}.stages.{index}.layers.{number}" for number in range(len(stage.layers)))
        stages.append(names)
        mlps += [MlpSite(expand=f"{block}.pwconv1", reduce=f"{block}.pwconv2") for block in names]
    return Anatomy(
        stages=tuple(stages),
        mlps=tuple(mlps),
        linears=tuple(linear for mlp in mlps for linear in (mlp.expand, mlp.reduce)),
    )


def check_frame(embeddings: Any, encoder: Any, height: int, width: int) -> None:
    """Raise `InputError` for a frame of which the last stage has no pixel left."""
    least: int = embeddings.patch_embeddings.kernel_size[0]
    for stage in encoder.stages:
        for layer in stage.downsampling_layer[1:]:
            least *= layer.kernel_size[0]
    if min(height, width) < least:
        raise InputError(f"a frame of {height}x{width} is too small for this model; the minimum is {least}x{least}")
