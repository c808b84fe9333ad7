"""The directions that a layer's outputs lie in, from one pass over calibration frames for all layers at once.

Features of trained transformers are of low rank though their weights are not (Yu and Wu, "Compressing Transformers:
Features Are Low-Rank, but Weights Are Not!", AAAI 2023). With `U` the leading eigenvectors of the covariance of a
layer's outputs `y = W x + b` and `m` their mean,

    y ~ m + U U^T (y - m) = U (U^T W) x + (m + U U^T (b - m))

is the best affine map of that rank in mean squared error, and what it loses is known without running it: the
eigenvalues left out. The factors of every rank are the first rows of one matrix, kept once per layer:

    lowrank/NAME/basis       (largest rank that saves, outputs), orthonormal rows, strongest first
    lowrank/NAME/mean        (outputs,)
    lowrank/NAME/energies    all eigenvalues, falling, in double precision; the rest is what is lost

Differs from the package that published this as "falor" (ptdeco): the mean is exact, all layers share one pass over the
frames instead of hundreds of passes each, and strides and kernels are kept.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from gearshift.errors import PathRefusedError
from gearshift.paths.lowrank.layer import Layer, bias_of, matrix_of
from gearshift.paths.sharing import DerivedTensors, clone_structure

PREFIX = "lowrank/"
"""Of the keys of everything derived here."""


def basis_of(name: str, derived: DerivedTensors) -> Tensor:
    """Orthonormal rows `(largest rank, outputs)`; `derive_bases` must have run."""
    return derived.get(f"{PREFIX}{name}/basis", _not_derived)


def mean_of(name: str, derived: DerivedTensors) -> Tensor:
    """Mean of the layer's outputs."""
    return derived.get(f"{PREFIX}{name}/mean", _not_derived)


def energies_of(name: str, derived: DerivedTensors) -> Tensor:
    """Eigenvalues of the covariance, falling, in double precision."""
    return derived.get(f"{PREFIX}{name}/energies", _not_derived, stored=False)


def lost_share(energies: Tensor, rank: int) -> float:
    """Noise-to-signal ratio of the layer's output at a rank: the share of its variance that is lost."""
    total = float(energies.sum())
    return float(energies[rank:].sum()) / total if total > 0 else 0.0


def factorable(stock: nn.Module, names: Sequence[str]) -> dict[str, Layer]:
    """Those layers of a model for which some rank saves."""
    layers = {}
    for name in names:
        try:
            layer = Layer.of(stock.get_submodule(name), name)
        except PathRefusedError:
            continue
        if layer.largest_rank:
            layers[name] = layer
    return layers


def derive_bases(
    stock: nn.Module, wanted: Sequence[str], linears: Sequence[str], derived: DerivedTensors, *, spectra: bool = False
) -> None:
    """Make the bases of the wanted layers where they are missing; then those of all others too, in the same pass.

    Args:
        stock: The model whose features count; it is left as it is.
        wanted: Names of layers that can be factored.
        linears: Names of all layers that may be asked for later.
        derived: Where they are kept.
        spectra: Whether the energies are needed too (a bundle does not keep them).

    Raises:
        PathRefusedError: There are no calibration frames, or they never reach a layer or give values that are not
            finite.
    """
    parts = ("basis", "mean", "energies") if spectra else ("basis", "mean")
    known = derived.tensors()

    def missing(name: str) -> bool:
        return any(f"{PREFIX}{name}/{part}" not in known for part in parts)

    if not any(map(missing, wanted)):
        return
    names = [name for name in dict.fromkeys((*wanted, *factorable(stock, linears))) if missing(name)]
    recorders = _record(stock, names, derived.frames("lowrank"))
    for name in names:
        recorder = recorders.pop(name)
        if name not in wanted and not recorder.reached:
            continue
        for part, tensor in zip(("basis", "mean", "energies"), recorder.decomposed(name), strict=True):
            derived.get(f"{PREFIX}{name}/{part}", tensor.clone, stored=part != "energies")


def _not_derived() -> Tensor:
    raise PathRefusedError("lowrank needs the stock model's features first; build the path with a PathFactory")


def _record(stock: nn.Module, names: Sequence[str], frames: Sequence[Tensor]) -> dict[str, "_Recorder"]:
    """Run all frames once, every layer recording its moments."""
    observed = clone_structure(stock).eval()
    dtype = next(stock.parameters()).dtype
    recorders = {}
    for name in names:
        recorders[name] = _Recorder(observed.get_submodule(name), name)
    with torch.inference_mode():
        for frame in frames:
            observed(frame.to(dtype))
    return recorders


class _Recorder:
    """Mean and covariance of a layer's outputs, summed up in double precision.

    A linear layer with fewer inputs than outputs sums up its inputs' instead: the outputs' follow from them, and the
    matrix is smaller.
    """

    def __init__(self, module: nn.Module, name: str) -> None:
        self._module = module
        self._layer = Layer.of(module, name)
        self._by_inputs = isinstance(module, nn.Linear) and self._layer.inputs < self._layer.outputs
        self._count = 0
        self._sum: Tensor | float = 0.0
        self._products: Tensor | float = 0.0
        module.register_forward_hook(self._observe)

    @property
    def reached(self) -> bool:
        """Whether any frame came by."""
        return self._count > 0

    def _observe(self, module: nn.Module, arguments: tuple[Tensor, ...], output: Tensor) -> None:
        features = arguments[0] if self._by_inputs else output
        if isinstance(module, nn.Conv2d):
            features = features.movedim(1, -1)
        rows = features.reshape(-1, features.shape[-1]).double()
        self._count += len(rows)
        self._sum = self._sum + rows.sum(0)
        self._products = self._products + rows.T @ rows

    def decomposed(self, name: str) -> tuple[Tensor, Tensor, Tensor]:
        """Basis, mean and energies of the outputs."""
        if not isinstance(self._sum, Tensor) or not isinstance(self._products, Tensor):
            raise PathRefusedError(f"no calibration frame reaches {name}; leave it out of lowrank")
        mean = self._sum / self._count
        covariance = self._products / self._count - torch.outer(mean, mean)
        if not covariance.isfinite().all():
            raise PathRefusedError(f"features of {name} are not finite on the calibration frames; check the frames")
        if self._by_inputs:
            mean, energies, rows = self._through_weights(mean, covariance)
        else:
            energies, columns = torch.linalg.eigh(covariance)
            energies, rows = energies.flip(0), columns.T.flip(0)
        # An eigenvector's sign is free: the largest entry is positive, so that equal frames give equal factors.
        rows = rows * rows.gather(1, rows.abs().argmax(1, keepdim=True)).sign()
        dtype = matrix_of(self._module).dtype
        basis = rows[: self._layer.largest_rank].to(dtype)
        return basis, mean.to(dtype), energies.clamp(min=0)

    def _through_weights(self, mean: Tensor, covariance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """From the inputs' moments to the outputs' mean, eigenvalues and eigenvectors (rows)."""
        weights, bias = matrix_of(self._module).double(), bias_of(self._module)
        values, vectors = torch.linalg.eigh(covariance)
        columns, singular, _ = torch.linalg.svd(weights @ (vectors * values.clamp(min=0).sqrt()), full_matrices=False)
        outputs = weights @ mean
        return outputs if bias is None else outputs + bias.double(), singular**2, columns.T
