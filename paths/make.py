"""Make a bundle of what a workbench finds, and measure a bundle anew on another device."""

import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import torch
import transformers
from torch import Tensor, nn

from gearshift import __version__
from gearshift.errors import PathRefusedError
from gearshift.paths.build import PathFactory
from gearshift.paths.bundle import Bundle, check_destination, write_bundle
from gearshift.paths.cost import measure_costs
from gearshift.paths.data import Frame
from gearshift.paths.journal import Journal
from gearshift.paths.judge import Judge
from gearshift.paths.knobs import Knob
from gearshift.paths.models import LoadedModel, weights_hash
from gearshift.paths.records import (
    BundleRecord,
    CheckpointRecord,
    DataRecord,
    EnergyRecord,
    LatencyRecord,
    MeterRecord,
    PathRecord,
)
from gearshift.paths.search import Effort, frame_timer
from gearshift.paths.sharing import DerivedTensors
from gearshift.paths.space import Space, resolve_targets
from gearshift.paths.workbench import VERIFIED_EXAMPLES, Workbench, idle_power, mark_frontier
from gearshift.profiler.device import DeviceIdentity, identify, synchronise
from gearshift.profiler.meters import IdlePower, Meter

TARGET_ROUNDS = 9
"""Frames timed for each trial of a pruning target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest:
    """What to build a bundle from.

    Attributes:
        model: The stock model.
        frames: Frames to judge on, fitted to the model and all of one size; also what the costs are measured with.
        data_name: What the frames are, for the record.
        effort: How hard to search.
        calibration: Images for transforms that ask for some; not those that quality is judged on.
        knobs: What the search may turn; if None, what the family offers within `space`.
        space: Limits of the search.
        cost_rounds: Measuring windows per path at the end.
        copy_checkpoint: Whether the bundle carries the weights.
    """

    model: LoadedModel
    frames: Sequence[Frame]
    data_name: str
    calibration: Sequence[Frame] = ()
    effort: Effort = field(default_factory=Effort)
    knobs: Sequence[Knob] | None = None
    space: Space = field(default_factory=Space)
    cost_rounds: int = 7
    copy_checkpoint: bool = False
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))


def make_bundle(
    request: BuildRequest, out: Path, meter: Meter, progress: Callable[[str], None] = lambda _: None
) -> Bundle:
    """Search, verify, measure and write; an interrupted search goes on from `OUT.search.jsonl`.

    Raises:
        OutputError: `out` cannot be written; said before any work.
        GearshiftError: As the steps raise.
    """
    check_destination(out)
    bench = _workbench(request, meter, progress)
    identity = identify(request.device)
    checkpoint_hash = weights_hash(bench.factory.stock)
    journal_file = out.with_name(f"{out.name}.search.jsonl")
    journal = Journal(journal_file, _fingerprint(request, bench, checkpoint_hash, identity))
    specs, lossless = bench.search(request.effort, journal, _knobs(request, bench))
    kept = [record for record in bench.measure(specs, lossless) if record.roles]
    traits = bench.factory.family.traits(bench.factory.stock)
    inside = request.copy_checkpoint
    record = BundleRecord(
        gearshift=__version__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        family=bench.factory.family.name,
        task=traits.task,
        checkpoint=CheckpointRecord(
            reference=request.model.reference_inside if inside else request.model.reference,
            weights_sha256=checkpoint_hash,
            trained=request.model.trained,
        ),
        classes=traits.classes,
        input_height=bench.examples[0].shape[2],
        input_width=bench.examples[0].shape[3],
        **asdict(request.model.preprocessing),
        data=DataRecord(name=request.data_name, images=len(request.frames), labelled=bench.judge.labelled),
        device=identity.to_dict(),
        versions=versions(),
        meter=meter_record(meter, bench.idle),
        files={},
        paths=tuple(kept),
    )
    checkpoint = request.model.save if inside else None
    bundle = write_bundle(out, record, _fresh_derived(bench.factory, kept), checkpoint)
    journal_file.unlink(missing_ok=True)
    return bundle


def _workbench(request: BuildRequest, meter: Meter, progress: Callable[[str], None]) -> Workbench:
    prepare = request.model.preprocessing.prepared
    factory = PathFactory(request.model.module, calibration=[prepare(frame.image) for frame in request.calibration])
    factory.to(request.device)
    examples = [prepare(frame.image).to(request.device) for frame in request.frames[:VERIFIED_EXAMPLES]]
    return Workbench(
        factory=factory,
        judge=Judge(request.model.module, request.frames, request.device, prepare),
        examples=examples,
        meter=meter,
        idle=idle_power(meter),
        device=request.device,
        rounds=request.cost_rounds,
        progress=progress,
    )


def _knobs(request: BuildRequest, bench: Workbench) -> Sequence[Knob]:
    if request.knobs is not None:
        return request.knobs
    factory, example = bench.factory, bench.examples[0]
    timer = frame_timer(example, partial(synchronise, request.device))

    def latency_ms(path: nn.Module) -> float:
        return timer({"path": path}, TARGET_ROUNDS)["path"]

    def energy_j(path: nn.Module) -> float:
        _, energy = bench.costs({"path": path})["path"]
        if energy.gross_j is None:
            raise PathRefusedError(f"no energy target can be met: energy is not measured here ({energy.reason})")
        return energy.gross_j

    space = resolve_targets(request.space, factory, example, latency_ms, energy_j)
    return space.knobs(factory.family.knobs(factory.stock, factory.derived))


def _fingerprint(request: BuildRequest, bench: Workbench, checkpoint_hash: str, identity: DeviceIdentity) -> str:
    """What a search's measurements depend on."""
    height, width = bench.examples[0].shape[2:]
    frames = f"{request.data_name}/{len(request.frames)}x{height}x{width}/{bench.judge.metric}"
    calibrated = f"/{len(request.calibration)} calibration frames" if request.calibration else ""
    return f"{checkpoint_hash}/{identity.key()}/{frames}/{request.effort.judge_every}{calibrated}"


def remeasure(
    bundle: Bundle,
    factory: PathFactory,
    meter: Meter,
    device: torch.device,
    *,
    rounds: int = 7,
    idle: IdlePower | None = None,
    window_s: float = 0.3,
) -> BundleRecord:
    """Measure the costs of a bundle's paths on this device; quality stays, the frontier is drawn again.

    No path is lost: one that is beaten on this device may be worth its while on the next.
    """
    frame = torch.zeros(1, 3, bundle.record.input_height, bundle.record.input_width, device=device)
    idle = idle or idle_power(meter)
    paths: dict[str, nn.Module] = {record.id: factory.build(record.spec) for record in bundle.record.paths}
    costs = measure_costs(
        paths,
        frame,
        meter,
        idle.power_w,
        rounds=rounds,
        window_s=window_s,
        synchronise=partial(synchronise, device),
    )
    records = [
        record.model_copy(
            update={
                "latency": LatencyRecord.of(costs[record.id][0]),
                "energy": EnergyRecord.of(costs[record.id][1]),
            }
        )
        for record in bundle.record.paths
    ]
    return bundle.record.model_copy(
        update={
            "device": identify(device).to_dict(),
            "versions": versions(),
            "meter": meter_record(meter, idle),
            "paths": tuple(mark_frontier(records)),
        }
    )


def meter_record(meter: Meter, idle: IdlePower) -> MeterRecord:
    """Say how energy is obtained."""
    return MeterRecord(
        name=meter.name,
        source=meter.source,
        boundary=meter.boundary,
        notes=meter.notes,
        idle_power_w=idle.power_w,
        idle_how=idle.how,
    )


def versions() -> dict[str, str]:
    """Versions that figures depend on."""
    return {
        "gearshift": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }


def _fresh_derived(factory: PathFactory, records: Sequence[PathRecord]) -> dict[str, Tensor]:
    """What the kept paths derive from the weights, and nothing that only rejected candidates needed."""
    clean = PathFactory(factory.stock, DerivedTensors(factory.derived.tensors()))
    for record in records:
        clean.build(record.spec)
    return {name: tensor.cpu() for name, tensor in clean.derived.stored().items()}
