"""Models by name: `hf:NAME_OR_DIR` (a transformers checkpoint), `ofa:resnet50[=FILE]`, `config:NAME`, `timm:NAME`.

The last two have random weights. Only SegFormer has paths so far; the cost of the others can be profiled.
"""

import difflib
import hashlib
import json
import logging
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

import torch
from huggingface_hub.errors import StrictDataclassError
from pydantic import Field, RootModel
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import nn
from transformers import SegformerForSemanticSegmentation

from gearshift.config import read_config
from gearshift.errors import CheckpointError, ModelError, OutputError
from gearshift.files import write_atomic, write_text
from gearshift.paths.ofa.checkpoint import load_supernet
from gearshift.paths.segformer.config import SegformerDescription
from gearshift.paths.stock import TransformersDescription, build_timm

SEGFORMER_SIZE = (512, 512)
OFA_SIZE = (224, 224)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A stock model in evaluation mode, with what it was made from.

    Attributes:
        reference: The name that loads it again, such as `hf:/models/segformer-b2`.
        module: The stock model.
        trained: False for random weights, whose quality means nothing.
        image_size: Height and width of the frames that it is meant for.
    """

    reference: str
    module: Any
    trained: bool
    image_size: tuple[int, int] = SEGFORMER_SIZE


def load_model(reference: str) -> LoadedModel:
    """Load a model by name.

    Raises:
        ModelError: The name has no known form, or nothing of that name exists here.
        CheckpointError: The weights cannot be read or do not fit.
    """
    kind, colon, name = reference.partition(":")
    if not colon and Path(reference).is_dir():
        kind, name = "hf", reference
    if kind == "config" and name:
        description = describe(name)
        with _own_chance():
            module = description.build()
        size = description.image_size if isinstance(description, TransformersDescription) else SEGFORMER_SIZE
        return LoadedModel(reference=reference, module=module, trained=False, image_size=size)
    if kind == "timm" and name:
        with _own_chance():
            module, size = build_timm(name)
        return LoadedModel(reference=reference, module=module, trained=False, image_size=size)
    if kind == "hf" and name:
        return LoadedModel(reference=f"hf:{name}", module=load_checkpoint(name), trained=True)
    architecture, _, file = name.partition("=")
    if kind == "ofa" and architecture == "resnet50" and not name.endswith("="):
        module = load_supernet(Path(file) if file else None)
        return LoadedModel(reference=reference, module=module, trained=True, image_size=OFA_SIZE)
    raise ModelError(
        f'unknown model "{reference}"; write hf:NAME_OR_DIR (a transformers checkpoint), ofa:resnet50[=FILE], '
        f"timm:NAME or config:NAME (random weights; known: {', '.join(described_models())})"
    )


def load_checkpoint(name: str) -> SegformerForSemanticSegmentation:
    """Load a SegFormer checkpoint from a folder or from the hub, every weight accounted for.

    Both key layouts (transformers 4.x and 5.x) are read.

    Raises:
        ModelError: No such folder, and the hub is out of reach or has no such model.
        CheckpointError: A file is damaged, or weights are missing, left over or of another shape.
    """
    if Path(name).exists():
        _check_folder(Path(name))
    module, loading = _from_pretrained(name)
    for kind in ("missing", "unexpected", "mismatched"):
        keys = sorted(_key(item) for item in loading[f"{kind}_keys"])
        if keys:
            more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
            raise CheckpointError(f"the checkpoint {name} does not fit SegFormer: {kind} {keys[0]}{more}")
    checked: SegformerForSemanticSegmentation = module.eval()
    return checked


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


def _from_pretrained(name: str) -> tuple[Any, dict[str, Any]]:
    """Load with transformers: the model, and which weights were missing, left over or of another shape."""
    local = Path(name).exists()
    try:
        with _quiet_transformers():
            loaded: tuple[Any, dict[str, Any]] = SegformerForSemanticSegmentation.from_pretrained(
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


def _check_folder(folder: Path) -> None:
    """Refuse a folder that is no SegFormer checkpoint before the loader turns it into something else."""
    if folder.is_file():
        raise CheckpointError(f"{folder} is a file; give the folder that holds it and config.json")
    description = folder / "config.json"
    if not description.is_file():
        raise CheckpointError(f"{folder} holds no config.json; give the folder that save_pretrained wrote")
    try:
        kind = json.loads(description.read_text(encoding="utf-8")).get("model_type")
    except (OSError, ValueError, AttributeError) as error:
        raise CheckpointError(f"{description} is not a JSON object; fetch the checkpoint again") from error
    if kind != "segformer":
        raise ModelError(f'{folder} holds a model of type "{kind}"; supported: segformer')


def _key(item: object) -> str:
    """The key of a loading report's entry: mismatches come as (key, shape, shape)."""
    return str(item[0]) if isinstance(item, tuple) else str(item)


def described_models() -> list[str]:
    """Names that `config:NAME` takes."""
    return sorted(path.stem for path in _descriptions().glob("*.yaml"))


def describe(name: str) -> SegformerDescription | TransformersDescription:
    """Read the description of a model.

    Raises:
        ModelError: No such description; the message holds the nearest name.
    """
    known = described_models()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f'did you mean "{near[0]}"?' if near else f"known: {', '.join(known)}"
        raise ModelError(f'no model description "{name}"; {hint}')
    return read_config(_descriptions() / f"{name}.yaml", _Description).root


def build_described(name: str) -> Any:
    """Make the stock model of a description, with random weights, in evaluation mode."""
    return describe(name).build()


class _Description(RootModel[Annotated[SegformerDescription | TransformersDescription, Field(discriminator="family")]]):
    """Whichever the file's `family` says."""


@contextmanager
def _own_chance() -> Iterator[None]:
    """Draw random weights from a seed of our own: the same each time, and nobody else's chance is touched."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        yield


def save_checkpoint(module: Any, folder: Path) -> None:
    """Write configuration and weights in the layout that `load_checkpoint` reads, with the live module's names.

    Raises:
        OutputError: The folder cannot be written, or its disk is full.
    """
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in module.state_dict().items()}
    try:
        write_atomic(folder / "model.safetensors", lambda path: save_file(weights, path, {"format": "pt"}))
    except SafetensorError as error:  # safetensors' own writer, on a full disk
        raise OutputError(f"cannot write {folder}: {error}; make room for it and run again") from error
    write_text(folder / "config.json", module.config.to_json_string(use_diff=True))


def weights_hash(module: nn.Module) -> str:
    """SHA-256 over names, types, shapes and bytes of all weights: the same whatever file they came from."""
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()


def _descriptions() -> Path:
    return Path(str(files("gearshift.configs"))) / "models"


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
