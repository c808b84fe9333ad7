"""A pre-norm transformer block over the stock modules, as in evaluation: without dropout and stochastic depth."""

from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from gearshift.paths.vit.attention import attention_of
from gearshift.paths.vit.layout import Layout
from gearshift.paths.vit.matching import Merging, Tokens


class LeanBlock(nn.Module):
    """One block; its MLP, norms and layer scales are the stock modules, called as they are."""

    def __init__(self, block: Any, layout: Layout) -> None:
        super().__init__()
        self.norm1, self.norm2 = (getattr(block, name) for name in layout.norms)
        self.attention = attention_of(getattr(block, layout.attention), layout)
        self.scale1 = getattr(block, "ls1", nn.Identity())
        self.scale2 = getattr(block, "ls2", nn.Identity())
        self.mlp = block.mlp

    def forward(self, tokens: Tokens, merging: Merging | None) -> Tokens:
        """Run every token; alike ones are merged between attention and MLP."""
        attended, keys = self.attention(self.norm1(tokens.values), tokens.sizes, with_keys=merging is not None)
        tokens = replace(tokens, values=tokens.values + self.scale1(attended))
        if merging is not None and keys is not None:
            tokens = merging(tokens, keys)
        return replace(tokens, values=self._mixed(tokens.values))

    def read(self, tokens: Tokens, reads: slice) -> Tensor:
        """Run the tokens of `reads` alone: `(B, R, C)`."""
        attended = self.attention.read(self.norm1(tokens.values), reads, tokens.sizes)
        return self._mixed(tokens.values[:, reads] + self.scale1(attended))

    def _mixed(self, values: Tensor) -> Tensor:
        mixed: Tensor = values + self.scale2(self.mlp(self.norm2(values)))
        return mixed
