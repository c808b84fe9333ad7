"""Deformable DETR's forward pass without what an image without padding does not need, over the stock modules.

Differences from the stock forward, all exact:

* Only the last decoder layer's queries are classified; where boxes are refined from layer to layer, the last refined
  ones are the answer.
* The first decoder layer's self-attention, the norm behind it, its sampling offsets and weights, and the reference
  points do not depend on the image: they are constants of the weights (`queries`).
* Position encodings, reference points and shapes of the maps are made once per size, and nothing is masked, where
  there is no `pixel_mask`; with one they are the stock model's.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.models.deformable_detr.modeling_deformable_detr import (
    DeformableDetrEncoder,
    DeformableDetrObjectDetectionOutput,
    inverse_sigmoid,
)

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


class Geometry(NamedTuple):
    """Where the tokens of all maps are; `N` tokens, `L` maps, a batch of 1 where no frame is padded.

    Attributes:
        positions: Position encodings, one `(B, N_l, C)` per map.
        references: Where each token samples around, `(B, N, L, 2)`.
        ratios: Share of each map that is no padding, `(B, L, 2)`.
        shapes: Heights and widths, `(L, 2)`, and as a list.
        starts: Index of each map's first token, `(L,)`.
        mask: `(B, N)`, true where there is no padding; None where there is none anywhere.
    """

    positions: tuple[Tensor, ...]
    references: Tensor
    ratios: Tensor
    shapes: Tensor
    shape_list: list[tuple[int, int]]
    starts: Tensor
    mask: Tensor | None

    def arguments(self) -> dict[str, Any]:
        """What the stock attention wants to know of it."""
        return {
            "spatial_shapes": self.shapes,
            "spatial_shapes_list": self.shape_list,
            "level_start_index": self.starts,
        }


class LosslessDeformableDetr(nn.Module):
    """What `DeformableDetrForObjectDetection` returns for frames, with or without a mask."""

    hidden: Tensor
    offsets: Tensor
    weights: Tensor
    reference: Tensor

    def __init__(self, model: Any, spec: PathSpec, derived: DerivedTensors) -> None:
        super().__init__()
        inner = model.model
        self.config = model.config
        self.backbone = inner.backbone.model
        self.input_proj = inner.input_proj
        self.position_embedding = inner.position_embedding
        self.level_embed = inner.level_embed
        self.queries = inner.query_position_embeddings
        self.encoder_layers = inner.encoder.layers
        self.decoder_layers = inner.decoder.layers
        self.refine = inner.decoder.bbox_embed
        self.class_embed = model.class_embed[len(self.decoder_layers) - 1]
        self.bbox_embed = model.bbox_embed[len(self.decoder_layers) - 1]
        self._sizes: LastSize[Geometry] = LastSize()
        self._hold_start(start_key(spec, self.decoder_layers), inner.reference_points, derived)

    def _hold_start(self, key: str, reference_points: nn.Module, derived: DerivedTensors) -> None:
        layers = self.decoder_layers
        positions, content = self.queries.weight[None].chunk(2, dim=-1)
        self.first = first_layer(layers)
        keep(self, "reference", key, lambda: reference_points(positions).sigmoid(), derived)
        keep(self, "hidden", key, lambda: start(layers, content, positions), derived)
        if self.first < len(layers):
            attention = layers[self.first].encoder_attn
            keep(self, "offsets", key, lambda: sampling_offsets(attention, self.hidden + positions), derived)
            keep(self, "weights", key, lambda: sampling_weights(attention, self.hidden + positions), derived)

    def forward(
        self, pixel_values: Tensor, pixel_mask: Tensor | None = None, return_dict: bool = True, **others: Any
    ) -> DeformableDetrObjectDetectionOutput | tuple[Any, ...]:
        """`(B, 3, H, W)` to logits `(B, Q, K)` and boxes `(B, Q, 4)`, with hidden states and reference points.

        Raises:
            InputError: Something else is asked for, such as a loss or attention maps.
        """
        refuse_others(others)
        levels = self._levels(pixel_values)
        geometry = self._geometry(levels, pixel_mask)
        memory = self._encode(levels, geometry)
        hidden, references = self._decode(memory, geometry)
        initial = self.reference.expand(memory.shape[0], -1, -1)
        output = DeformableDetrObjectDetectionOutput(
            logits=self.class_embed(hidden[-1]),
            pred_boxes=self._boxes(hidden[-1], references, initial),
            last_hidden_state=hidden[-1],
            encoder_last_hidden_state=memory,
            init_reference_points=initial,
            intermediate_hidden_states=torch.stack(hidden, dim=1),
            intermediate_reference_points=torch.stack(references, dim=1),
        )
        return output if return_dict else output.to_tuple()

    def _levels(self, pixel_values: Tensor) -> list[Tensor]:
        """Maps `(B, C, H_l, W_l)`: the backbone's, projected, and coarser ones made of its last."""
        maps = feature_maps(self.backbone, pixel_values)
        levels = [_projected(project, image) for project, image in zip(self.input_proj, maps, strict=False)]
        image = maps[-1]
        for project in self.input_proj[len(maps) :]:
            image = _projected(project, image)
            levels.append(image)
        return levels

    def _geometry(self, levels: Sequence[Tensor], pixel_mask: Tensor | None) -> Geometry:
        if pixel_mask is not None:
            return self._geometry_of(levels, [shrink_mask(pixel_mask, image) for image in levels])
        if any(True for _ in self.position_embedding.parameters()):
            return self._geometry_of(levels, None)
        key = (tuple(image.shape[1:] for image in levels), levels[0].device, levels[0].dtype)
        return self._sizes.get(key, lambda: self._geometry_of(levels, None))

    def _geometry_of(self, levels: Sequence[Tensor], masks: Sequence[Tensor] | None) -> Geometry:
        like = levels[0]
        each: Sequence[Tensor | None] = masks or [None] * len(levels)
        shape_list = [(int(image.shape[2]), int(image.shape[3])) for image in levels]
        if masks is None:
            ratios = like.new_ones(1, len(levels), 2)
        else:
            ratios = torch.stack([_valid_share(mask).to(like.dtype) for mask in masks], 1)
        shapes = torch.as_tensor(shape_list, dtype=torch.long, device=like.device)
        return Geometry(
            positions=tuple(
                encode_positions(self.position_embedding, image, mask) for image, mask in zip(levels, each, strict=True)
            ),
            references=DeformableDetrEncoder.get_reference_points(tuple(shape_list), ratios, device=like.device),
            ratios=ratios,
            shapes=shapes,
            shape_list=shape_list,
            starts=torch.cat((shapes.new_zeros((1,)), shapes.prod(1).cumsum(0)[:-1])),
            mask=None if masks is None else torch.cat([mask.flatten(1) for mask in masks], 1),
        )

    def _encode(self, levels: Sequence[Tensor], geometry: Geometry) -> Tensor:
        tokens = torch.cat([tokens_of(image) for image in levels], 1)
        pairs = zip(geometry.positions, self.level_embed, strict=True)
        positions = torch.cat([position + level for position, level in pairs], 1)
        for layer in self.encoder_layers:
            tokens = layer(
                tokens,
                geometry.mask,
                spatial_position_embeddings=positions,
                reference_points=geometry.references,
                **geometry.arguments(),
            )
        return tokens

    def _decode(self, memory: Tensor, geometry: Geometry) -> tuple[list[Tensor], list[Tensor]]:
        """Hidden states and reference points behind every layer."""
        batch = memory.shape[0]
        positions, content = (part.expand(batch, -1, -1) for part in self.queries.weight[None].chunk(2, dim=-1))
        hidden, reference = content, self.reference.expand(batch, -1, -1)
        states, references = [], []
        for index, layer in enumerate(self.decoder_layers):
            if not isinstance(layer, SkippedBlock):
                attention = layer.encoder_attn
                if index == self.first:
                    hidden = self.hidden.expand(batch, -1, -1)
                    offsets, weights = self.offsets, self.weights
                else:
                    hidden = attend_queries(layer, hidden, positions)
                    offsets = sampling_offsets(attention, hidden + positions)
                    weights = sampling_weights(attention, hidden + positions)
                around = reference[:, :, None] * geometry.ratios.repeat(1, 1, reference.shape[-1] // 2)[:, None]
                hidden = mix_queries(layer, hidden, sample(attention, memory, offsets, weights, around, geometry))
            if self.refine is not None:
                reference = refined(self.refine[index](hidden), reference)
            states.append(hidden)
            references.append(reference)
        return states, references

    def _boxes(self, hidden: Tensor, references: Sequence[Tensor], initial: Tensor) -> Tensor:
        if self.refine is not None and _same_weights(self.refine[len(references) - 1], self.bbox_embed):
            return references[-1]
        return refined(self.bbox_embed(hidden), references[-2] if len(references) > 1 else initial)


def refined(step: Tensor, reference: Tensor) -> Tensor:
    """Boxes `(B, Q, 4)` from a step in logits and reference points (2) or boxes (4)."""
    padded = F.pad(inverse_sigmoid(reference), (0, 4 - reference.shape[-1]))
    return (step + padded).sigmoid()


def sampling_offsets(attention: Any, queries: Tensor) -> Tensor:
    """Where around its reference each query looks, `(B, Q, heads, L, points, 2)`."""
    shape = (attention.n_heads, attention.n_levels, attention.n_points, 2)
    offsets: Tensor = attention.sampling_offsets(queries)
    return offsets.view(*offsets.shape[:-1], *shape)


def sampling_weights(attention: Any, queries: Tensor) -> Tensor:
    """How much each of these points counts, `(B, Q, heads, L, points)`; they sum to one over the last two."""
    logits: Tensor = attention.attention_weights(queries)
    shape = (attention.n_heads, attention.n_levels, attention.n_points)
    shares = logits.view(*logits.shape[:-1], attention.n_heads, -1).softmax(-1)
    return shares.view(*logits.shape[:-1], *shape)


def sample(
    attention: Any, memory: Tensor, offsets: Tensor, weights: Tensor, around: Tensor, geometry: Geometry
) -> Tensor:
    """The stock deformable attention from offsets and weights on: `(B, Q, C)`.

    Args:
        attention: The stock module.
        memory: `(B, N, C)`.
        offsets: `(B or 1, Q, heads, L, points, 2)`.
        weights: `(B or 1, Q, heads, L, points)`.
        around: Reference points or boxes, `(B, Q, L, 2 or 4)`.
        geometry: Of the memory.
    """
    value = attention.value_proj(memory)
    if geometry.mask is not None:
        value = value.masked_fill(~geometry.mask[..., None], 0.0)
    around = around[:, :, None, :, None, :]
    if around.shape[-1] == 2:
        steps = offsets / geometry.shapes.flip(-1)[None, None, None, :, None, :]
    else:
        steps = offsets / attention.n_points * around[..., 2:] * 0.5
    sampled = attention.attn(
        value.unflatten(-1, (attention.n_heads, -1)),
        geometry.shapes,
        geometry.shape_list,
        geometry.starts,
        around[..., :2] + steps,
        weights.expand(memory.shape[0], -1, -1, -1, -1),
        attention.im2col_step,
    )
    mixed: Tensor = attention.output_proj(sampled)
    return mixed


def _projected(project: Any, image: Tensor) -> Tensor:
    """Convolution and group norm; channels last it would square before it subtracts the mean, and lose digits."""
    convolution, norm = project
    level: Tensor = norm(convolution(image).contiguous())
    return level


def _valid_share(mask: Tensor) -> Tensor:
    """Share of a map's width and height that is no padding: `(B, H, W)` to `(B, 2)`."""
    return torch.stack([mask[:, 0, :].double().mean(1), mask[:, :, 0].double().mean(1)], -1)


def _same_weights(one: nn.Module, other: nn.Module) -> bool:
    return all(a is b for a, b in zip(one.parameters(), other.parameters(), strict=True))
