"""Two paths in turn: one that saves against the allowance, and a better one that spends what was saved.

Between two paths every mean is reached by running them in turn; of all pairs the one with the best quality at
a balanced bucket is the best use of a budget (it lies on the concave hull of quality over energy). One turn
of both lasts one window, so that every window holds the same share of each, wherever it begins: then not only
the mean keeps the budget. Stays are no shorter than the dwell; where that makes turns longer than a window,
some windows hold more of the dear path than others, and beyond a small excess the pair is not run at all.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Option:
    """A path as the allowance sees it.

    Attributes:
        index: Of the path.
        quality: In [0, 1].
        drain_j: Energy of a frame less its allowance; negative where it saves.
        period_s: Time from frame to frame while it runs.
    """

    index: int
    quality: float
    drain_j: float
    period_s: float


@dataclass(frozen=True, slots=True)
class Turns:
    """A pair of paths to run in turn.

    Attributes:
        base: Saves, until the bucket holds `capacity_j`.
        high: Spends, until the bucket is empty.
        quality: Mean over frames.
        capacity_j: What one stay on the high path takes from the bucket.
    """

    base: Option
    high: Option
    quality: float
    capacity_j: float


def best_turns(options: Sequence[Option], *, dwell_frames: int, window_s: float, excess_j: float) -> Turns | None:
    """The pair of the best mean quality, or None where no pair fits.

    Args:
        options: Paths to choose from.
        dwell_frames: Least length of a stay.
        window_s: Over which the mean must hold.
        excess_j: By which a single window may exceed its allowance.
    """
    savers = [option for option in options if option.drain_j < 0]
    spenders = [option for option in options if option.drain_j > 0]
    pairs = [
        (_balanced_quality(base, high), base.drain_j - high.drain_j, base, high)
        for base in savers
        for high in spenders
        if high.quality > base.quality
    ]
    # Of pairs that are as good (three paths on a line) the closest, whose windows differ least.
    for _, _, base, high in sorted(pairs, key=lambda pair: (-round(pair[0], 4), -pair[1])):
        turns = turns_of(base, high, dwell_frames=dwell_frames, window_s=window_s)
        if _worst_window_j(turns, window_s) <= excess_j:
            return turns
    return None


def turns_of(base: Option, high: Option, *, dwell_frames: int, window_s: float) -> Turns:
    """How a given pair takes turns: `base` must save, and `high` spend."""
    capacity = _capacity_j(base, high, dwell_frames, window_s)
    return Turns(base, high, _balanced_quality(base, high), capacity)


def _balanced_quality(base: Option, high: Option) -> float:
    share = base.drain_j / (base.drain_j - high.drain_j)
    return base.quality + share * (high.quality - base.quality)


def _capacity_j(base: Option, high: Option, dwell_frames: int, window_s: float) -> float:
    """Bucket with which one turn of both lasts a window, or longer where the stays would be too short."""
    saving_w, spending_w = -base.drain_j / base.period_s, high.drain_j / high.period_s
    one_window = window_s * saving_w * spending_w / (saving_w + spending_w)
    return max(one_window, dwell_frames * high.drain_j, -dwell_frames * base.drain_j)


def _worst_window_j(turns: Turns, window_s: float) -> float:
    """By how much a window exceeds its allowance that holds as much of the high path as can be."""
    base, high = turns.base, turns.high
    saving_w, spending_w = -base.drain_j / base.period_s, high.drain_j / high.period_s
    stay_s = min(window_s, turns.capacity_j / spending_w)
    return spending_w * stay_s - saving_w * (window_s - stay_s)
