"""Any image model of timm, transformers or torchvision: no rewrites of its own, but all transforms that know no family.

Also the last resort for an architecture that has no family here yet: `missing` says what that costs.
"""

from typing import Any

import torch
from torch import nn

from gearshift.errors import InputError, ModelError
from gearshift.paths.anatomy import Anatomy
from gearshift.paths.family import Family, TaskName, Traits, class_names, resized, restructure
from gearshift.paths.generic.discover import channels_of, discover
from gearshift.paths.generic.fold import fold
from gearshift.paths.knobs import Knob, size_knob
from gearshift.paths.models.architectures import task_of_class
from gearshift.paths.outputs import logits_of
from gearshift.paths.sharing import DerivedTensors, clone_structure
from gearshift.paths.spec import PathSpec
from gearshift.paths.structural import structural_knobs
from gearshift.paths.transforms import Lossless

EXACT = 1e-4
"""Share of the largest output by which a folded model may differ on the frame that it is tried on."""


class GenericFamily(Family):
    """Models without a family: parts are found by running them, exact is only what folds into convolutions."""

    name = "generic"
    own = ("lossless",)

    def matches(self, module: nn.Module) -> bool:
        """Whether the module is an image model of a library whose conventions are known."""
        return _task_of(module) is not None

    def traits(self, stock: Any) -> Traits:
        """By the library's conventions."""
        task = _task_of(stock)
        if task is None:
            raise ModelError(f"{type(stock).__name__} is no image model of timm, transformers or torchvision")
        if hasattr(stock, "config"):
            return Traits(task=task, classes=class_names(stock.config), channels=channels_of(stock))
        classes = tuple(str(number) for number in range(discover(stock).output[1]))
        return Traits(task=task, classes=classes, channels=channels_of(stock), structured=False)

    def anatomy(self, stock: Any) -> Anatomy:
        """As found by running it."""
        return discover(stock).anatomy

    def kinds(self, stock: Any) -> tuple[str, ...]:
        """Without `lossless` where nothing folds, and without `size` where it takes one size only."""
        found = discover(stock)
        gone = {name for name, there in (("lossless", bool(found.foldable)), ("size", found.any_size)) if not there}
        return tuple(name for name in super().kinds(stock) if name not in gone)

    def missing(self, stock: Any) -> str:
        """One line: what a model without a family lacks, and what it can have."""
        blocks = sum(discover(stock).anatomy.depths)
        return (
            f"no family of paths knows {type(stock).__name__}: it has no exact rewrites of its own, and its parts were "
            f"found by running it ({blocks} blocks that can be skipped); these transforms apply: "
            f"{', '.join(self.kinds(stock))}"
        )

    def base(self, stock: Any) -> list[PathSpec]:
        """The stock model, and batch norms folded (over copied weights) where a trial shows that this is exact."""
        lossless = PathSpec((Lossless(),))
        exact = discover(stock).foldable and self._is_exact(stock, lossless)
        return [PathSpec(), lossless] if exact else [PathSpec()]

    def build(self, stock: Any, spec: PathSpec, derived: DerivedTensors) -> nn.Module:
        """A clone with the structural transforms, and batch norms folded last."""
        path: nn.Module = clone_structure(stock)
        restructure(path, self.anatomy(stock), spec, derived)
        if spec.get("lossless") is not None:
            fold(path, stock, discover(stock).foldable, derived)
        return path

    def knobs(self, stock: Any, derived: DerivedTensors) -> list[Knob]:
        """Blocks and what else its anatomy admits, and sizes where it takes several."""
        found = discover(stock)
        return [*structural_knobs(stock, found.anatomy, derived), *([size_knob()] if found.any_size else [])]

    def check_input(self, stock: Any, height: int, width: int) -> None:
        """Refuse another size than the model's own where it takes no other."""
        found = discover(stock)
        if not found.any_size and (height, width) != found.size:
            raise InputError(
                f"a frame of {height}x{width} does not fit this model, which takes {found.size[0]}x{found.size[1]} "
                "only; resize frames before"
            )

    def restored(self, stock: Any, output: Any, height: int, width: int) -> Any:
        """Logits of pixels at the size that the stock model gives, by its stride."""
        found = discover(stock)
        if len(found.output) != 4:
            return output
        rows, columns = (
            -(-length * cells // full)
            for length, cells, full in zip((height, width), found.output[2:], found.size, strict=True)
        )
        logits = resized(logits_of(output), (rows, columns))
        if isinstance(output, torch.Tensor):
            return logits
        output.logits = logits
        return output

    def _is_exact(self, stock: Any, spec: PathSpec) -> bool:
        found = discover(stock)
        parameter = next(stock.parameters())
        generator = torch.Generator().manual_seed(0)
        frame = torch.randn(1, channels_of(stock), *found.size, generator=generator).to(parameter)
        with torch.inference_mode():
            ours = logits_of(self.build(stock, spec, DerivedTensors())(frame))
            theirs = logits_of(stock(frame))
        return bool((ours - theirs).abs().max() <= EXACT * theirs.abs().max())


def _task_of(module: nn.Module) -> TaskName | None:
    """What an image model is for, by the conventions of its library; None for any other module."""
    library = type(module).__module__.partition(".")[0]
    if library == "timm" and getattr(module, "num_classes", None):
        return "classification"
    if library == "torchvision" and type(module).__module__.startswith("torchvision.models."):
        return "classification" if "segmentation" not in type(module).__module__ else None
    if library == "transformers":
        return task_of_class(type(module).__name__)
    return None
