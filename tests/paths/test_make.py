"""Making a bundle: from a model and three frames to measured paths, resumable; and measuring it anew."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gearshift.errors import DataError, OutputError
from gearshift.paths import PathSpec
from gearshift.paths.build import Path as ModelPath
from gearshift.paths.build import PathFactory
from gearshift.paths.bundle import Bundle, read_bundle, update_record
from gearshift.paths.data import IGNORE_INDEX, LabelledFrame, SceneStream, normalise
from gearshift.paths.judge import Judge
from gearshift.paths.knobs import Knob
from gearshift.paths.make import BuildRequest, _fingerprint, _workbench, make_bundle, remeasure
from gearshift.paths.models import LoadedModel, load_model
from gearshift.paths.records import PathRecord
from gearshift.paths.search import Effort
from gearshift.paths.segformer.attention import STACKED
from gearshift.paths.transforms import FuseChannels, InputSize, Skip
from gearshift.paths.workbench import Workbench, idle_power, mark_frontier
from gearshift.profiler.device import identify
from gearshift.profiler.meters import BaseMeter, NullMeter, Precision, Reading, measure_idle
from tests.conftest import path_record, tiny_segformer

IDLE_W, BUSY_W = 5.0, 25.0
FRAMES = [SceneStream(seed=seed, height=64, width=96).frame(10 * seed) for seed in range(3)]
KNOBS = (
    Knob("block 1.0", (Skip(((1, 0),)),)),
    Knob("fuse", (FuseChannels(48), FuseChannels(32))),
    Knob("size", (InputSize(percent=67), InputSize(percent=34))),
)
EFFORT = Effort(timing_rounds=2, recombined=4, keep=6, floor=0.0)


class FakeClock:
    """A clock that every look at moves on."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 0.05
        return self.now_s


class FakeMeter(BaseMeter):
    """A constant power over a clock of its own; idle power is a constant of the formula, as in an estimate."""

    def __init__(self) -> None:
        super().__init__(
            name="fake",
            source="measured:fake",
            boundary="nothing real",
            precision=Precision(resolution_s=0.0, relative=0.0),
            clock=FakeClock(),
            notes=("made up",),
        )
        self.idle_w = IDLE_W

    def _read(self) -> Reading:
        now = self._clock()
        return Reading(time_s=now, energy_j=BUSY_W * now)


def request(module: Any = None, **changes: Any) -> BuildRequest:
    model = LoadedModel(reference="hf:made-up", module=module or tiny_segformer(), trained=False)
    defaults: dict[str, Any] = {
        "model": model,
        "frames": FRAMES,
        "data_name": "three scenes",
        "effort": EFFORT,
        "knobs": KNOBS,
        "cost_rounds": 1,
        "copy_checkpoint": True,
    }
    return BuildRequest(**(defaults | changes))


def journal_of(out: Path) -> Path:
    return out.with_name(f"{out.name}.search.jsonl")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """A bundle of the small model; only to be read."""
    return make_bundle(request(), tmp_path_factory.mktemp("made") / "small.bundle", FakeMeter())


def role(bundle: Bundle, name: str) -> list[PathRecord]:
    return [path for path in bundle.record.paths if name in path.roles]


# The whole way ------------------------------------------------------------------------------------------------


def test_stock_and_exact_reference_are_always_there(made: Bundle) -> None:
    assert [path.id for path in role(made, "stock")] == ["stock"]
    (lossless,) = role(made, "lossless")
    assert lossless.id in ("lossless", "lossless+qkv")
    for path in (*role(made, "stock"), lossless):
        assert path.largest_difference is not None
        assert path.largest_difference <= 1e-4
    assert role(made, "stock")[0].largest_difference == 0.0
    assert made.record.with_role("stock").extra_bytes == 0


def test_every_other_path_is_on_the_frontier(made: Bundle) -> None:
    records = made.record.paths
    assert len({path.id for path in records}) == len(records)
    for path in records:
        assert path.roles
        assert path.macs > 0
        cost = (-quality_of(path), path.latency.median_ms, path.energy.gross_j or 0.0)
        beaten = any(
            all(ours <= theirs for ours, theirs in zip(other, cost, strict=True)) and other != cost
            for other in (
                (-quality_of(rival), rival.latency.median_ms, rival.energy.gross_j or 0.0) for rival in records
            )
        )
        assert ("frontier" in path.roles) == (not beaten)
    assert [path.latency.median_ms for path in records] == sorted(
        (path.latency.median_ms for path in records), reverse=True
    )


def quality_of(path: PathRecord) -> float:
    assert path.quality is not None
    return path.quality.value


def test_energy_is_of_the_meter_and_net_of_idle_power(made: Bundle) -> None:
    assert made.record.meter.name == "fake"
    assert made.record.meter.idle_power_w == IDLE_W
    assert made.record.meter.notes == ("made up",)
    for path in made.record.paths:
        energy = path.energy
        assert energy.source == "measured:fake"
        assert energy.power_w == pytest.approx(BUSY_W)
        assert energy.gross_j is not None
        assert energy.net_j == pytest.approx(energy.gross_j * (1 - IDLE_W / BUSY_W))
        assert path.latency.n >= 1


def test_quality_is_judged_on_all_frames_by_name(made: Bundle) -> None:
    judge = Judge(made.load().stock, FRAMES)
    factory = made.load()
    assert made.record.data is not None
    assert (made.record.data.name, made.record.data.images, made.record.data.labelled) == ("three scenes", 3, True)
    for path in made.record.paths:
        assert path.quality is not None
        assert (path.quality.metric, path.quality.images) == ("mIoU", 3)
        assert path.quality.value == pytest.approx(judge.judge(factory.build(path.spec)).value)


def test_it_says_where_and_of_what_it_was_made(made: Bundle) -> None:
    record = made.record
    assert (record.input_height, record.input_width) == (64, 96)
    assert record.family == "segformer"
    assert record.classes == tuple(tiny_segformer().config.id2label.values())
    assert not record.checkpoint.trained
    assert made.device == identify("cpu")
    assert record.versions.keys() == {"gearshift", "python", "torch", "transformers"}
    assert not journal_of(made.folder).exists()


def test_only_what_kept_paths_derive_is_stored(made: Bundle) -> None:
    stored = set(made.load().derived.tensors())
    factory = made.load()
    fresh = type(factory)(factory.stock)
    for path in made.record.paths:
        fresh.build(path.spec)
    left_out = set(fresh.derived.tensors()) - stored
    assert stored <= set(fresh.derived.tensors())
    assert all(name.startswith(STACKED) for name in left_out)  # copies of weights that the bundle has anyway


def test_without_labels_paths_are_judged_by_agreement(tmp_path: Path) -> None:
    blank = np.full((64, 96), IGNORE_INDEX, dtype=np.uint8)
    frames = [LabelledFrame(image=frame.image, labels=blank) for frame in FRAMES[:1]]
    bundle = make_bundle(request(frames=frames, knobs=KNOBS[:1]), tmp_path / "b", FakeMeter())
    assert {path.quality.metric for path in bundle.record.paths if path.quality} == {"agreement"}
    assert bundle.record.with_role("stock").quality.value == 1.0  # type: ignore[union-attr]


def test_without_a_meter_energy_is_null_with_the_reason_and_nothing_is_waited_for(tmp_path: Path) -> None:
    bundle = make_bundle(request(knobs=KNOBS[2:]), tmp_path / "b", NullMeter("no sensor here"))
    assert bundle.record.meter.idle_power_w is None
    for path in bundle.record.paths:
        assert (path.energy.gross_j, path.energy.net_j, path.energy.reason) == (None, None, "no sensor here")
    assert idle_power(NullMeter()).seconds < 1


def test_a_described_model_is_found_again_by_its_name(tmp_path: Path) -> None:
    model = load_model("config:segformer-street")
    bundle = make_bundle(
        request(model=model, knobs=KNOBS[2:], copy_checkpoint=False, frames=FRAMES[:1]), tmp_path / "b", FakeMeter()
    )
    assert bundle.record.checkpoint.reference == "config:segformer-street"
    assert sum(file.stat().st_size for file in bundle.folder.iterdir()) < 2_000_000
    factory = read_bundle(bundle.folder).load()
    pixels = normalise(FRAMES[0].image)
    with torch.no_grad():
        ours = factory.build(bundle.record.with_role("lossless").spec)(pixels).logits
        stock = model.module(pixels).logits
    assert torch.allclose(ours, stock, atol=1e-4 * float(stock.abs().max()))


# Interrupted, refused -----------------------------------------------------------------------------------------


class InterruptedHereError(Exception):
    """In place of Ctrl-C."""


def test_an_interrupted_search_goes_on_where_it_stopped(tmp_path: Path) -> None:
    out = tmp_path / "b"

    def interrupt(line: str) -> None:
        first.append(line)
        if len(first) == 4:
            raise InterruptedHereError

    first: list[str] = []
    with pytest.raises(InterruptedHereError):
        make_bundle(request(), out, FakeMeter(), interrupt)
    assert not out.exists()
    known = {row["path"] for row in map(json.loads, journal_of(out).read_text().splitlines()) if "path" in row}
    assert known == {line.partition(":")[0] for line in first}
    second: list[str] = []
    make_bundle(request(), out, FakeMeter(), second.append)
    begin = next(number for number, line in enumerate(second) if line.startswith("measuring"))
    assert not known & {line.partition(":")[0] for line in second[:begin]}
    assert begin > 0
    assert not journal_of(out).exists()


@pytest.mark.parametrize(
    "other", [{"frames": FRAMES[:2]}, {"data_name": "other scenes"}, {"effort": Effort(judge_every=2)}]
)
def test_a_journal_of_other_frames_is_passed_over(other: dict[str, Any], tmp_path: Path) -> None:
    def fingerprint(wanted: BuildRequest) -> str:
        return _fingerprint(wanted, _workbench(wanted, FakeMeter(), lambda _: None), "weights", identify("cpu"))

    assert fingerprint(request()) == fingerprint(request())
    assert fingerprint(request()) != fingerprint(request(**other))


def test_an_occupied_place_is_refused_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("x")
    monkeypatch.setattr("gearshift.paths.make.PathFactory", lambda *_: pytest.fail("it began to work"))
    with pytest.raises(OutputError, match="holds files but no bundle"):
        make_bundle(request(), tmp_path / "full", FakeMeter())


def test_no_frames_are_refused() -> None:
    with pytest.raises(DataError, match="no frame to judge on"):
        Judge(tiny_segformer(), [])


def test_a_path_that_should_be_exact_and_is_not_stops_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault of ours must not become a reference."""
    forward: Callable[..., Any] = ModelPath.forward

    def wrong(self: ModelPath, *arguments: Any, **keywords: Any) -> Any:
        output = forward(self, *arguments, **keywords)
        if self.spec.get("lossless") is not None:
            output.logits = output.logits * 1.01
        return output

    monkeypatch.setattr(ModelPath, "forward", wrong)
    with pytest.raises(RuntimeError, match="should be exact but differs from the stock model by 1"):
        make_bundle(request(knobs=KNOBS[:1]), tmp_path / "b", FakeMeter())
    assert not (tmp_path / "b").exists()


# Elsewhere ----------------------------------------------------------------------------------------------------


def test_measuring_anew_keeps_paths_and_quality(made: Bundle, tmp_path: Path) -> None:
    record = remeasure(made, made.load(), FakeMeter(), torch.device("cpu"), rounds=1, window_s=0.0)
    before = {path.id: path for path in made.record.paths}
    assert {path.id for path in record.paths} == set(before)
    for path in record.paths:
        assert path.quality == before[path.id].quality
        assert path.macs == before[path.id].macs
        assert path.largest_difference == before[path.id].largest_difference
        assert set(path.roles) - {"frontier"} == set(before[path.id].roles) - {"frontier"}
    assert record.checkpoint == made.record.checkpoint
    copy = read_bundle(_copied(made, tmp_path))
    assert update_record(copy, record).record.paths == record.paths


def test_a_path_that_is_beaten_here_is_kept_for_the_next_device(made: Bundle) -> None:
    """Two measurements in a row must not thin the bundle out."""
    once = remeasure(made, made.load(), FakeMeter(), torch.device("cpu"), rounds=1, window_s=0.0)
    twice = remeasure(
        Bundle(folder=made.folder, record=once), made.load(), NullMeter(), torch.device("cpu"), rounds=1, window_s=0.0
    )
    assert {path.id for path in twice.paths} == {path.id for path in made.record.paths}
    assert twice.meter.name == "none"


def _copied(bundle: Bundle, tmp_path: Path) -> Path:
    return Path(shutil.copytree(bundle.folder, tmp_path / "copy"))


# The frontier -------------------------------------------------------------------------------------------------


def records(*rows: tuple[str, float, float, float], energy: bool = True) -> list[PathRecord]:
    """(path, quality, ms, net J): the first one is the stock model."""
    return [
        path_record(text, ("stock",) if number == 0 else ("frontier",), quality, ms, net_j, energy=energy)
        for number, (text, quality, ms, net_j) in enumerate(rows)
    ]


def test_a_path_that_costs_more_and_gives_less_is_off_the_frontier() -> None:
    """As published for others: A (0.80, 2.0 J), B (0.78, 2.2 J), C (0.75, 1.0 J)."""
    marked = mark_frontier(
        records(
            ("stock", 0.80, 30, 2.0), ("fuse=2", 0.78, 31, 2.2), ("fuse=3", 0.75, 20, 1.0), ("fuse=4", 0.7, 19, 1.5)
        )
    )
    roles = {record.id: record.roles for record in marked}
    assert roles == {"fuse=2": (), "stock": ("stock", "frontier"), "fuse=3": ("frontier",), "fuse=4": ("frontier",)}
    assert [record.id for record in marked] == ["fuse=2", "stock", "fuse=3", "fuse=4"]


def test_a_path_without_energy_does_not_win_by_it() -> None:
    rows = records(("stock", 0.8, 30, 2.0), ("fuse=2", 0.7, 20, 1.0), ("fuse=3", 0.6, 25, 0.5))
    rows[2] = path_record("fuse=3", ("frontier",), 0.6, 25, 0.5, energy=False)
    assert [record.id for record in mark_frontier(rows) if "frontier" in record.roles] == ["stock", "fuse=2"]


# The workbench ------------------------------------------------------------------------------------------------


def test_the_exact_reference_among_given_paths() -> None:
    factory = make_workbench()
    assert factory.exact_among([PathSpec.parse("size=50%"), PathSpec.parse("lossless")]).id == "lossless"
    assert factory.exact_among([PathSpec.parse("size=50%")]).id == "stock"
    assert factory.exact_among([]).id == "stock"


def make_workbench() -> Workbench:
    stock = tiny_segformer()
    return Workbench(
        factory=PathFactory(stock),
        judge=Judge(stock, FRAMES[:1]),
        examples=[normalise(FRAMES[0].image)],
        meter=FakeMeter(),
        idle=measure_idle(FakeMeter(), 1.0),
        device=torch.device("cpu"),
        rounds=1,
        window_s=0.0,
    )


def test_beaten_paths_are_measured_and_told_apart() -> None:
    specs = [PathSpec.parse(text) for text in ("stock", "lossless", "lossless+size=34%")]
    records_ = make_workbench().measure(specs, specs[1])
    assert {record.id for record in records_} == {spec.id for spec in specs}
    assert {record.id: set(record.roles) - {"frontier"} for record in records_} == {
        "stock": {"stock"},
        "lossless": {"lossless"},
        "lossless+size=34%": set(),
    }
