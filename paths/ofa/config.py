"""The supernet described in a few YAML lines (`configs/models`): its space is published, only weights could differ."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from gearshift.paths.ofa.supernet import Supernet


class OnceForAllDescription(BaseModel):
    """The elastic ResNet-50."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    family: Literal["ofa"]
    architecture: Literal["resnet50"]
    checkpoint: str | None = None
    image_size: tuple[int, int] = (224, 224)

    def build(self) -> Supernet:
        """Make the supernet with random weights, in evaluation mode."""
        return Supernet()
