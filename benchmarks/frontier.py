"""Every transform alone and the searched frontier of one model, judged on real frames: tables, JSON and a plot.

    python benchmarks/frontier.py timm:vit_tiny_patch16_224=WEIGHTS --data IMAGES --out runs/vit

Every fourth frame, without its label, calibrates what asks for frames; quality is given on all frames and on those that
calibrated nothing. Blocks are skipped in the order in which their absence alone changes the fewest answers on the
calibration frames. Latencies are ratios to the fastest exact path, measured in turn with it in this process. Making a
path is timed by processor time, from the weights alone.
"""

import argparse
import json
import re
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from svg import Series, scatter
from torch import nn

from gearshift.errors import PathRefusedError
from gearshift.files import write_text
from gearshift.paths.build import PathFactory
from gearshift.paths.cost import count_macs
from gearshift.paths.data import Frame
from gearshift.paths.frontier import pareto, spread_out
from gearshift.paths.journal import Journal
from gearshift.paths.judge import Judge
from gearshift.paths.knobs import turn
from gearshift.paths.make import versions
from gearshift.paths.models import LoadedModel, load_model
from gearshift.paths.quality import Quality
from gearshift.paths.search import Search
from gearshift.paths.space import Space
from gearshift.paths.spec import PathSpec
from gearshift.paths.structural import PRUNED_PERCENT
from gearshift.paths.tasks import task_of
from gearshift.paths.transforms import Prune, Skip, Transform
from gearshift.profiler import measure_in_turn
from gearshift.profiler.device import identify
from gearshift.runtime.frames import FrameSource

CALIBRATION_EVERY = 4
JUDGE_EVERY = 4
"""While searching, a candidate is judged on every so-many-th frame."""
LADDER = 6
"""Most blocks skipped by the transform alone."""
EQUAL_LATENCIES = (0.9, 0.8, 0.7, 0.6, 0.5)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One path: shares are of the exact path's, quality on all frames and on those that calibrated nothing."""

    path: str
    transform: str
    quality: float
    held_out: float
    macs: int
    macs_share: float
    latency_share: float
    latency_low: float
    latency_high: float
    n: int
    make_cpu_s: float
    extra_mb: float


class Bench:
    """One model, its frames, and the exact path that everything is compared with."""

    def __init__(self, loaded: LoadedModel, frames: Sequence[Frame], rounds: int) -> None:
        self.loaded, self.frames, self.rounds = loaded, frames, rounds
        self.calibration = [frame.unlabelled() for frame in frames[::CALIBRATION_EVERY]]
        self.prepare = loaded.preprocessing.prepared
        self.factory = self.fresh()
        traits = self.factory.family.traits(loaded.module)
        self.task = task_of(traits.task, len(traits.classes))
        self.pixels = self.prepare(frames[0].image)
        self.base = self._fastest()
        self.base_path = self.factory.build(self.base)
        self.base_macs = count_macs(self.base_path, self.pixels)
        self.exact_quality = self.judged(self.base_path)[0].value

    def fresh(self) -> PathFactory:
        """A factory that has derived nothing yet."""
        return PathFactory(self.loaded.module, calibration=[self.prepare(frame.image) for frame in self.calibration])

    def row(self, spec: PathSpec, transform: str) -> Row:
        """Make, judge and time one path."""
        factory, start = self.fresh(), time.process_time()
        factory.build(spec)
        made_s = time.process_time() - start
        path = self.factory.build(spec)
        everything, held_out = self.judged(path)
        ratios, macs = self.ratios(path), count_macs(path, self.pixels)
        row = Row(
            path=spec.id,
            transform=transform,
            quality=everything.value,
            held_out=held_out.value,
            macs=macs,
            macs_share=macs / self.base_macs,
            latency_share=float(np.median(ratios)),
            latency_low=float(np.percentile(ratios, 25)),
            latency_high=float(np.percentile(ratios, 75)),
            n=len(ratios),
            make_cpu_s=made_s,
            extra_mb=path.extra_bytes / 1e6,
        )
        print(
            f"  {row.path}: {row.quality:.4f}, MACs x{row.macs_share:.3f}, latency x{row.latency_share:.3f}", flush=True
        )
        return row

    def judged(self, path: nn.Module) -> tuple[Quality, Quality]:
        """Quality on all frames, and on those that calibrated nothing."""
        scores = []
        with torch.inference_mode():
            for frame in self.frames:
                answer = self.task.answer(self.task.essence(path(self.prepare(frame.image))), frame)
                scores.append(self.task.score(answer, frame))
        rest = [score for number, score in enumerate(scores) if number % CALIBRATION_EVERY]
        whole = self.task.quality(np.sum(scores, axis=0), len(scores))
        return whole, self.task.quality(np.sum(rest, axis=0), len(rest))

    def ratios(self, path: nn.Module) -> list[float]:
        """Latency by the exact path's, one ratio for each pair of calls."""
        calls = (partial(self.base_path, self.pixels), partial(path, self.pixels))
        found = []
        with torch.inference_mode():
            for call in calls:
                call()
            for number in range(self.rounds):
                times = [0.0, 0.0]
                for which in (0, 1) if number % 2 else (1, 0):
                    start = time.perf_counter()
                    calls[which]()
                    times[which] = time.perf_counter() - start
                found.append(times[1] / times[0])
        return found

    def ladder(self) -> list[Transform]:
        """Skips of 1, 2, ... blocks, those first whose absence alone changes the fewest answers."""
        judge = Judge(self.loaded.module, self.calibration, prepare=self.prepare)
        skips = [
            setting
            for knob in self.factory.family.knobs(self.loaded.module, self.factory.derived)
            for setting in knob.settings
            if isinstance(setting, Skip)
        ]
        skips.sort(key=lambda skip: -judge.judge(self.factory.build(turn(self.base, skip))).value)
        blocks = [skip.blocks for skip in skips]
        return [Skip(tuple(address for group in blocks[:count] for address in group)) for count in range(1, LADDER + 1)]

    def _fastest(self) -> PathSpec:
        options = self.factory.family.base(self.loaded.module)
        calls = {spec.id: partial(self.factory.build(spec), self.pixels) for spec in options}
        with torch.inference_mode():
            times = measure_in_turn(calls, max(self.rounds, 9))
        return min(options, key=lambda spec: times[spec.id].min_ms)


def alone(bench: Bench, space: Space) -> list[Row]:
    """Every setting of every knob within the space on the exact path, and the stock model."""
    rows = [bench.row(PathSpec(), "stock"), bench.row(bench.base, "exact")]
    offered = bench.factory.family.knobs(bench.loaded.module, bench.factory.derived)
    knobs = space.model_copy(update={"blocks": True}).knobs(offered)
    settings: list[Transform] = bench.ladder() if any(isinstance(k.settings[0], Skip) for k in knobs) else []
    settings += [setting for knob in knobs for setting in knob.settings if not isinstance(setting, Skip)]
    if "prune" in bench.factory.family.kinds(bench.loaded.module) and not any(k.name == "prune" for k in knobs):
        settings += [Prune(percent) for percent in PRUNED_PERCENT]
    for setting in settings:
        try:
            rows.append(bench.row(turn(bench.base, setting), setting.name))
        except PathRefusedError as error:
            print(f"  {setting.name}={setting.value()} refused: {error}", flush=True)
    return rows


def searched(bench: Bench, space: Space, journal_file: Path) -> list[Row]:
    """What the search measured and is not beaten in quality by a path of less latency *and* fewer operations.

    Measured again on all frames; what is beaten there is left out.
    """
    judge = Judge(bench.loaded.module, bench.frames, prepare=bench.prepare)
    search = Search(
        bench.factory,
        judge,
        bench.pixels,
        replace(space.effort(len(bench.frames)), judge_every=JUDGE_EVERY, timing_rounds=bench.rounds),
        Journal(journal_file, str(len(bench.frames))),
        knobs=space.knobs(bench.factory.family.knobs(bench.loaded.module, bench.factory.derived)),
        progress=lambda line: print(f"  {line}", flush=True),
    )
    found = [candidate.spec for candidate in search.run()]
    measured = [json.loads(line) for line in journal_file.read_text(encoding="utf-8").splitlines()]
    tried = [entry for entry in measured if "path" in entry and entry["quality"] >= space.floor * bench.exact_quality]
    for entry in tried:
        entry["macs"] = count_macs(bench.factory.build(PathSpec.parse(entry["path"])), bench.pixels)
    kept = pareto(tried, lambda e: e["quality"], lambda e: e["latency_ratio"], lambda e: e["macs"])
    kept = spread_out(sorted(kept, key=lambda e: -e["macs"]), lambda e: e["macs"], space.keep)
    specs = dict.fromkeys([*found, *(PathSpec.parse(entry["path"]) for entry in kept)])
    rows = [bench.row(spec, "frontier") for spec in specs]
    best = pareto(rows, lambda row: row.quality, lambda row: row.latency_share, lambda row: row.macs)
    return sorted(best, key=lambda row: -row.latency_share)


def at_equal_latency(rows: Sequence[Row], share: float) -> dict[str, float]:
    """Quality of each transform where its curve crosses a latency, interpolated; absent where it never gets there."""
    exact = next(row for row in rows if row.transform == "exact")
    found = {}
    for name in dict.fromkeys(row.transform for row in rows if row.transform not in ("stock", "exact", "frontier")):
        points = [(1.0, exact.quality), *((row.latency_share, row.quality) for row in rows if row.transform == name)]
        best = pareto(points, lambda point: point[1], lambda point: point[0])
        curve = sorted(best)
        if curve[0][0] <= share:
            found[name] = float(np.interp(share, [x for x, _ in curve], [y for _, y in curve]))
    return found


def table(rows: Sequence[Row], metric: str) -> str:
    lines = [
        f"| path | {metric} | held out | GMAC | MACs | latency (IQR, n) | made in, CPU s | extra MB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| `{shortened(row.path)}` | {100 * row.quality:.1f} % | {100 * row.held_out:.1f} % | {row.macs / 1e9:.3f} | "
        f"{row.macs_share:.2f} | {row.latency_share:.2f} ({row.latency_high - row.latency_low:.2f}, {row.n}) | "
        f"{row.make_cpu_s:.2f} | {row.extra_mb:.1f} |"
        for row in rows
    ]
    return "\n".join(lines)


def shortened(path: str) -> str:
    """A path's id with its ranks counted rather than listed."""
    return re.sub(r"lowrank=([0-9:,]+)", lambda match: f"lowrank={match[1].count(',') + 1} layers", path)


def equal_table(rows: Sequence[Row], metric: str) -> str:
    exact = next(row for row in rows if row.transform == "exact")
    by_share = {share: at_equal_latency(rows, share) for share in EQUAL_LATENCIES}
    names = sorted({name for found in by_share.values() for name in found})
    lines = [f"| {metric} lost, points, at latency | " + " | ".join(f"{share:.1f}" for share in EQUAL_LATENCIES) + " |"]
    lines.append("|---" * (len(EQUAL_LATENCIES) + 1) + "|")
    for name in names:
        cells = [f"{100 * (exact.quality - found[name]):.1f}" if name in found else "–" for found in by_share.values()]
        lines.append(f"| `{name}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def plot(rows: Sequence[Row], metric: str, title: str) -> str:
    series = []
    for name in dict.fromkeys(row.transform for row in rows):
        points = sorted((row.latency_share, 100 * row.quality) for row in rows if row.transform == name)
        series.append(Series(name=name, points=points, joined=name not in ("stock", "exact", "frontier")))
    return scatter(series, title=title, x="latency, exact path = 1", y=f"{metric}, %")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--data", type=Path, required=True, help="labelled frames")
    parser.add_argument("--ignore-index", type=int, default=255)
    parser.add_argument("--limit", type=int, default=None, help="judge on the first so many frames only")
    parser.add_argument("--rounds", type=int, default=15, help="pairs of calls timed for each path")
    parser.add_argument("--space", type=Path, default=None, help="YAML file that limits the search")
    parser.add_argument(
        "--out", type=Path, required=True, help="folder for frontier.json, frontier.md and frontier.svg"
    )
    parser.add_argument("--part", choices=("both", "alone", "search"), default="both")
    parser.add_argument("--alone-from", type=Path, help="frontier.json of an earlier run, whose transforms to show too")
    options = parser.parse_args()
    loaded = load_model(options.model)
    options.out.mkdir(parents=True, exist_ok=True)
    bench = Bench(loaded, _frames(loaded, options), options.rounds)
    metric = bench.task.metric or ""
    where = f"{identify(torch.device('cpu')).describe()}, {torch.get_num_threads()} threads"
    print(f"{where}; {versions()}; {len(bench.frames)} frames, {len(bench.calibration)} of them calibrate")
    space = Space() if options.space is None else Space.read(options.space)
    single = alone(bench, space) if options.part != "search" else _earlier(options.alone_from)
    found = searched(bench, space, options.out / "search.jsonl") if options.part != "alone" else []
    parts = [table(single, metric), equal_table(single, metric)] if single else []
    text = "\n\n".join([*parts, *([table(found, metric)] if found else [])])
    print(text)
    document: dict[str, Any] = {
        "model": options.model.partition("=")[0],
        "device": identify(torch.device("cpu")).to_dict(),
        "threads": torch.get_num_threads(),
        "versions": versions(),
        "frames": len(bench.frames),
        "calibration_frames": len(bench.calibration),
        "metric": metric,
        "base": bench.base.id,
        "alone": [asdict(row) for row in single],
        "frontier": [asdict(row) for row in found],
    }
    write_text(options.out / "frontier.json", json.dumps(document, indent=1))
    write_text(options.out / "frontier.md", text + "\n")
    write_text(options.out / "frontier.svg", plot([*single, *found], metric, f"{document['model']}, {where}"))


def _earlier(file: Path | None) -> list[Row]:
    if file is None:
        return []
    return [Row(**row) for row in json.loads(file.read_text(encoding="utf-8"))["alone"]]


def _frames(loaded: LoadedModel, options: argparse.Namespace) -> list[Frame]:
    module = loaded.module
    traits = PathFactory(module).family.traits(module)
    source = FrameSource(
        task=traits.task,
        classes=traits.classes,
        preprocessing=loaded.preprocessing,
        ignore_index=options.ignore_index,
    )
    return source.read(options.data, options.limit)


if __name__ == "__main__":
    main()
