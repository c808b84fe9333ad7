"""DETR's forward pass without what an image without padding does not need, over the stock modules.

Differences from the stock forward, all exact:

* The first decoder layer's self-attention, the norm behind it and the queries of its cross-attention do not depend on
  the image: they are constants of the weights (`queries`).
* Sine position encodings are made once per size; keys of all decoder layers read one sum of memory and positions.
* Without a `pixel_mask` there is no mask to make, shrink and look through; with one it is the stock model's.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers.masking_utils import create_bidirectional_mask
from transformers.models.detr import modeling_detr as stock_modules
from transformers.models.detr.modeling_detr import DetrObjectDetectionOutput

from gearshift.paths.detr.backbone import feature_maps
from gearshift.paths.detr.positions import LastSize, encode_positions, shrink_mask, tokens_of
from gearshift.paths.detr.queries import (
    attend_queries,
    first_layer,
    keep,
    mix_queries,
    refuse_others,
    start,
    start_key,
)
from gearshift.paths.sharing import DerivedTensors
from gearshift.paths.spec import PathSpec
from gearshift.paths.transforms.depth import SkippedBlock


class LosslessDetr(nn.Module):
    """What `DetrForObjectDetection` returns for frames, with or without a mask."""

    hidden: Tensor
    query: Tensor

    def __init__(self, model: Any, spec: PathSpec, derived: DerivedTensors) -> None:
        super().__init__()
        inner = model.model
        self.config = model.config
        self.backbone = inner.backbone.model
        self.input_projection = inner.input_projection
        self.position_embedding = inner.position_embedding
        self.queries = inner.query_position_embeddings
        self.encoder_layers = inner.encoder.layers
        self.decoder_layers = inner.decoder.layers
        self.decoder_norm = inner.decoder.layernorm
        self.class_labels_classifier = model.class_labels_classifier
        self.bbox_predictor = model.bbox_predictor
        self._sizes: LastSize[Tensor] = LastSize()
        self._hold_start(start_key(spec, self.decoder_layers), derived)

    def _hold_start(self, key: str, derived: DerivedTensors) -> None:
        layers, positions = self.decoder_layers, self.queries.weight[None]
        self.first = first_layer(layers)
        content = torch.zeros_like(positions)
        for _ in range(self.first):
            content = self._between(content)
        keep(self, "hidden", key, lambda: start(layers, content, positions), derived)
        if self.first < len(layers):
            project = layers[self.first].encoder_attn.q_proj
            keep(self, "query", key, lambda: project(self.hidden + positions), derived)

    def forward(
        self, pixel_values: Tensor, pixel_mask: Tensor | None = None, return_dict: bool = True, **others: Any
    ) -> DetrObjectDetectionOutput | tuple[Any, ...]:
        """`(B, 3, H, W)` to logits `(B, Q, K + 1)` and boxes `(B, Q, 4)`, with the last hidden states.

        Raises:
            InputError: Something else is asked for, such as a loss or attention maps.
        """
        refuse_others(others)
        image = self.input_projection(feature_maps(self.backbone, pixel_values)[-1])
        mask = None if pixel_mask is None else shrink_mask(pixel_mask, image)
        positions = self._positions(image, mask)
        memory = self._encode(tokens_of(image), positions, mask)
        hidden = self._decode(memory, positions, mask)
        output = DetrObjectDetectionOutput(
            logits=self.class_labels_classifier(hidden),
            pred_boxes=self.bbox_predictor(hidden).sigmoid(),
            last_hidden_state=hidden,
            encoder_last_hidden_state=memory,
        )
        return output if return_dict else output.to_tuple()

    def _positions(self, image: Tensor, mask: Tensor | None) -> Tensor:
        embedding = self.position_embedding
        if mask is not None or any(True for _ in embedding.parameters()):
            return encode_positions(embedding, image, mask)
        key = (image.shape[1:], image.device, image.dtype)
        return self._sizes.get(key, lambda: encode_positions(embedding, image, None))

    def _encode(self, tokens: Tensor, positions: Tensor, mask: Tensor | None) -> Tensor:
        shown = self._attention_mask(tokens, mask)
        for layer in self.encoder_layers:
            tokens = layer(tokens, shown, spatial_position_embeddings=positions)
        return tokens

    def _decode(self, memory: Tensor, positions: Tensor, mask: Tensor | None) -> Tensor:
        hidden = self.hidden.expand(memory.shape[0], -1, -1)
        queries = self.queries.weight[None]
        shown = self._attention_mask(hidden, mask, memory)
        keys = memory + positions
        for index, layer in enumerate(self.decoder_layers[self.first :]):
            if not isinstance(layer, SkippedBlock):
                if index == 0:
                    query = self.query.expand(memory.shape[0], -1, -1)
                else:
                    hidden = attend_queries(layer, hidden, queries)
                    query = layer.encoder_attn.q_proj(hidden + queries)
                hidden = mix_queries(layer, hidden, cross_attend(layer.encoder_attn, query, keys, memory, shown))
            hidden = self._between(hidden)
        last: Tensor = self.decoder_norm(hidden)
        return last

    def _between(self, hidden: Tensor) -> Tensor:
        """The norm that the stock model puts behind every layer where it was trained with auxiliary losses."""
        normed: Tensor = self.decoder_norm(hidden) if self.config.auxiliary_loss else hidden
        return normed

    def _attention_mask(self, tokens: Tensor, mask: Tensor | None, memory: Tensor | None = None) -> Any:
        if mask is None:
            return None
        return create_bidirectional_mask(
            config=self.config, inputs_embeds=tokens, attention_mask=mask.flatten(1), encoder_hidden_states=memory
        )


def cross_attend(attention: Any, query: Tensor, keys: Tensor, values: Tensor, mask: Any) -> Tensor:
    """Cross-attention of a query `(B, Q, C)` that is projected already, by the stock model's own attention function."""
    attend = stock_modules.ALL_ATTENTION_FUNCTIONS.get_interface(
        attention.config._attn_implementation, stock_modules.eager_attention_forward
    )
    mixed, _ = attend(
        attention,
        _heads(query, attention.head_dim),
        _heads(attention.k_proj(keys), attention.head_dim),
        _heads(attention.v_proj(values), attention.head_dim),
        mask,
        dropout=attention.attention_dropout if attention.training else 0.0,
        scaling=attention.scaling,
    )
    merged: Tensor = attention.o_proj(mixed.reshape(query.shape))
    return merged


def _heads(tokens: Tensor, head_dim: int) -> Tensor:
    batch, length, _ = tokens.shape
    return tokens.view(batch, length, -1, head_dim).transpose(1, 2)
