"""Models by name: `config:NAME` (a description in configs/models), `hf:NAME_OR_DIR` (a transformers checkpoint)."""

import difflib
from importlib.resources import files
from pathlib import Path

from transformers import SegformerForSemanticSegmentation

from gearshift.config import read_config
from gearshift.errors import ModelError
from gearshift.paths.segformer.config import SegformerDescription


def described_models() -> list[str]:
    """Names that `config:NAME` takes."""
    folder = Path(str(files("gearshift.configs"))) / "models"
    return sorted(path.stem for path in folder.glob("*.yaml"))


def describe(name: str) -> SegformerDescription:
    """Read the description of a model.

    Raises:
        ModelError: No such description; the message holds the nearest name.
    """
    known = described_models()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f'did you mean "{near[0]}"?' if near else f"known: {', '.join(known)}"
        raise ModelError(f'no model description "{name}"; {hint}')
    return read_config(Path(str(files("gearshift.configs"))) / "models" / f"{name}.yaml", SegformerDescription)


def build_described(name: str) -> SegformerForSemanticSegmentation:
    """Make the stock model of a description, with random weights, in evaluation mode."""
    return describe(name).build()
