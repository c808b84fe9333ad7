"""A stock model with what it was made from, and how it is carried inside a bundle."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from gearshift.errors import OutputError
from gearshift.files import write_atomic, write_text
from gearshift.paths.data.preprocess import Preprocessing

CHECKPOINT_FOLDER = "checkpoint"
"""Folder of a bundle that holds the weights; as a reference, a checkpoint of transformers in it."""
WEIGHTS_FILE = "model.safetensors"
HERE = "@/"
"""What stands for the bundle's own folder in a reference."""

Files = Mapping[str, Mapping[str, Tensor]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A stock model in evaluation mode, with what it was made from.

    Attributes:
        reference: The name that loads it again, such as `hf:/models/segformer-b2`.
        module: The stock model.
        trained: False for random weights, whose quality means nothing.
        image_size: Height and width of the frames that it is meant for.
        preprocessing: What it expects of images.
        reference_inside: The name that loads it from within a bundle that carries it.
        files: Tensors by name of each file that such a bundle carries; None for a checkpoint of transformers.
    """

    reference: str
    module: Any
    trained: bool
    image_size: tuple[int, int] = (512, 512)
    preprocessing: Preprocessing = field(default_factory=Preprocessing)
    reference_inside: str = CHECKPOINT_FOLDER
    files: Callable[[], Files] | None = None

    def save(self, folder: Path) -> None:
        """Write what `reference_inside` reads.

        Raises:
            OutputError: The folder cannot be written, or its disk is full.
        """
        if self.files is None:
            save_checkpoint(self.module, folder)
            return
        for name, tensors in self.files().items():
            write_tensors(folder / name, tensors)


def inside(folder: Path, reference: str) -> str:
    """A reference with the bundle's folder in its place."""
    if reference == CHECKPOINT_FOLDER:
        return f"hf:{folder / CHECKPOINT_FOLDER}"
    return reference.replace(HERE, f"{folder}/")


def save_checkpoint(module: Any, folder: Path) -> None:
    """Write configuration and weights of a model of transformers, with the live module's names.

    Raises:
        OutputError: The folder cannot be written, or its disk is full.
    """
    write_tensors(folder / WEIGHTS_FILE, module.state_dict())
    config = module.config
    if not config.architectures:
        config = type(config).from_dict({**config.to_dict(), "architectures": [type(module).__name__]})
    write_text(folder / "config.json", config.to_json_string(use_diff=True))


def write_tensors(file: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors as safetensors, whole or not at all; what shares memory is written out for each name."""
    own = {name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()}
    try:
        write_atomic(file, lambda path: save_file(own, path, {"format": "pt"}))
    except SafetensorError as error:  # safetensors' own writer, on a full disk
        raise OutputError(f"cannot write {file.parent}: {error}; make room for it and run again") from error


def weights_hash(module: nn.Module) -> str:
    """SHA-256 over names, types, shapes and bytes of all weights: the same whatever file they came from."""
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()
