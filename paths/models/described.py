"""Models described in `configs/models`: an architecture, its settings, and where trained weights of it are."""

import difflib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import transformers
from huggingface_hub.errors import StrictDataclassError
from pydantic import BaseModel, ConfigDict, Field, RootModel
from torch import nn

from gearshift.config import read_config
from gearshift.errors import ConfigError, ModelError
from gearshift.paths.ofa.config import OnceForAllDescription
from gearshift.paths.segformer.config import SegformerDescription


class TransformersDescription(BaseModel):
    """A model of transformers: the class, and the configuration that it is made from."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    family: Literal["transformers"]
    architecture: str
    model_type: str
    image_size: tuple[int, int] = Field(description="height and width that it is profiled at by default")
    checkpoint: str | None = Field(None, description="reference of trained weights, such as hf:NAME")
    config: dict[str, Any] = {}

    def build(self) -> nn.Module:
        """Make it with random weights, in evaluation mode.

        Raises:
            ConfigError: transformers knows no such class or configuration.
        """
        kind = getattr(transformers, self.architecture, None)
        if kind is None:
            raise ConfigError(
                f'transformers has no architecture "{self.architecture}"; write a class name of its models'
            )
        try:
            module: nn.Module = kind(transformers.AutoConfig.for_model(self.model_type, **self.config))
        except (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, StrictDataclassError) as error:
            raise ConfigError(
                f"{self.architecture} cannot be made from this configuration: {' '.join(str(error).split())[:200]}"
            ) from error
        return module.eval()


Description = SegformerDescription | OnceForAllDescription | TransformersDescription


class _Description(RootModel[Annotated[Description, Field(discriminator="family")]]):
    """Whichever the file's `family` says."""


def described_models() -> list[str]:
    """Names that `config:NAME` takes."""
    return sorted(path.stem for path in _folder().glob("*.yaml"))


def describe(name: str) -> Description:
    """Read the description of a model.

    Raises:
        ModelError: No such description; the message holds the nearest name.
    """
    known = described_models()
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f'did you mean "{near[0]}"?' if near else f"known: {', '.join(known)}"
        raise ModelError(f'no model description "{name}"; {hint}')
    return read_config(_folder() / f"{name}.yaml", _Description).root


def build_described(name: str) -> Any:
    """Make the stock model of a description, with random weights, in evaluation mode."""
    return describe(name).build()


@contextmanager
def own_chance() -> Iterator[None]:
    """Draw random weights from a seed of our own: the same each time, and nobody else's chance is touched."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        yield


def _folder() -> Path:
    return Path(str(files("gearshift.configs"))) / "models"
