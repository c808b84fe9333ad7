"""From directions of a layer's outputs to the two layers that take its place.

Factors are kept in the space of outputs, `y ~ write (read y) + offset`: they hold for any exact form of the layer (its
input's norm folded into it, say), whose own weights make the first of the two layers. What is made of those weights is
keyed by them and not stored, being one product away.
"""

import hashlib
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from gearshift.paths.lowrank.basis import PREFIX, basis_of, mean_of
from gearshift.paths.lowrank.layer import bias_of, factored, matrix_of
from gearshift.paths.sharing import DerivedTensors


class Factors(NamedTuple):
    """`y ~ write (read y) + offset`.

    `read` is `(r, outputs)` with r at least the rank, of which the first rows count; so are the columns of `write`
    `(outputs, r)`.
    """

    read: Tensor
    write: Tensor
    offset: Tensor


def principal(name: str, rank: int, derived: DerivedTensors) -> Factors:
    """The best ones of a rank for the layer alone: every rank shares one basis."""
    basis, mean = basis_of(name, derived), mean_of(name, derived)

    def offset() -> Tensor:
        rows, centre = basis[:rank].double(), mean.double()
        return (centre - rows.T @ (rows @ centre)).to(mean.dtype)

    return Factors(basis, basis.T, derived.get(f"{PREFIX}{name}/offset:{rank}", offset, stored=False))


def put_in_place(
    model: nn.Module, name: str, rank: int, factors: Factors, owner: str, derived: DerivedTensors
) -> nn.Module:
    """Replace a layer of `model` by two over shared tensors.

    Args:
        model: A clone over the stock model's tensors.
        name: Of the layer in it.
        rank: How many directions are kept.
        factors: Of that rank or more.
        owner: Prefix of keys under which what is made of `factors` is shared.
        derived: Where it is shared.
    """
    module = model.get_submodule(name)
    first = derived.get(f"{owner}/first/{_digest(module)}", partial(_first, factors.read, module), stored=False)
    bias = derived.get(f"{owner}/bias:{rank}/{_digest(module)}", partial(_bias, factors, rank, module), stored=False)
    replacement = factored(module, first[:rank], factors.write[:, :rank], bias)
    model.set_submodule(name, replacement)
    return replacement


def _first(read: Tensor, module: nn.Module) -> Tensor:
    weights = matrix_of(module)
    return (read.double() @ weights.double()).to(weights.dtype)


def _bias(factors: Factors, rank: int, module: nn.Module) -> Tensor:
    bias = bias_of(module)
    if bias is None:
        return factors.offset
    read, write = factors.read[:rank].double(), factors.write[:, :rank].double()
    return (factors.offset.double() + write @ (read @ bias.double())).to(bias.dtype)


def _digest(module: nn.Module) -> str:
    """Tells a layer's weights from those of its other exact forms."""
    digest = hashlib.sha256()
    for part in (matrix_of(module), bias_of(module)):
        if part is not None:
            digest.update(part.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:32]
