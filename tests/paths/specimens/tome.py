"""Token merging written out from the paper, token by token: an independent reference for `merge`.

Bolya et al., "Token Merging: Your ViT But Faster", ICLR 2023, section 3. A token is a vector with the set of patches
that it stands for; nothing here is shared with the package, and the last block is no exception.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Merging(nn.Module):
    """A stock model, run one frame at a time with tokens merged in every block.

    Args:
        embed: Frames to tokens before the first block.
        blocks: The stock blocks.
        parts: Of a block: its two norms, the tokens' queries, keys and values, the output projection, the MLP.
        heads: Of an attention.
        prefix: Tokens that are never merged.
        count: Merged per block.
        answer: From the values of all first tokens `(N_0, C)` after each block to the stock model's answer `(1, ...)`.
    """

    def __init__(
        self,
        embed: Callable[[Tensor], Tensor],
        blocks: Any,
        parts: Callable[[Any], tuple[Any, ...]],
        heads: int,
        prefix: int,
        count: int,
        answer: Callable[[list[Tensor], Tensor], Any],
    ) -> None:
        super().__init__()
        self.embed, self.parts, self.answer = embed, parts, answer
        self.blocks, self.heads, self.prefix, self.count = blocks, heads, prefix, count

    def forward(self, frames: Tensor) -> Any:
        answers = [self._one(frame[None]) for frame in frames]
        if isinstance(answers[0], Tensor):
            return torch.cat(answers)
        return {name: torch.cat([answer[name] for answer in answers]) for name in answers[0]}

    def _one(self, frame: Tensor) -> Any:
        tokens = list(self.embed(frame)[0])
        sets = [{place} for place in range(len(tokens))]
        after = []
        for block in self.blocks:
            tokens, sets = self._block(block, tokens, sets)
            values = torch.stack(
                [
                    next(t for t, s in zip(tokens, sets, strict=True) if place in s)
                    for place in range(sum(map(len, sets)))
                ]
            )
            after.append(values)
        return self.answer(after, frame)

    def _block(self, block: Any, tokens: list[Tensor], sets: list[set[int]]) -> tuple[list[Tensor], list[set[int]]]:
        norm1, project, output, norm2, mlp, scale1, scale2 = self.parts(block)
        query, key, value = project(norm1(torch.stack(tokens)))
        width = query.shape[1] // self.heads
        sizes = torch.tensor([float(len(s)) for s in sets], dtype=query.dtype)
        results, likeness = [], 0
        for head in range(self.heads):
            part = slice(head * width, (head + 1) * width)
            scores = query[:, part] @ key[:, part].T / width**0.5 + sizes.log()
            results.append(scores.softmax(dim=1) @ value[:, part])
            likeness = likeness + key[:, part] / self.heads
        attended = output(torch.cat(results, dim=1))
        tokens = [token + scale1(added) for token, added in zip(tokens, attended, strict=True)]
        tokens, sets = self._merge(tokens, sets, likeness)
        return [token + scale2(mlp(norm2(token[None]))[0]) for token in tokens], sets

    def _merge(self, tokens: list[Tensor], sets: list[set[int]], keys: Any) -> tuple[list[Tensor], list[set[int]]]:
        first = [place for place in range(len(tokens)) if place % 2 == 0 and place >= self.prefix]
        second = [place for place in range(len(tokens)) if place % 2 == 1 and place >= self.prefix]
        count = min(self.count, (len(tokens) - self.prefix) // 2)
        edges = []
        for a in first:
            likeness = {b: float(F.cosine_similarity(keys[a], keys[b], dim=0)) for b in second}
            if likeness:
                b = max(likeness, key=likeness.__getitem__)
                edges.append((likeness[b], a, b))
        edges = sorted(edges, reverse=True)[:count]
        gone = {a for _, a, _ in edges}
        values, stands_for = dict(enumerate(tokens)), {place: set(s) for place, s in enumerate(sets)}
        for _, a, b in edges:
            total = len(stands_for[a]) + len(stands_for[b])
            values[b] = (values[a] * len(stands_for[a]) + values[b] * len(stands_for[b])) / total
            stands_for[b] |= stands_for[a]
        order = [*range(self.prefix), *(a for a in first if a not in gone), *second]
        return [values[place] for place in order], [stands_for[place] for place in order]
