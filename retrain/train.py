"""The training loop: resumable at any step, bit-equal to an unbroken run on one CPU.

Each batch, each dropout mask and each learning rate is a function of (recipe, step), so that a checkpoint needs
only the weights, the optimiser and the step.
"""

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gearshift.errors import CheckpointError
from gearshift.files import write_atomic
from gearshift.paths.data import IGNORE_INDEX, LabelledFrame
from gearshift.paths.quality import Quality, mean_iou
from gearshift.paths.segformer import forward as lean
from gearshift.retrain.losses import distillation_loss, feature_loss, label_loss
from gearshift.retrain.recipe import Optimiser, Recipe
from gearshift.retrain.samples import Batch, Sampler, class_weights
from gearshift.retrain.teacher import TeacherMaps

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingData:
    """Photographs with labels, rendered scenes, and (optionally) what a teacher says of the photographs."""

    labelled: Sequence[LabelledFrame]
    rendered: Sequence[LabelledFrame]
    validation: dict[str, Sequence[LabelledFrame]]
    teacher: TeacherMaps | None = None


def learning_rate(step: int, steps: int, optimiser: Optimiser) -> float:
    """Linear warm-up, constant, then `1 - sqrt` decay over the last `decay_steps` (Hägele et al., 2024)."""
    if step < optimiser.warmup_steps:
        return optimiser.learning_rate * (step + 1) / optimiser.warmup_steps
    into_decay = step - (steps - optimiser.decay_steps)
    if into_decay <= 0:
        return optimiser.learning_rate
    return optimiser.learning_rate * (1 - (into_decay / optimiser.decay_steps) ** 0.5)


class Trainer:
    """Holds a run's state; `run` goes on from the last checkpoint in `folder`, if there is one."""

    def __init__(self, model: Any, recipe: Recipe, data: TrainingData, folder: Path) -> None:
        self.model = model
        self.recipe = recipe
        self.folder = folder
        self.step = 0
        self._data = data
        self._classes = model.config.num_labels
        self._sampler = Sampler(recipe, data.labelled, data.rendered)
        self._weights = class_weights(
            [*data.labelled, *data.rendered], self._classes, recipe.class_balance
        )
        self._adapter = self._make_adapter()
        trained = [*model.parameters(), *self._adapter.parameters()]
        self._optimiser = torch.optim.AdamW(trained, weight_decay=recipe.optimiser.weight_decay)
        self._average = {name: value.detach().clone() for name, value in model.state_dict().items()}

    def run(self, progress: Callable[[int, dict[str, float]], None]) -> dict[str, Quality]:
        """Train to the recipe's last step and return the averaged weights' quality on every validation set."""
        self._restore()
        while self.step < self.recipe.steps:
            terms = self._train_step()
            self.step += 1
            progress(self.step, terms)
            if self.step % self.recipe.checkpoint_every == 0 or self.step == self.recipe.steps:
                self._save()
                self._record({"step": self.step, **terms})
            if self.step % self.recipe.evaluate_every == 0 and self.step < self.recipe.steps:
                self.evaluate()
        return self.evaluate()

    def evaluate(self) -> dict[str, Quality]:
        """Judge the averaged weights; the trained weights are untouched."""
        trained = {name: value.clone() for name, value in self.model.state_dict().items()}
        self.model.load_state_dict(self._average)
        self.model.eval()
        try:
            results = {
                name: mean_iou(lambda pixels: lean.forward(self.model, pixels), frames, self._classes)
                for name, frames in self._data.validation.items()
            }
        finally:
            self.model.load_state_dict(trained)
        self._record({"step": self.step, **{f"mIoU {name}": q.value for name, q in results.items()}})
        return results

    def averaged_weights(self) -> dict[str, Tensor]:
        """The exponential moving average of the weights, which is what is shipped."""
        return self._average

    def _train_step(self) -> dict[str, float]:
        self.model.train()
        rate = learning_rate(self.step, self.recipe.steps, self.recipe.optimiser)
        for group in self._optimiser.param_groups:
            group["lr"] = rate
        batch = self._sampler.batch(self.step)
        terms = self._losses(batch)
        self._optimiser.zero_grad(set_to_none=True)
        total = torch.stack(list(terms.values())).sum()
        total.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.optimiser.clip_norm)
        self._optimiser.step()
        self._update_average()
        return {name: float(term.detach()) for name, term in terms.items()} | {"learning_rate": rate}

    def _losses(self, batch: Batch) -> dict[str, Tensor]:
        pixels = batch.pixel_values.contiguous(memory_format=torch.channels_last)
        with torch.autocast("cpu", torch.bfloat16, enabled=self.recipe.bfloat16):
            maps = lean.encode(self.model.segformer.stages, pixels)
            logits = lean.decode(self.model.decode_head, maps)
            predicted = self._adapter(maps[2]) if self._data.teacher is not None else None
        terms = {"labels": label_loss(logits, batch.labels, self._weights, IGNORE_INDEX)}
        distil, teacher = self.recipe.distillation, self._data.teacher
        if distil is None or teacher is None or predicted is None:
            return terms
        taught = [(row, source) for row, source in enumerate(batch.sources) if source is not None]
        rows = [row for row, _ in taught]

        def cut(stack: Tensor, like: Tensor) -> Tensor:
            size = (like.shape[2], like.shape[3])
            return torch.stack([teacher.crop(stack, source, batch.regions[row], size) for row, source in taught])

        soft = distillation_loss(logits[rows], cut(teacher.logits, logits), distil.temperature)
        features = feature_loss(predicted[rows], cut(teacher.features, predicted))
        return terms | {
            "teacher logits": distil.logits_weight * soft,
            "teacher features": distil.features_weight * features,
        }

    def _make_adapter(self) -> nn.Module:
        if self._data.teacher is None:
            return nn.Identity()
        return nn.Conv2d(self.model.config.hidden_sizes[2], self._data.teacher.features.shape[1], 1)

    def _update_average(self) -> None:
        # A short run or the first steps average over fewer steps than the decay asks for.
        decay = min(self.recipe.optimiser.ema_decay, (1 + self.step) / (10 + self.step))
        with torch.no_grad():
            for name, value in self.model.state_dict().items():
                if value.is_floating_point():
                    self._average[name].lerp_(value, 1 - decay)
                else:
                    self._average[name].copy_(value)

    def _save(self) -> None:
        state = {
            "recipe": self.recipe.model_dump(),
            "step": self.step,
            "model": self.model.state_dict(),
            "average": self._average,
            "adapter": self._adapter.state_dict(),
            "optimiser": self._optimiser.state_dict(),
        }
        write_atomic(self._checkpoint, lambda path: torch.save(state, path))

    def _restore(self) -> None:
        if not self._checkpoint.exists():
            return
        state = torch.load(self._checkpoint, weights_only=True)
        self._refuse_other_recipe(state["recipe"], state["step"])
        self.model.load_state_dict(state["model"])
        self._average = state["average"]
        self._adapter.load_state_dict(state["adapter"])
        self._optimiser.load_state_dict(state["optimiser"])
        self.step = state["step"]
        log.info("resumed %s at step %d", self.folder, self.step)

    def _refuse_other_recipe(self, saved: dict[str, Any], step: int) -> None:
        """Allow a new end only while the old run's decay has not begun; all else must be the same."""
        now = self.recipe.model_dump()
        changed = sorted(key for key in now if now[key] != saved.get(key) and key != "steps")
        decay_begun = step > min(saved["steps"], now["steps"]) - self.recipe.optimiser.decay_steps
        if now["steps"] != saved["steps"] and decay_begun:
            changed.append("steps")
        if changed:
            raise CheckpointError(
                f"{self._checkpoint} was made with another recipe ({', '.join(changed)} differ); "
                "give another folder, or the recipe that it was made with"
            )

    def _record(self, row: dict[str, float]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "log.jsonl").open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(row) + "\n")

    @property
    def _checkpoint(self) -> Path:
        return self.folder / "checkpoint.pt"
