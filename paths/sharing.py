"""One set of weights, many module trees: clone the structure, alias the tensors, account for what is new."""

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from gearshift.errors import PathRefusedError

Module = TypeVar("Module", bound=nn.Module)


def clone_structure(module: Module) -> Module:
    """Return a new module tree over the *same* parameters and buffers.

    Modules may then be replaced, removed or put in another mode without touching the original. Hooks stay
    behind, uncopied: they belong to whoever put them on the original.
    """
    memo: dict[int, Any] = {id(tensor): tensor for tensor in tensors_of(module)}
    memo |= {id(hooks): type(hooks)() for part in module.modules() for hooks in _hook_tables(part)}
    clone = copy.deepcopy(module, memo)
    for part in clone.modules():
        # transformers records hidden states by hooks of its own, put on at the first call unless this is set.
        vars(part).pop("_output_capturing_hooks_installed", None)
    return clone


def _hook_tables(module: nn.Module) -> list[dict[int, Any]]:
    return [value for name, value in vars(module).items() if "hooks" in name and isinstance(value, dict)]


def tensors_of(module: nn.Module) -> Iterator[Tensor]:
    """Yield every parameter and buffer of the tree, each once."""
    seen: set[int] = set()
    for tensor in (*module.parameters(), *module.buffers()):
        if id(tensor) not in seen:
            seen.add(id(tensor))
            yield tensor


def storage_bytes(tensors: Iterable[Tensor]) -> int:
    """Memory behind `tensors`, each storage counted once and in full, however small the views on it."""
    storages = {
        (tensor.device, tensor.untyped_storage().data_ptr()): tensor.untyped_storage().nbytes()
        for tensor in tensors
        if tensor.device.type != "meta" and tensor.numel()
    }
    return sum(storages.values())


def extra_bytes(module: nn.Module, base: nn.Module) -> int:
    """Memory that `module` needs beyond the storages of `base`."""
    base_tensors = list(tensors_of(base))
    return storage_bytes([*base_tensors, *tensors_of(module)]) - storage_bytes(base_tensors)


class DerivedTensors:
    """Tensors computed from the weights (folded matrices, say), each made once and shared by all paths.

    Keys are texts that name the tensor by what it is made of, so that a bundle can store it.

    Args:
        known: Tensors made before, by key.
        calibration: Normalised frames `(1, C, H, W)` of the job at hand, for what cannot be made from the weights
            alone (statistics, importances). They are not labelled, and not those that quality is judged on.
    """

    def __init__(self, known: Mapping[str, Tensor] | None = None, calibration: Sequence[Tensor] = ()) -> None:
        self._tensors: dict[str, Tensor] = dict(known or {})
        self._copies: set[str] = set()
        self._asked: set[str] = set()
        self.calibration = calibration

    def frames(self, purpose: str) -> Sequence[Tensor]:
        """The calibration frames.

        Raises:
            PathRefusedError: None were given.
        """
        if not self.calibration:
            raise PathRefusedError(
                f"{purpose} needs calibration frames; build with frames of the job at hand (PathFactory(..., "
                "calibration=frames), or --calibration DIR)"
            )
        return self.calibration

    def get(self, key: str, make: Callable[[], Tensor], *, stored: bool = True) -> Tensor:
        """Return the tensor of `key`, made at the first call and owning its storage.

        It is an ordinary tensor even where the caller is in inference mode: a path may still be trained.

        Args:
            key: What it is made of.
            make: Makes it.
            stored: Whether a bundle keeps it; not worth it for what is quickly made from the checkpoint again.
        """
        self._asked.add(key)
        if not stored:
            self._copies.add(key)
        if key not in self._tensors:
            with torch.inference_mode(mode=False), torch.no_grad():
                self._tensors[key] = make().detach().clone(memory_format=torch.contiguous_format)
        return self._tensors[key]

    def has(self, key: str) -> bool:
        """Whether the tensor of `key` was made or given."""
        return key in self._tensors

    def tensors(self) -> dict[str, Tensor]:
        """All tensors made or given so far."""
        return dict(self._tensors)

    def stored(self) -> dict[str, Tensor]:
        """Those that were asked for and that a bundle keeps."""
        return {key: self._tensors[key] for key in sorted(self._asked - self._copies)}

    def to(self, device: torch.device) -> "DerivedTensors":
        """The same on another device."""
        moved = DerivedTensors(
            {key: tensor.to(device) for key, tensor in self._tensors.items()},
            [frame.to(device) for frame in self.calibration],
        )
        moved._copies, moved._asked = set(self._copies), set(self._asked)
        return moved
