"""Where three models' time, and under a meter their energy, goes; does the board's counter agree with its power?

python benchmarks/profiles.py [--device cuda] [--dtypes float32 float16] [--models MODEL ...] [--energy] [--json FILE]

Batch 1, each model at its own size, profiled one after the other in one process. `--energy` adds the energy of
every type of work (a minute a model) and, where the meter has both, its counter against its integrated power
under a steady load of matrix products.
"""

import argparse
import platform
from contextlib import closing
from pathlib import Path
from typing import Any

import torch

from gearshift.errors import GearshiftError
from gearshift.files import write_json
from gearshift.paths.models import load_model
from gearshift.profiler import profile
from gearshift.profiler.device import identify, synchronise
from gearshift.profiler.meters import Meter, open_meter
from gearshift.profiler.operator_energy import measure_operator_energy
from gearshift.profiler.peaks import DTYPES, peaks_of
from gearshift.runtime.cli.output import choose_device
from gearshift.runtime.cli.profile_view import energy_line, launch_line, operations_line, time_line

MODELS = ("config:segformer-b2", "config:swin-tiny-upernet", "config:vit-base")
LOAD_S = 20.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtypes", nargs="+", default=["float32", "float16"], choices=sorted(DTYPES))
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--energy", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    try:
        device = choose_device(options.device)
        where = f"{identify(device).describe()} | Python {platform.python_version()}"
        print(where)
        document: dict[str, Any] = {"device": where, "models": []}
        with closing(open_meter(device=None if device.type == "cpu" else device)) as meter:
            for reference in options.models:
                for dtype in options.dtypes:
                    document["models"].append(
                        one(reference, dtype, device, options.repeats, meter if options.energy else None)
                    )
            if options.energy:
                document["counter_against_power"] = counter_against_power(meter, device)
        if options.json:
            write_json(options.json, document)
    except GearshiftError as error:
        raise SystemExit(f"error: {error}") from None


def one(reference: str, dtype: str, device: torch.device, repeats: int, meter: Meter | None) -> dict[str, Any]:
    """Profile one model in one type, and print what was found."""
    loaded = load_model(reference, random_init=True)
    module = loaded.module.to(device=device, dtype=DTYPES[dtype])
    frames = torch.zeros(1, 3, *loaded.image_size, device=device, dtype=DTYPES[dtype])
    found = profile(module, (frames,), repeats=repeats)
    roofline = found.roofline(peaks_of(device, DTYPES[dtype]))
    print(f"\n{reference}, {dtype}, 1x3x{loaded.image_size[0]}x{loaded.image_size[1]}")
    print("\n".join(line for line in (operations_line(found.count), time_line(found), launch_line(found)) if line))
    bounds = {row.name: row for row in roofline.rows}
    for row in found.table():
        bound = bounds[row.name]
        achieved = "-" if bound.achieved is None else f"{bound.achieved:.0%}"
        print(f"  {row.name:14s} {row.time_ms:9.3f} ms {row.time_share:6.1%}  {achieved} of its {bound.limit} bound")
    for item in roofline.correlations:
        print(f"  Kendall's tau of {item.of} with time, {item.modules} modules: {item.kendall_tau:.2f}")
    document = {"model": reference, **found.to_dict(), "roofline": roofline.to_dict()}
    if meter is not None:
        energy = measure_operator_energy(module, (frames,), meter=meter)
        print(energy_line(energy))
        for energy_row in energy.rows:
            print(f"  {energy_row.name:14s} {(energy_row.net_j or 0) * 1e3:9.3f} mJ net")
        document["energy"] = energy.to_dict()
    return document


def counter_against_power(meter: Meter, device: torch.device) -> dict[str, Any] | None:
    """Load the device steadily, and compare its energy counter with its power, integrated over the same time."""
    before = meter.read()
    if before.check_j is None:
        print(f"\ncounter against integrated power: not measured ({meter.name} has no second sensor)")
        return None
    matrix = torch.rand(4096, 4096, device=device)
    with meter.window() as window:
        while (now := meter.read()).time_s - before.time_s < LOAD_S:
            for _ in range(20):
                matrix @ matrix
            synchronise(device)
    energy_j, check_j = window.energy_j, (now.check_j or 0.0) - before.check_j
    seconds, check_s = window.seconds or 0.0, now.check_s - before.check_s
    if energy_j is None or check_s <= 0 or seconds <= 0:
        print(f"\ncounter against integrated power: not measured ({window.reason})")
        return None
    counter_w, power_w = energy_j / seconds, check_j / check_s
    print(
        f"\ncounter against integrated power under load, {seconds:.1f} s: {counter_w:.2f} W by the counter, "
        f"{power_w:.2f} W integrated over {check_s:.1f} s, difference {power_w / counter_w - 1:+.2%}"
    )
    return {"counter_w": counter_w, "integrated_w": power_w, "seconds": seconds, "integrated_s": check_s}


if __name__ == "__main__":
    main()
