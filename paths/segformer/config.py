"""SegFormer described in a few YAML lines (`configs/models`), and the transformers model made from it."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from transformers import SegformerConfig, SegformerForSemanticSegmentation


class SegformerDescription(BaseModel):
    """The numbers that tell SegFormer's sizes apart; lists hold one value per stage."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    family: Literal["segformer"]
    hidden_sizes: list[int] = Field(min_length=4, max_length=4)
    depths: list[int] = Field(min_length=4, max_length=4)
    num_attention_heads: list[int] = Field(min_length=4, max_length=4)
    sr_ratios: list[int] = Field(min_length=4, max_length=4)
    decoder_hidden_size: int = Field(gt=0)
    num_labels: int | None = Field(None, gt=0)
    labels: list[str] | None = None
    checkpoint: str | None = None
    drop_path_rate: float = Field(0.1, ge=0, lt=1)

    @model_validator(mode="after")
    def _labels_once(self) -> "SegformerDescription":
        if (self.num_labels is None) == (self.labels is None):
            raise ValueError("give either num_labels or labels")
        return self

    def build(self) -> SegformerForSemanticSegmentation:
        """Make the stock model with random weights, in evaluation mode."""
        names = self.labels or [f"class {index}" for index in range(self.num_labels or 0)]
        config = SegformerConfig(
            hidden_sizes=self.hidden_sizes,
            depths=self.depths,
            num_attention_heads=self.num_attention_heads,
            sr_ratios=self.sr_ratios,
            decoder_hidden_size=self.decoder_hidden_size,
            drop_path_rate=self.drop_path_rate,
            id2label=dict(enumerate(names)),
            label2id={name: index for index, name in enumerate(names)},
        )
        return SegformerForSemanticSegmentation(config).eval()
