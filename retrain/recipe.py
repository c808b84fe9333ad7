"""A training recipe: typed, read from `configs/recipes/*.yaml`; unknown keys are refused by name."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, model_validator

from gearshift.config import read_config

HELD_OUT_SCENES = 10_000
"""Rendered validation scenes use seeds from here on; training scenes use seeds below."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Augmentation(_Section):
    """Crops, scale and colour; a crop holds at least one token of the coarsest stage, at stride 32."""

    crop_height: int = Field(ge=32, multiple_of=4)
    crop_width: int = Field(ge=32, multiple_of=4)
    min_region: float = Field(0.5, gt=0, le=1, description="smallest share of the image's height that a crop shows")
    aspect_jitter: float = Field(0.1, ge=0, lt=1)
    colour_jitter: float = Field(0.3, ge=0, lt=1)


class Optimiser(_Section):
    """AdamW with linear warm-up, a constant stretch and a decay to zero (Hägele et al., 2024).

    The constant stretch knows nothing of the end: `steps` may be changed on resuming before the decay begins.
    """

    learning_rate: float = Field(gt=0)
    weight_decay: float = Field(ge=0)
    warmup_steps: int = Field(ge=0)
    decay_steps: int = Field(gt=0)
    clip_norm: float = Field(1.0, gt=0)
    ema_decay: float = Field(0.999, ge=0, lt=1)


class Distillation(_Section):
    """Weights of the teacher's terms: softened logits, and its features, predicted by a 1x1 layer."""

    logits_weight: float = Field(ge=0)
    temperature: float = Field(2.0, gt=0)
    features_weight: float = Field(ge=0)


class Recipe(_Section):
    """Everything that decides a training run, apart from where the data lies."""

    model: str = Field(description="name of a file in configs/models")
    seed: int = 0
    steps: int = Field(gt=0)
    batch_labelled: int = Field(gt=0, description="labelled photographs in a batch")
    batch_rendered: int = Field(ge=0, description="rendered scenes in a batch")
    rendered_pool: int = Field(0, ge=0, le=HELD_OUT_SCENES, description="rendered frames drawn once and kept in memory")
    class_balance: float = Field(0.5, ge=0, le=1, description="exponent of (median share / share) in the loss")
    bfloat16: bool = False
    checkpoint_every: int = Field(250, gt=0)
    evaluate_every: int = Field(1000, gt=0)
    augmentation: Augmentation
    optimiser: Optimiser
    distillation: Distillation | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> "Recipe":
        warmup, decay = self.optimiser.warmup_steps, self.optimiser.decay_steps
        if warmup + decay > self.steps:
            raise ValueError(
                f"warmup_steps {warmup} and decay_steps {decay} do not fit into steps {self.steps}; "
                "shorten them, or train for more steps"
            )
        if self.batch_rendered and not self.rendered_pool:
            raise ValueError(
                f"batch_rendered is {self.batch_rendered}, but rendered_pool is 0; "
                "give the number of scenes to render, or draw none"
            )
        return self

    @staticmethod
    def read(path: Path) -> "Recipe":
        """Read and check a recipe; a `ConfigError` names file, key and the nearest known key."""
        return read_config(path, Recipe)
