"""Which classes of transformers do which job with images."""

from collections.abc import Mapping
from typing import Any

from transformers.models.auto.modeling_auto import (
    MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES,
    MODEL_FOR_OBJECT_DETECTION_MAPPING_NAMES,
    MODEL_FOR_SEMANTIC_SEGMENTATION_MAPPING_NAMES,
)

from gearshift.paths.family import TaskName

_TABLES: tuple[tuple[TaskName, Mapping[str, Any]], ...] = (
    ("segmentation", MODEL_FOR_SEMANTIC_SEGMENTATION_MAPPING_NAMES),
    ("detection", MODEL_FOR_OBJECT_DETECTION_MAPPING_NAMES),
    ("classification", MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES),
)


def classes_of_type(model_type: str | None) -> list[str]:
    """Names of the classes for images of a configuration's `model_type`."""
    return [name for _, table in _TABLES if model_type in table for name in _several(table[str(model_type)])]


def task_of_class(name: str) -> TaskName | None:
    """What a class is for; None for one that does none of these jobs."""
    return next((task for task, table in _TABLES if any(name in _several(names) for names in table.values())), None)


def _several(names: str | tuple[str, ...]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names
