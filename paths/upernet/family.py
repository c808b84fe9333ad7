"""UPerNet: transformers' `UperNetForSemanticSegmentation`, on Swin, ConvNeXt or any other backbone."""

from dataclasses import replace
from typing import Any

from torch import Tensor, nn
from transformers import UperNetForSemanticSegmentation
from transformers.modeling_outputs import SemanticSegmenterOutput

from gearshift.errors import PathRefusedError
from gearshift.paths.anatomy import Anatomy
from gearshift.paths.family import Family, Traits, class_names, refuse_asked, resized, restructure
from gearshift.paths.knobs import Knob, size_knob
from gearshift.paths.sharing import DerivedTensors, clone_structure
from gearshift.paths.spec import PathSpec
from gearshift.paths.structural import structural_knobs
from gearshift.paths.transforms import DecoderChannels, Lossless
from gearshift.paths.upernet.backbones import backbone_of
from gearshift.paths.upernet.decoder import check_channels, cut_decoder
from gearshift.paths.upernet.head import LeanHead, check_lean


class UperNetFamily(Family):
    """A feature pyramid with pooling on top; what lies below it is the backbone's (`backbones.py`)."""

    name = "upernet"
    own = ("lossless", "decoder")

    def matches(self, module: nn.Module) -> bool:
        """Whether `module` is of this family (a subclass may compute something else: it is not)."""
        return type(module) is UperNetForSemanticSegmentation

    def traits(self, stock: Any) -> Traits:
        """Logits of pixels."""
        channels = getattr(stock.backbone.config, "num_channels", 3)
        return Traits(task="segmentation", classes=class_names(stock.config), channels=channels)

    def anatomy(self, stock: Any) -> Anatomy:
        """The backbone's, and the convolutions of the pyramid."""
        found = backbone_of(stock).anatomy(stock.backbone)
        levels = range(len(stock.decode_head.lateral_convs))
        pyramid = [f"decode_head.{part}.{level}.conv" for part in ("lateral_convs", "fpn_convs") for level in levels]
        return replace(found, linears=(*found.linears, *pyramid), fixed=("decode_head.classifier",))

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
        decoder = spec.get("decoder")
        kept = decoder.channels if isinstance(decoder, DecoderChannels) else None
        if kept is not None:
            cut_decoder(path, kept, derived)
        if exact:
            backbone = backbone_of(stock).lean(path.backbone, stock.backbone, derived)
            return LosslessUperNet(backbone, LeanHead(path.decode_head, stock.decode_head, kept, derived))
        backbone_of(stock).settle(path.backbone)
        stock_form: nn.Module = path
        return stock_form

    def base(self, stock: Any) -> list[PathSpec]:
        """The lossless form, where it is admitted."""
        try:
            check_rewritable(stock)
        except PathRefusedError:
            return [PathSpec()]
        return [PathSpec((Lossless(),))]

    def knobs(self, stock: Any, derived: DerivedTensors) -> list[Knob]:
        """Blocks, heads, hidden channels and ranks of the backbone, channels of the decoder, sizes."""
        knobs = [*structural_knobs(stock, self.anatomy(stock), derived), *_decoder_knobs(stock), size_knob()]
        return [knob for knob in knobs if knob.settings]

    def check_input(self, stock: Any, height: int, width: int) -> None:
        """Raise `InputError` for a frame that the backbone cannot take."""
        backbone_of(stock).check_input(stock.backbone, height, width)

    def restored(self, stock: Any, output: Any, height: int, width: int) -> Any:
        """Logits at the frame's own size, as the stock model gives them."""
        output.logits = resized(output.logits, (height, width))
        return output


class LosslessUperNet(nn.Module):
    """The exact forms of backbone and head; the auxiliary head, which only a loss reads, is not run."""

    def __init__(self, backbone: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone
        self.decode_head = head

    def forward(
        self, pixel_values: Tensor, return_dict: bool = True, **others: Any
    ) -> SemanticSegmenterOutput | tuple[Any, ...]:
        """`(B, 3, H, W)` to logits `(B, K, H, W)`.

        Raises:
            InputError: Something else is asked for, such as a loss or hidden states.
        """
        refuse_asked(others, "logits")
        height, width = pixel_values.shape[2:]
        logits = resized(self.decode_head(self.backbone(pixel_values)), (height, width))
        output = SemanticSegmenterOutput(logits=logits)
        return output if return_dict else output.to_tuple()


def check_rewritable(stock: Any) -> None:
    """Raise `PathRefusedError` where backbone or head is not the one that is rewritten."""
    check_lean(stock.decode_head)
    backbone_of(stock).check_lean(stock.backbone)


def _decoder_knobs(stock: Any) -> list[Knob]:
    """Channels of the last convolution; none where they cannot be cut."""
    head = stock.decode_head
    outputs: int = head.fpn_bottleneck.conv.out_channels
    try:
        check_channels(head, outputs)
    except PathRefusedError:
        return []
    kept = dict.fromkeys(DecoderChannels(max(8, outputs * eighths // 8)) for eighths in (6, 4, 3, 2))
    return [Knob("decoder", tuple(item for item in kept if item.channels < outputs))]
