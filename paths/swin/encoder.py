"""Swin's encoder over the stock modules' own parameters, exact, with less copied and less computed.

Differences from the stock forward:

* Queries, keys, values and the output projection are computed of the tokens alone, not of the padded windows; padding
  is zero *behind* the norm, so that a padded key is what the projection makes of zeros: one row for all of them.
* Tokens go to their windows and back by one index each way (`windows.py`), where the stock code pads, rolls, permutes.
* Position bias and shift mask are added up when the path is built, for the four kinds of windows that there are.
* A block's window and shift are those of its configuration. The stock block remembers the smallest frame it has seen:
  once a stage's grid was no larger than a window, its later frames are no longer shifted.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gearshift.paths.sharing import DerivedTensors
from gearshift.paths.swin.windows import region_masks, window_plan
from gearshift.paths.transforms.depth import SkippedBlock


class LeanSwin(nn.Module):
    """The encoder of a stock `SwinModel`.

    Args:
        swin: The path's `SwinModel`, after its structural changes; its blocks may be fewer or thinner.
        stock: The stock one.
        name: Of the stock one within its model, for keys.
        derived: Shares what is made of the stock model's own weights.
        always_shift: Whether grids no larger than a window are shifted too, as a backbone does.
    """

    def __init__(self, swin: Any, stock: Any, name: str, derived: DerivedTensors, *, always_shift: bool) -> None:
        super().__init__()
        self.embeddings = swin.embeddings
        self.stages = swin.encoder.layers
        for index, stage in enumerate(self.stages):
            stage.blocks = nn.ModuleList(
                LeanBlock(
                    block,
                    shift=number % 2 * (swin.config.window_size // 2),
                    always_shift=always_shift,
                    biases=_biases(
                        block, stock.encoder.layers[index].blocks[number], f"{name}/{index}.{number}", derived
                    ),
                )
                for number, block in enumerate(stage.blocks)
                if not isinstance(block, SkippedBlock)
            )

    def forward(self, pixel_values: Tensor, stages: int) -> Iterator[tuple[Tensor, int, int]]:
        """Yield tokens `(B, N, C)` with their grid's height and width: the embedded frame's, then each stage's."""
        frames = pixel_values.contiguous(memory_format=torch.channels_last)
        tokens, (height, width) = self.embeddings(frames)
        yield tokens, height, width
        for index, stage in enumerate(self.stages[:stages]):
            for block in stage.blocks:
                tokens = block(tokens, height, width)
            yield tokens, height, width
            if stage.downsample is not None and index + 1 < stages:
                tokens = stage.downsample(tokens, (height, width))
                height, width = (height + 1) // 2, (width + 1) // 2


class LeanBlock(nn.Module):
    """A stock `SwinLayer`, whatever its linear maps have been replaced by.

    Args:
        block: The path's block.
        shift: Its shift, where the grid is larger than a window.
        always_shift: Whether smaller grids are shifted too.
        biases: `(4, heads, window**2, window**2)`, added to the scores of each kind of window.
    """

    def __init__(self, block: Any, *, shift: int, always_shift: bool, biases: Tensor) -> None:
        super().__init__()
        self.block = block
        self._window = block.attention.relative_position_bias.window_size[0]
        self._shift = shift
        self._always_shift = always_shift
        self.register_buffer("biases", biases, persistent=False)

    biases: Tensor

    def forward(self, tokens: Tensor, height: int, width: int) -> Tensor:
        """Tokens `(B, N, C)` to `(B, N, C)`."""
        block = self.block
        attended = self._attend(block.attention, block.layernorm_before(tokens), height, width)
        tokens = tokens + block.drop_path(block.dropout(attended))
        added: Tensor = tokens + block.dropout(block.mlp(block.layernorm_after(tokens)))
        return added

    def _attend(self, attention: Any, tokens: Tensor, height: int, width: int) -> Tensor:
        shift = self._shift if self._always_shift or min(height, width) > self._window else 0
        plan = window_plan(tokens, height, width, self._window, shift)
        flat = tokens.flatten(0, 1)
        parts = []
        for projection in (attention.q_proj, attention.k_proj, attention.v_proj):
            part = projection(flat).index_select(0, plan.source)
            if len(plan.beyond) and projection is not attention.q_proj:  # a padded query's answer is never read
                padding = projection(flat.new_zeros(1, flat.shape[1]))
                part = part.index_copy_(0, plan.beyond, padding.expand(len(plan.beyond), -1))
            parts.append(part.view(-1, self._window**2, part.shape[-1] // attention.head_dim, attention.head_dim))
        answers = self._by_kind(attention, parts, plan.groups).index_select(0, plan.target)
        merged: Tensor = attention.o_proj(answers).view_as(tokens)
        return merged

    def _by_kind(self, attention: Any, parts: list[Tensor], groups: tuple[tuple[int, int], ...]) -> Tensor:
        """Attend in each kind of windows with its mask: `(windows * window**2, heads * head_dim)`."""
        answers, first = [], 0
        for kind, count in groups:
            query, key, value = (part[first : first + count] for part in parts)
            first += count
            answer = F.scaled_dot_product_attention(
                query.transpose(1, 2),
                key.transpose(1, 2),
                value.transpose(1, 2),
                attn_mask=self.biases[kind : kind + 1],
                dropout_p=attention.attention_dropout if attention.training else 0.0,
                scale=attention.scaling,
            )
            answers.append(answer.transpose(1, 2).flatten(2).flatten(0, 1))
        return answers[0] if len(answers) == 1 else torch.cat(answers)


def _biases(block: Any, stock: Any, key: str, derived: DerivedTensors) -> Tensor:
    """Position bias plus mask for each kind of window; made once for all paths that cut no heads of the block."""
    position: Any = block.attention.relative_position_bias

    def make() -> Tensor:
        bias: Tensor = position().squeeze(0)
        masks = region_masks(position.window_size[0], position.window_size[0] // 2)
        return bias + masks.to(bias)[:, None]

    table = stock.attention.relative_position_bias.relative_position_bias_table
    if position.relative_position_bias_table is table:
        return derived.get(f"{key}/biases", make, stored=False)
    return make().detach()
