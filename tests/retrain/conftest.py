"""A small model, frames whose colours say where each pixel lies, and recipes of a few steps."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings
from transformers import SegformerConfig, SegformerForSemanticSegmentation

from gearshift.paths.data import IGNORE_INDEX, LabelledFrame
from gearshift.retrain.recipe import Recipe
from gearshift.retrain.teacher import TeacherMaps
from gearshift.retrain.train import TrainingData

# How long one example takes says something of the machine only.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

CLASSES = 5
SMALL: dict[str, Any] = {
    "hidden_sizes": [8, 16, 24, 32],
    "depths": [1, 1, 1, 1],
    "num_attention_heads": [1, 2, 3, 4],
    "sr_ratios": [8, 4, 2, 1],
    "mlp_ratios": [2, 2, 2, 2],
    "decoder_hidden_size": 16,
    "drop_path_rate": 0.2,
    "num_labels": CLASSES,
}

MakeRecipe = Callable[..., Recipe]
MakeFrames = Callable[..., list[LabelledFrame]]


@pytest.fixture(autouse=True)
def torch_as_found() -> Iterator[None]:
    """One thread, and a seed of its own, for every test."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def make_document() -> Callable[..., dict[str, Any]]:
    """Make a recipe's document; changes go to the section that has the key, None removes it."""
    return recipe_document


def recipe_document(**changes: Any) -> dict[str, Any]:
    sections: dict[str, dict[str, Any]] = {
        "augmentation": {
            "crop_height": 32,
            "crop_width": 48,
            "min_region": 0.5,
            "aspect_jitter": 0.1,
            "colour_jitter": 0.3,
        },
        "optimiser": {
            "learning_rate": 0.01,
            "weight_decay": 0.05,
            "warmup_steps": 2,
            "decay_steps": 3,
            "clip_norm": 1.0,
            "ema_decay": 0.998,
        },
    }
    top: dict[str, Any] = {
        "model": "segformer-street",
        "seed": 3,
        "steps": 8,
        "batch_labelled": 2,
        "batch_rendered": 1,
        "rendered_pool": 2,
        "class_balance": 0.5,
        "checkpoint_every": 2,
        "evaluate_every": 100,
    }
    for key, value in changes.items():
        home = next((section for section in sections.values() if key in section), top)
        home[key] = value
    document = top | sections
    return {key: value for key, value in document.items() if value is not None}


@pytest.fixture(scope="session")
def make_recipe() -> MakeRecipe:
    """Make a recipe of eight small steps, with changes."""
    return lambda **changes: Recipe.model_validate(recipe_document(**changes))


@pytest.fixture(scope="session")
def make_frames() -> MakeFrames:
    """Make frames of noise, each with labels of every class in large patches, a few pixels ignored."""
    return noisy_frames


def noisy_frames(count: int, seed: int = 0, size: tuple[int, int] = (48, 64)) -> list[LabelledFrame]:
    rng = np.random.default_rng(seed)
    frames = []
    for _ in range(count):
        coarse = rng.permutation(np.arange(12) % CLASSES).reshape(3, 4).astype(np.uint8)
        labels = np.kron(coarse, np.ones((size[0] // 3 + 1, size[1] // 4 + 1), np.uint8))[: size[0], : size[1]]
        labels = np.where(rng.random(size) < 0.05, np.uint8(IGNORE_INDEX), labels)
        image = (rng.integers(0, 100, (*size, 3)) + 30 * labels[..., None].clip(max=CLASSES)).astype(np.uint8)
        frames.append(LabelledFrame(image=image, labels=labels))
    return frames


@pytest.fixture(scope="session")
def make_model() -> Callable[[], Any]:
    """Make the small model, always with the same random weights."""
    return small_model


def small_model() -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return SegformerForSemanticSegmentation(SegformerConfig(**SMALL)).eval()


@pytest.fixture(scope="session")
def make_data() -> Callable[..., TrainingData]:
    """Make two photographs, two "rendered" frames and one to judge on; maps of a teacher if asked for."""
    return training_data


def training_data(*, taught: bool = False, **changes: Any) -> TrainingData:
    sets: dict[str, Any] = {
        "labelled": noisy_frames(3, seed=1),
        "rendered": noisy_frames(2, seed=2),
        "validation": {"held out": noisy_frames(1, seed=3)},
        "teacher": teacher_maps(3) if taught else None,
    }
    return TrainingData(**(sets | changes))


def teacher_maps(count: int, classes: int = CLASSES) -> TeacherMaps:
    generator = torch.Generator().manual_seed(7)
    return TeacherMaps(
        features=torch.randn(count, 6, 3, 4, generator=generator).half(),
        logits=torch.randn(count, classes, 3, 4, generator=generator).half(),
        top=0.0,
        bottom=1.0,
    )


@pytest.fixture(scope="session")
def make_teacher_maps() -> Callable[..., TeacherMaps]:
    """Make random maps, as a teacher's."""
    return teacher_maps


@pytest.fixture(scope="session")
def write_folder() -> Callable[[Path, list[LabelledFrame]], Path]:
    """Write frames as a folder of images and labels."""
    return _write_folder


def _write_folder(root: Path, frames: list[LabelledFrame]) -> Path:
    from PIL import Image

    for name in ("images", "labels"):
        (root / name).mkdir(parents=True)
    for number, frame in enumerate(frames):
        Image.fromarray(frame.image).save(root / "images" / f"{number}.png")
        Image.fromarray(frame.labels).save(root / "labels" / f"{number}.png")
    return root
