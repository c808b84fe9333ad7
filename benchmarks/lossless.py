"""Stock against the model's exact forms, in turn in one process: operations, time, and the largest output difference.

python benchmarks/lossless.py [config:segformer-b2 | config:swin-tiny-upernet | ...] [--size 512x512] [--rounds 9]
"""

import argparse
import platform

import torch

from gearshift.paths.build import PathFactory
from gearshift.paths.models import load_model
from gearshift.paths.outputs import logits_of
from gearshift.paths.spec import PathSpec
from gearshift.profiler import count, measure_in_turn, ratio_of_medians
from gearshift.profiler.device import identify
from gearshift.runtime.cli.profile import parse_size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="config:segformer-b2")
    parser.add_argument("--size", help="of the frames; the model's own where it is not given")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    loaded = load_model(options.model)
    height, width = parse_size(options.size) if options.size else loaded.image_size
    factory = PathFactory(loaded.module)
    exact = [spec for spec in factory.family.base(factory.stock) if spec != PathSpec()]
    if not exact:
        parser.error(f"{options.model} has no exact form: {factory.family.name} admits none")
    paths = {spec.id: factory.build(spec) for spec in (PathSpec(), *exact)}
    frame = torch.randn(1, factory.family.traits(factory.stock).channels, height, width)
    # Queries come before their classes; pixels and frames behind.
    classes = 2 if factory.family.traits(factory.stock).task == "detection" else 1
    print(
        identify(torch.device("cpu")).describe(),
        f"| {torch.get_num_threads()} threads | Python {platform.python_version()}",
    )
    print(f"{options.model}, {height}x{width}")
    with torch.inference_mode():
        outputs = {name: logits_of(path(frame)) for name, path in paths.items()}
        timings = measure_in_turn({name: lambda path=path: path(frame) for name, path in paths.items()}, options.rounds)
        macs = {name: count(path, (frame,)).macs for name, path in paths.items()}
    stock = outputs["stock"]
    for name in paths:
        timing, ratio = timings[name], ratio_of_medians(timings[name], timings["stock"])
        difference = float((outputs[name] - stock).abs().max() / stock.abs().max())
        same = float((outputs[name].argmax(classes) == stock.argmax(classes)).float().mean())
        print(
            f"{name:18s} {macs[name] / 1e9:7.2f} GMAC, {macs[name] / macs['stock']:.3f} of stock  "
            f"median {timing.median_ms:7.1f} ms (iqr {timing.iqr_ms:.1f}, n {timing.n}), {ratio.value:.3f} of stock "
            f"[{ratio.low:.3f}, {ratio.high:.3f}]  difference {difference:.1e}  same argmax {same:.4%}"
        )


if __name__ == "__main__":
    main()
