"""Token merging: alike tokens become one, their size-weighted mean.

Bolya et al., "Token Merging: Your ViT But Faster", ICLR 2023 (arXiv 2210.09461), section 3: bipartite soft matching
on the keys. Tokens at even places are matched with those at odd places; each proposes to the one most alike, and the
`count` best proposals are merged. Prefix tokens take no part. Differs from the authors' code in that the tokens that
stay keep their order in models without a class token too, and that sums are matrix products, which give the same
bits every time on every device.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens on their way through the blocks.

    Attributes:
        values: `(B, N, C)`.
        sizes: `(B, N, 1)`, how many patches each stands for; None where each stands for one.
        places: `(B, N_0)`, which token each of the first ones has become part of; None where each is still itself, or
            where nobody will ask.
        first: How many there were before the first block; None where there are as many still.
    """

    values: Tensor
    sizes: Tensor | None = None
    places: Tensor | None = None
    first: int | None = None

    def every(self) -> Tensor:
        """A value for each of the first tokens: that of the token it has become part of. `(B, N_0, C)`."""
        if self.places is None:
            return self.values
        return self.values.gather(1, self.places[..., None].expand(-1, -1, self.values.shape[2]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Merging:
    """How tokens are merged in each block.

    Attributes:
        count: How many at most, from the number of tokens before the first block; half of the tokens are the limit in
            any case.
        prefix: How many tokens at the front take no part.
        placed: Whether to remember which token became part of which.
    """

    count: Callable[[int], int]
    prefix: int
    placed: bool

    def __call__(self, tokens: Tokens, keys: Tensor) -> Tokens:
        """Merge by the keys `(B, N, D)`."""
        length = keys.shape[1]
        count = min(self.count(tokens.first or length), (length - self.prefix) // 2)
        if count < 1:
            return tokens
        even, odd = self.prefix + self.prefix % 2, self.prefix + 1 - self.prefix % 2
        directions = F.normalize(keys, dim=-1)
        stay, move, target = _match(directions[:, even::2], directions[:, odd::2], count)
        sizes = tokens.values.new_ones(*keys.shape[:2], 1) if tokens.sizes is None else tokens.sizes
        weighted = torch.cat([tokens.values * sizes, sizes], dim=2)
        proposing, receiving = weighted[:, even::2], weighted[:, odd::2]
        receivers = torch.arange(receiving.shape[1], device=target.device)
        chosen = (receivers[:, None] == target[:, None]).to(weighted.dtype)
        sums = torch.baddbmm(receiving, chosen, _taken(proposing, move))
        merged = torch.cat([weighted[:, : self.prefix], _taken(proposing, stay), sums], dim=1)
        values, sizes = merged[..., :-1], merged[..., -1:]
        places = self._placed(tokens.places, length, even, odd, stay, move, target) if self.placed else None
        return Tokens(values / sizes, sizes, places, tokens.first or length)

    def _placed(
        self, before: Tensor | None, length: int, even: int, odd: int, stay: Tensor, move: Tensor, target: Tensor
    ) -> Tensor:
        """Where each of the first tokens is now, from where it was before."""
        first = self.prefix + stay.shape[1]
        now = torch.arange(length, device=stay.device).expand(len(stay), -1).clone()
        now[:, odd::2] = first + torch.arange(len(now[0, odd::2]), device=stay.device)
        now.scatter_(1, even + 2 * stay, torch.arange(self.prefix, first, device=stay.device).expand_as(stay))
        now.scatter_(1, even + 2 * move, first + target)
        return now if before is None else now.gather(1, before)


def _match(even: Tensor, odd: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Which even tokens stay, which move, and the odd ones they move to: indices `(B, ...)`, from unit vectors."""
    likeness = even @ odd.transpose(1, 2)
    best, partner = likeness.max(dim=-1)
    order = best.argsort(dim=-1, descending=True, stable=True)
    move = order[:, :count]
    return order[:, count:].sort(dim=-1).values, move, partner.gather(1, move)


def _taken(values: Tensor, indices: Tensor) -> Tensor:
    return values.gather(1, indices[..., None].expand(-1, -1, values.shape[2]))
