"""Once-for-All ResNet-50 as twelve paths in one process: memory, time to build, time to switch, multiply-accumulates.

    python benchmarks/subnets.py [--size 224x224] [--frames 8] [--threads 1]

Weights are random, calibration frames too: what is measured depends on neither. A switch is what stands between
deciding and the next path's first operation: `DynamicModel.pin` and looking the path up. It is timed one by one over
all pairs of paths, the timer's own cost included. That it leaves nothing to be done later (no copy, no statistics to
load) is shown by the second figure: calls that alternate between two paths against calls that stay on each.
"""

import argparse
import gc
import platform
import random
import statistics
import time
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path

import torch
from torch import Tensor, nn

from gearshift.paths.build import PathFactory
from gearshift.paths.cost import count_macs
from gearshift.paths.models import load_model
from gearshift.paths.ofa import Subnet
from gearshift.paths.ofa.family import path_of
from gearshift.paths.sharing import storage_bytes, tensors_of
from gearshift.profiler.device import identify
from gearshift.profiler.meters import open_meter
from gearshift.runtime.bench.switching import measure_switch
from gearshift.runtime.choices import Choice, Choices
from gearshift.runtime.cli.profile import parse_size
from gearshift.runtime.dynamic import DynamicModel

SUBNETS = [Subnet.largest(), Subnet.smallest(), *(Subnet.sample(random.Random(seed)) for seed in range(10))]
LIMIT = 1.15
ROUNDS = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="224x224")
    parser.add_argument("--frames", type=int, default=8, help="random frames to calibrate on")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    height, width = parse_size(options.size)
    device = identify(torch.device("cpu")).describe()
    print(device, f"| {options.threads} threads | torch {torch.__version__} | Python {platform.python_version()}")
    supernet = load_model("config:ofa-resnet50").module
    factory = PathFactory(supernet, calibration=[torch.randn(1, 3, height, width) for _ in range(options.frames)])
    specs = [path_of(subnet) for subnet in SUBNETS]
    before = resident_bytes()
    first = cpu_seconds_of(factory, specs)
    again = cpu_seconds_of(factory, specs)
    print(f"build, CPU time: {spread(first, 1e3)} ms with {options.frames} frames to calibrate on (n {len(first)})")
    print(f"build, CPU time: {spread(again, 1e3)} ms with known statistics (n {len(again)})")
    paths = {spec.id: factory.build(spec) for spec in specs}
    memory(supernet, list(paths.values()), before)
    frame = torch.randn(1, 3, height, width)
    for name in ("largest", "smallest"):
        path = paths[path_of(getattr(Subnet, name)()).id]
        print(f"{name}: {count_macs(path, frame) / 1e6:.0f} MMAC at {height}x{width}, {path.id}")
    switches(paths, frame)


def cpu_seconds_of(factory: PathFactory, specs: Sequence) -> list[float]:
    found = []
    for spec in specs:
        start = time.process_time()
        factory.build(spec)
        found.append(time.process_time() - start)
    return found


def memory(supernet: nn.Module, paths: list[nn.Module], before: int | None) -> None:
    """Storage behind all tensors, each once, and what the process grew by."""
    alone = storage_bytes(tensors_of(supernet))
    total = storage_bytes(tensor for module in (supernet, *paths) for tensor in tensors_of(module))
    print(f"{len(paths)} subnets: {total / 1e6:.1f} MB against {alone / 1e6:.1f} MB, ratio {total / alone:.3f}")
    gc.collect()
    now = resident_bytes()
    if before is not None and now is not None:
        print(f"resident: {now / 1e6:.0f} MB, {(now - before) / 1e6:+.0f} MB since before the first path was built")
    if total > LIMIT * alone:
        raise SystemExit(f"more than {LIMIT} of the supernet's memory")


def switches(paths: dict[str, nn.Module], frame: Tensor) -> None:
    """Time from a decision to the callable, and whether the call after it is dearer."""
    choices = Choices(
        paths=tuple(
            Choice(id=name, quality=0.5, latency_s=1e-3 * (number + 1), spread=0.1, net_j=0.01)
            for number, name in enumerate(paths)
        ),
        idle_power_w=1.0,
    )
    found = []
    with DynamicModel(paths, choices, meter=open_meter("none")) as model:
        for _ in range(ROUNDS):
            for before, after in permutations(paths, 2):
                model.pin(before)
                start = time.perf_counter()
                model.pin(after)
                path = model.active
                found.append(time.perf_counter() - start)
                if path is not paths[after]:
                    raise SystemExit(f"{after} was asked for, {path.id} is active")
    print(f"switch of path: {spread(found, 1e6)} us (n {len(found)}), statistics included")
    pair = [path for path in paths.values() if path.id != "stock"][:2]
    cost = measure_switch(
        (pair[0], pair[1]),
        (pair[0].id, pair[1].id),
        frame,
        open_meter("none"),
        rounds=10,
        window_s=0.5,
    )
    beyond = cost.time_ms
    if beyond is not None and beyond.low is not None and beyond.high is not None:
        print(
            f"call after a switch, beyond a repeated call: {beyond.mean:+.2f} ms "
            f"[95 %: {beyond.low:+.2f}, {beyond.high:+.2f}] (n {beyond.n}): {cost.method}"
        )


def spread(values: Sequence[float], scale: float) -> str:
    ordered = sorted(values)
    p95 = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    return f"median {statistics.median(values) * scale:.1f}, p95 {p95 * scale:.1f}, max {ordered[-1] * scale:.1f}"


def resident_bytes() -> int | None:
    """Memory of this process that is in RAM; None where the system does not tell it so."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return None
    return pages * 4096


if __name__ == "__main__":
    main()
