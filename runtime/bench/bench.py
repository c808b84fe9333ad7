"""The whole comparison: a stream under budgets, then the same stream on fixed paths, as one document.

The fixed paths are the stock model, the exact path, and the best path that would hold every budget alone.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from importlib.resources import files
from pathlib import Path

import torch
from torch import Tensor

from gearshift.errors import BudgetError
from gearshift.paths.build import Path as ModelPath
from gearshift.paths.build import PathFactory
from gearshift.paths.bundle import Bundle, read_bundle
from gearshift.paths.cost import count_macs
from gearshift.paths.make import meter_record, remeasure, versions
from gearshift.paths.records import BundleRecord
from gearshift.paths.tasks import Task, task_of
from gearshift.profiler import profile
from gearshift.profiler.device import identify, synchronise
from gearshift.profiler.meters import IdlePower, Meter, measure_idle
from gearshift.profiler.meters.conditions import Conditions, read_conditions
from gearshift.runtime.bench.drive import Run, drive
from gearshift.runtime.bench.energy import Outcome, idle_of, meter_of, run_energy
from gearshift.runtime.bench.forecast import binds, other_budgets
from gearshift.runtime.bench.scenario import Scenario
from gearshift.runtime.bench.summary import Document, summarise
from gearshift.runtime.bench.switching import NEVER, SwitchCost, measure_switch
from gearshift.runtime.budget import Budget
from gearshift.runtime.carbon import GridIntensity
from gearshift.runtime.choices import Choices, choices_of, mean_power_w
from gearshift.runtime.dynamic import DynamicModel
from gearshift.runtime.frames import FrameSource, scene_labels
from gearshift.runtime.plan import best_single
from gearshift.runtime.report.energy.footprint import with_grid
from gearshift.runtime.report.energy.model import SCHEMA as ENERGY_SCHEMA
from gearshift.runtime.report.energy.model import EnergyReport, RunEnergy, Setting
from gearshift.runtime.stream import Pictures, rendered_frames

REPORT_SCHEMA = 2
IDLE_SECONDS = 2.0
COST_ROUNDS, COST_WINDOW_S = 5, 0.2
SWITCH_ROUNDS, SWITCH_WINDOW_S = 6, 0.3
STOCK_HEADROOM = 0.95
"""Without a rate asked for, the camera's is this share of what the stock model keeps up with."""


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
        calibrate: Measure all paths here first, and after the run what a change of path costs; else the bundle's
            figures are used as they are.
        checkpoint: Another place of the bundle's weights.
        device: Where to run.
        grid: What emissions are worked out with; None for none.
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
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    grid: GridIntensity | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bench:
    """Everything that the parts of a bench share."""

    request: BenchRequest
    bundle: Bundle
    record: BundleRecord
    paths: Mapping[str, ModelPath]
    model: DynamicModel
    pictures: Pictures
    meter: Meter
    idle: IdlePower
    fps: float
    tell: Callable[[str], None]

    @property
    def choices(self) -> Choices:
        return self.model.choices

    @property
    def period_s(self) -> float:
        return 1 / self.fps

    @property
    def task(self) -> Task:
        """How the model's answers are judged."""
        return task_of(self.record.task, len(self.record.classes))

    @property
    def data(self) -> str:
        """What the frames show."""
        return "rendered street scenes" if self.request.data is None else str(self.request.data)

    def conditions(self) -> Conditions:
        """What the device runs at just now."""
        return read_conditions(self.request.device)

    def path_of(self, role: str) -> ModelPath:
        return self.paths[self.record.with_role(role).id]


def default_bundle() -> Path:
    """The bundle that ships with Gearshift."""
    return Path(str(files("gearshift.configs"))) / "bundles" / "street"


def run_bench(
    request: BenchRequest,
    meter: Meter,
    tell: Callable[[str], None] = lambda _: None,
    *,
    ready: Callable[[], None] = lambda: None,
) -> Document:
    """Run the comparison and return it as plain values, ready for JSON and for the report.

    Args:
        request: What to run.
        meter: Where energy is read; closed in the end.
        tell: Called with messages on how it goes.
        ready: Called when everything is loaded and nothing was refused, before the first message.

    Raises:
        BudgetError: A budget needs energy, and nothing measures or estimates it.
        GearshiftError: As loading the bundle or the frames raises.
    """
    bench = _prepare(request, meter, tell, ready)
    with bench.model:
        tell(f"running {request.scenario.seconds:g} s at {bench.fps:.3g} frames/s")
        outcome = _driven(bench, request.scenario)
        energy = run_energy(outcome, meter, bench.idle, bench.data, _switch_cost(bench, outcome))
        baselines = _baselines(bench, [budget for _, budget in outcome.run.budgets])
        return _document(bench, outcome, energy, baselines)


def _prepare(request: BenchRequest, meter: Meter, tell: Callable[[str], None], ready: Callable[[], None]) -> _Bench:
    """Load, refuse what cannot work before anything takes long, measure, and warm up."""
    bundle = read_bundle(request.bundle or default_bundle())
    _refuse_blind_budgets(request.scenario, meter.read().reason)
    shown = None if request.data is None else _folder_pictures(request, request.data, bundle.record)
    factory = bundle.load(request.checkpoint)
    factory.to(request.device)
    ready()
    idle = measure_idle(meter, IDLE_SECONDS)
    record = _costs(bundle, factory, request, meter, idle, shown, tell)
    choices = choices_of(record)
    _refuse_blind_budgets(request.scenario, None if choices.know_energy else _why_no_energy(record, idle))
    fps = request.fps or STOCK_HEADROOM * 1e3 / record.with_role("stock").latency.median_ms
    pictures = shown or _rendered_pictures(request, record, fps, tell)
    paths = {path.id: factory.build(path.spec) for path in record.paths}
    _warm(paths, pictures.pixels(0))
    model = DynamicModel(
        paths,
        choices,
        meter=meter,
        device=request.device,
        stock_power_w=partial(mean_power_w, record.with_role("stock"), record.meter.idle_power_w),
        frame_period_s=1 / fps,
    )
    return _Bench(
        request=request,
        bundle=bundle,
        record=record,
        paths=paths,
        model=model,
        pictures=pictures,
        meter=meter,
        idle=idle,
        fps=fps,
        tell=tell,
    )


def _refuse_blind_budgets(scenario: Scenario, reason: str | None) -> None:
    """Refuse budgets that need energy where there is a reason why it is not known."""
    for step in scenario.budgets:
        budget = Budget.parse(*step.budget)
        if reason is not None and budget.needs_energy:
            raise BudgetError(
                f"a budget of {budget} needs an energy meter, and none works here: {reason}; "
                "see `runtime devices`, or give a latency budget"
            )


def _why_no_energy(record: BundleRecord, idle: IdlePower) -> str:
    reasons = [idle.reason, *(path.energy.reason for path in record.paths)]
    return next((reason for reason in reasons if reason), "the bundle holds no energy figures")


def _folder_pictures(request: BenchRequest, data: Path, record: BundleRecord) -> Pictures:
    """The first frames of a folder, in order; like a camera's, all of one size."""
    source = FrameSource(
        task=record.task,
        classes=record.classes,
        preprocessing=record.preprocessing,
        ignore_index=request.ignore_index,
        labels="optional",
    )
    return Pictures(source.read(data, request.pictures), request.device, record.preprocessing.prepared)


def _rendered_pictures(
    request: BenchRequest, record: BundleRecord, fps: float, tell: Callable[[str], None]
) -> Pictures:
    """A rendered drive; its labels serve only a model with the same classes."""
    tell(f"drawing {request.pictures} frames of a street")
    drawn = rendered_frames(request.seed, request.pictures, record.input_height, record.input_width, fps)
    frames = scene_labels(drawn, record.task, record.classes, tell)
    return Pictures(frames, request.device, record.preprocessing.prepared)


def _costs(
    bundle: Bundle,
    factory: PathFactory,
    request: BenchRequest,
    meter: Meter,
    idle: IdlePower,
    shown: Pictures | None,
    tell: Callable[[str], None],
) -> BundleRecord:
    """The bundle's figures, measured anew here, at the size of the frames shown, unless asked not to."""
    if request.calibrate:
        if shown is not None:
            bundle = _at_size(bundle, factory, shown.pixels(0))
        tell(f"measuring {len(bundle.record.paths)} paths here, in turn")
        return remeasure(bundle, factory, meter, request.device, rounds=COST_ROUNDS, idle=idle, window_s=COST_WINDOW_S)
    record = bundle.record
    foreign = bundle.foreign_to(identify(request.device))
    if foreign is not None:
        tell(f"warning: {foreign}")
    if shown is not None and shown.pixels(0).shape[2:] != (record.input_height, record.input_width):
        tell(f"warning: costs are those of frames of {record.input_height}x{record.input_width}")
    return record


def _at_size(bundle: Bundle, factory: PathFactory, frame: Tensor) -> Bundle:
    """The bundle as if made for frames of this size, operations counted anew."""
    height, width = frame.shape[2:]
    if (height, width) == (bundle.record.input_height, bundle.record.input_width):
        return bundle
    paths = tuple(
        path.model_copy(update={"macs": count_macs(factory.build(path.spec), frame)}) for path in bundle.record.paths
    )
    sized = {"input_height": height, "input_width": width, "paths": paths}
    return replace(bundle, record=bundle.record.model_copy(update=sized))


def _warm(paths: Mapping[str, ModelPath], pixels: Tensor) -> None:
    """Run every path once at the stream's own size, so that no switch meets a cold path."""
    with torch.no_grad():
        for path in paths.values():
            path(pixels)


def _driven(bench: _Bench, scenario: Scenario, path: str | None = None) -> Outcome:
    """Run a scenario, and read the conditions before and after it."""
    before, started = bench.conditions(), datetime.now(UTC)
    run = drive(bench.model, bench.pictures, bench.meter, scenario, bench.fps, essence=bench.task.essence, pinned=path)
    after = bench.conditions()
    return Outcome(
        run=run,
        summary=summarise(run, bench.pictures, bench.task, bench.idle.power_w, bench.path_of("stock")),
        started=started.isoformat(timespec="milliseconds"),
        before=before,
        after=after,
        path=path,
    )


def _switch_cost(bench: _Bench, outcome: Outcome) -> SwitchCost:
    """What a change between the two paths costs that the run used most."""
    used = [row["path"] for row in outcome.summary["paths"]]
    if not outcome.summary["switches"]:
        return SwitchCost.unknown(NEVER, bench.meter.source)
    if not bench.request.calibrate:
        return SwitchCost.unknown("not measured: no costs were measured here, as asked", bench.meter.source)
    first, second = used[:2]
    bench.tell(f"measuring what a change between {first} and {second} costs")
    return measure_switch(
        (bench.paths[first], bench.paths[second]),
        (first, second),
        bench.pictures.pixels(0),
        bench.meter,
        rounds=SWITCH_ROUNDS,
        window_s=SWITCH_WINDOW_S,
        synchronise=partial(synchronise, bench.request.device),
    )


def _baselines(bench: _Bench, budgets: list[Budget]) -> dict[str, tuple[Document, RunEnergy]]:
    """The same script, played in less time, on fixed paths; a path that serves two purposes runs once."""
    seconds = bench.request.baseline_seconds
    if not seconds:
        return {}
    every = Budget()
    for budget in budgets:
        every = every & budget
    wanted = {
        "stock": bench.record.with_role("stock").id,
        "lossless": bench.record.with_role("lossless").id,
        "best single path": best_single(every, bench.choices, bench.period_s).id,
    }
    scenario = bench.request.scenario.lasting(seconds)
    fixed = SwitchCost.unknown(NEVER, bench.meter.source)
    done: dict[str, tuple[Document, RunEnergy]] = {}
    for path in wanted.values():
        if path not in done:
            bench.tell(f"running {seconds:g} s on {path} alone")
            outcome = _driven(bench, scenario, path)
            energy = run_energy(outcome, bench.meter, bench.idle, bench.data, fixed)
            done[path] = ({"path": path, **outcome.summary}, energy)
    return {name: done[path] for name, path in wanted.items()}


def _document(
    bench: _Bench, outcome: Outcome, energy: RunEnergy, baselines: dict[str, tuple[Document, RunEnergy]]
) -> Document:
    request, record, run = bench.request, bench.record, outcome.run
    budget = run.budgets[0][1]
    stock_w = mean_power_w(record.with_role("stock"), record.meter.idle_power_w, bench.period_s)
    created = datetime.now(UTC).isoformat(timespec="seconds")
    fixed = {name: part for name, (_, part) in baselines.items()}
    return {
        "report": "runtime bench",
        "schema_version": REPORT_SCHEMA,
        "created": created,
        "bundle": str(bench.bundle.folder),
        "model": record.checkpoint.model_dump(),
        "device": identify(request.device).to_dict(),
        "versions": versions(),
        "threads": torch.get_num_threads(),
        "input_shape": list(bench.pictures.pixels(0).shape),
        "frames_from": bench.data,
        "seed": request.seed if request.data is None else None,
        "pictures": len(bench.pictures),
        "meter": meter_record(bench.meter, bench.idle).model_dump(),
        "costs": "measured here before the run" if request.calibrate else "as the bundle holds them",
        "scenario": request.scenario.model_dump(),
        "budget": str(budget),
        "binds": binds(budget, bench.choices, bench.period_s),
        "met": run.unmet is None,
        "shortfall": run.unmet,
        "run": outcome.summary,
        "baselines": {name: part for name, (part, _) in baselines.items()},
        "energy_report": _energy_report(bench, str(budget), created, energy, fixed).model_dump(mode="json"),
        "other_budgets": other_budgets(bench.choices, bench.period_s, stock_w),
        "frontier": [{"path": path.id, **path.model_dump(exclude={"transforms"})} for path in record.paths],
        "where_cost_goes": _where_cost_goes(bench),
        "trace": _trace(run),
    }


def _energy_report(
    bench: _Bench, budget: str, created: str, run: RunEnergy, baselines: dict[str, RunEnergy]
) -> EnergyReport:
    request, checkpoint = bench.request, bench.record.checkpoint
    setting = Setting(
        device=identify(request.device).to_dict(),
        versions=dict(versions()),
        threads=torch.get_num_threads(),
        dtype=str(next(bench.path_of("stock").parameters()).dtype).removeprefix("torch."),
        input_shape=tuple(bench.pictures.pixels(0).shape),
        model=checkpoint.reference,
        weights_sha256=checkpoint.weights_sha256,
        trained=checkpoint.trained,
        data=bench.data,
        pictures=len(bench.pictures),
        seed=request.seed if request.data is None else None,
        budget=budget,
    )
    report = EnergyReport(
        schema_version=ENERGY_SCHEMA,
        created=created,
        meter=meter_of(bench.meter),
        idle=idle_of(bench.idle),
        setting=setting,
        run=run,
        baselines=baselines,
    )
    return with_grid(report, request.grid)


def _where_cost_goes(bench: _Bench) -> Document:
    """Time and operations by operator type and module, of the stock and of the lossless path."""
    bench.tell("profiling where the cost goes")
    pixels = bench.pictures.pixels(0)
    roles = {role: bench.path_of(role) for role in ("stock", "lossless")}
    return {
        role: {"path": path.id, **profile(path.inner, (pixels,), repeats=3, warmup=1).to_dict(1)}
        for role, path in roles.items()
    }


def _trace(run: Run) -> Document:
    """The run frame by frame and power sample by power sample, for plots and for replaying."""
    order = sorted({frame.path for frame in run.frames})
    return {
        "paths": order,
        "frame_index": [frame.index for frame in run.frames],
        "start_s": [round(frame.start_s, 6) for frame in run.frames],
        "latency_ms": [round(frame.latency_s * 1e3, 4) for frame in run.frames],
        "path": [order.index(frame.path) for frame in run.frames],
        "power_end_s": [round(sample.end_s, 4) for sample in run.powers],
        "power_w": [sample.power_w for sample in run.powers],
        "budgets": [{"at_s": at, "power_w": b.power_w, "text": str(b)} for at, b in run.budgets],
    }
