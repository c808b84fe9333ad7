"""Latency as measured: what one call takes, with its spread and how it was obtained.

Order around every timed call: wait for the device, read the clock, run, wait, read the clock. Warm-up calls
are thrown away, but the very first call's time is kept, since that is what a cold start costs. Candidates
that are to be compared are measured in turn, round by round, so that whatever else the machine does falls on
all of them alike.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from gearshift.errors import InputError

Clock = Callable[[], float]
Synchronise = Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """What one call took.

    Attributes:
        median_ms: Median over the measured calls.
        p95_ms: 95th percentile.
        min_ms: Fastest call.
        iqr_ms: Interquartile range.
        n: How many calls were measured, warm-up not included.
        first_call_ms: The first call of all: lazy initialisation, tuning and compilation included.
        source: How it was measured.
        samples_ms: The measured calls, in order.
    """

    median_ms: float
    p95_ms: float
    min_ms: float
    iqr_ms: float
    n: int
    first_call_ms: float
    source: str
    samples_ms: tuple[float, ...] = ()

    @classmethod
    def of(cls, samples_ms: Sequence[float], *, first_call_ms: float, source: str) -> Self:
        """Summarise measured calls.

        Raises:
            InputError: There is none.
        """
        if not samples_ms:
            raise InputError("cannot summarise 0 measured calls; measure at least 1")
        low, median, high, p95 = (float(value) for value in np.percentile(samples_ms, [25, 50, 75, 95]))
        return cls(
            median_ms=median,
            p95_ms=p95,
            min_ms=min(samples_ms),
            iqr_ms=high - low,
            n=len(samples_ms),
            first_call_ms=first_call_ms,
            source=source,
            samples_ms=tuple(samples_ms),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON; without the samples."""
        return {
            "median_ms": self.median_ms,
            "p95_ms": self.p95_ms,
            "min_ms": self.min_ms,
            "iqr_ms": self.iqr_ms,
            "n": self.n,
            "first_call_ms": self.first_call_ms,
            "source": self.source,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """Calls per second when the device's queue is kept full: it is waited for at both ends only."""

    calls: int
    seconds: float
    source: str

    @property
    def per_second(self) -> float:
        """Calls per second."""
        return self.calls / self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """How two timings compare; `low` and `high` are the quartiles of the ratios of single rounds."""

    value: float
    low: float
    high: float
    rounds: int


def measure_latency(
    fn: Callable[[], object],
    *,
    warmup: int = 3,
    repeats: int = 10,
    min_seconds: float = 0.0,
    synchronise: Synchronise | None = None,
    clock: Clock = time.perf_counter,
) -> Timing:
    """Time single calls of `fn`.

    Args:
        fn: What to time.
        warmup: Calls to throw away first.
        repeats: Least number of measured calls.
        min_seconds: Go on until the measured calls took this long together.
        synchronise: Waits until the device has finished; None where calls finish before they return.
        clock: Seconds that never jump.
    """
    return measure_in_turn(
        {"": fn},
        repeats,
        warmup=warmup,
        min_seconds=min_seconds,
        synchronise=synchronise,
        clock=clock,
    )[""]


def measure_in_turn(
    candidates: Mapping[str, Callable[[], object]],
    rounds: int,
    *,
    warmup: int = 3,
    min_seconds: float = 0.0,
    synchronise: Synchronise | None = None,
    clock: Clock = time.perf_counter,
) -> dict[str, Timing]:
    """Time several candidates, one call each per round; each round starts with the next candidate.

    Args:
        candidates: What to time, by name.
        rounds: Least number of measured calls of each.
        warmup: Calls of each to throw away first.
        min_seconds: Go on until the measured calls took this long together.
        synchronise: Waits until the device has finished; None where calls finish before they return.
        clock: Seconds that never jump.
    """
    _check(rounds, warmup)
    warm = {name: [timed_ms(fn, synchronise, clock) for _ in range(warmup)] for name, fn in candidates.items()}
    samples: dict[str, list[float]] = {name: [] for name in candidates}
    names, done, total_ms = list(candidates), 0, 0.0
    while done < rounds or (candidates and total_ms < min_seconds * 1e3):
        for name in _rotated(names, done):
            samples[name].append(timed_ms(candidates[name], synchronise, clock))
            total_ms += samples[name][-1]
        done += 1
    source = _source(synchronise, len(names))
    return {
        name: Timing.of(samples[name], first_call_ms=[*warm[name], *samples[name]][0], source=source) for name in names
    }


def measure_throughput(
    fn: Callable[[], object],
    *,
    warmup: int = 3,
    repeats: int = 10,
    synchronise: Synchronise | None = None,
    clock: Clock = time.perf_counter,
) -> Throughput:
    """Time `repeats` calls of `fn` together, waiting for the device before and after all of them only."""
    _check(repeats, warmup)
    for _ in range(warmup):
        fn()

    def run() -> None:
        for _ in range(repeats):
            fn()

    waited = "" if synchronise is None else ", device synchronised at both ends only"
    return Throughput(
        calls=repeats,
        seconds=timed_ms(run, synchronise, clock) / 1e3,
        source=f"measured:wall-clock{waited}",
    )


def ratio_of_medians(candidate: Timing, reference: Timing) -> Ratio:
    """Compare two timings that were measured in turn.

    Raises:
        InputError: They do not hold the same number of rounds.
    """
    if len(candidate.samples_ms) != len(reference.samples_ms) or not candidate.samples_ms:
        raise InputError(
            f"cannot compare {len(candidate.samples_ms)} with {len(reference.samples_ms)} rounds; "
            "measure both with measure_in_turn"
        )
    pairs = zip(candidate.samples_ms, reference.samples_ms, strict=True)
    low, high = (float(value) for value in np.percentile([left / right for left, right in pairs], [25, 75]))
    return Ratio(value=candidate.median_ms / reference.median_ms, low=low, high=high, rounds=len(candidate.samples_ms))


def timed_ms(fn: Callable[[], object], synchronise: Synchronise | None, clock: Clock) -> float:
    """Time one call, waiting for the device at both ends."""
    if synchronise is not None:
        synchronise()
    started_s = clock()
    fn()
    if synchronise is not None:
        synchronise()
    return (clock() - started_s) * 1e3


def _rotated(names: Sequence[str], by: int) -> Sequence[str]:
    start = by % len(names) if names else 0
    return [*names[start:], *names[:start]]


def _check(repeats: int, warmup: int) -> None:
    if repeats < 1 or warmup < 0:
        raise InputError(f"got repeats={repeats} and warmup={warmup}; use repeats >= 1 and warmup >= 0")


def _source(synchronise: Synchronise | None, candidates: int) -> str:
    waited = "" if synchronise is None else ", device synchronised before and after every call"
    turns = f", {candidates} candidates in turn" if candidates > 1 else ""
    return f"measured:wall-clock{waited}{turns}"
