"""The published supernet checkpoint: from a local file or from the hub, every tensor accounted for.

Two layouts of names are read: the supernet's own (`blocks.0.conv1.conv.conv.weight`), and that of a single network
of full size (`blocks.0.conv1.conv.weight`), which the published code takes as well.
"""

import pickle
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import hf_hub_download
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from gearshift.errors import CheckpointError, ModelError
from gearshift.paths.ofa.supernet import Supernet

REPOSITORY = "han-cai/ofa"
FILE_NAME = "ofa_supernet_resnet50"
_URL = f"https://huggingface.co/{REPOSITORY}/resolve/main/{FILE_NAME}"
_NESTED = re.compile(r"\b(conv|bn|linear)\.\1\.(?=[^.]+$)")
# What the loaders are seen to raise where a file is damaged, cut short or holds more than tensors.
_NOT_LOADABLE = (
    OSError,
    RuntimeError,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    EOFError,
    pickle.UnpicklingError,
    zipfile.BadZipFile,
    SafetensorError,
)


def load_supernet(file: Path | None = None) -> Supernet:
    """Load the supernet's weights, strictly.

    Args:
        file: A `.pth` file (or of no suffix, as published) or a `.safetensors` file; by default the published
            file is taken from the hub, or from the hub's cache here.

    Raises:
        ModelError: There is no such file, or the hub is out of reach.
        CheckpointError: The file is damaged, or tensors are missing, left over or of another shape.
    """
    path = _fetch() if file is None else file
    if not path.is_file():
        raise ModelError(f"{path} is no file here; give the published {FILE_NAME} or a copy in its layout")
    with torch.device("meta"):
        supernet = Supernet()
    expected = supernet.state_dict()
    given = _renamed(_read(path), expected, path)
    for fault, names in _faults(expected, given):
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise CheckpointError(
                f"the checkpoint {path} does not fit the Once-for-All ResNet-50 supernet: {fault} {names[0]}{more}"
            )
    weights = {name: tensor.to(expected[name].dtype).contiguous() for name, tensor in given.items()}
    supernet.load_state_dict(weights, assign=True)
    return supernet


def _single_network_name(name: str) -> str:
    """The name in a single network of a tensor of the supernet."""
    return _NESTED.sub(r"\1.", name)


def _fetch() -> Path:
    try:
        return Path(hf_hub_download(REPOSITORY, FILE_NAME))
    except OSError as error:
        raise ModelError(
            f"{_URL} could not be fetched and is not in the cache; fetch it elsewhere and give the file: "
            "ofa:resnet50=FILE"
        ) from error


def _read(path: Path) -> dict[str, Tensor]:
    """All tensors of a file by their names in it."""
    try:
        if path.suffix == ".safetensors":
            tensors: dict[str, Tensor] = load_file(path)
            return tensors
        _check_sums(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
    except _NOT_LOADABLE as error:
        reason = " ".join(str(error).split())[:200]
        raise CheckpointError(
            f"the checkpoint {path} cannot be read: it is damaged, cut short or holds more than tensors; "
            f"fetch it again ({reason})"
        ) from error
    return _tensors_in(content, path)


def _check_sums(path: Path) -> None:
    """Compare every record of a zipped file with its checksum, which torch.load does not."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            record = archive.testzip()
        if record is not None:
            raise ValueError(f"{record} does not match its checksum")


def _tensors_in(content: Any, path: Path) -> dict[str, Tensor]:
    """The tensors below `state_dict`, where the published file has them, or those of the file itself."""
    held = content.get("state_dict", content) if isinstance(content, Mapping) else content
    if not isinstance(held, Mapping) or not all(isinstance(value, Tensor) for value in held.values()):
        raise CheckpointError(f'the checkpoint {path} holds no tensors by name, at its top or under "state_dict"')
    return {str(name): tensor for name, tensor in held.items()}


def _renamed(tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor], path: Path) -> dict[str, Tensor]:
    """The tensors by the supernet's names, whichever layout they came in."""
    nested = {_single_network_name(name): name for name in expected}
    renamed: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        target = name if name in expected else nested.get(name, name)
        if target in renamed:
            raise CheckpointError(f"the checkpoint {path} holds {target} twice, under names of both layouts")
        renamed[target] = tensor
    return renamed


def _faults(expected: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> Iterator[tuple[str, list[str]]]:
    yield "missing", sorted(expected.keys() - given.keys())
    yield "unexpected", sorted(given.keys() - expected.keys())
    yield "mismatched", sorted(name for name in expected if not _fits(given[name], expected[name]))


def _fits(tensor: Tensor, expected: Tensor) -> bool:
    """Same shape and kind; weights of another precision are converted."""
    return tensor.shape == expected.shape and tensor.is_floating_point() == expected.is_floating_point()
