"""The training loop: resumable at any step, bit-equal to an unbroken run on one CPU.

Each batch, each dropout mask and each learning rate is a function of (recipe, step), so that a checkpoint
needs only the weights, the optimiser and the step.
"""

import json
import logging
import math
import pickle
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gearshift.errors import CheckpointError, OutputError
from gearshift.files import write_atomic
from gearshift.paths.data import IGNORE_INDEX, LabelledFrame
from gearshift.paths.quality import Quality, mean_iou
from gearshift.paths.segformer import forward as lean
from gearshift.retrain.losses import any_labelled, distillation_loss, feature_loss, label_loss
from gearshift.retrain.recipe import Optimiser, Recipe
from gearshift.retrain.samples import Batch, Sampler, class_weights, count_labels
from gearshift.retrain.teacher import TeacherMaps

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingData:
    """Photographs with labels, rendered scenes, and (optionally) what a teacher says of the photographs."""

    labelled: Sequence[LabelledFrame]
    rendered: Sequence[LabelledFrame]
    validation: Mapping[str, Sequence[LabelledFrame]]
    teacher: TeacherMaps | None = None


def learning_rate(step: int, steps: int, optimiser: Optimiser) -> float:
    """Return the rate of a step: linear warm-up, constant, then `1 - sqrt` decay (Hägele et al., 2024)."""
    if step < optimiser.warmup_steps:
        return optimiser.learning_rate * (step + 1) / optimiser.warmup_steps
    into_decay = step - (steps - optimiser.decay_steps)
    if into_decay <= 0:
        return optimiser.learning_rate
    left: float = 1 - (into_decay / optimiser.decay_steps) ** 0.5
    return optimiser.learning_rate * left


class Trainer:
    """Holds a run's state; `run` goes on from the last checkpoint in `folder`, if there is one.

    The layer that predicts a teacher's features starts with weights from torch's global generator, as the
    model did: seed it before the model is made, and the run is a function of recipe and data.

    Attributes:
        step: Steps done.
        skipped: Batches so far without one labelled pixel. Their label loss is left out; without a teacher
            nothing is left to learn from, and the whole step is.

    Raises:
        CheckpointError: The teacher's maps do not fit the model or the photographs.
        DataError: There is nothing to train or to judge on, or a label is no class of the model.
    """

    def __init__(self, model: Any, recipe: Recipe, data: TrainingData, folder: Path) -> None:
        self.model = model
        self.recipe = recipe
        self.folder = folder
        self.step = 0
        self.skipped = 0
        self._data = data
        self._classes: int = model.config.num_labels
        self._teacher = data.teacher if recipe.distillation is not None else None
        if self._teacher is not None:
            _check_teacher(self._teacher, len(data.labelled), self._classes)
        self._sampler = Sampler(recipe, data.labelled, data.rendered)
        self._weights = class_weights([*data.labelled, *data.rendered], self._classes, recipe.class_balance)
        for name, frames in data.validation.items():
            count_labels(frames, self._classes, f'of the validation set "{name}"')
        self._adapter = self._make_adapter()
        trained = [*model.parameters(), *self._adapter.parameters()]
        trained = [parameter for parameter in trained if parameter.requires_grad]
        self._optimiser = torch.optim.AdamW(trained, weight_decay=recipe.optimiser.weight_decay, fused=True)
        self._average = {name: value.detach().clone() for name, value in model.state_dict().items()}

    def run(self, progress: Callable[[int, dict[str, float]], None]) -> dict[str, Quality]:
        """Train to the recipe's last step; return the averaged weights' quality on every validation set.

        Args:
            progress: Called after each step with the steps done and the loss terms, learning rate among them.

        Raises:
            CheckpointError: The folder's checkpoint is damaged, or was made with another recipe or model.
            OutputError: The folder cannot be written.
        """
        self._restore()
        for batch in self._batches():
            terms = self._train_step(batch)
            self.step += 1
            progress(self.step, terms)
            if self.step % self.recipe.checkpoint_every == 0 or self.step == self.recipe.steps:
                self._save()
                self._record({"step": self.step, **terms, "skipped": self.skipped})
            if self.step % self.recipe.evaluate_every == 0 and self.step < self.recipe.steps:
                self.evaluate()
        return self.evaluate()

    def evaluate(self) -> dict[str, Quality]:
        """Judge the averaged weights; the model keeps its trained weights and its mode."""
        with self._averaged():
            results = {
                name: mean_iou(lambda pixels: lean.forward(self.model, pixels), frames, self._classes)
                for name, frames in self._data.validation.items()
            }
        self._record({"step": self.step, **{f"mIoU {name}": q.value for name, q in results.items()}})
        return results

    def averaged_weights(self) -> dict[str, Tensor]:
        """Return the exponential moving average of the weights, which is what is shipped."""
        return self._average

    @contextmanager
    def _averaged(self) -> Iterator[None]:
        """Give the model the averaged weights, for evaluation; put all back as it was, whatever happens."""
        trained = {name: value.clone() for name, value in self.model.state_dict().items()}
        training = self.model.training
        try:
            self.model.load_state_dict(self._average)
            self.model.eval()
            yield
        finally:
            self.model.load_state_dict(trained)
            self.model.train(training)

    def _batches(self) -> Iterator[Batch]:
        """Yield the remaining batches, each prepared on another thread while the one before is trained on."""
        with ThreadPoolExecutor(1, thread_name_prefix="gearshift-samples") as pool:
            ahead = pool.submit(self._sampler.batch, self.step)
            for step in range(self.step, self.recipe.steps):
                batch = ahead.result()
                if step + 1 < self.recipe.steps:
                    ahead = pool.submit(self._sampler.batch, step + 1)
                yield batch

    def _train_step(self, batch: Batch) -> dict[str, float]:
        self.model.train()
        torch.manual_seed(random.Random(f"{self.recipe.seed}/{self.step}/model").getrandbits(63))
        rate = learning_rate(self.step, self.recipe.steps, self.recipe.optimiser)
        for group in self._optimiser.param_groups:
            group["lr"] = rate
        if not any_labelled(batch.labels, IGNORE_INDEX):
            self.skipped += 1
            if self._teacher is None:
                return {"labels": 0.0, "learning_rate": rate}
        terms = self._losses(batch)
        self._optimiser.zero_grad(set_to_none=True)
        torch.autograd.backward(torch.stack(list(terms.values())).sum())
        nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.optimiser.clip_norm)
        self._optimiser.step()
        self._update_average()
        return {name: float(term.detach()) for name, term in terms.items()} | {"learning_rate": rate}

    def _losses(self, batch: Batch) -> dict[str, Tensor]:
        pixels = batch.pixel_values.contiguous(memory_format=torch.channels_last)
        with torch.autocast("cpu", torch.bfloat16, enabled=self.recipe.bfloat16):
            maps = lean.encode(self.model.segformer.stages, pixels)
            logits = lean.decode(self.model.decode_head, maps)
            predicted = self._adapter(maps[2])
        terms = {"labels": label_loss(logits, batch.labels, self._weights, IGNORE_INDEX)}
        return terms | self._teacher_losses(batch, logits, predicted)

    def _teacher_losses(self, batch: Batch, logits: Tensor, predicted: Tensor) -> dict[str, Tensor]:
        """Compare logits and predicted features with the teacher's, on the photographs of the batch."""
        distil, teacher = self.recipe.distillation, self._teacher
        if distil is None or teacher is None:
            return {}
        taught = [(row, source) for row, source in enumerate(batch.sources) if source is not None]
        rows = [row for row, _ in taught]

        def cut(stack: Tensor, like: Tensor) -> Tensor:
            size = (like.shape[2], like.shape[3])
            crops = [teacher.crop(stack, source, batch.regions[row], size) for row, source in taught]
            return torch.stack(crops)

        soft = distillation_loss(logits[rows], cut(teacher.logits, logits), distil.temperature)
        features = feature_loss(predicted[rows], cut(teacher.features, predicted))
        return {
            "teacher logits": distil.logits_weight * soft,
            "teacher features": distil.features_weight * features,
        }

    def _make_adapter(self) -> nn.Module:
        """Make the layer that predicts the teacher's features from the third stage's map."""
        if self._teacher is None:
            return nn.Identity()
        return nn.Conv2d(self.model.config.hidden_sizes[2], self._teacher.features.shape[1], 1)

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
            "skipped": self.skipped,
            "model": self.model.state_dict(),
            "average": self._average,
            "adapter": self._adapter.state_dict(),
            "optimiser": self._optimiser.state_dict(),
        }
        try:
            write_atomic(self._checkpoint, lambda path: torch.save(state, path))
        except RuntimeError as error:  # torch's own writer, on a full disk
            reason = " ".join(str(error).split())[:200]
            raise OutputError(f"cannot write {self._checkpoint}: {reason}; make room for it") from error

    def _restore(self) -> None:
        if not self._checkpoint.exists():
            return
        state = self._read_checkpoint()
        self._refuse_other_recipe(state["recipe"], state["step"])
        try:
            self.model.load_state_dict(state["model"])
            self._adapter.load_state_dict(state["adapter"])
            self._optimiser.load_state_dict(state["optimiser"])
        except (RuntimeError, ValueError) as error:
            reason = " ".join(str(error).split())[:200]
            raise CheckpointError(
                f"{self._checkpoint} was made with another model or teacher ({reason}); give another folder"
            ) from error
        self._average = state["average"]
        self.step = state["step"]
        self.skipped = state.get("skipped", 0)
        log.info("resumed %s at step %d", self.folder, self.step)

    def _read_checkpoint(self) -> dict[str, Any]:
        damaged = f"{self._checkpoint} cannot be read as a checkpoint; remove it to start anew"
        try:
            state = torch.load(self._checkpoint, weights_only=True)
        except (OSError, EOFError, RuntimeError, ValueError, pickle.UnpicklingError) as error:
            raise CheckpointError(damaged) from error
        parts = {"recipe", "step", "model", "average", "adapter", "optimiser"}
        if not isinstance(state, dict) or not parts <= state.keys():
            raise CheckpointError(damaged)
        return state

    def _refuse_other_recipe(self, saved: dict[str, Any], step: int) -> None:
        """Allow a new end only while the old run's decay has not begun; all else must be the same."""
        old, new = _flat(saved), _flat(self.recipe.model_dump())
        changed = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
        decay_begun = step > min(old["steps"], new["steps"]) - self.recipe.optimiser.decay_steps
        if not decay_begun:
            changed = [key for key in changed if key != "steps"]
        if changed:
            raise CheckpointError(
                f"{self._checkpoint} was made with another recipe ({', '.join(changed)} differ); "
                "give another folder, or the recipe that it was made with"
            )

    def _record(self, row: Mapping[str, float]) -> None:
        """Add a line to the log; JSON has no word for what is not finite, which becomes null."""
        finite = {name: value if math.isfinite(value) else None for name, value in row.items()}
        file = self.folder / "log.jsonl"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with file.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(finite) + "\n")
        except OSError as error:
            raise OutputError(
                f"cannot write {file}: {error.strerror or error}; choose a folder that you may write to"
            ) from error

    @property
    def _checkpoint(self) -> Path:
        return self.folder / "checkpoint.pt"


def _check_teacher(teacher: TeacherMaps, photographs: int, classes: int) -> None:
    maps, teacher_classes = teacher.logits.shape[:2]
    if teacher_classes != classes:
        raise CheckpointError(
            f"the teacher knows {teacher_classes} classes and the model {classes}; give a head for as many"
        )
    if maps != photographs:
        raise CheckpointError(f"the teacher has seen {maps} photographs, but there are {photographs}")


def _flat(section: dict[str, Any], above: str = "") -> dict[str, Any]:
    """Name every setting of nested sections by its dotted path."""
    flat: dict[str, Any] = {}
    for key, value in section.items():
        flat |= _flat(value, f"{above}{key}.") if isinstance(value, dict) else {f"{above}{key}": value}
    return flat
