"""Stock models with random weights that no family has paths for: their cost can be profiled all the same.

`config:NAME` may describe any model of transformers by its architecture and configuration; `timm:NAME` is any
architecture of timm. Nothing is downloaded.
"""

import difflib
from typing import Any, Literal

import transformers
from huggingface_hub.errors import StrictDataclassError
from pydantic import BaseModel, ConfigDict, Field
from torch import nn

from gearshift.errors import ConfigError, ModelError


class TransformersDescription(BaseModel):
    """A model of transformers: the class, and the configuration that it is made from."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    family: Literal["transformers"]
    architecture: str
    model_type: str
    image_size: tuple[int, int] = Field(description="height and width that it is profiled at by default")
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


def build_timm(name: str) -> tuple[nn.Module, tuple[int, int]]:
    """Make an architecture of timm with random weights, in evaluation mode, and tell its input's height and width.

    Raises:
        ModelError: timm is not installed or has no such architecture.
    """
    try:
        import timm
    except ImportError as error:
        raise ModelError("timm: models need the timm package: pip install 'gearshift[timm]'") from error
    plain = name.partition(".")[0]  # a pretrained tag chooses weights, not structure
    if not timm.is_model(plain):
        near = difflib.get_close_matches(plain, timm.list_models(), n=1)
        hint = f'did you mean "{near[0]}"?' if near else "timm.list_models() lists all"
        raise ModelError(f'timm has no architecture "{plain}"; {hint}')
    module: Any = timm.create_model(plain, pretrained=False)
    height, width = module.pretrained_cfg["input_size"][1:]
    return module.eval(), (int(height), int(width))
