"""A pruned model against the stock model in which every reader of the channels that are gone reads zeros."""

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from gearshift.paths.anatomy import Anatomy
from gearshift.paths.pruning.places import Kept, cut, silence
from gearshift.paths.sharing import DerivedTensors, clone_structure


def difference(stock: nn.Module, anatomy: Anatomy, kept: Kept, example: Tensor) -> float:
    """Largest difference between both outputs, relative to the largest output, in double precision.

    Raises:
        ValueError: They are not alike in number or shape.
    """
    with torch.inference_mode(mode=False), torch.no_grad():
        silenced = copy.deepcopy(clone_structure(stock)).double().eval()
        pruned = clone_structure(silenced)
        cut(pruned, anatomy, kept, "checked", DerivedTensors())
        # The pruned model runs first: silencing writes to tensors that it shares.
        got = [tensor.clone() for tensor in tensors_of(pruned(example.double()))]
        silence(silenced, kept)
        expected = list(tensors_of(silenced(example.double())))
    if [tensor.shape for tensor in got] != [tensor.shape for tensor in expected]:
        raise ValueError("the outputs have other shapes")
    return max(float((a - b).abs().max() / b.abs().max().clamp_min(1e-30)) for a, b in zip(got, expected, strict=True))


def tensors_of(output: Any) -> Iterator[Tensor]:
    """Every tensor of a model's output, whatever it is packed in."""
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, Mapping):
        for value in output.values():
            yield from tensors_of(value)
    elif isinstance(output, list | tuple):
        for value in output:
            yield from tensors_of(value)
