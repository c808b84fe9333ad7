"""Stock against lossless, in turn in one process: time ratio, operations, and the largest output difference.

python benchmarks/lossless.py [config:segformer-b2] [--size 512x512] [--rounds 9]
"""

import argparse
import platform

import torch

from gearshift.paths.build import PathFactory
from gearshift.paths.models import load_model
from gearshift.paths.spec import PathSpec
from gearshift.profiler import count, measure_in_turn, ratio_of_medians
from gearshift.profiler.device import identify
from gearshift.runtime.cli.profile import parse_size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="config:segformer-b2")
    parser.add_argument("--size", default="512x512")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    height, width = parse_size(options.size)
    factory = PathFactory(load_model(options.model).module)
    paths = {name: factory.build(PathSpec.parse(name)) for name in ("stock", "lossless", "lossless+qkv")}
    frame = torch.randn(1, 3, height, width)
    print(
        identify(torch.device("cpu")).describe(),
        f"| {torch.get_num_threads()} threads | Python {platform.python_version()}",
    )
    with torch.inference_mode():
        outputs = {name: path(frame).logits for name, path in paths.items()}
        timings = measure_in_turn({name: lambda path=path: path(frame) for name, path in paths.items()}, options.rounds)
    stock = outputs["stock"]
    for name, path in paths.items():
        timing, ratio = timings[name], ratio_of_medians(timings[name], timings["stock"])
        difference = float((outputs[name] - stock).abs().max() / stock.abs().max())
        same = float((outputs[name].argmax(1) == stock.argmax(1)).float().mean())
        print(
            f"{name:14s} {count(path, (frame,)).macs / 1e9:7.2f} GMAC  median {timing.median_ms:7.1f} ms "
            f"(iqr {timing.iqr_ms:.1f}, n {timing.n})  ratio to stock {ratio.value:.3f} "
            f"[{ratio.low:.3f}, {ratio.high:.3f}]  difference {difference:.1e}  same argmax {same:.4%}"
        )


if __name__ == "__main__":
    main()
