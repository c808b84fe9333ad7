"""From a model and a `PathSpec` to a module that runs: over the same tensors, with what is new accounted for."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gearshift.errors import InputError, ModelError
from gearshift.paths.segformer.family import SegformerFamily
from gearshift.paths.sharing import DerivedTensors, extra_bytes
from gearshift.paths.spec import PathSpec
from gearshift.paths.transforms import InputSize

FAMILIES = (SegformerFamily(),)


def family_of(module: nn.Module) -> SegformerFamily:
    """The family that knows this module.

    Raises:
        ModelError: None does.
    """
    for family in FAMILIES:
        if family.matches(module):
            return family
    known = ", ".join(family.name for family in FAMILIES)
    raise ModelError(f"no family of paths knows {type(module).__name__}; known: {known}")


class Path(nn.Module):
    """A way through the stock model: same call, same kind of result, usually cheaper.

    Attributes:
        spec: What the path changes.
        extra_bytes: Memory it needs beyond the stock model's own tensors (tensors shared with other paths included).
    """

    def __init__(self, stock: nn.Module, spec: PathSpec, inner: nn.Module) -> None:
        super().__init__()
        self.spec = spec
        self.inner = inner
        self.extra_bytes = extra_bytes(inner, stock)
        self._family = family_of(stock)
        self._stock = (stock,)  # in a tuple: a path refers to its stock model without being its parent
        size = spec.get("size")
        self._size = size if isinstance(size, InputSize) else None

    @property
    def id(self) -> str:
        """The path's canonical text."""
        return self.spec.id

    def forward(self, pixel_values: Tensor, **arguments: Any) -> Any:
        """Run frames `(B, 3, H, W)`; logits come back at the stock model's size whatever size they were run at.

        Raises:
            InputError: Frames of another rank or number of channels, or too small for the model.
        """
        pixel_values = self._checked(pixel_values)
        if self._size is None:
            return self.inner(pixel_values, **arguments)
        height, width = pixel_values.shape[2:]
        small = F.interpolate(
            pixel_values, size=self._size.resolve(height, width), mode="bilinear", align_corners=False
        )
        output = self.inner(small, **arguments)
        size = self._family.logits_size(self._stock[0], height, width)
        if isinstance(output, tuple):
            return (_resized(output[0], size), *output[1:])
        output.logits = _resized(output.logits, size)
        return output

    def _checked(self, pixel_values: Tensor) -> Tensor:
        """Refuse what the model would fail on deep inside, and give floats in the model's own precision."""
        channels = self._stock[0].config.num_channels
        if pixel_values.ndim != 4 or pixel_values.shape[1] != channels:
            raise InputError(
                f"expected frames (B, {channels}, H, W), got {tuple(pixel_values.shape)}; "
                f"a grey image can be repeated with .expand(-1, {channels}, -1, -1)"
            )
        height, width = pixel_values.shape[2:]
        if self._size is not None:
            height, width = self._size.resolve(height, width)
        self._family.check_input(self._stock[0], height, width)
        return pixel_values.to(self._stock[0].dtype)


def _resized(logits: Tensor, size: tuple[int, int]) -> Tensor:
    if logits.shape[2:] == size:
        return logits
    return F.interpolate(logits, size=size, mode="bilinear", align_corners=False)


class PathFactory:
    """Builds any number of paths of one model; what they derive from its weights is made once and shared."""

    def __init__(self, stock: nn.Module, derived: DerivedTensors | None = None) -> None:
        self.stock = stock
        self.family = family_of(stock)
        self.derived = derived or DerivedTensors()

    def build(self, spec: PathSpec) -> Path:
        """Build one path, in evaluation mode.

        Raises:
            PathRefusedError: A setting does not fit this model, or a rewrite's precondition does not hold.
        """
        with torch.no_grad():
            return Path(self.stock, spec, self.family.build(self.stock, spec, self.derived)).eval()


def build_path(module: nn.Module, spec: PathSpec) -> Path:
    """Build a single path of `module`; use a `PathFactory` for several, so that they share what they derive."""
    return PathFactory(module).build(spec)
