"""Ranks learned: gates on every direction, trained with the factors towards fewer directions at a bounded noise.

After the package that published this as "lockd" (ptdeco, "local knowledge distillation"): a gate per direction, sampled
from a relaxed Bernoulli distribution of temperature 0.5, is closed for good once its logit is negative; the loss is the
excess of noise over a threshold, the expected share of directions kept, and the gates' entropy. What differs: factors
start from principal directions, not at random; noise is that of the model's answers with all gates in place, not of
each layer fed by the untouched model, for which principal directions are already the best; the share kept is weighed by
the operations it costs; and the ranks found are distilled as their spec says (`distil`), so that it alone names them.
"""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from gearshift.paths.anatomy import Anatomy
from gearshift.paths.lowrank.basis import derive_bases, factorable
from gearshift.paths.lowrank.choose import BATCH, MULTIPLE, carried_out
from gearshift.paths.lowrank.distil import LEARNING_RATE, descend, trainable
from gearshift.paths.lowrank.layer import Layer
from gearshift.paths.lowrank.noise import Reference, in_batches
from gearshift.paths.sharing import DerivedTensors, clone_structure
from gearshift.paths.transforms.lowrank import LowRank

TEMPERATURE = 0.5
OPEN, DOUBTFUL = 3.0, 1.0
"""Logits at the start: of each layer's strongest direction and of its weakest."""
GATE_RATE = 0.1
EXCESS_WEIGHT, ENTROPY_WEIGHT = 1.0, 0.05


def lockd(
    stock: nn.Module,
    anatomy: Anatomy,
    derived: DerivedTensors,
    threshold: float,
    *,
    layers: Sequence[str] | None = None,
    multiple: int = MULTIPLE,
    steps: int = 200,
    seed: int = 0,
) -> LowRank | None:
    """Learn ranks, distil the factors, and raise the ranks until the threshold is held.

    What is returned was built and measured; its factors are in `derived`. None where no choice that saves holds.

    Args:
        stock: The model; its own weights stay as they are.
        anatomy: Of it.
        derived: With calibration frames.
        threshold: Noise-to-signal ratio of the model's answers on these frames, above 0.
        layers: Names of those to choose among; all of `anatomy.linears` if None.
        multiple: Of which ranks are.
        steps: Of training the gates.
        seed: Of the gates' samples: the same on a CPU from equal frames.
    """
    chosen = factorable(stock, anatomy.linears if layers is None else layers)
    chosen = {name: layer for name, layer in chosen.items() if layer.largest_rank >= multiple}
    if not chosen:
        return None
    derive_bases(stock, tuple(chosen), anatomy.linears, derived)
    reference = Reference(clone_structure(stock).eval(), in_batches(derived.frames("lowrank=lockd:..."), BATCH))
    kept = _learned(stock, chosen, derived, reference, threshold, steps, seed)
    ranks = {name: -(-max(count, 1) // multiple) * multiple for name, count in kept.items()}
    while ranks := {name: rank for name, rank in ranks.items() if rank <= chosen[name].largest_rank}:
        pairs = tuple((anatomy.linears.index(name), rank) for name, rank in ranks.items())
        found = LowRank(pairs, distilled=True)
        if reference.ratio(carried_out(stock, anatomy, derived, found)) <= threshold:
            return found
        ranks = {name: rank + multiple for name, rank in ranks.items()}
    return None


def _learned(
    stock: nn.Module,
    chosen: dict[str, Layer],
    derived: DerivedTensors,
    reference: Reference,
    threshold: float,
    steps: int,
    seed: int,
) -> dict[str, int]:
    """How many gates of each layer are open in the end."""
    generator = torch.Generator().manual_seed(seed)
    full = {name: layer.largest_rank for name, layer in chosen.items()}
    with torch.inference_mode(mode=False), torch.enable_grad():
        student, trained = trainable(stock, full, derived)
        logits: dict[str, Tensor] = {}
        for name, layer in trained.items():
            start = torch.linspace(OPEN, DOUBTFUL, full[name], dtype=layer.read.dtype, device=layer.read.device)
            logits[name] = start.requires_grad_()
            layer.gate = partial(_sample, logits[name], generator)
        costs = torch.tensor([float(chosen[name].factored_macs(full[name])) for name in trained])

        def loss(step: int) -> Tensor:
            noise = reference.loss(student, step % len(reference.frames))
            excess = torch.relu(noise - threshold) / threshold
            open_shares = [torch.sigmoid(logits[name]) for name in trained]
            kept = torch.stack([share.mean() for share in open_shares])
            entropy = torch.stack([_entropy(share) for share in open_shares]).mean()
            return EXCESS_WEIGHT * excess + (kept * (costs / costs.sum()).to(kept)).sum() + ENTROPY_WEIGHT * entropy

        factors = [tensor for layer in trained.values() for tensor in (layer.read, layer.write, layer.offset)]
        descend([(factors, LEARNING_RATE), (list(logits.values()), GATE_RATE)], loss, steps)
    return {name: int((logit > 0).sum()) for name, logit in logits.items()}


def _sample(logits: Tensor, generator: torch.Generator) -> Tensor:
    """Gates in 0 to 1; a negative logit closes its gate, and no gradient opens it again."""
    uniform = torch.rand(logits.shape, generator=generator, dtype=torch.float64).clamp(1e-9, 1 - 1e-9)
    noise = torch.logit(uniform).to(logits)
    return torch.where(logits < 0, 0.0, torch.sigmoid((logits + noise) / TEMPERATURE))


def _entropy(share: Tensor) -> Tensor:
    return -(torch.xlogy(share, share) + torch.xlogy(1 - share, 1 - share)).mean()
