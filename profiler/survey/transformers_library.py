"""Vision models of the installed transformers, each made from its configuration's defaults."""

import functools
import inspect
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
import transformers
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from gearshift.profiler.survey.library import Built, Facts
from gearshift.profiler.survey.years import year_of

TASKS: Mapping[str, str] = MappingProxyType(
    {
        "image classification": "IMAGE_CLASSIFICATION",
        "semantic segmentation": "SEMANTIC_SEGMENTATION",
        "universal segmentation": "UNIVERSAL_SEGMENTATION",
        "instance segmentation": "INSTANCE_SEGMENTATION",
        "object detection": "OBJECT_DETECTION",
        "depth estimation": "DEPTH_ESTIMATION",
        "image matting": "IMAGE_MATTING",
        "image to image": "IMAGE_TO_IMAGE",
        "keypoint detection": "KEYPOINT_DETECTION",
        "backbone": "BACKBONE",
    }
)
"""Tasks and the names of their tables; a model that does several is surveyed at the first."""

USUAL_SIZE = 224
_SIZES = ("image_size", "input_size", "img_size")
_PARTS = ("vision_config", "backbone_config", "encoder_config")


class TransformersLibrary:
    """Models that take one image, by model type; `family` is the task that they are surveyed at."""

    def names(self) -> Sequence[str]:
        """All model types, sorted."""
        return sorted(_classes())

    def facts(self, name: str) -> Facts:
        """What the docstrings say."""
        task, class_name = _classes()[name]
        maker = getattr(transformers, class_name)
        year = year_of(name, inspect.getdoc(maker), inspect.getdoc(sys.modules[maker.__module__]))
        return Facts(
            family=task,
            model_class=class_name,
            year=None if year is None else year.year,
            year_from=None if year is None else year.found_in,
        )

    def build(self, name: str) -> Built:
        """Build it from its configuration's defaults; backbones of other libraries without their weights."""
        config: Any = CONFIG_MAPPING[name]()
        if getattr(config, "use_pretrained_backbone", False):
            config.use_pretrained_backbone = False
        module = getattr(transformers, _classes()[name][1])(config)
        module.to("meta")  # some parameters are made where no default device is heard of
        return Built(module=module.eval(), pixels=torch.empty(1, *input_size(config)))


@functools.cache
def _classes() -> Mapping[str, tuple[str, str]]:
    """Task and class by model type."""
    found: dict[str, tuple[str, str]] = {}
    for task, table in TASKS.items():
        classes = getattr(modeling_auto, f"MODEL_FOR_{table}_MAPPING_NAMES", {})
        for model_type, names in classes.items():
            found.setdefault(model_type, (task, names if isinstance(names, str) else names[0]))
    return MappingProxyType(found)


def input_size(config: Any) -> tuple[int, int, int]:
    """Channels, height and width that a configuration, or the part of it for images, is made for."""
    parts = [config, *(part for name in _PARTS if (part := getattr(config, name, None)) is not None)]
    sizes = (getattr(part, name, None) for part in parts for name in _SIZES)
    height, width = next((pair for size in sizes if (pair := _pair(size)) is not None), (USUAL_SIZE, USUAL_SIZE))
    channels = (getattr(part, "num_channels", None) for part in parts)
    return next((count for count in channels if isinstance(count, int)), 3), height, width


def _pair(size: Any) -> tuple[int, int] | None:
    """Height and width, from a number, a pair or a mapping."""
    if isinstance(size, Mapping):
        size = (size.get("height"), size.get("width"))
    if isinstance(size, int):
        return size, size
    if isinstance(size, list | tuple) and len(size) >= 2 and all(isinstance(item, int) for item in size[-2:]):
        return size[-2], size[-1]
    return None
