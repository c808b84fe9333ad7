"""Models of timm: by architecture, with weights of a file, of the hub, or random; a ViT under a segmentation head."""

import difflib
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from gearshift.errors import CheckpointError, ModelError
from gearshift.paths.data.preprocess import Preprocessing
from gearshift.paths.models.described import own_chance
from gearshift.paths.models.loaded import CHECKPOINT_FOLDER, HERE, WEIGHTS_FILE, LoadedModel
from gearshift.paths.vit.segmenter import BACKBONE, load_segmenter

HEAD_MARK = ",head="
"""What comes between the two files of a backbone under a segmentation head."""
HEAD_FILE = "head.safetensors"


def load_timm(name: str, *, random_init: bool = False) -> LoadedModel:
    """Load `ARCHITECTURE[.TAG][=FILE]`.

    Args:
        name: As above; without a file, the tag's (or the default) weights are taken from the hub.
        random_init: Random weights instead of the hub's.

    Raises:
        ModelError: timm is not installed, has no such architecture, or the hub is out of reach.
        CheckpointError: The file does not hold this architecture's weights.
    """
    architecture, _, file = name.partition("=")
    if name.endswith("="):
        raise ModelError(f"timm:{name} names no file; write timm:{architecture}=FILE")
    if file:
        module = make_timm(architecture)
        load_weights(module, Path(file), f"timm's {architecture}")
    elif random_init:
        module = make_timm(architecture)
    else:
        module = _fetched(architecture)
    return LoadedModel(
        reference=f"timm:{name}",
        module=module,
        trained=bool(file) or not random_init,
        image_size=_image_size(module),
        preprocessing=_preprocessing(module),
        reference_inside=f"timm:{architecture}={HERE}{CHECKPOINT_FOLDER}/{WEIGHTS_FILE}",
        files=lambda: {WEIGHTS_FILE: module.state_dict()},
    )


def load_timm_segmenter(name: str) -> LoadedModel:
    """Load `vit_tiny_patch16_224=BACKBONE,head=HEAD`: a ViT under a linear segmentation head.

    Raises:
        ModelError: Another architecture, or a file is not named.
        CheckpointError: A file does not hold what it should.
    """
    backbone, _, head = name.partition(HEAD_MARK)
    architecture, _, file = backbone.partition("=")
    if architecture != BACKBONE or not file or not head:
        raise ModelError(f"timm:{name} is no segmenter; write timm:{BACKBONE}=BACKBONE_FILE{HEAD_MARK}HEAD_FILE")
    folder = f"{HERE}{CHECKPOINT_FOLDER}/"
    return LoadedModel(
        reference=f"timm:{name}",
        module=load_segmenter(Path(file), Path(head)),
        trained=True,
        preprocessing=Preprocessing(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5)),
        reference_inside=f"timm:{BACKBONE}={folder}{WEIGHTS_FILE}{HEAD_MARK}{folder}{HEAD_FILE}",
        files=lambda: {WEIGHTS_FILE: _read(Path(file)), HEAD_FILE: _read(Path(head))},
    )


def is_timm(word: str) -> bool:
    """Whether timm is installed and knows an architecture of this name."""
    try:
        import timm
    except ImportError:
        return False
    return bool(timm.is_model(word.partition(".")[0]))


def make_timm(name: str, **settings: Any) -> Any:
    """Make an architecture with random weights, the same each time, in evaluation mode.

    Raises:
        ModelError: timm is not installed or has no such architecture.
    """
    timm = _timm()
    plain = name.partition(".")[0]  # a pretrained tag chooses weights, not structure
    if not timm.is_model(plain):
        near = difflib.get_close_matches(plain, timm.list_models(), n=1)
        hint = f'did you mean "{near[0]}"?' if near else "timm.list_models() lists all"
        raise ModelError(f'timm has no architecture "{plain}"; {hint}')
    with own_chance():
        return timm.create_model(name if name in timm.list_pretrained() else plain, pretrained=False, **settings).eval()


def load_weights(module: Any, file: Path, what: str) -> None:
    """Load a safetensors file into a module, every weight accounted for.

    Raises:
        CheckpointError: The file cannot be read or does not fit; the message names the first key that does not.
    """
    given = _read(file)
    expected: dict[str, Tensor] = module.state_dict()
    for fault, names in (
        ("missing", expected.keys() - given.keys()),
        ("unexpected", given.keys() - expected.keys()),
        ("mismatched", {key for key in expected.keys() & given if expected[key].shape != given[key].shape}),
    ):
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise CheckpointError(f"{file} does not hold {what}: {fault} {min(names)}{more}")
    module.load_state_dict(given)


def _read(file: Path) -> dict[str, Tensor]:
    if not file.is_file():
        raise CheckpointError(f"{file} is no file here; give the safetensors file that holds the weights")
    try:
        tensors: dict[str, Tensor] = load_file(file)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{file} is damaged or no safetensors file: {error}; fetch it again") from error
    return tensors


def _fetched(name: str) -> Any:
    make_timm(name)  # refuses an unknown name before anything is fetched
    try:
        return _timm().create_model(name, pretrained=True).eval()
    except (OSError, RuntimeError) as error:
        raise ModelError(
            f"the weights of timm:{name} could not be fetched from the hub; give a file, timm:{name}=FILE, "
            "or allow random weights with --random-init"
        ) from error


def _timm() -> Any:
    try:
        import timm
    except ImportError as error:
        raise ModelError("timm: models need the timm package: pip install 'gearshift[timm]'") from error
    return timm


def _image_size(module: Any) -> tuple[int, int]:
    height, width = module.pretrained_cfg["input_size"][1:]
    return int(height), int(width)


def _preprocessing(module: Any) -> Preprocessing:
    """As timm evaluates the model: the shorter side to size / crop_pct, then the centre."""
    settings = module.pretrained_cfg
    height, width = _image_size(module)
    return Preprocessing(
        mean=tuple(settings["mean"]),
        std=tuple(settings["std"]),
        resize=int(min(height, width) / settings.get("crop_pct", 0.875)),
        crop=(height, width),
        interpolation=settings.get("interpolation", "bicubic"),
    )
