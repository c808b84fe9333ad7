"""What a path may change in SegFormer, and how: the one place that knows the names inside the stock model."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import SegformerForSemanticSegmentation
from transformers.modeling_outputs import SemanticSegmenterOutput
from transformers.models.segformer import modeling_segformer as stock_modules

from gearshift.errors import InputError, PathRefusedError
from gearshift.paths.anatomy import Anatomy, AttentionSite, MlpSite
from gearshift.paths.family import Family, Traits, class_names, refuse_asked, resized, restructure
from gearshift.paths.knobs import Knob, size_knob, skip_knobs
from gearshift.paths.segformer.attention import STACKED, MergedAttention, check_mergeable
from gearshift.paths.segformer.forward import encode
from gearshift.paths.segformer.heads import FoldedHead, SlicedHead, Slicing, check_foldable, folded_weights
from gearshift.paths.sharing import DerivedTensors, clone_structure
from gearshift.paths.spec import PathSpec
from gearshift.paths.transforms import (
    Blocks,
    DecoderChannels,
    FuseChannels,
    Lossless,
    MergedProjections,
    Skip,
)
from gearshift.paths.transforms.depth import SkippedBlock

_SIZE = (224, 224)
"""Height and width of a frame that every configuration takes."""


class SegformerFamily(Family):
    """transformers' `SegformerForSemanticSegmentation`; stages, blocks and channels count from 0."""

    name = "segformer"
    own = ("lossless", "qkv", "fuse", "decoder")

    def matches(self, module: nn.Module) -> bool:
        """Whether `module` is of this family (a subclass may compute something else: it is not)."""
        return type(module) is SegformerForSemanticSegmentation

    def build(self, stock: Any, spec: PathSpec, derived: DerivedTensors) -> nn.Module:
        """Make the module of a path over the stock model's tensors, without its input size.

        Raises:
            PathRefusedError: A setting does not fit this model, or a rewrite's precondition does not hold.
        """
        exact = spec.get("lossless") is not None
        if exact:
            check_rewritable(stock)
        path: Any = clone_structure(stock)
        restructure(path, self.anatomy(stock), spec, derived)
        if spec.get("qkv") is not None:
            if not exact:
                raise PathRefusedError('"qkv" rewrites the lossless path; write "lossless+qkv"')
            _merge_projections(path.segformer.stages, _heads_cut(spec), derived)
        _drop_skipped(path)
        slicing = _slicing(spec)
        if exact:
            return LosslessSegformer(path, FoldedHead(path.decode_head, slicing, derived))
        if slicing != Slicing():
            path.decode_head = SlicedHead(path.decode_head, slicing, derived)
        stock_form: nn.Module = path
        return stock_form

    def traits(self, stock: Any) -> Traits:
        """Logits of pixels."""
        return Traits(task="segmentation", classes=class_names(stock.config), channels=stock.config.num_channels)

    def anatomy(self, stock: Any) -> Anatomy:
        """Blocks by stage, their attentions and their Mix-FFNs."""
        stages, attentions, mlps, linears = [], [], [], []
        for stage_index, stage in enumerate(stock.segformer.stages):
            names = [f"segformer.stages.{stage_index}.blocks.{index}" for index in range(len(stage.blocks))]
            stages.append(tuple(names))
            for name, block in zip(names, stage.blocks, strict=True):
                site = _attention_site(f"{name}.attention", block.attention)
                attentions.append(site)
                mlp = f"{name}.mlp"
                mlps.append(MlpSite(expand=f"{mlp}.fc1", between=(f"{mlp}.dwconv.dwconv",), reduce=f"{mlp}.fc2"))
                linears += [*site.projections, site.output, f"{mlp}.fc1", f"{mlp}.fc2"]
        return Anatomy(
            stages=tuple(stages),
            attentions=tuple(attentions),
            mlps=tuple(mlps),
            linears=tuple(linears),
            # The decoder is cut by `fuse` and `decoder`, which know its folded form.
            fixed=("decode_head",),
            example_shape=(stock.config.num_channels, *_SIZE),
        )

    def restored(self, stock: Any, output: Any, height: int, width: int) -> Any:
        """Logits at the size that the stock model gives for a frame of `height` x `width`."""
        size = _convolved(stock.segformer.stages[0].patch_embeddings.proj, height, width)
        output.logits = resized(output.logits, size)
        return output

    def check_input(self, stock: Any, height: int, width: int) -> None:
        """Raise `InputError` for a frame that some stage cannot take, naming the smallest that all can."""
        if not _fits(stock, height, width):
            smallest = next(side for side in range(1, 4096) if _fits(stock, side, side))
            raise InputError(
                f"a frame of {height}x{width} is too small for this model; the minimum is {smallest}x{smallest}"
            )

    def knobs(self, stock: Any, derived: DerivedTensors) -> list[Knob]:
        """Blocks, channels of the decoder, sizes."""
        return [*skip_knobs(self.anatomy(stock)), *_decoder_knobs(stock), size_knob()]

    def base(self, stock: Any) -> list[PathSpec]:
        """Exact starting points to choose among by measured time; the stock model where none is admitted."""
        try:
            check_rewritable(stock)
            check_foldable(stock.decode_head)
        except PathRefusedError:
            return [PathSpec()]
        lossless = PathSpec((Lossless(),))
        try:
            for attention in _attentions(stock):
                check_mergeable(attention)
        except PathRefusedError:
            return [lossless]
        return [lossless, lossless.with_transform(MergedProjections())]


class LosslessSegformer(nn.Module):
    """The stock model with channels-last tokens throughout and another head; returns what that returns."""

    def __init__(self, model: Any, head: nn.Module) -> None:
        super().__init__()
        self.stages = model.segformer.stages
        self.decode_head = head

    def forward(
        self,
        pixel_values: Tensor,
        return_dict: bool = True,
        output_hidden_states: bool | None = None,
        **others: Any,
    ) -> SemanticSegmenterOutput | tuple[Any, ...]:
        """`(B, 3, H, W)` to logits `(B, K, H/4, W/4)`, and the four stages' maps where asked for.

        Raises:
            InputError: Something else is asked for, such as a loss or attention maps.
        """
        refuse_asked(others, "logits and hidden states")
        maps = encode(self.stages, pixel_values.contiguous(memory_format=torch.channels_last))
        output = SemanticSegmenterOutput(
            logits=self.decode_head(maps), hidden_states=tuple(maps) if output_hidden_states else None
        )
        return output if return_dict else output.to_tuple()


def check_rewritable(stock: Any) -> None:
    """Raise `PathRefusedError` where a module is not transformers' own, or the last stage stays tokens."""
    if not stock.config.reshape_last_stage:
        raise PathRefusedError("lossless needs reshape_last_stage=True, and this model's configuration says False")
    for module, expected in _parts(stock):
        if type(module) is not expected:
            raise PathRefusedError(
                f"lossless rewrites {expected.__name__}, and this model has {type(module).__name__} "
                "in its place; use paths without lossless"
            )


def _parts(stock: Any) -> Iterator[tuple[nn.Module, type[nn.Module]]]:
    """The modules whose forward is rewritten, with the class that it is rewritten for."""
    for stage in stock.segformer.stages:
        yield stage, stock_modules.SegformerStage
        yield stage.patch_embeddings, stock_modules.SegformerOverlapPatchEmbeddings
        for block in stage.blocks:
            yield block, stock_modules.SegformerLayer
            yield block.attention, stock_modules.SegformerAttention
            yield block.mlp, stock_modules.SegformerMixMLP
    yield stock.decode_head, stock_modules.SegformerDecodeHead


def _attention_site(name: str, attention: Any) -> AttentionSite:
    """Heads are told from `head_dim` alone: no attribute holds their number."""
    return AttentionSite(
        name=name,
        heads=attention.q_proj.out_features // attention.head_dim,
        head_dim=attention.head_dim,
        projections={f"{name}.{part}": 1 for part in ("q_proj", "k_proj", "v_proj")},
        output=f"{name}.o_proj",
    )


def _attentions(model: Any) -> list[Any]:
    return [block.attention for stage in model.segformer.stages for block in stage.blocks]


def skipped_blocks(stock: Any, spec: PathSpec) -> set[tuple[int, int]]:
    """Addresses of all blocks that a path leaves out.

    Raises:
        PathRefusedError: An address or a count that this model does not have.
    """
    depths = [len(stage.blocks) for stage in stock.segformer.stages]
    kept, single = spec.get("blocks"), spec.get("skip")
    skipped = set(kept.skipped(depths)) if isinstance(kept, Blocks) else set()
    return skipped | (set(single.checked(depths)) if isinstance(single, Skip) else set())


def _decoder_knobs(stock: Any) -> list[Knob]:
    """Channels of the fuse convolution, in and out; none where the decoder admits no slicing."""
    head = stock.decode_head
    try:
        check_foldable(head)
    except PathRefusedError:
        return []
    inputs, outputs = head.linear_fuse.in_channels, head.linear_fuse.out_channels
    decoder = dict.fromkeys(DecoderChannels(max(8, outputs * eighths // 8)) for eighths in (6, 4, 3, 2))
    fuse, least = [], _folded_cost(stock, inputs)
    for sixteenths in (12, 10, 8, 6, 4):
        kept = inputs * sixteenths // 16
        # Folded, a stage costs the same until few of its channels are left: what saves nothing is no setting.
        if (cost := _folded_cost(stock, kept)) < least:
            fuse.append(FuseChannels(kept))
            least = cost
    knobs = [Knob("fuse", tuple(fuse)), Knob("decoder", tuple(item for item in decoder if item.channels < outputs))]
    return [knob for knob in knobs if knob.settings]


def _folded_cost(stock: Any, fuse: int) -> float:
    """Multiply-accumulates of the folded stages per pixel of the frame, by fuse channels kept."""
    head, density, cost = stock.decode_head, 1.0, 0.0
    kept = Slicing(fuse=fuse).channels_per_stage(head)
    for stage, layer, channels in zip(stock.segformer.stages, head.linear_projections, kept, strict=True):
        stride_y, stride_x = stage.patch_embeddings.proj.stride
        density /= stride_y * stride_x
        cost += density * folded_weights(layer.proj.in_features, head.linear_fuse.out_channels, channels)
    return cost


def _slicing(spec: PathSpec) -> Slicing:
    fuse, decoder = spec.get("fuse"), spec.get("decoder")
    return Slicing(
        fuse=fuse.channels if isinstance(fuse, FuseChannels) else None,
        decoder=decoder.channels if isinstance(decoder, DecoderChannels) else None,
    )


def _drop_skipped(model: Any) -> None:
    for stage in model.segformer.stages:
        stage.blocks = nn.ModuleList(block for block in stage.blocks if not isinstance(block, SkippedBlock))
    model.config.depths = [len(stage.blocks) for stage in model.segformer.stages]


def _heads_cut(spec: PathSpec) -> str:
    """What tells the attention weights of this path from those of others."""
    return "".join(f"/{item.name}={item.value()}" for item in spec.transforms if item.name in ("heads", "prune"))


def _merge_projections(stages: Sequence[Any], cut: str, derived: DerivedTensors) -> None:
    for index, stage in enumerate(stages):
        for number, block in enumerate(stage.blocks):
            if not isinstance(block, SkippedBlock):
                block.attention = MergedAttention(block.attention, f"{STACKED}{index}.{number}{cut}", derived)


def _convolved(convolution: Any, height: int, width: int) -> tuple[int, int]:
    """Size of a convolution's output for an input of `height` x `width`."""

    def along(length: int, axis: int) -> int:
        padded: int = length + 2 * convolution.padding[axis] - convolution.kernel_size[axis]
        return padded // int(convolution.stride[axis]) + 1

    return along(height, 0), along(width, 1)


def _fits(stock: Any, height: int, width: int) -> bool:
    """Whether every stage's map is at least as large as its sequence reduction's kernel."""
    for stage in stock.segformer.stages:
        height, width = _convolved(stage.patch_embeddings.proj, height, width)
        ratio = max((block.attention.sequence_reduction_ratio for block in stage.blocks), default=1)
        if min(height, width) < ratio:
            return False
    return True
