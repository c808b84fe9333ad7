"""Swin for classification: transformers' `SwinForImageClassification`."""

from dataclasses import replace
from typing import Any

from torch import Tensor, nn
from transformers import SwinForImageClassification
from transformers.models.swin.modeling_swin import SwinImageClassifierOutput

from gearshift.errors import InputError, PathRefusedError
from gearshift.paths.anatomy import Anatomy
from gearshift.paths.family import Family, Traits, class_names, refuse_asked, restructure
from gearshift.paths.knobs import Knob, size_knob
from gearshift.paths.sharing import DerivedTensors, clone_structure
from gearshift.paths.spec import PathSpec
from gearshift.paths.structural import structural_knobs
from gearshift.paths.swin.encoder import LeanSwin
from gearshift.paths.swin.sites import check_lean, settle, smallest_side, swin_anatomy
from gearshift.paths.transforms import InputSize, Lossless


class SwinFamily(Family):
    """Hierarchical blocks of shifted windows; they are skipped in pairs, one unshifted and one shifted."""

    name = "swin"
    own = ("lossless",)

    def matches(self, module: nn.Module) -> bool:
        """Whether `module` is of this family (a subclass may compute something else: it is not)."""
        return type(module) is SwinForImageClassification

    def traits(self, stock: Any) -> Traits:
        """Logits of a frame."""
        return Traits(task="classification", classes=class_names(stock.config), channels=stock.config.num_channels)

    def anatomy(self, stock: Any) -> Anatomy:
        """Blocks by stage, their attentions and MLPs."""
        found = swin_anatomy(stock.swin, "swin")
        return replace(found, fixed=("classifier",))

    def build(self, stock: Any, spec: PathSpec, derived: DerivedTensors) -> nn.Module:
        """Make the module of a path over the stock model's tensors, without its input size.

        Raises:
            PathRefusedError: A setting does not fit this model, or a rewrite's precondition does not hold.
        """
        exact = spec.get("lossless") is not None
        if exact:
            check_lean(stock.swin)
        path: Any = clone_structure(stock)
        restructure(path, self.anatomy(stock), spec, derived)
        if exact:
            return LosslessSwin(path, stock, derived)
        settle(path.swin)
        stock_form: nn.Module = path
        return stock_form

    def base(self, stock: Any) -> list[PathSpec]:
        """The lossless form, where it is admitted."""
        try:
            check_lean(stock.swin)
        except PathRefusedError:
            return [PathSpec()]
        return [PathSpec((Lossless(),))]

    def knobs(self, stock: Any, derived: DerivedTensors) -> list[Knob]:
        """Pairs of blocks, heads, hidden channels, ranks, sizes."""
        return [*structural_knobs(stock, self.anatomy(stock), derived), *_size_knobs(stock)]

    def check_input(self, stock: Any, height: int, width: int) -> None:
        """Raise `InputError` for a frame of which some stage's grid is smaller than a window, or that has no positions.

        The stock model fails on the former deep inside, and on every frame from then on.
        """
        least = smallest_side(stock.swin)
        if min(height, width) < least:
            raise InputError(
                f"a frame of {height}x{width} is too small for this model; the minimum is {least}x{least}, "
                "of which the last stage's grid still fills a window"
            )
        embeddings = stock.swin.embeddings
        if embeddings.position_embeddings is not None:
            patch = embeddings.patch_embeddings.patch_size
            grid = (-(-height // patch[0]), -(-width // patch[1]))
            if grid != tuple(embeddings.patch_grid):
                sides = "x".join(str(count * side) for count, side in zip(embeddings.patch_grid, patch, strict=True))
                raise InputError(f"a frame of {height}x{width} has no positions in this model; it takes {sides}")


def _size_knobs(stock: Any) -> list[Knob]:
    """Sizes at which a frame of the model's own size still fills the last stage's window; none of learned positions."""
    own, least = stock.swin.embeddings.patch_grid, smallest_side(stock.swin)
    patch = stock.swin.embeddings.patch_embeddings.patch_size
    height, width = (count * side for count, side in zip(own, patch, strict=True))
    fitting = tuple(
        setting
        for setting in size_knob().settings
        if isinstance(setting, InputSize) and least <= min(setting.resolve(height, width)) < min(height, width)
    )
    learned = stock.swin.embeddings.position_embeddings is not None
    return [Knob("size", fitting)] if fitting and not learned else []


class LosslessSwin(nn.Module):
    """The stock model over a `LeanSwin`; returns what that returns, logits alone."""

    def __init__(self, model: Any, stock: Any, derived: DerivedTensors) -> None:
        super().__init__()
        self.encoder = LeanSwin(model.swin, stock.swin, "swin", derived, always_shift=False)
        self.layernorm = model.swin.layernorm
        self.classifier = model.classifier

    def forward(
        self, pixel_values: Tensor, return_dict: bool = True, **others: Any
    ) -> SwinImageClassifierOutput | tuple[Any, ...]:
        """`(B, 3, H, W)` to logits `(B, K)`.

        Raises:
            InputError: Something else is asked for, such as a loss or hidden states.
        """
        refuse_asked(others, "logits")
        for tokens, _, _ in self.encoder(pixel_values, len(self.encoder.stages)):
            last = tokens
        output = SwinImageClassifierOutput(logits=self.classifier(self.layernorm(last).mean(dim=1)))
        return output if return_dict else output.to_tuple()
