"""Make a bundle: search for paths, verify the exact ones, cost and judge the frontier, write it all down."""

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Literal

import torch
import transformers
from torch import Tensor

from gearshift import __version__
from gearshift.paths.build import Path as ModelPath
from gearshift.paths.build import PathFactory
from gearshift.paths.bundle import CHECKPOINT_FOLDER, Bundle, check_destination, write_bundle
from gearshift.paths.cost import count_macs, measure_costs
from gearshift.paths.data import IMAGENET_MEAN, IMAGENET_STD, LabelledFrame, normalise
from gearshift.paths.frontier import pareto
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
    QualityRecord,
)
from gearshift.paths.search import Effort, Journal, Search
from gearshift.paths.spec import PathSpec
from gearshift.profiler.device import identify, synchronise
from gearshift.profiler.meters import IdlePower, Meter, measure_idle

Role = Literal["stock", "lossless", "frontier"]
LARGEST_LOSSLESS_DIFFERENCE = 1e-4
"""An exact path may differ from the stock model by this share of the largest logit, and no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRequest:
    """What to build a bundle from.

    Attributes:
        model: The stock model.
        frames: Frames to judge on, all of one size; also what the costs are measured with.
        data_name: What the frames are, for the record.
        effort: How hard to search.
        knobs: What the search may turn; all that the family offers if None.
        cost_rounds: Measuring windows per path at the end.
        copy_checkpoint: Whether the bundle carries the weights.
    """

    model: LoadedModel
    frames: Sequence[LabelledFrame]
    data_name: str
    effort: Effort = Effort()
    knobs: Sequence[Knob] | None = None
    cost_rounds: int = 7
    copy_checkpoint: bool = False
    device: torch.device = torch.device("cpu")


def make_bundle(
    request: BuildRequest, out: Path, meter: Meter, progress: Callable[[str], None] = lambda _: None
) -> Bundle:
    """Search, verify, measure and write; an interrupted search goes on from `OUT.search.jsonl`.

    Raises:
        OutputError: `out` cannot be written; said before any work.
        GearshiftError: As the steps raise.
    """
    check_destination(out)
    factory = PathFactory(request.model.module)
    factory.to(request.device)
    frame = normalise(request.frames[0].image).to(request.device)
    judge = Judge(request.model.module, request.frames, request.device)
    identity = identify(request.device)
    idle = measure_idle(meter, 3.0)
    checkpoint_hash = weights_hash(factory.stock)
    journal_file = out.with_name(f"{out.name}.search.jsonl")
    fingerprint = f"{checkpoint_hash}/{identity.key()}/{request.data_name}/{request.effort.judge_every}"
    search = Search(
        factory,
        judge,
        frame,
        request.effort,
        Journal(journal_file, fingerprint),
        knobs=request.knobs,
        progress=progress,
        synchronise=partial(synchronise, request.device),
    )
    specs = _with_references([candidate.spec for candidate in search.run()], search.base)
    records = cost_and_judge(
        factory, specs, search.base, request, judge, frame, meter, idle, progress
    )
    record = BundleRecord(
        gearshift=__version__,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        family=factory.family.name,
        checkpoint=CheckpointRecord(
            reference=CHECKPOINT_FOLDER if request.copy_checkpoint else request.model.reference,
            weights_sha256=checkpoint_hash,
            trained=request.model.trained,
        ),
        classes=tuple(factory.stock.config.id2label[index] for index in range(factory.stock.config.num_labels)),
        input_height=frame.shape[2],
        input_width=frame.shape[3],
        mean=IMAGENET_MEAN,
        std=IMAGENET_STD,
        data=DataRecord(name=request.data_name, images=len(request.frames), labelled=judge.labelled),
        device=identity.to_dict(),
        versions=versions(),
        meter=meter_record(meter, idle),
        files={},
        paths=tuple(records),
    )
    bundle = write_bundle(out, record, _fresh_derived(factory, records), factory.stock if request.copy_checkpoint else None)
    journal_file.unlink(missing_ok=True)
    return bundle


def cost_and_judge(
    factory: PathFactory,
    specs: Sequence[PathSpec],
    lossless: PathSpec,
    request: BuildRequest,
    judge: Judge,
    frame: Tensor,
    meter: Meter,
    idle: IdlePower,
    progress: Callable[[str], None],
) -> list[PathRecord]:
    """Measure all paths in turn, judge each on all frames, and keep the references and the Pareto frontier."""
    paths = {spec.id: factory.build(spec) for spec in specs}
    progress(f"measuring {len(paths)} paths in turn, {request.cost_rounds} windows each")
    costs = measure_costs(
        paths,
        frame,
        meter,
        idle.power_w,
        rounds=request.cost_rounds,
        synchronise=partial(synchronise, request.device),
    )
    records = []
    for spec in specs:
        path = paths[spec.id]
        quality = judge.judge(path)
        difference = None
        if spec in (lossless, PathSpec()):
            difference = verify_exact(factory, path, request.frames[:4], request.device)
        timing, energy = costs[spec.id]
        records.append(
            PathRecord(
                transforms=spec.to_json(),
                roles=_reference_roles(spec, lossless),
                quality=QualityRecord.of(quality),
                latency=LatencyRecord.of(timing),
                energy=EnergyRecord.of(energy),
                macs=count_macs(path, frame),
                extra_bytes=path.extra_bytes,
                largest_difference=difference,
            )
        )
        progress(f"{spec}: {quality.metric} {quality.value:.4f}, {timing.median_ms:.1f} ms")
    return mark_frontier(records)


def verify_exact(
    factory: PathFactory, path: ModelPath, frames: Sequence[LabelledFrame], device: torch.device
) -> float:
    """Largest output difference from the stock model, relative to the largest logit, on real frames.

    Raises:
        RuntimeError: It is larger than rounding explains: a fault of ours, not of the input.
    """
    worst = 0.0
    with torch.inference_mode():
        for frame in frames:
            pixels = normalise(frame.image).to(device)
            expected = factory.stock(pixels).logits
            worst = max(worst, float((path(pixels).logits - expected).abs().max() / expected.abs().max()))
    if worst > LARGEST_LOSSLESS_DIFFERENCE:
        raise RuntimeError(f"path {path.id} should be exact but differs from the stock model by {worst:.2e}")
    return worst


def mark_frontier(records: Sequence[PathRecord]) -> list[PathRecord]:
    """Keep references and the Pareto set of quality against latency and energy, by falling latency."""

    def quality(record: PathRecord) -> float:
        return record.quality.value if record.quality is not None else 0.0

    def latency(record: PathRecord) -> float:
        return record.latency.median_ms

    def energy(record: PathRecord) -> float:
        return record.energy.gross_j or 0.0

    frontier = {record.id for record in pareto(records, quality, latency, energy)}
    marked = []
    for record in records:
        roles: tuple[Role, ...] = tuple(role for role in record.roles if role != "frontier")
        if record.id in frontier:
            roles = (*roles, "frontier")
        if roles:
            marked.append(record.model_copy(update={"roles": roles}))
    return sorted(marked, key=lambda record: -record.latency.median_ms)


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
    """Measure the costs of a bundle's paths on this device; quality stays, the frontier is drawn again."""
    frame = torch.zeros(1, 3, bundle.record.input_height, bundle.record.input_width, device=device)
    idle = idle or measure_idle(meter, 3.0)
    paths = {record.id: factory.build(record.spec) for record in bundle.record.paths}
    costs = measure_costs(
        paths, frame, meter, idle.power_w, rounds=rounds, window_s=window_s, synchronise=partial(synchronise, device)
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


def _with_references(specs: Sequence[PathSpec], lossless: PathSpec) -> list[PathSpec]:
    return list(dict.fromkeys([PathSpec(), lossless, *specs]))


def _reference_roles(spec: PathSpec, lossless: PathSpec) -> tuple[Role, ...]:
    roles: list[Role] = []
    if spec == PathSpec():
        roles.append("stock")
    if spec == lossless:
        roles.append("lossless")
    return tuple(roles)


def _fresh_derived(factory: PathFactory, records: Sequence[PathRecord]) -> dict[str, Tensor]:
    """What the kept paths derive from the weights, and nothing that only rejected candidates needed."""
    clean = PathFactory(factory.stock)
    for record in records:
        clean.build(record.spec)
    return {name: tensor.cpu() for name, tensor in clean.derived.tensors().items()}
