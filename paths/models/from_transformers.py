"""Checkpoints of transformers: from a folder or the hub, every weight accounted for."""

import json
import logging
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub.errors import StrictDataclassError
from PIL.Image import Resampling
from safetensors import SafetensorError
from transformers.utils import cached_file

from gearshift.errors import CheckpointError, ModelError
from gearshift.paths.data.preprocess import IMAGENET_MEAN, IMAGENET_STD, Interpolation, Preprocessing
from gearshift.paths.models.architectures import classes_of_type, task_of_class
from gearshift.paths.models.loaded import LoadedModel


def load_transformers(name: str) -> LoadedModel:
    """Load a model and what it expects of images.

    Raises:
        ModelError: No such folder, and the hub is out of reach or has no such model; or it takes no images.
        CheckpointError: A file is damaged, or weights are missing, left over or of another shape.
    """
    module = load_checkpoint(name)
    processor = _processor(name)
    return LoadedModel(
        reference=f"hf:{name}",
        module=module,
        trained=True,
        image_size=_image_size(module, processor),
        preprocessing=_preprocessing(module, processor),
    )


def load_checkpoint(name: str) -> Any:
    """Load a model of transformers from a folder or from the hub, every weight accounted for.

    It is of the class that its configuration names; both key layouts (transformers 4.x and 5.x) are read.

    Raises:
        ModelError: No such folder, and the hub is out of reach or has no such model; or it takes no images.
        CheckpointError: A file is damaged, or weights are missing, left over or of another shape.
    """
    description = _read_description(name)
    kind_of_model = _class_of(name, description)
    module, loading = _from_pretrained(name, kind_of_model)
    for kind in ("missing", "unexpected", "mismatched"):
        keys = sorted(_key(item) for item in loading[f"{kind}_keys"])
        if keys:
            more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
            raise CheckpointError(
                f"the checkpoint {name} does not fit {kind_of_model.__name__}: {kind} {keys[0]}{more}"
            )
    return module.eval()


# What the loader is seen to raise where a description makes no sense or a file holds something else.
_NOT_LOADABLE = (
    RuntimeError,
    ValueError,
    TypeError,
    AttributeError,
    ArithmeticError,
    LookupError,
    EOFError,
    pickle.UnpicklingError,
    StrictDataclassError,
)


def _from_pretrained(name: str, kind: Any) -> tuple[Any, dict[str, Any]]:
    """Load with transformers: the model, and which weights were missing, left over or of another shape."""
    local = Path(name).exists()
    try:
        with _quiet_transformers():
            loaded: tuple[Any, dict[str, Any]] = kind.from_pretrained(
                name, output_loading_info=True, dtype=torch.float32, ignore_mismatched_sizes=True
            )
            return loaded
    except SafetensorError as error:
        raise CheckpointError(f"the weights of {name} are damaged or cut short: {error}; fetch them again") from error
    except OSError as error:
        if local:
            raise CheckpointError(f"the checkpoint {name} cannot be read: {_one_line(error)}") from error
        raise ModelError(
            f"{name} is no folder here and could not be fetched from the hub; check the name, or give a local folder"
        ) from error
    except _NOT_LOADABLE as error:
        raise CheckpointError(f"the checkpoint {name} cannot be loaded: {_one_line(error)}") from error


def _read_description(name: str) -> dict[str, Any]:
    """`config.json` of a folder here or of the hub, before the loader turns it into something else."""
    place = Path(name)
    if place.is_file():
        raise CheckpointError(f"{place} is a file; give the folder that holds it and config.json")
    file = place / "config.json"
    if place.exists() and not file.is_file():
        raise CheckpointError(f"{place} holds no config.json; give the folder that save_pretrained wrote")
    try:
        found = json.loads((file if place.exists() else _fetched(name, "config.json")).read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(f"{file} is not a JSON object; fetch the checkpoint again") from error
    if not isinstance(found, dict):
        raise CheckpointError(f"{file} is not a JSON object; fetch the checkpoint again")
    return found


def _fetched(name: str, file: str) -> Path:
    try:
        with _quiet_transformers():
            return Path(str(cached_file(name, file)))
    except OSError as error:
        raise ModelError(
            f"{name} is no folder here and could not be fetched from the hub; check the name, or give a local folder"
        ) from error


def _class_of(name: str, description: dict[str, Any]) -> Any:
    """The class that a description names, or the first of its type that segments, detects or classifies images."""
    options = classes_of_type(description.get("model_type"))
    if not options:
        raise ModelError(
            f'{name} holds a model of type "{description.get("model_type")}", which neither segments, detects nor '
            "classifies images; give one that does, such as segformer, vit, swin, upernet or detr"
        )
    named = [item for item in description.get("architectures") or () if item in options]
    return getattr(transformers, (named or options)[0])


def _processor(name: str) -> dict[str, Any]:
    """`preprocessor_config.json`, or nothing where there is none."""
    file = Path(name) / "preprocessor_config.json"
    try:
        if not Path(name).exists():
            with _quiet_transformers():
                found = cached_file(name, file.name, _raise_exceptions_for_missing_entries=False)
            file = Path(str(found)) if found else file
        return dict(json.loads(file.read_text(encoding="utf-8"))) if file.is_file() else {}
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{file} cannot be read: {_one_line(error)}; fetch it again or remove it") from error


def _image_size(module: Any, processor: dict[str, Any]) -> tuple[int, int]:
    size = processor.get("size") or getattr(module.config, "image_size", None)
    if isinstance(size, dict):
        size = (size.get("height") or size.get("shortest_edge"), size.get("width") or size.get("shortest_edge"))
    if isinstance(size, int):
        size = (size, size)
    if isinstance(size, list | tuple) and len(size) == 2 and all(isinstance(side, int) for side in size):
        return size[0], size[1]
    return (512, 512)


def _preprocessing(module: Any, processor: dict[str, Any]) -> Preprocessing:
    """What the processor's file says; segmentation models take frames of any size, others are resized to their own."""
    mean, std = processor.get("image_mean") or IMAGENET_MEAN, processor.get("image_std") or IMAGENET_STD
    segments = task_of_class(type(module).__name__) == "segmentation"
    method: Interpolation = _METHODS.get(processor.get("resample"), "bilinear")
    return Preprocessing(
        mean=tuple(mean),
        std=tuple(std),
        size=None if segments else _image_size(module, processor),
        interpolation=method,
    )


_METHODS: dict[object, Interpolation] = {
    Resampling.NEAREST.value: "nearest",
    Resampling.LANCZOS.value: "lanczos",
    Resampling.BILINEAR.value: "bilinear",
    Resampling.BICUBIC.value: "bicubic",
}


def _key(item: object) -> str:
    """The key of a loading report's entry: mismatches come as (key, shape, shape)."""
    return str(item[0]) if isinstance(item, tuple) else str(item)


@contextmanager
def _quiet_transformers() -> Iterator[None]:
    """Silence the loader's progress bars and load report: our own check says what is wrong, in one line."""
    from transformers.utils import logging as transformers_logging

    loggers = [logging.getLogger(name) for name in ("transformers", "huggingface_hub")]
    levels = [logger.level for logger in loggers]
    bars = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        if bars:
            transformers_logging.enable_progress_bar()


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
