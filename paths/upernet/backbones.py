"""The backbones that UPerNet stands on, behind one face: where their parts are, and their exact form.

A backbone that has no file here keeps its stock form; the head's rewrites do not depend on it.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers.models.convnext.modeling_convnext import ConvNextBackbone
from transformers.models.swin.modeling_swin import SwinBackbone

from gearshift.paths.anatomy import Anatomy
from gearshift.paths.convnext.sites import check_frame, convnext_anatomy
from gearshift.paths.sharing import DerivedTensors
from gearshift.paths.swin.encoder import LeanSwin
from gearshift.paths.swin.sites import check_lean, settle, swin_anatomy


class StockBackbone:
    """Any backbone of transformers, as it is."""

    def anatomy(self, stock: Any) -> Anatomy:
        """Where its parts are, from the root of the whole model."""
        return Anatomy()

    def check_lean(self, stock: Any) -> None:
        """Raise `PathRefusedError` where the exact form is not admitted, with the reason."""
        return

    def check_input(self, stock: Any, height: int, width: int) -> None:
        """Raise `InputError` for a frame that it cannot take."""
        return

    def settle(self, path: Any) -> None:
        """Make the stock form of a path run, after its structural changes."""
        return

    def lean(self, path: Any, stock: Any, derived: DerivedTensors) -> nn.Module:
        """The exact form: from frames to a list of feature maps, channels-last where that is cheaper."""
        return _Maps(path)


class _Maps(nn.Module):
    def __init__(self, backbone: Any) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, pixel_values: Tensor) -> list[Tensor]:
        return list(self.backbone.forward_with_filtered_kwargs(pixel_values).feature_maps)


class SwinUnder(StockBackbone):
    """Swin: frames of any size, every grid shifted; stages behind the last that is read are not run."""

    def anatomy(self, stock: Any) -> Anatomy:
        """Blocks in shifted pairs, attentions, MLPs."""
        return swin_anatomy(stock.swin, "backbone.swin")

    def check_lean(self, stock: Any) -> None:
        """Refuse modules other than transformers' own."""
        check_lean(stock.swin)

    def settle(self, path: Any) -> None:
        """Take skipped blocks out."""
        settle(path.swin)

    def lean(self, path: Any, stock: Any, derived: DerivedTensors) -> nn.Module:
        """Tokens as channels-last maps, without a copy."""
        return _SwinMaps(path, stock, derived)


class _SwinMaps(nn.Module):
    def __init__(self, backbone: Any, stock: Any, derived: DerivedTensors) -> None:
        super().__init__()
        self.encoder = LeanSwin(backbone.swin, stock.swin, "backbone.swin", derived, always_shift=True)
        self.norms = backbone.hidden_states_norms
        self._names, self._read = _stages(backbone)

    def forward(self, pixel_values: Tensor) -> list[Tensor]:
        maps = []
        for name, (tokens, height, width) in zip(
            self._names, self.encoder(pixel_values, len(self._names) - 1), strict=True
        ):
            if name in self._read:
                grid = self.norms[name](tokens).unflatten(1, (height, width))
                maps.append(grid.permute(0, 3, 1, 2))
        return maps


class ConvNextUnder(StockBackbone):
    """ConvNeXt: channels-last from the frame on; stages behind the last that is read are not run."""

    def anatomy(self, stock: Any) -> Anatomy:
        """Blocks and their inverted bottlenecks."""
        return convnext_anatomy(stock.encoder, "backbone.encoder")

    def check_input(self, stock: Any, height: int, width: int) -> None:
        """Refuse frames of which the last stage has no pixel left."""
        check_frame(stock.embeddings, stock.encoder, height, width)

    def lean(self, path: Any, stock: Any, derived: DerivedTensors) -> nn.Module:
        """The stock modules on channels-last frames."""
        return _ConvNextMaps(path)


class _ConvNextMaps(nn.Module):
    def __init__(self, backbone: Any) -> None:
        super().__init__()
        self.embeddings = backbone.embeddings
        self.stages = backbone.encoder.stages
        self.norms = backbone.hidden_states_norms
        self._names, self._read = _stages(backbone)

    def forward(self, pixel_values: Tensor) -> list[Tensor]:
        image = self.embeddings(pixel_values.contiguous(memory_format=torch.channels_last))
        maps = []
        for name, stage in zip(self._names, (nn.Identity(), *self.stages), strict=False):
            image = stage(image)
            if name in self._read:
                maps.append(self.norms[name](image))
        return maps


def _stages(backbone: Any) -> tuple[Sequence[str], frozenset[str]]:
    """Names of the stages up to the last that is read, the stem first, and those that are read."""
    read = frozenset(backbone.out_features)
    names = list(backbone.stage_names)
    last = max(names.index(name) for name in read)
    return names[: last + 1], read


_BACKBONES: dict[type, StockBackbone] = {SwinBackbone: SwinUnder(), ConvNextBackbone: ConvNextUnder()}


def backbone_of(stock: Any) -> StockBackbone:
    """The face of a model's backbone."""
    return _BACKBONES.get(type(stock.backbone), StockBackbone())
