"""How near each kind of work comes to what the device can do, and what limits it.

The bound of a call is the least time that the device could need for it: its arithmetic at peak arithmetic, or
its bytes at peak bandwidth, whichever is longer. `achieved` is bound over measured time. Work is limited by
`arithmetic` or by `memory`, by whichever part of the bounds is larger.

This is why counting operations mispredicts time: work limited by memory takes as long as its bytes, whatever
it computes, and kernels differ in how near they come to either bound. `rank_correlations` says how well
each count orders a model's modules by measured time (Kendall's tau-b: 1 the same order, 0 none, -1 reversed).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gearshift.profiler.calls import Call
from gearshift.profiler.peaks import Peaks

ARITHMETIC, MEMORY = "arithmetic", "memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The least time of one call, ms: of its arithmetic, and of its bytes."""

    arithmetic_ms: float
    memory_ms: float

    @property
    def ms(self) -> float:
        """The longer of the two: they may overlap perfectly."""
        return max(self.arithmetic_ms, self.memory_ms)

    @property
    def limit(self) -> str:
        """Which of the two is longer."""
        return ARITHMETIC if self.arithmetic_ms > self.memory_ms else MEMORY


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflineRow:
    """One type of work against its bound.

    Attributes:
        name: The operator type.
        time_ms: Measured time.
        bound_ms: Sum of its calls' bounds.
        arithmetic_bound_share: Share of `bound_ms` that comes from calls limited by arithmetic.
        intensity_flops_per_byte: Floating-point operations per byte moved; None where no byte has to move.
        gflops: Achieved arithmetic, 10^9 operations a second; None where no time passed.
        bandwidth_gbs: Achieved bandwidth, 10^9 bytes a second; None where no time passed.
    """

    name: str
    time_ms: float
    bound_ms: float
    arithmetic_bound_share: float
    intensity_flops_per_byte: float | None
    gflops: float | None
    bandwidth_gbs: float | None

    @property
    def achieved(self) -> float | None:
        """Bound over time: 1 is as fast as the device can be. None where no time passed."""
        return self.bound_ms / self.time_ms if self.time_ms > 0 else None

    @property
    def limit(self) -> str | None:
        """What limits it, `arithmetic` or `memory`; None where there is nothing to do (views)."""
        if self.bound_ms == 0:
            return None
        return ARITHMETIC if self.arithmetic_bound_share > 0.5 else MEMORY

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {
            "name": self.name,
            "time_ms": self.time_ms,
            "bound_ms": self.bound_ms,
            "achieved": self.achieved,
            "limit": self.limit,
            "arithmetic_bound_share": self.arithmetic_bound_share,
            "intensity_flops_per_byte": self.intensity_flops_per_byte,
            "gflops": self.gflops,
            "bandwidth_gbs": self.bandwidth_gbs,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RankCorrelation:
    """How well a count orders modules by measured time.

    Attributes:
        of: What was counted: `macs`, `bytes` or `roofline_ms`.
        kendall_tau: Kendall's tau-b; None where it is undefined (fewer than two modules, or all alike).
        p_value: Probability of so large a tau among unrelated orders; None with tau.
        modules: How many modules were ordered.
    """

    of: str
    kendall_tau: float | None
    p_value: float | None
    modules: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {"of": self.of, "kendall_tau": self.kendall_tau, "p_value": self.p_value, "modules": self.modules}


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """A profile against the peaks of its device; `rows` are ordered by time, longest first."""

    peaks: Peaks
    rows: tuple[RooflineRow, ...]
    total: RooflineRow
    correlations: tuple[RankCorrelation, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {
            "peaks": self.peaks.to_dict(),
            "total": self.total.to_dict(),
            "by_type": [row.to_dict() for row in self.rows],
            "rank_correlation_with_time": [correlation.to_dict() for correlation in self.correlations],
        }


def roofline_of(calls: Sequence[Call], times_ms: Sequence[float], peaks: Peaks) -> Roofline:
    """Hold measured calls against the peaks of the device they ran on."""
    bounds = [bound_of(call, peaks) for call in calls]
    parts: dict[str, list[tuple[Call, float, Bound, float]]] = {}
    for call, time_ms, bound in zip(calls, times_ms, bounds, strict=True):
        for operator_type, share in call.shares():
            parts.setdefault(str(operator_type), []).append((call, time_ms, bound, share))
    rows = [_row(name, items) for name, items in parts.items()]
    whole = [(call, time_ms, bound, 1.0) for call, time_ms, bound in zip(calls, times_ms, bounds, strict=True)]
    return Roofline(
        peaks=peaks,
        rows=tuple(sorted(rows, key=lambda row: -row.time_ms)),
        total=_row("(whole)", whole),
        correlations=rank_correlations(calls, times_ms, bounds),
    )


def bound_of(call: Call, peaks: Peaks) -> Bound:
    """The least time of a call; element-wise work is taken to run at the peak of multiply-adds."""
    moved = call.bytes_read + call.bytes_written
    return Bound(
        arithmetic_ms=_flops(call) / (peaks.gflops * 1e6),
        memory_ms=moved / (peaks.bandwidth_for(moved) * 1e6) if moved else 0.0,
    )


def rank_correlations(
    calls: Sequence[Call], times_ms: Sequence[float], bounds: Sequence[Bound]
) -> tuple[RankCorrelation, ...]:
    """Correlate counts with time over the innermost modules that made the calls."""
    macs, moved, least, times = ({} for _ in range(4))  # type: dict[str, float], dict[str, float], dict[str, float], dict[str, float]
    for call, time_ms, bound in zip(calls, times_ms, bounds, strict=True):
        for sums, value in (
            (macs, call.macs),
            (moved, call.bytes_read + call.bytes_written),
            (least, bound.ms),
            (times, time_ms),
        ):
            sums[call.module] = sums.get(call.module, 0.0) + value
    counts = {"macs": macs, "bytes": moved, "roofline_ms": least}
    return tuple(_correlation(name, sums, times) for name, sums in counts.items())


def _correlation(of: str, sums: Mapping[str, float], times: Mapping[str, float]) -> RankCorrelation:
    from scipy.stats import kendalltau  # here, since it takes most of a second to import

    counted, measured = list(sums.values()), [times[name] for name in sums]
    if len(set(counted)) < 2 or len(set(measured)) < 2:
        return RankCorrelation(of=of, kendall_tau=None, p_value=None, modules=len(counted))
    found = kendalltau(counted, measured)
    return RankCorrelation(of=of, kendall_tau=float(found.statistic), p_value=float(found.pvalue), modules=len(counted))


def _row(name: str, items: Iterable[tuple[Call, float, Bound, float]]) -> RooflineRow:
    time_ms = bound_ms = arithmetic_ms = flops = moved = 0.0
    for call, call_ms, bound, share in items:
        time_ms += share * call_ms
        bound_ms += share * bound.ms
        arithmetic_ms += share * bound.ms if bound.limit == ARITHMETIC else 0.0
        flops += share * _flops(call)
        moved += share * (call.bytes_read + call.bytes_written)
    return RooflineRow(
        name=name,
        time_ms=time_ms,
        bound_ms=bound_ms,
        arithmetic_bound_share=arithmetic_ms / bound_ms if bound_ms else 0.0,
        intensity_flops_per_byte=flops / moved if moved else None,
        gflops=flops / (time_ms * 1e6) if time_ms > 0 else None,
        bandwidth_gbs=moved / (time_ms * 1e6) if time_ms > 0 else None,
    )


def _flops(call: Call) -> float:
    return 2 * call.macs + call.elementwise_flops
