"""Ranks learned: gates on every direction, trained with the factors towards fewer directions at a bounded noise.

After the package that published this as "lockd" (ptdeco, "local knowledge distillation"): a gate per direction, sampled
from a relaxed Bernoulli distribution of temperature 0.5, is closed for good once its logit is negative; the loss is the
excess of noise over a threshold, the expected share of directions kept, and the gates' entropy. What differs: factors
start from principal directions, not at random; noise is that of the model's answers with all gates in place, not of
each layer fed by the untouched model, for which principal directions are already the best; the share kept is weighed by
the operations it costs. Sampled gates are noisier than none, so that the ranks learned say how to share directions
among layers rather than how many there must be: they are scaled together, each time distilled as their spec says
(`distil`), to the least that holds the threshold.
"""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from gearshift.paths.anatomy import Anatomy
from gearshift.paths.lowrank.basis import derive_bases, factorable
from gearshift.paths.lowrank.choose import BATCH, MULTIPLE, carried_out
from gearshift.paths.lowrank.distil import LEARNING_RATE, descend, owner_of, trainable
from gearshift.paths.lowrank.layer import Layer
from gearshift.paths.lowrank.noise import Reference, in_batches
from gearshift.paths.sharing import DerivedTensors, clone_structure
from gearshift.paths.transforms.lowrank import LowRank

TEMPERATURE = 0.5
OPEN, DOUBTFUL = 3.0, 1.0
"""Logits at the start: of each layer's strongest direction and of its weakest."""
GATE_RATE, GATE_STEPS = 0.1, 400
ENTROPY_WEIGHT = 0.05
STEP, MOST_STEPS = 1.15, 12
"""Ratio of the ranks of one trial to those of the next, and how many trials there are at most each way."""


def lockd(
    stock: nn.Module,
    anatomy: Anatomy,
    derived: DerivedTensors,
    threshold: float,
    *,
    layers: Sequence[str] | None = None,
    multiple: int = MULTIPLE,
    steps: int = GATE_STEPS,
    seed: int = 0,
) -> LowRank | None:
    """Learn ranks, distil the factors, and scale the ranks down as long as the threshold is held (up, until it is).

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
    learned = _learned(stock, chosen, derived, reference, threshold, steps, seed)
    trials = DerivedTensors(derived.tensors(), derived.calibration)  # factors of rejected ranks are not kept

    def tried(power: int) -> LowRank | None:
        """The learned ranks times a power of `STEP`, where that saves and holds the threshold."""
        scaled = {name: -(-max(count * STEP**power, 1) // multiple) * multiple for name, count in learned.items()}
        saving = [(name, int(rank)) for name, rank in scaled.items() if rank <= chosen[name].largest_rank]
        if not saving:
            return None
        transform = LowRank(tuple((anatomy.linears.index(name), rank) for name, rank in saving), distilled=True)
        held = reference.ratio(carried_out(stock, anatomy, trials, transform)) <= threshold
        return transform if held else None

    found = tried(0)
    for power in range(1, MOST_STEPS):
        # Down while it holds, or up until it does.
        other = tried(power if found is None else -power)
        if other is None and found is not None:
            break
        settled = found is None and other is not None
        found = other or found
        if settled:
            break
    if found is not None:
        for key, tensor in trials.tensors().items():
            if key.startswith(owner_of(found.value())):
                derived.get(key, tensor.clone)
    return found


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
            return excess + (kept * (costs / costs.sum()).to(kept)).sum() + ENTROPY_WEIGHT * entropy

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
