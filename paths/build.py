"""From a model and a `PathSpec` to a module that runs: over the same tensors, what is new accounted for."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from gearshift.errors import InputError, ModelError, PathRefusedError
from gearshift.paths.convnext.family import ConvNextFamily
from gearshift.paths.detr.family import DeformableDetrFamily, DetrFamily
from gearshift.paths.family import Family, dtype_of, resized
from gearshift.paths.generic import GenericFamily
from gearshift.paths.ofa.family import OnceForAllFamily
from gearshift.paths.segformer.family import SegformerFamily
from gearshift.paths.sharing import DerivedTensors, extra_bytes
from gearshift.paths.spec import PathSpec
from gearshift.paths.swin.family import SwinFamily
from gearshift.paths.transforms import InputSize, Structural
from gearshift.paths.upernet.family import UperNetFamily
from gearshift.paths.vit.family import VitFamily

FAMILIES: tuple[Family, ...] = (
    SegformerFamily(),
    OnceForAllFamily(),
    VitFamily(),
    SwinFamily(),
    ConvNextFamily(),
    UperNetFamily(),
    DetrFamily(),
    DeformableDetrFamily(),
    GenericFamily(),
)  # the last resort stays last


def family_of(module: nn.Module) -> Family:
    """The family that knows this module.

    Raises:
        ModelError: None does.
    """
    for family in FAMILIES:
        if family.matches(module):
            return family
    known = ", ".join(family.name for family in FAMILIES)
    raise ModelError(
        f"no family of paths knows {type(module).__name__}; known: {known} "
        "(generic: any image model of timm, transformers or torchvision)"
    )


class Path(nn.Module):
    """A way through the stock model: same call, same kind of result, usually cheaper.

    Attributes:
        spec: What the path changes.
        extra_bytes: Memory it needs beyond the stock model's own tensors (tensors shared with other paths
            included).
    """

    def __init__(self, stock: nn.Module, spec: PathSpec, inner: nn.Module) -> None:
        super().__init__()
        self.spec = spec
        self.inner = inner
        self.extra_bytes = extra_bytes(inner, stock)
        self._family = family_of(stock)
        self._traits = self._family.traits(stock)
        # In a tuple: a path refers to its stock model without being its parent.
        self._stock: tuple[Any] = (stock,)
        size = spec.get("size")
        self._size = size if isinstance(size, InputSize) else None

    @property
    def id(self) -> str:
        """The path's canonical text."""
        return self.spec.id

    def forward(self, pixel_values: Tensor, return_dict: bool | None = None, **arguments: Any) -> Any:
        """Run frames `(B, C, H, W)`.

        Logits come back at the stock model's size, whatever size they were run at; hidden states do not.

        Args:
            pixel_values: Normalised frames, of any floating type.
            return_dict: False for a tuple, as a model of transformers gives; None for what its configuration says.
            arguments: As the stock model takes. A lossless path may know fewer, and then says so.

        Raises:
            InputError: Frames of another type, rank or number of channels, or too small for the model.
        """
        frames = self._checked(pixel_values)
        height, width = frames.shape[2:]
        if self._size is not None:
            size = self._size.resolve(height, width)
            frames = resized(frames, size)
            arguments = self._family.resized_arguments(arguments, *size)
        if not self._traits.structured:
            return self._restored(self.inner(frames, **arguments), height, width)
        output = self._restored(self.inner(frames, return_dict=True, **arguments), height, width)
        if return_dict is None:
            return_dict = self._stock[0].config.return_dict
        return output if return_dict else output.to_tuple()

    def _restored(self, output: Any, height: int, width: int) -> Any:
        return output if self._size is None else self._family.restored(self._stock[0], output, height, width)

    def _checked(self, pixel_values: Tensor) -> Tensor:
        """Refuse what the model would fail on deep inside, and give frames in the model's own precision."""
        stock, channels = self._stock[0], self._traits.channels
        if pixel_values.ndim != 4 or pixel_values.shape[1] != channels:
            raise InputError(
                f"expected frames (B, {channels}, H, W), got {tuple(pixel_values.shape)}; "
                f"a grey image can be repeated with .expand(-1, {channels}, -1, -1)"
            )
        if not pixel_values.is_floating_point():
            raise InputError(
                f"expected normalised frames of a floating type, got {pixel_values.dtype}; "
                "scale and normalise them as the checkpoint's processor does"
            )
        height, width = pixel_values.shape[2:]
        if self._size is not None:
            height, width = self._size.resolve(height, width)
        self._family.check_frame(stock, self.spec, height, width)
        return pixel_values.to(dtype_of(stock))


class PathFactory:
    """Builds any number of paths of one model; what they derive from its weights is made once and shared.

    Args:
        stock: The model.
        derived: Tensors derived before.
        calibration: Normalised frames `(1, C, H, W)` for transforms that ask for some (see `DerivedTensors`).
    """

    def __init__(self, stock: Any, derived: DerivedTensors | None = None, calibration: Sequence[Tensor] = ()) -> None:
        self.stock = stock
        self.family = family_of(stock)
        self.derived = derived or DerivedTensors(calibration=calibration)

    def to(self, device: torch.device) -> None:
        """Move the model and everything derived from it; paths built before stay where they were."""
        self.stock.to(device)
        self.derived = self.derived.to(device)

    def build(self, spec: PathSpec) -> Path:
        """Build one path, in evaluation mode.

        Raises:
            PathRefusedError: A setting does not fit this model, or a rewrite's precondition does not hold.
        """
        self.family.check_kinds(self.stock, spec)
        self._check_size(spec)
        with torch.no_grad():
            self._prepare(spec)
            return Path(self.stock, spec, self.family.build(self.stock, spec, self.derived)).eval()

    def _prepare(self, spec: PathSpec) -> None:
        """Derive what the structural transforms need of the stock model, before a clone of it is cut."""
        structural = [transform for transform in spec.transforms if isinstance(transform, Structural)]
        if structural:
            anatomy = self.family.anatomy(self.stock)
            for transform in structural:
                clash = next((name for name in transform.excludes if spec.get(name)), None)
                if clash is not None:
                    raise PathRefusedError(f'"{transform.name}" and "{clash}" cut the same parts; use one of them')
                transform.prepare(self.stock, anatomy, self.derived)

    def _check_size(self, spec: PathSpec) -> None:
        size = spec.get("size")
        if isinstance(size, InputSize) and size.height and size.width:
            try:
                self.family.check_frame(self.stock, spec, size.height, size.width)
            except InputError as error:
                raise PathRefusedError(f"size={size.value()} does not fit: {error}") from error


def build_path(module: nn.Module, spec: PathSpec) -> Path:
    """Build a single path of `module`; a `PathFactory` builds several that share what they derive."""
    return PathFactory(module).build(spec)
