"""Models by name: from one word, or `KIND:NAME`, to a loaded stock model."""

import difflib
from pathlib import Path

from gearshift.errors import ModelError
from gearshift.paths.models.described import describe, described_models, own_chance
from gearshift.paths.models.from_timm import HEAD_MARK, is_timm, load_timm, load_timm_segmenter
from gearshift.paths.models.from_transformers import load_transformers
from gearshift.paths.models.loaded import CHECKPOINT_FOLDER, HERE, WEIGHTS_FILE, LoadedModel
from gearshift.paths.ofa.checkpoint import load_supernet
from gearshift.paths.ofa.supernet import Supernet

OFA_SIZE = (224, 224)


def load_model(reference: str, *, random_init: bool = False) -> LoadedModel:
    """Load a model by name.

    Args:
        reference: `hf:NAME_OR_DIR` (or a folder alone), `timm:NAME[=FILE]` (`,head=FILE` for a linear
            segmentation head on it), `ofa:resnet50[=FILE]`, `config:NAME` (random weights), or one word: a
            description's name with its trained weights, or an architecture of timm.
        random_init: Random weights where a name alone would have the hub asked for trained ones.

    Raises:
        ModelError: The name has no known form, or nothing of that name exists here or on the hub.
        CheckpointError: The weights cannot be read or do not fit.
    """
    kind, colon, name = reference.partition(":")
    if not colon:
        kind, name = _resolved(reference, random_init).split(":", 1)
    if kind == "config" and name:
        return _described(name)
    if kind == "timm" and HEAD_MARK in name:
        return load_timm_segmenter(name)
    if kind == "timm" and name:
        return load_timm(name, random_init=random_init)
    if kind == "hf" and name:
        return load_transformers(name)
    architecture, _, file = name.partition("=")
    if kind == "ofa" and architecture == "resnet50" and not name.endswith("="):
        return _once_for_all(name, file, random_init)
    raise ModelError(
        f'unknown model "{reference}"; write hf:NAME_OR_DIR (a transformers checkpoint), ofa:resnet50[=FILE], '
        f"timm:NAME[=FILE], config:NAME (random weights), or one word: {', '.join(described_models())}, "
        "or an architecture of timm"
    )


def _resolved(word: str, random_init: bool) -> str:
    """What one word stands for, as `KIND:NAME`."""
    if Path(word).is_dir():
        return f"hf:{word}"
    if word in described_models():
        trained = describe(word).checkpoint
        if random_init or trained is None:
            return f"config:{word}"
        return trained
    if is_timm(word):
        return f"timm:{word}"
    near = difflib.get_close_matches(word, described_models(), n=1)
    hint = f'; did you mean "{near[0]}"?' if near else ""
    raise ModelError(
        f'unknown model "{word}": it is no folder here, no architecture of timm, and none of '
        f"{', '.join(described_models())}{hint}"
    )


def _described(name: str) -> LoadedModel:
    description = describe(name)
    with own_chance():
        module = description.build()
    if isinstance(module, Supernet):
        return _supernet(f"config:{name}", module, trained=False)
    size = getattr(description, "image_size", (512, 512))
    return LoadedModel(reference=f"config:{name}", module=module, trained=False, image_size=size)


def _once_for_all(name: str, file: str, random_init: bool) -> LoadedModel:
    if random_init and not file:
        return _supernet(f"ofa:{name}", _described("ofa-resnet50").module, trained=False)
    return _supernet(f"ofa:{name}", load_supernet(Path(file) if file else None), trained=True)


def _supernet(reference: str, module: Supernet, *, trained: bool) -> LoadedModel:
    return LoadedModel(
        reference=reference,
        module=module,
        trained=trained,
        image_size=OFA_SIZE,
        reference_inside=f"ofa:resnet50={HERE}{CHECKPOINT_FOLDER}/{WEIGHTS_FILE}",
        files=lambda: {WEIGHTS_FILE: module.state_dict()},
    )
