"""What a family of models is: the one place that knows the names inside a stock model, behind one face.

A family says which modules it knows (`matches`), what they answer (`traits`), where their parts are (`anatomy`), which
exact forms and which knobs they have (`base`, `knobs`), and builds the module of a path (`build`).
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gearshift.errors import InputError, PathRefusedError
from gearshift.paths.anatomy import Anatomy
from gearshift.paths.knobs import Knob, size_knob
from gearshift.paths.sharing import DerivedTensors
from gearshift.paths.spec import PathSpec
from gearshift.paths.transforms import ORDER, STRUCTURAL, Structural

TaskName = Literal["segmentation", "classification", "detection"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What a stock model takes and answers.

    Attributes:
        task: `segmentation` (logits of pixels), `classification` (logits of a frame) or `detection` (logits and
            boxes of queries).
        classes: Their names, in the order of the logits.
        channels: Of a frame.
        structured: Whether it returns an output of transformers with `.logits`, or the tensor of logits itself.
    """

    task: TaskName
    classes: tuple[str, ...]
    channels: int = 3
    structured: bool = True


class Family(ABC):
    """One family of models."""

    name: ClassVar[str]
    own: ClassVar[tuple[str, ...]] = ()
    """Names of the transforms that this family itself carries out; structural ones and sizes come by themselves."""
    calibration_frames: ClassVar[int] = 256
    """Frames that its transforms make good use of, at most."""

    @abstractmethod
    def matches(self, module: nn.Module) -> bool:
        """Whether `module` is of this family (a subclass may compute something else: it is not)."""

    @abstractmethod
    def traits(self, stock: Any) -> Traits:
        """What the model takes and answers."""

    @abstractmethod
    def anatomy(self, stock: Any) -> Anatomy:
        """Where the parts are that structural transforms change."""

    @abstractmethod
    def build(self, stock: Any, spec: PathSpec, derived: DerivedTensors) -> nn.Module:
        """Make the module of a path over the stock model's tensors, without its input size.

        It is called as the stock model is, and answers as it does (`return_dict=True` where it is structured).

        Raises:
            PathRefusedError: A setting does not fit this model, or a rewrite's precondition does not hold.
        """

    def missing(self, stock: Any) -> str | None:
        """One line on what this model lacks that others have, and what still applies; None where nothing is missing."""
        return None

    def base(self, stock: Any) -> list[PathSpec]:
        """Exact starting points to choose among by measured time; the stock model where none is admitted."""
        return [PathSpec()]

    def knobs(self, stock: Any, derived: DerivedTensors) -> list[Knob]:
        """What the search may turn, each with its settings from mild to strong; see also `structural`."""
        return [size_knob()]

    def kinds(self, stock: Any) -> tuple[str, ...]:
        """Names of all transforms that paths of this model can take."""
        anatomy = self.anatomy(stock)
        structural = {kind.name for kind in STRUCTURAL if kind.fits(anatomy)}
        return tuple(name for name in ORDER if name in structural or name in self.own or name == "size")

    def check_kinds(self, stock: Any, spec: PathSpec) -> None:
        """Raise `PathRefusedError` for a transform that this model cannot take."""
        known = self.kinds(stock)
        for transform in spec.transforms:
            if transform.name not in known:
                raise PathRefusedError(
                    f'{self.name} models like this one have no "{transform.name}"; they take: {", ".join(known)}'
                )

    def check_input(self, stock: Any, height: int, width: int) -> None:
        """Raise `InputError` for a frame that the model cannot take, naming what it can."""
        return

    def check_frame(self, stock: Any, spec: PathSpec, height: int, width: int) -> None:
        """Raise `InputError` for a frame, after `size=`, that a path cannot take; by default all take the same."""
        self.check_input(stock, height, width)

    def resized_arguments(self, arguments: dict[str, Any], height: int, width: int) -> dict[str, Any]:
        """What else the model is called with, for frames brought to `height` x `width`; by default as it is."""
        return arguments

    def restored(self, stock: Any, output: Any, height: int, width: int) -> Any:
        """Bring what a smaller frame gave to what a frame of `height` x `width` gives; by default they are alike."""
        return output


def restructure(model: nn.Module, anatomy: Anatomy, spec: PathSpec, derived: DerivedTensors) -> None:
    """Carry out a path's structural transforms on a clone, in canonical order."""
    for transform in spec.transforms:
        if isinstance(transform, Structural):
            transform.apply(model, anatomy, derived)


def refuse_asked(others: Mapping[str, Any], gives: str) -> None:
    """Raise `InputError` where a lossless path is asked for more than it gives, such as a loss."""
    asked = sorted(name for name, value in others.items() if value is not None and value is not False)
    if asked:
        raise InputError(f"a lossless path gives {gives}, not {asked[0]}; use the stock form")


def resized(image: Tensor, size: tuple[int, int]) -> Tensor:
    """Bring `(B, C, H, W)` to another size, bilinearly; at its own size it is returned as it is."""
    if image.shape[2:] == size:
        return image
    return F.interpolate(image, size=size, mode="bilinear", align_corners=False)


def dtype_of(module: nn.Module) -> torch.dtype:
    """The precision that a model computes in."""
    return next(module.parameters()).dtype


def class_names(config: Any) -> tuple[str, ...]:
    """Names of the classes, from a configuration of transformers."""
    return tuple(str(config.id2label[index]) for index in range(config.num_labels))
