"""What the runtime itself costs: a call through `DynamicModel`, a switch of path, twelve paths held at once.

    python benchmarks/overhead.py

A call's overhead is the difference, taken in turn, between `DynamicModel` under a power and a latency budget
and the path called directly. The path does next to nothing, so that no model's noise hides the difference. A
switch is timed as calls that alternate between two such paths against calls that stay on one.
"""

import itertools
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from gearshift.paths.build import PathFactory
from gearshift.paths.models import load_model
from gearshift.paths.sharing import storage_bytes, tensors_of
from gearshift.paths.spec import PathSpec
from gearshift.profiler.device import identify
from gearshift.profiler.meters import open_meter
from gearshift.runtime import Budget, Choice, Choices, DynamicModel

ROUNDS, CALLS = 30, 200
TWELVE = (
    *("stock", "lossless", "lossless+qkv"),
    *("lossless+skip=2.1", "lossless+skip=2.1,2.3", "lossless+blocks=3-4-4-3"),
    *("lossless+fuse=2304", "lossless+fuse=1536", "lossless+decoder=512", "lossless+size=75%"),
    *("lossless+skip=2.1+fuse=1536+size=75%", "lossless+decoder=384+size=50%"),
)


class Echo(nn.Module):
    """A path that takes no time worth speaking of."""

    def forward(self, pixel_values: Tensor) -> Tensor:
        """Give the frame back."""
        return pixel_values


def main() -> None:
    print(identify(torch.device("cpu")).describe(), f"| {torch.get_num_threads()} threads")
    paths = {f"path {number}": Echo() for number in range(12)}
    choices = Choices(
        paths=tuple(
            Choice(
                id=name,
                quality=0.5 + number / 100,
                latency_s=1e-4 * (number + 1),
                spread=0.1,
                net_j=0.01 * number,
            )
            for number, name in enumerate(paths)
        ),
        idle_power_w=1.0,
    )
    with DynamicModel(paths, choices, meter=open_meter("cpu-time")) as model:
        model.budget = Budget(power="100 W", latency="33 ms")
        frame, first = torch.zeros(1), paths["path 0"]
        with torch.no_grad():
            report("DynamicModel call", lambda: model(frame), lambda: first(frame))
        turns = itertools.cycle(("path 0", "path 1"))

        def on(name: str) -> None:
            model.pin(name)
            model(frame)

        report("switch of path", lambda: on(next(turns)), lambda: on("path 0"))
    memory()


def report(name: str, with_it: Callable[[], object], without: Callable[[], object]) -> None:
    """Print the median over rounds of the difference per call, in turn."""
    differences = [(seconds(with_it) - seconds(without)) / CALLS * 1e6 for _ in range(ROUNDS)]
    low, median, high = statistics.quantiles(differences, n=4)
    print(f"{name:18s} {median:7.1f} us median, quartiles {low:.1f} to {high:.1f}, n {ROUNDS}x{CALLS}")


def seconds(call: Callable[[], object]) -> float:
    """Time of `CALLS` calls."""
    start = time.perf_counter()
    for _ in range(CALLS):
        call()
    return time.perf_counter() - start


def memory() -> None:
    """Print what twelve paths of SegFormer-B2 cost beyond the stock model's parameters."""
    factory = PathFactory(load_model("config:segformer-b2").module)
    base = storage_bytes(tensors_of(factory.stock))
    paths = [factory.build(PathSpec.parse(name)) for name in TWELVE]
    total = storage_bytes(tensor for module in (factory.stock, *paths) for tensor in tensors_of(module))
    print(f"12 paths of SegFormer-B2: {total / 1e6:.1f} MB against {base / 1e6:.1f} MB, ratio {total / base:.3f}")


if __name__ == "__main__":
    main()
