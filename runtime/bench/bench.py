"""The whole comparison: a stream under budgets, then the same stream on the stock, the lossless and the best fixed path."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gearshift.errors import BudgetError
from gearshift.paths.build import PathFactory
from gearshift.paths.bundle import Bundle, read_bundle
from gearshift.paths.data import SegmentationFolder
from gearshift.paths.make import remeasure
from gearshift.paths.records import BundleRecord
from gearshift.profiler import profile
from gearshift.profiler.device import identify
from gearshift.profiler.meters import IdlePower, Meter, measure_idle
from gearshift.runtime.bench.drive import Run, drive
from gearshift.runtime.bench.scenario import BudgetStep, Scenario
from gearshift.runtime.bench.summary import Document, summarise
from gearshift.runtime.budget import Budget
from gearshift.runtime.choices import Choices, choices_of
from gearshift.runtime.dynamic import DynamicModel
from gearshift.runtime.plan import Plan, best_single, latency_at, plan
from gearshift.runtime.stream import Pictures, rendered_pictures

REPORT_SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRequest:
    """What to run.

    Attributes:
        bundle: A bundle's folder; None for the one that ships with Gearshift.
        scenario: Budgets over time.
        fps: Camera rate; None for the fastest that the stock model keeps up with.
        baseline_seconds: Length of each comparison run; 0 leaves them out.
        data: Folder of labelled frames; None for rendered scenes.
        ignore_index: Label value that means "not labelled" in `data`.
        pictures: How many different frames the stream shows, to the end and back.
        seed: Of the rendered scenes.
        calibrate: Measure all paths here first; else the bundle's figures are used as they are.
        checkpoint: Another place of the bundle's weights.
        device: Where to run.
    """

    bundle: Path | None
    scenario: Scenario
    fps: float | None = None
    baseline_seconds: float = 10.0
    data: Path | None = None
    ignore_index: int = 255
    pictures: int = 48
    seed: int = 20_000
    calibrate: bool = True
    checkpoint: str | None = None
    device: torch.device = torch.device("cpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bench:
    """Everything that the parts of a bench share."""

    request: BenchRequest
    record: BundleRecord
    model: DynamicModel
    choices: Choices
    pictures: Pictures
    meter: Meter
    fps: float
    tell: Callable[[str], None]

    @property
    def period_s(self) -> float:
        return 1 / self.fps

    @property
    def classes(self) -> int:
        return len(self.record.classes)


def default_bundle() -> Path:
    """The bundle that ships with Gearshift."""
    return Path(str(files("gearshift.configs"))) / "bundles" / "street"


def run_bench(request: BenchRequest, meter: Meter, tell: Callable[[str], None] = lambda _: None) -> Document:
    """Run the comparison and return it as plain values, ready for JSON and for the report.

    Raises:
        BudgetError: A budget needs energy, and nothing measures or estimates it.
        GearshiftError: As loading the bundle or the frames raises.
    """
    bundle = read_bundle(request.bundle or default_bundle())
    bench = _prepare(bundle, request, meter, tell)
    with bench.model:
        tell(f"running {request.scenario.seconds:g} s at {bench.fps:.3g} frames/s")
        run = drive(bench.model, bench.pictures, meter, request.scenario, bench.fps)
        budget = run.budgets[0][1]
        baselines = _baselines(bench, budget)
        return _document(bench, bundle, run, budget, baselines)


def _prepare(bundle: Bundle, request: BenchRequest, meter: Meter, tell: Callable[[str], None]) -> _Bench:
    factory = bundle.load(request.checkpoint)
    factory.to(request.device)
    idle = measure_idle(meter, 2.0)
    record = _costs(bundle, factory, request, meter, idle, tell)
    stock = record.with_role("stock")
    fps = request.fps or 0.95e3 / stock.latency.median_ms
    pictures = _pictures(request, record, fps, tell)
    paths: dict[str, nn.Module] = {path.id: factory.build(path.spec) for path in record.paths}
    _warm(paths, pictures.pixels(0))
    choices = choices_of(record)
    _refuse_blind_budgets(request.scenario, choices, meter)
    model = DynamicModel(
        paths,
        choices,
        meter=meter,
        device=request.device,
        stock_power_w=partial(stock_power_w, record),
        frame_period_s=1 / fps,
    )
    return _Bench(
        request=request,
        record=record,
        model=model,
        choices=choices,
        pictures=pictures,
        meter=meter,
        fps=fps,
        tell=tell,
    )


def stock_power_w(record: BundleRecord, period_s: float | None) -> float | None:
    """Mean power of the stock model on frames that come every `period_s` (None: one after the other)."""
    stock, idle = record.with_role("stock"), record.meter.idle_power_w
    if stock.energy.net_j is None or idle is None:
        return None
    return idle + stock.energy.net_j / max(period_s or 0.0, stock.latency.median_ms / 1e3)


def _costs(
    bundle: Bundle,
    factory: PathFactory,
    request: BenchRequest,
    meter: Meter,
    idle: IdlePower,
    tell: Callable[[str], None],
) -> BundleRecord:
    """The bundle's figures, measured anew here unless asked not to."""
    if not request.calibrate:
        foreign = bundle.foreign_to(identify(request.device))
        if foreign is not None:
            tell(f"warning: {foreign}")
        return bundle.record
    tell(f"measuring {len(bundle.record.paths)} paths here, in turn")
    return remeasure(bundle, factory, meter, request.device, rounds=5, idle=idle, window_s=0.2)


def _pictures(
    request: BenchRequest, record: BundleRecord, fps: float, tell: Callable[[str], None]
) -> Pictures:
    if request.data is None:
        tell(f"drawing {request.pictures} frames of a street")
        height, width = record.input_height, record.input_width
        return rendered_pictures(request.seed, request.pictures, height, width, fps, request.device)
    folder = SegmentationFolder(
        request.data, num_classes=len(record.classes), ignore_index=request.ignore_index, labels_required=False
    )
    count = min(request.pictures, len(folder))
    return Pictures([folder[index] for index in range(count)], request.device)


def _warm(paths: dict[str, nn.Module], pixels: Tensor) -> None:
    """Run every path once at the stream's own size, so that no switch meets a cold path."""
    with torch.no_grad():
        for path in paths.values():
            path(pixels)


def _refuse_blind_budgets(scenario: Scenario, choices: Choices, meter: Meter) -> None:
    for step in scenario.budgets:
        budget = Budget.parse(*step.budget)
        if budget.needs_energy and not choices.know_energy:
            raise BudgetError(
                f"a budget of {budget} needs an energy meter, and none works here: {meter.read().reason}; "
                "see `runtime devices`, or give a latency budget"
            )


def _baselines(bench: _Bench, budget: Budget) -> dict[str, Document]:
    """The same stream on fixed paths; a path that serves two purposes runs once."""
    seconds = bench.request.baseline_seconds
    if not seconds:
        return {}
    wanted = {
        "stock": bench.record.with_role("stock").id,
        "lossless": bench.record.with_role("lossless").id,
        "best single path": best_single(budget, bench.choices, bench.period_s).id,
    }
    scenario = Scenario(seconds=seconds, budgets=[BudgetStep(at_s=0, budget=_texts(bench.request.scenario))])
    done: dict[str, Document] = {}
    results = {}
    for name, path in wanted.items():
        if path not in done:
            bench.tell(f"running {seconds:g} s on {path} alone")
            run = drive(bench.model, bench.pictures, bench.meter, scenario, bench.fps, pinned=path)
            done[path] = _summary(bench, run)
        results[name] = {"path": path, **done[path]}
    return results


def _texts(scenario: Scenario) -> list[str]:
    return min(scenario.budgets, key=lambda step: step.at_s).budget


def _summary(bench: _Bench, run: Run) -> Document:
    idle = bench.choices.idle_power_w
    return summarise(run, bench.pictures, bench.classes, idle, bench.model.paths["stock"])


def _document(
    bench: _Bench, bundle: Bundle, run: Run, budget: Budget, baselines: dict[str, Document]
) -> Document:
    request, record = bench.request, bench.record
    bench.tell("profiling where the cost goes")
    unmet = run.shortfalls[-1] if run.shortfalls and not bench.model.stats().met else None
    return {
        "report": "runtime bench",
        "schema_version": REPORT_SCHEMA,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "bundle": str(bundle.folder),
        "model": record.checkpoint.model_dump(),
        "device": identify(request.device).to_dict(),
        "versions": record.versions,
        "threads": torch.get_num_threads(),
        "input_shape": list(bench.pictures.pixels(0).shape),
        "frames_from": "rendered street scenes" if request.data is None else str(request.data),
        "seed": request.seed if request.data is None else None,
        "pictures": len(bench.pictures),
        "meter": record.meter.model_dump(),
        "costs": "measured here before the run" if request.calibrate else "as the bundle holds them",
        "scenario": request.scenario.model_dump(),
        "budget": str(budget),
        "binds": binds(budget, bench.choices, bench.period_s),
        "met": unmet is None,
        "shortfall": unmet,
        "run": _summary(bench, run),
        "baselines": baselines,
        "other_budgets": other_budgets(bench.choices, bench.period_s, stock_power_w(record, bench.period_s)),
        "frontier": [_path_row(bench, path.id) for path in record.paths],
        "where_cost_goes": _where_cost_goes(bench),
        "trace": _trace(run),
    }


def binds(budget: Budget, choices: Choices, period_s: float) -> Document:
    """Whether the budget keeps the best path from running all the time, and what that path would need."""
    best = max(choices.paths, key=lambda path: path.quality)
    free = plan(budget, choices, period_s)
    alone = free.met and free.shares[0] == (best.id, 1.0)
    power = choices.power_w(choices.index(best.id), period_s)
    needs = f"{latency_at(best, budget) * 1e3:.3g} ms" + ("" if power is None else f" and {power:.3g} W")
    verb = "does not bind" if alone else "binds"
    return {"binds": not alone, "text": f"the budget {verb}: the best path ({best.id}) needs about {needs}"}


def other_budgets(choices: Choices, period_s: float, stock_w: float | None) -> list[Document]:
    """What other budgets would give, predicted from the measured frontier."""
    rows = []
    if stock_w is not None and choices.know_energy:
        for share in (1.0, 0.8, 0.6, 0.5, 0.4, 0.3, 0.2):
            rows.append(_predicted(f"{share:.0%} of stock", Budget.parse(f"{share * stock_w!r}W"), choices, period_s))
    fastest, slowest = choices.paths[0].latency_s, choices.paths[-1].latency_s
    for step in range(5):
        limit_ms = 1e3 * fastest * 1.3 * (1.3 * slowest / (1.3 * fastest)) ** (step / 4)
        rows.append(_predicted(f"p95 {limit_ms:.3g} ms", Budget.parse(f"{limit_ms}ms"), choices, period_s))
    return rows


def _predicted(name: str, budget: Budget, choices: Choices, period_s: float) -> Document:
    found: Plan = plan(budget, choices, period_s)
    return {
        "budget": name,
        "power_limit_w": budget.power_w,
        "latency_limit_ms": budget.latency.seconds * 1e3 if budget.latency is not None else None,
        "met": found.met,
        "quality": found.quality,
        "power_w": found.power_w,
        "paths": [{"path": path, "share_of_frames": share} for path, share in found.shares],
        "source": "predicted from the measured frontier",
    }


def _path_row(bench: _Bench, path_id: str) -> Document:
    record = next(path for path in bench.record.paths if path.id == path_id)
    row: Document = record.model_dump(exclude={"transforms"})
    return {"path": path_id, **row}


def _where_cost_goes(bench: _Bench) -> dict[str, Any]:
    """Time and operations by operator type, of the stock and of the lossless path."""
    pixels = bench.pictures.pixels(0)
    return {
        role: {"path": path.id, **profile(bench.model.paths[path.id], (pixels,), repeats=3, warmup=1).to_dict(1)}
        for role, path in ((role, bench.record.with_role(role)) for role in ("stock", "lossless"))
    }


def _trace(run: Run) -> Document:
    """The run frame by frame and power sample by power sample, for plots and for replaying."""
    order: Sequence[str] = sorted({frame.path for frame in run.frames})
    return {
        "paths": list(order),
        "frame_index": [frame.index for frame in run.frames],
        "start_s": [round(frame.start_s, 6) for frame in run.frames],
        "latency_ms": [round(frame.latency_s * 1e3, 4) for frame in run.frames],
        "path": [order.index(frame.path) for frame in run.frames],
        "power_end_s": [round(sample.end_s, 4) for sample in run.powers],
        "power_w": [sample.power_w for sample in run.powers],
        "budgets": [{"at_s": at, "power_w": b.power_w, "text": str(b)} for at, b in run.budgets],
    }
