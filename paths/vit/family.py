"""What a path may change in a ViT, and how it is built."""

from typing import Any

from torch import nn

from gearshift.errors import PathRefusedError
from gearshift.paths.anatomy import Anatomy
from gearshift.paths.family import Family, Traits, class_names, resized, restructure
from gearshift.paths.knobs import Knob
from gearshift.paths.sharing import DerivedTensors, clone_structure
from gearshift.paths.spec import PathSpec
from gearshift.paths.structural import structural_knobs
from gearshift.paths.transforms import FoldedNorms, Lossless, MergedProjections, MergedTokens
from gearshift.paths.transforms.depth import SkippedBlock
from gearshift.paths.vit.affine import is_foldable
from gearshift.paths.vit.block import LeanBlock
from gearshift.paths.vit.embedding import embedding_of
from gearshift.paths.vit.faults import check_rewritable
from gearshift.paths.vit.layout import LAYOUTS, SEGMENTER, anatomy_of, class_of, layout_of, patch_size
from gearshift.paths.vit.lean import LeanVit
from gearshift.paths.vit.matching import Merging
from gearshift.paths.vit.readout import answer_of, readout_of, segment_readout
from gearshift.paths.vit.rewrites import fold_norms, merge_projections
from gearshift.paths.vit.sizes import at_any_size, check_frame, sizes_knob

MERGED_PERCENT = (2, 4, 6, 8)
"""Share of a frame's tokens merged in each block, mild to strong."""


class VitFamily(Family):
    """timm's `VisionTransformer` and transformers' ViT and DeiT as classifiers, and `VitSegmenter`.

    All blocks are one stage.
    """

    name = "vit"
    own = ("lossless", "qkv", "norms", "merge")

    def matches(self, module: nn.Module) -> bool:
        """Whether `module` is of this family: of exactly one of its classes, and with classes to tell apart."""
        name = class_of(module)
        if name not in LAYOUTS:
            return False
        return name == SEGMENTER or (_classes(module) > 0 and getattr(module, "global_pool", "token") != "")

    def traits(self, stock: Any) -> Traits:
        """Logits of a frame, or of patches."""
        if class_of(stock) == SEGMENTER:
            channels = stock.backbone.patch_embed.proj.in_channels
            return Traits(task="segmentation", classes=stock.classes, channels=channels, structured=False)
        if layout_of(stock).library == "transformers":
            channels = stock.config.num_channels
            return Traits(task="classification", classes=class_names(stock.config), channels=channels)
        names = tuple(f"class {index}" for index in range(stock.num_classes))
        return Traits(task="classification", classes=names, channels=stock.in_chans, structured=False)

    def anatomy(self, stock: Any) -> Anatomy:
        """One stage of blocks, their attentions and MLPs."""
        return anatomy_of(stock)

    def build(self, stock: Any, spec: PathSpec, derived: DerivedTensors) -> nn.Module:
        """Make the module of a path over the stock model's tensors.

        Raises:
            PathRefusedError: A setting does not fit this model, or a rewrite's precondition does not hold.
        """
        exact = spec.get("lossless") is not None
        if exact:
            check_rewritable(stock)
        for name in ("qkv", "norms", "merge"):
            if not exact and (transform := spec.get(name)) is not None:
                text = PathSpec((Lossless(), transform)).id
                raise PathRefusedError(f'"{name}" is a way through the lossless forward; write "{text}"')
        path = clone_structure(stock)
        restructure(path, self.anatomy(stock), spec, derived)
        if not exact:
            return path if spec.get("size") is None else at_any_size(path)
        if spec.get("qkv") is not None:
            merge_projections(path, stock, derived)
        if spec.get("norms") is not None:
            fold_norms(path, stock, derived)
        return _lean(path, spec, derived)

    def kinds(self, stock: Any) -> tuple[str, ...]:
        """All kinds but `qkv` where queries, keys and values are one layer already."""
        joint = "qkv" in layout_of(stock).projections
        return tuple(kind for kind in super().kinds(stock) if not (joint and kind == "qkv"))

    def base(self, stock: Any) -> list[PathSpec]:
        """The exact forms that this model admits, each rewrite over copied weights with and without."""
        try:
            check_rewritable(stock)
        except PathRefusedError:
            return [PathSpec()]
        forms = [PathSpec((Lossless(),))]
        if "qkv" in self.kinds(stock):
            forms += [form.with_transform(MergedProjections()) for form in forms]
        if is_foldable(getattr(next(layout_of(stock).blocks_of(stock))[1], layout_of(stock).norms[0])):
            forms += [form.with_transform(FoldedNorms()) for form in forms]
        return forms

    def knobs(self, stock: Any, derived: DerivedTensors) -> list[Knob]:
        """Blocks, heads, hidden channels, ranks, merged tokens where the lossless form is admitted, sizes."""
        admitted = self.base(stock) != [PathSpec()]
        merge = [Knob("merge", tuple(MergedTokens(percent=percent) for percent in MERGED_PERCENT))] if admitted else []
        return [*structural_knobs(stock, self.anatomy(stock), derived), *merge, sizes_knob(stock)]

    def check_input(self, stock: Any, height: int, width: int) -> None:
        """Raise `InputError` for a frame that the stock model cannot take."""
        check_frame(stock, PathSpec(), height, width)

    def check_frame(self, stock: Any, spec: PathSpec, height: int, width: int) -> None:
        """Raise `InputError` for a frame that a path cannot take."""
        check_frame(stock, spec, height, width)

    def restored(self, stock: Any, output: Any, height: int, width: int) -> Any:
        """A segmenter's logits at the size that the stock model gives for a frame of `height` x `width`."""
        if class_of(stock) != SEGMENTER:
            return output
        patch_height, patch_width = patch_size(stock)
        return resized(output, (height // patch_height, width // patch_width))


def _lean(path: Any, spec: PathSpec, derived: DerivedTensors) -> LeanVit:
    layout, trunk = layout_of(path), layout_of(path).trunk_of(path)
    segmenter = class_of(path) == SEGMENTER
    present = [not isinstance(block, SkippedBlock) for _, block in layout.blocks_of(path)]
    blocks = [block for _, block in layout.blocks_of(path) if not isinstance(block, SkippedBlock)]
    readout = segment_readout(path, derived, folded=spec.get("norms") is not None) if segmenter else readout_of(path)
    taps = [sum(present[: tap + 1]) for tap in path.taken] if segmenter else [len(blocks)]
    embedding = embedding_of(trunk, layout, segmenter=segmenter)
    merging = _merging(spec, embedding.length, reads_all=readout.reads.stop is None, blocks=taps[-1])
    return LeanVit(
        embedding=embedding,
        norm_pre=getattr(trunk, "norm_pre", nn.Identity()),
        blocks=[LeanBlock(block, layout) for block in blocks[: taps[-1]]],
        taps=taps,
        readout=readout,
        answer=answer_of(path),
        merging=merging,
    )


def _merging(spec: PathSpec, prefix: int, *, reads_all: bool, blocks: int) -> Merging | None:
    """How tokens are merged; the last block has nothing left to merge where the head reads prefix tokens alone."""
    setting = spec.get("merge")
    if not isinstance(setting, MergedTokens):
        return None
    if blocks < (1 if reads_all else 2):
        raise PathRefusedError(f"merge={setting.value()} changes nothing: no block runs on merged tokens")
    return Merging(count=setting.count, prefix=prefix, placed=reads_all)


def _classes(model: Any) -> int:
    return int(model.config.num_labels if layout_of(model).library == "transformers" else model.num_classes)
