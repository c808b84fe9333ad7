"""What a path may change in DETR and Deformable DETR: the one place that knows the names inside the stock models.

Stage 0 are the encoder's layers, stage 1 the decoder's, and the following ones the residual blocks of each backbone
stage without the first, which changes the shape: `skip=0.5,1.3,4.2`.
"""

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from transformers import DeformableDetrForObjectDetection, DetrForObjectDetection
from transformers.models.deformable_detr import modeling_deformable_detr as deformable_modules
from transformers.models.detr import modeling_detr as detr_modules

from gearshift.errors import PathRefusedError
from gearshift.paths.anatomy import Anatomy, AttentionSite, MlpSite
from gearshift.paths.detr.backbone import fold_norms, foldable, merge_passes, residual_stages
from gearshift.paths.detr.deformable import LosslessDeformableDetr
from gearshift.paths.detr.forward import LosslessDetr
from gearshift.paths.family import Family, Traits, class_names, restructure
from gearshift.paths.knobs import Knob, size_knob
from gearshift.paths.sharing import DerivedTensors, clone_structure
from gearshift.paths.spec import PathSpec
from gearshift.paths.structural import structural_knobs
from gearshift.paths.transforms import FoldedNorms, Lossless


class DetectionFamily(Family):
    """What both share."""

    own = ("lossless", "norms")

    def build(self, stock: Any, spec: PathSpec, derived: DerivedTensors) -> nn.Module:
        """Make the module of a path over the stock model's tensors, without its input size.

        Raises:
            PathRefusedError: A setting does not fit this model, or a rewrite's precondition does not hold.
        """
        exact, folded = spec.get("lossless") is not None, spec.get("norms") is not None
        if exact:
            self.check_rewritable(stock)
        elif folded:
            raise PathRefusedError('"norms" rewrites the lossless path; write "lossless+norms"')
        path: Any = clone_structure(stock).eval()
        restructure(path, self.anatomy(stock), spec, derived)
        if not exact:
            stock_form: nn.Module = path
            return stock_form
        if folded:
            fold_norms(path, stock, derived)
        merge_passes(path)
        return self.rewritten(path, spec, derived)

    @abstractmethod
    def rewritten(self, path: Any, spec: PathSpec, derived: DerivedTensors) -> nn.Module:
        """The lossless form of a clone that other transforms have been carried out on."""

    @abstractmethod
    def parts(self, stock: Any) -> Iterator[tuple[nn.Module, type[nn.Module]]]:
        """The modules whose forward is rewritten, with the class that it is rewritten for."""

    def check_rewritable(self, stock: Any) -> None:
        """Raise `PathRefusedError` where a module is not transformers' own, or more is asked for by default."""
        for name in ("output_hidden_states", "output_attentions"):
            if getattr(stock.config, name, False):
                raise PathRefusedError(
                    f"lossless gives detections and last hidden states, and this model's configuration says {name}=True"
                )
        for module, expected in self.parts(stock):
            if type(module) is not expected:
                raise PathRefusedError(
                    f"lossless rewrites {expected.__name__}, and this model has {type(module).__name__} "
                    "in its place; use paths without lossless"
                )

    def base(self, stock: Any) -> list[PathSpec]:
        """Exact starting points to choose among by measured time; the stock model where none is admitted."""
        lossless = PathSpec((Lossless(),))
        try:
            self.check_rewritable(stock)
        except PathRefusedError:
            return [PathSpec()]
        try:
            foldable(stock)
        except PathRefusedError:
            return [lossless]
        return [lossless, lossless.with_transform(FoldedNorms())]

    def traits(self, stock: Any) -> Traits:
        """Logits and boxes of queries."""
        return Traits(task="detection", classes=class_names(stock.config), channels=stock.config.num_channels)

    def anatomy(self, stock: Any) -> Anatomy:
        """Layers of encoder and decoder, blocks of the backbone; attentions, MLPs and linear maps of the layers."""
        encoder = tuple(f"model.encoder.layers.{index}" for index in range(len(stock.model.encoder.layers)))
        decoder = tuple(f"model.decoder.layers.{index}" for index in range(len(stock.model.decoder.layers)))
        layers = (*encoder, *decoder)
        return Anatomy(
            stages=(encoder, decoder, *residual_stages(stock)),
            attentions=tuple(_attention_sites(stock, layers)),
            mlps=tuple(MlpSite(expand=f"{layer}.mlp.fc1", reduce=f"{layer}.mlp.fc2") for layer in layers),
            linears=tuple(_linears(stock, layers)),
            fixed=tuple(self.heads(stock)),
        )

    def knobs(self, stock: Any, derived: DerivedTensors) -> list[Knob]:
        """Layers and blocks, heads, hidden channels, ranks, sizes."""
        return [*structural_knobs(stock, self.anatomy(stock), derived), size_knob()]

    @abstractmethod
    def heads(self, stock: Any) -> list[str]:
        """Names of what gives classes and boxes."""

    def resized_arguments(self, arguments: dict[str, Any], height: int, width: int) -> dict[str, Any]:
        """A mask of the frames follows them: its nearest entries."""
        mask = arguments.get("pixel_mask")
        if not isinstance(mask, torch.Tensor):
            return arguments
        return arguments | {"pixel_mask": F.interpolate(mask[None].float(), size=(height, width))[0].to(mask.dtype)}


class DetrFamily(DetectionFamily):
    """transformers' `DetrForObjectDetection`."""

    name = "detr"

    def matches(self, module: nn.Module) -> bool:
        """Whether `module` is of this family (a subclass may compute something else: it is not)."""
        return type(module) is DetrForObjectDetection

    def rewritten(self, path: Any, spec: PathSpec, derived: DerivedTensors) -> nn.Module:
        """The lossless form of a clone."""
        return LosslessDetr(path, spec, derived)

    def parts(self, stock: Any) -> Iterator[tuple[nn.Module, type[nn.Module]]]:
        """Model, encoder, decoder, their layers and attentions."""
        yield stock.model, detr_modules.DetrModel
        yield stock.model.backbone, detr_modules.DetrConvEncoder
        yield stock.model.encoder, detr_modules.DetrEncoder
        yield stock.model.decoder, detr_modules.DetrDecoder
        for layer in stock.model.encoder.layers:
            yield layer, detr_modules.DetrEncoderLayer
        for layer in stock.model.decoder.layers:
            yield layer, detr_modules.DetrDecoderLayer
            yield layer.self_attn, detr_modules.DetrSelfAttention
            yield layer.encoder_attn, detr_modules.DetrCrossAttention

    def heads(self, stock: Any) -> list[str]:
        """Names of what gives classes and boxes."""
        boxes = [f"bbox_predictor.layers.{index}" for index in range(len(stock.bbox_predictor.layers))]
        return ["class_labels_classifier", *boxes]


class DeformableDetrFamily(DetectionFamily):
    """transformers' `DeformableDetrForObjectDetection`, with or without refined boxes, in one stage or two.

    Heads of deformable attention are not offered: each has sampling points of its own beside its channels.
    """

    name = "deformable-detr"

    def matches(self, module: nn.Module) -> bool:
        """Whether `module` is of this family (a subclass may compute something else: it is not)."""
        return type(module) is DeformableDetrForObjectDetection

    def check_rewritable(self, stock: Any) -> None:
        """Refuse two stages, too: their queries are drawn from the image."""
        super().check_rewritable(stock)
        if stock.config.two_stage:
            raise PathRefusedError(
                "lossless needs queries that do not depend on the image, and this model draws them from it "
                "(two_stage=True); use paths without lossless"
            )

    def rewritten(self, path: Any, spec: PathSpec, derived: DerivedTensors) -> nn.Module:
        """The lossless form of a clone."""
        return LosslessDeformableDetr(path, spec, derived)

    def parts(self, stock: Any) -> Iterator[tuple[nn.Module, type[nn.Module]]]:
        """Model, encoder, decoder, their layers and attentions."""
        yield stock.model, deformable_modules.DeformableDetrModel
        yield stock.model.backbone, deformable_modules.DeformableDetrConvEncoder
        yield stock.model.encoder, deformable_modules.DeformableDetrEncoder
        yield stock.model.decoder, deformable_modules.DeformableDetrDecoder
        for layer in stock.model.encoder.layers:
            yield layer, deformable_modules.DeformableDetrEncoderLayer
        for layer in stock.model.decoder.layers:
            yield layer, deformable_modules.DeformableDetrDecoderLayer
            yield layer.self_attn, deformable_modules.DeformableDetrSelfAttention
            yield layer.encoder_attn, deformable_modules.DeformableDetrMultiscaleDeformableAttention

    def heads(self, stock: Any) -> list[str]:
        """Names of what gives classes and boxes, and of what says where to look at first."""
        roots = ("class_embed", "bbox_embed", "model.decoder.class_embed", "model.decoder.bbox_embed")
        inside = [
            name
            for name, module in stock.named_modules(remove_duplicate=False)
            if isinstance(module, nn.Linear) and name.startswith(tuple(f"{root}." for root in roots))
        ]
        return [*inside, *(name for name in ("model.reference_points",) if not stock.config.two_stage)]


def _attention_sites(stock: Any, layers: tuple[str, ...]) -> Iterator[AttentionSite]:
    """Plain attentions; heads are told from `head_dim` alone: no attribute holds their number."""
    for layer in layers:
        for part in ("self_attn", "encoder_attn"):
            attention = getattr(stock.get_submodule(layer), part, None)
            if attention is None or not hasattr(attention, "head_dim"):
                continue
            name = f"{layer}.{part}"
            yield AttentionSite(
                name=name,
                heads=attention.q_proj.out_features // attention.head_dim,
                head_dim=attention.head_dim,
                projections={f"{name}.{projection}": 1 for projection in ("q_proj", "k_proj", "v_proj")},
                output=f"{name}.o_proj",
            )


def _linears(stock: Any, layers: tuple[str, ...]) -> Iterator[str]:
    """Linear maps of encoder and decoder layers."""
    for layer in layers:
        for name, module in stock.get_submodule(layer).named_modules():
            if isinstance(module, nn.Linear):
                yield f"{layer}.{name}"
