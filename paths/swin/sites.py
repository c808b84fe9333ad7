"""Where the parts of a Swin encoder are, what it takes, and its stock form made independent of earlier frames."""

import copy
from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn
from transformers.models.swin import modeling_swin as stock_modules

from gearshift.errors import PathRefusedError
from gearshift.paths.anatomy import Anatomy, AttentionSite, MlpSite
from gearshift.paths.transforms.depth import SkippedBlock


def swin_anatomy(swin: Any, name: str) -> Anatomy:
    """Blocks, which are skipped in shifted pairs, with their attentions and MLPs; `name` is the encoder's own."""
    stages, attentions, mlps, linears = [], [], [], []
    for index, stage in enumerate(swin.encoder.layers):
        layer = f"{name}.encoder.layers.{index}"
        names = [f"{layer}.blocks.{number}" for number in range(len(stage.blocks))]
        stages.append(tuple(names))
        for block_name, block in zip(names, stage.blocks, strict=True):
            site = _attention_site(f"{block_name}.attention", block.attention)
            mlp = MlpSite(expand=f"{block_name}.mlp.fc1", reduce=f"{block_name}.mlp.fc2")
            attentions.append(site)
            mlps.append(mlp)
            linears += [*site.projections, site.output, mlp.expand, mlp.reduce]
        if stage.downsample is not None:
            linears.append(f"{layer}.downsample.reduction")
    return Anatomy(
        stages=tuple(stages),
        together=2,
        attentions=tuple(attentions),
        mlps=tuple(mlps),
        linears=tuple(linears),
    )


def _attention_site(name: str, attention: Any) -> AttentionSite:
    return AttentionSite(
        name=name,
        heads=attention.num_attention_heads,
        head_dim=attention.head_dim,
        projections={f"{name}.{part}": 1 for part in ("q_proj", "k_proj", "v_proj")},
        output=f"{name}.o_proj",
        per_head={f"{name}.relative_position_bias.relative_position_bias_table": 1},
        attributes={"num_attention_heads": "heads"},
    )


def smallest_side(swin: Any) -> int:
    """The least height and width of frames of which every stage's grid still fills a window."""
    least = int(swin.config.window_size)
    for _ in swin.encoder.layers[1:]:
        least = 2 * least - 1
    patch: int = swin.embeddings.patch_embeddings.patch_size[0]
    return (least - 1) * patch + 1


def check_lean(swin: Any) -> None:
    """Raise `PathRefusedError` where a module is not transformers' own, and may compute something else."""
    for module, expected in _parts(swin):
        if type(module) is not expected:
            raise PathRefusedError(
                f"lossless rewrites {expected.__name__}, and this model has {type(module).__name__} "
                "in its place; use paths without lossless"
            )


def _parts(swin: Any) -> Iterator[tuple[nn.Module, type[nn.Module]]]:
    yield swin.embeddings, stock_modules.SwinEmbeddings
    for stage in swin.encoder.layers:
        yield stage, stock_modules.SwinStage
        for block in stage.blocks:
            yield block, stock_modules.SwinLayer
            yield block.attention, stock_modules.SwinAttention
            yield block.attention.relative_position_bias, stock_modules.SwinRelativePositionBias
        if stage.downsample is not None:
            yield stage.downsample, stock_modules.SwinPatchMerging


def settle(swin: Any) -> None:
    """Take skipped blocks out of a clone in the stock's form, and make the others forget the frames they have seen."""
    for stage in swin.encoder.layers:
        for number, block in enumerate(stage.blocks):
            if type(block) is stock_modules.SwinLayer:
                block.window_size = swin.config.window_size
                block.shift_size = number % 2 * (swin.config.window_size // 2)
                block.__class__ = SteadySwinLayer
        stage.blocks = nn.ModuleList(block for block in stage.blocks if not isinstance(block, SkippedBlock))


class SteadySwinLayer(stock_modules.SwinLayer):  # type: ignore[misc]
    """A stock block whose window and shift follow from the frame at hand.

    The stock one writes into itself when a grid is no larger than a window: its later, larger frames are no longer
    shifted, and threads that run frames of two sizes disturb each other.
    """

    def forward(self, hidden_states: Tensor, *arguments: Any, **named: Any) -> tuple[Tensor, Tensor | None]:
        """As the stock block, on a shallow copy that is dropped."""
        once = copy.copy(self)
        output: tuple[Tensor, Tensor | None] = stock_modules.SwinLayer.forward(once, hidden_states, *arguments, **named)
        return output
