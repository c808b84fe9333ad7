"""What this device can do at best: peak arithmetic of a type, and peak bandwidth by size of the working set.

Measured once and kept by device (`DeviceStore`): arithmetic with a large square matrix product, bandwidth with
copies. A copy of few bytes stays in the caches and runs faster than memory; an operator's bytes do likewise,
so bandwidth is a curve over the bytes that one call moves. The best of several runs is taken, since a peak is
what the device can do, not what it does beside other programs.

Source of the model: Williams, Waterman, Patterson, "Roofline: an insightful visual performance model for
multicore architectures", CACM 52(4), 2009.
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from math import exp, log
from statistics import median
from typing import Any, Self

import numpy as np
import torch

from gearshift.errors import InputError
from gearshift.profiler.device import DeviceIdentity, identify, synchronise
from gearshift.profiler.device_store import DeviceStore
from gearshift.profiler.timing import Clock, Synchronise, timed_ms

# Sides of the matrix products: large enough for the kernels to reach their peak, small enough for a second. The
# best size differs by caches and threads.
MATRIX_SIDES = {"cpu": (768, 1536), "cuda": (4096, 8192)}
# Bytes read and written by one copy: from the second-level cache of a core to beyond any cache.
COPY_BYTES = tuple(2**power for power in (18, 21, 24, 28))
SECONDS_EACH = 0.08
LEAST_RUNS = 5
# Runs that differ more than this, or that got less than this share of the processor, were taken beside other
# programs: such peaks are used, but not kept.
STEADY_SPREAD = 0.2
LEAST_UTILISATION = 0.9
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    """The best that a device was seen to do.

    Attributes:
        dtype: Type of the matrix product's operands, such as `float32`.
        threads: Threads that PyTorch used within an operator on the CPU.
        gflops: Peak arithmetic, 10^9 floating-point operations a second (a multiply-add is two).
        gflops_spread: Interquartile range of the runs over their median.
        utilisation: Processor time that the products got over what their threads could have had; 1 on a GPU, whose
            other users do not show.
        bandwidth_gbs: Peak bandwidth, 10^9 bytes read and written a second, by bytes of the working set,
            smallest first.
        runs: How many matrix products were timed.
        measured_at: Date and time, UTC.
        source: How it was measured.
    """

    dtype: str
    threads: int
    gflops: float
    gflops_spread: float
    utilisation: float
    bandwidth_gbs: Mapping[int, float]
    runs: int
    measured_at: str
    source: str

    def __post_init__(self) -> None:
        if not self.gflops > 0 or not self.bandwidth_gbs or min(self.bandwidth_gbs.values()) <= 0:
            raise InputError("peaks must be above 0; measure them again with measure_peaks")

    @property
    def is_steady(self) -> bool:
        """Whether the device was ours alone, so that the best of the runs is its own peak."""
        return self.gflops_spread <= STEADY_SPREAD and self.utilisation >= LEAST_UTILISATION

    @property
    def memory_gbs(self) -> float:
        """Bandwidth of memory itself: that of the largest working set."""
        return self.bandwidth_gbs[max(self.bandwidth_gbs)]

    @property
    def balance_flops_per_byte(self) -> float:
        """Arithmetic intensity above which arithmetic is the limit, for working sets beyond the caches."""
        return self.gflops / self.memory_gbs

    def bandwidth_for(self, working_set_bytes: int) -> float:
        """Bandwidth in GB/s for a call that moves so many bytes, between the sizes measured (both on a log scale)."""
        sizes = sorted(self.bandwidth_gbs)
        at = np.interp(log(max(working_set_bytes, 1)), np.log(sizes), [log(self.bandwidth_gbs[size]) for size in sizes])
        return exp(float(at))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {
            "dtype": self.dtype,
            "threads": self.threads,
            "gflops": self.gflops,
            "gflops_spread": self.gflops_spread,
            "utilisation": self.utilisation,
            "memory_gbs": self.memory_gbs,
            "bandwidth_gbs": {str(size): value for size, value in self.bandwidth_gbs.items()},
            "runs": self.runs,
            "measured_at": self.measured_at,
            "source": self.source,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Read what `to_dict` gave.

        Raises:
            InputError: A value is missing or makes no sense.
        """
        try:
            curve = {int(size): float(value) for size, value in values["bandwidth_gbs"].items()}
            return cls(
                dtype=str(values["dtype"]),
                threads=int(values["threads"]),
                gflops=float(values["gflops"]),
                gflops_spread=float(values["gflops_spread"]),
                utilisation=float(values["utilisation"]),
                bandwidth_gbs=dict(sorted(curve.items())),
                runs=int(values["runs"]),
                measured_at=str(values["measured_at"]),
                source=str(values["source"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"these are no peaks of a device ({error!r}); measure them again") from error


def peaks_of(
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    *,
    store: DeviceStore | None = None,
    fresh: bool = False,
    identity: DeviceIdentity | None = None,
    measure: Callable[[torch.device | str, torch.dtype], Peaks] | None = None,
) -> Peaks:
    """Return the peaks kept for this device, type and number of threads; where there are none, measure them.

    They are kept if the measurement was steady.

    Args:
        device: A CPU or CUDA device.
        dtype: Type of the operands.
        store: Where figures are kept.
        fresh: Measure even so.
        identity: The device, if known already.
        measure: Measures; by default `measure_peaks`.

    Raises:
        InputError: The device is not here, or the type has no matrix product.
    """
    store = DeviceStore() if store is None else store
    identity = identify(device) if identity is None else identity
    kind = f"peaks-{_name(dtype)}-{torch.get_num_threads()}t"
    kept = None if fresh else store.load(identity, kind)
    if kept is not None:
        try:
            return Peaks.from_dict(kept)
        except InputError:  # written by another release: measure again
            pass
    peaks = (measure or measure_peaks)(device, dtype)
    if peaks.is_steady and (reason := store.save(identity, kind, peaks.to_dict())) is not None:
        logging.getLogger(__name__).warning("peaks of the device are %s", reason)
    return peaks


def measure_peaks(
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    *,
    matrix_sides: tuple[int, ...] = (),
    copy_bytes: tuple[int, ...] = COPY_BYTES,
    seconds_each: float = SECONDS_EACH,
    clock: Clock = time.perf_counter,
    cpu_clock: Clock = time.process_time,
) -> Peaks:
    """Measure peak arithmetic and the bandwidth curve.

    Args:
        device: A CPU or CUDA device.
        dtype: Type of the matrix product's operands.
        matrix_sides: Rows and columns of its square operands; the size that runs best counts.
        copy_bytes: Bytes moved by the copies.
        seconds_each: How long each is repeated.
        clock: Seconds that never jump.
        cpu_clock: Processor seconds of this process.

    Raises:
        InputError: The device is not here, or the type has no matrix product.
    """
    target = torch.device(device)
    name, sides = _name(dtype), matrix_sides or MATRIX_SIDES.get(target.type, MATRIX_SIDES["cpu"])
    wait = None if target.type == "cpu" else partial(synchronise, target)
    with torch.no_grad():
        products_ms, utilisation = {}, 1.0
        for side in sides:
            run = _product(side, target, dtype)
            before = (clock(), cpu_clock())
            products_ms[side] = _repeat(run, seconds_each, wait, clock)
            utilisation = min(utilisation, _utilisation(target, before, (clock(), cpu_clock())))
        curve = {size: _copy_gbs(size, target, seconds_each, wait, clock) for size in sorted(copy_bytes)}
    gflops = {side: 2 * side**3 / (min(times_ms) * 1e6) for side, times_ms in products_ms.items()}
    side = max(gflops, key=lambda size: gflops[size])
    best_ms = products_ms[side]
    low, high = _quartiles(best_ms)
    return Peaks(
        dtype=name,
        threads=torch.get_num_threads(),
        gflops=gflops[side],
        gflops_spread=(high - low) / median(best_ms),
        utilisation=utilisation,
        bandwidth_gbs=_falling(curve),
        runs=len(best_ms),
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        source=(
            f"measured: best of {len(best_ms)} products of {side}x{side} {name} matrices; best copies of "
            f"{min(copy_bytes):,} to {max(copy_bytes):,} bytes moved; {torch.get_num_threads()} threads"
        ),
    )


def _utilisation(device: torch.device, before: tuple[float, float], after: tuple[float, float]) -> float:
    """Share of its threads' time that a process got; idle ones of a parallel region spin, so alone it is near 1."""
    could_s = (after[0] - before[0]) * torch.get_num_threads()
    return 1.0 if device.type != "cpu" or could_s <= 0 else (after[1] - before[1]) / could_s


def _product(side: int, device: torch.device, dtype: torch.dtype) -> Callable[[], object]:
    left, right = (torch.rand(side, side, device=device, dtype=dtype) for _ in range(2))
    return partial(torch.mm, left, right, out=torch.empty_like(left))


def _copy_gbs(size: int, device: torch.device, seconds: float, wait: Synchronise | None, clock: Clock) -> float:
    """Bandwidth of a copy that reads half of `size` bytes and writes the other half."""
    source = torch.zeros(size // 8, dtype=torch.float32, device=device)  # small elements would be copied by one thread
    target = torch.empty_like(source)
    return size / (min(_repeat(partial(target.copy_, source), seconds, wait, clock)) * 1e6)


def _repeat(run: Callable[[], object], seconds: float, wait: Synchronise | None, clock: Clock) -> list[float]:
    """Time single runs for `seconds`, in ms; the first one warms up and is thrown away."""
    timed_ms(run, wait, clock)
    times_ms: list[float] = []
    while len(times_ms) < LEAST_RUNS or sum(times_ms) < seconds * 1e3:
        times_ms.append(max(timed_ms(run, wait, clock), 1e-6))  # a coarse clock may show no time at all
        if len(times_ms) >= 10_000:
            break
    return times_ms


def _falling(curve: Mapping[int, float]) -> dict[int, float]:
    """Make a curve that never rises with size: what the device can do with more bytes it can do with fewer."""
    best, falling = 0.0, {}
    for size in sorted(curve, reverse=True):
        best = max(best, curve[size])
        falling[size] = best
    return dict(sorted(falling.items()))


def _quartiles(values: list[float]) -> tuple[float, float]:
    ordered = sorted(values)
    return ordered[len(ordered) // 4], ordered[(3 * len(ordered)) // 4]


def _name(dtype: torch.dtype) -> str:
    name = next((known for known, value in DTYPES.items() if value is dtype), None)
    if name is None:
        raise InputError(f"no peak is defined for {dtype}; choose one of {', '.join(DTYPES)}")
    return name
