"""The lossless forward pass of a ViT, over the stock modules' own parameters.

The last block is computed for the tokens that the head reads alone (a classifier that reads the class token: queries,
attention row, projection and MLP of one token, see `attention.py`); blocks beyond the last tap are dropped. Frames of
any size of whole patches are taken. Tokens may be merged on the way (`matching.py`); where the head reads all tokens,
each then gets the value of the token that it has become part of.
"""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn

from gearshift.errors import InputError
from gearshift.paths.vit.block import LeanBlock
from gearshift.paths.vit.embedding import Embedding
from gearshift.paths.vit.matching import Merging, Tokens
from gearshift.paths.vit.readout import PooledReadout, SegmentReadout, TokenReadout


class LeanVit(nn.Module):
    """A ViT that computes what is read, and answers as the stock model does.

    Args:
        embedding: Frames to tokens.
        norm_pre: Before the blocks; mostly an identity.
        blocks: Those that are not skipped.
        taps: After how many of them the readout takes tokens; the last is that of the answer.
        readout: Tokens to logits.
        answer: Logits to what the stock model returns.
        merging: How tokens are merged, or None.
    """

    def __init__(
        self,
        *,
        embedding: Embedding,
        norm_pre: nn.Module,
        blocks: Sequence[LeanBlock],
        taps: Sequence[int],
        readout: TokenReadout | PooledReadout | SegmentReadout,
        answer: Callable[[list[Tensor]], Any],
        merging: Merging | None,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.norm_pre = norm_pre
        self.blocks = nn.ModuleList(blocks[: taps[-1]])
        self.readout = readout
        self._taps = tuple(taps)
        self._answer = answer
        self._merging = merging
        # Merging in the last block saves work in its MLP, where that has all tokens to work on.
        self._short_last = merging is None or readout.reads.stop is not None

    def forward(self, pixel_values: Tensor, return_dict: bool = True, **others: Any) -> Any:
        """Frames `(B, 3, H, W)` to what the stock model returns.

        Raises:
            InputError: Something else is asked for, such as hidden states, a loss or an attention mask.
        """
        asked = sorted(name for name, value in others.items() if value is not None and value is not False)
        if asked and asked != ["interpolate_pos_encoding"]:
            raise InputError(f"a lossless path gives logits and takes no {asked[0]}; use the stock form")
        logits = self.readout(self.tokens_read(pixel_values), self.embedding.grid_of(pixel_values))
        output = self._answer(logits)
        return output if return_dict or isinstance(output, Tensor) else output.to_tuple()

    def tokens_read(self, pixel_values: Tensor) -> list[Tensor]:
        """The tokens `(B, R, C)` that the readout reads at each tap."""
        reads = self.readout.reads
        tokens = Tokens(self.norm_pre(self.embedding(pixel_values)))
        taken = {0: tokens.values[:, reads]} if 0 in self._taps else {}
        block: Any
        for number, block in enumerate(self.blocks, start=1):
            if number == len(self.blocks) and self._short_last:
                taken[number] = block.read(tokens, reads)
                continue
            tokens = block(tokens, self._merging)
            if number in self._taps:
                taken[number] = tokens.every()[:, reads]
        return [taken[number] for number in self._taps]
