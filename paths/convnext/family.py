"""ConvNeXt for classification: transformers' `ConvNextForImageClassification`."""

from dataclasses import replace
from typing import Any

from torch import nn
from transformers import ConvNextForImageClassification

from gearshift.paths.anatomy import Anatomy
from gearshift.paths.convnext.sites import check_frame, convnext_anatomy
from gearshift.paths.family import Family, Traits, class_names, restructure
from gearshift.paths.knobs import Knob, size_knob
from gearshift.paths.sharing import DerivedTensors, clone_structure
from gearshift.paths.spec import PathSpec
from gearshift.paths.structural import structural_knobs


class ConvNextFamily(Family):
    """Convolutional blocks; the stock form already is channels-last throughout, so that there is none to gain by."""

    name = "convnext"

    def matches(self, module: nn.Module) -> bool:
        """Whether `module` is of this family (a subclass may compute something else: it is not)."""
        return type(module) is ConvNextForImageClassification

    def traits(self, stock: Any) -> Traits:
        """Logits of a frame."""
        return Traits(task="classification", classes=class_names(stock.config), channels=stock.config.num_channels)

    def anatomy(self, stock: Any) -> Anatomy:
        """Blocks by stage and their inverted bottlenecks."""
        return replace(convnext_anatomy(stock.convnext.encoder, "convnext.encoder"), fixed=("classifier",))

    def build(self, stock: Any, spec: PathSpec, derived: DerivedTensors) -> nn.Module:
        """Make the module of a path over the stock model's tensors, without its input size."""
        path: nn.Module = clone_structure(stock)
        restructure(path, self.anatomy(stock), spec, derived)
        return path

    def knobs(self, stock: Any, derived: DerivedTensors) -> list[Knob]:
        """Blocks, hidden channels, ranks, sizes."""
        return [*structural_knobs(stock, self.anatomy(stock), derived), size_knob()]

    def check_input(self, stock: Any, height: int, width: int) -> None:
        """Raise `InputError` for a frame of which the last stage has no pixel left."""
        check_frame(stock.convnext.embeddings, stock.convnext.encoder, height, width)
