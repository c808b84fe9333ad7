"""The search, on synthetic path spaces whose answer is known: judge, timer and factory are stand-ins."""

import json
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise, product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.errors import PathRefusedError
from gearshift.paths.build import PathFactory
from gearshift.paths.data import IGNORE_INDEX, LabelledFrame, normalise
from gearshift.paths.frontier import pareto
from gearshift.paths.journal import Candidate, Journal
from gearshift.paths.judge import Judge
from gearshift.paths.knobs import Knob, turn
from gearshift.paths.quality import Quality
from gearshift.paths.search import Effort, Search, frame_timer
from gearshift.paths.spec import PathSpec
from gearshift.paths.transforms import DecoderChannels, ElasticSubnet, InputSize, Skip, Transform

LOSSLESS, MERGED = PathSpec.parse("lossless"), PathSpec.parse("lossless+qkv")
BLOCKS = [Skip(((2, block),)) for block in range(3)]
SIZES = [InputSize(percent=percent) for percent in (80, 60, 40)]
DECODERS = [DecoderChannels(kept) for kept in (192, 64)]
KNOBS = [
    *(Knob(f"block {block.value()}", (block,)) for block in BLOCKS),
    Knob("size", tuple(SIZES)),
    Knob("decoder", tuple(DECODERS)),
]
PARTS = [
    tuple(ElasticSubnet.read(text) for text in texts)
    for texts in (("d3:1", "d3:0"), ("e3:25", "e3:20"), ("w4:80", "w4:65"), ("d0:0",))
]
ELASTIC = [
    *(Knob(f"part {number}", settings) for number, settings in enumerate(PARTS)),
    *(Knob(f"block {block.value()}", (block,)) for block in BLOCKS[:2]),
    Knob("size", tuple(SIZES[:2])),
]
"""Two kinds that several knobs share; of one of them knobs have several settings."""
GENEROUS = Effort(recombined=200, keep=200, floor=0.5)

Value = Callable[[PathSpec], float]


@dataclass
class Space:
    """A made-up model: what every path's quality and time are, and what was asked of it."""

    quality: Value
    time: Value
    refused: Callable[[PathSpec], bool] = lambda _: False
    knobs: list[Knob] = field(default_factory=lambda: KNOBS)
    judged: list[str] = field(default_factory=list)
    timed: list[str] = field(default_factory=list)
    stock: None = None
    derived: None = None

    @property
    def family(self) -> Any:
        return SimpleNamespace(base=lambda _: [LOSSLESS, MERGED], knobs=lambda *_: self.knobs)

    def build(self, spec: PathSpec) -> Any:
        if self.refused(spec):
            raise PathRefusedError(f"{spec} is refused")
        return SimpleNamespace(spec=spec)

    def judge(self, path: Any, every: int = 1) -> Quality:
        self.judged.append(path.spec.id)
        return Quality(metric="mIoU", value=self.quality(path.spec), images=1)

    def times(self, paths: Mapping[str, Any], rounds: int) -> dict[str, float]:
        self.timed += [path.spec.id for path in paths.values()]
        return {name: self.time(path.spec) for name, path in paths.items()}

    def search(self, effort: Effort = GENEROUS, journal: Journal | None = None, **others: Any) -> Search:
        journal = journal or Journal(None, "made")
        frame = torch.zeros(1, 3, 1, 1)
        return Search(self, self, frame, effort, journal, timer=self.times, **others)  # type: ignore[arg-type]


def simple_space(
    losses: Mapping[Transform, float],
    savings: Mapping[Transform, float],
    merged: float = 1.0,
    knobs: list[Knob] = KNOBS,
) -> Space:
    """Losses add, savings multiply, as the search supposes; `merged` is what qkv does to time."""

    def turned(spec: PathSpec) -> list[Transform]:
        """Of each knob the strongest setting that the path has."""
        held = [[item for item in knob.settings if item.within(spec.get(item.name))] for knob in knobs]
        return [items[-1] for items in held if items]

    return Space(
        quality=lambda spec: 0.8 - sum(losses[item] for item in turned(spec)),
        time=lambda spec: (
            10.0 * (merged if spec.get("qkv") else 1.0) * math.prod(savings[item] for item in turned(spec))
        ),
        knobs=knobs,
    )


def a_space(**others: Any) -> Space:
    losses = dict(zip([*BLOCKS, *SIZES, *DECODERS], [0.01, 0.03, 0.2, 0.02, 0.08, 0.25, 0.005, 0.04], strict=True))
    savings = dict(zip([*BLOCKS, *SIZES, *DECODERS], [0.9, 0.9, 0.9, 0.7, 0.45, 0.25, 0.93, 0.85], strict=True))
    return simple_space(losses, savings, **others)


def whole_space(base: PathSpec, knobs: list[Knob] = KNOBS) -> list[PathSpec]:
    specs = []
    for chosen in product(*((None, *knob.settings) for knob in knobs)):
        spec = base
        for setting in chosen:
            spec = spec if setting is None else turn(spec, setting)
        specs.append(spec)
    return specs


def figures(found: list[Candidate]) -> dict[str, tuple[float, float]]:
    return {item.spec.id: (round(item.quality, 9), round(item.latency_ratio, 9)) for item in found}


def best(space: Space, base: PathSpec, floor: float) -> dict[str, tuple[float, float]]:
    """The frontier by trying everything."""
    least = floor * space.quality(base)
    items = [
        Candidate(spec=spec, quality=space.quality(spec), latency_ratio=space.time(spec) / space.time(base))
        for spec in whole_space(base, space.knobs)
    ]
    good = [item for item in items if item.quality >= least]
    return figures(pareto(good, lambda item: item.quality, lambda item: item.latency_ratio))


# What is found


def test_the_frontier_of_a_known_space_is_found() -> None:
    space = a_space()
    found = figures(space.search().run())
    assert found == best(space, LOSSLESS, 0.5)
    assert len(found) > 10
    assert len(set(space.judged)) < len(whole_space(LOSSLESS))


@given(st.integers(0, 2**32))
def test_the_frontier_of_any_space_of_its_kind_is_found(seed: int) -> None:
    """Blocks save equally, so that skipping the harmless ones first is right; the rest is free."""
    rng = random.Random(seed)
    losses = {item: rng.uniform(0.001, 0.2) for item in [*BLOCKS, *SIZES, *DECODERS]}
    savings = {item: rng.uniform(0.5, 0.95) for item in losses} | dict.fromkeys(BLOCKS, rng.uniform(0.5, 0.95))
    for knob in (SIZES, DECODERS):  # a stronger setting loses more and saves more
        losses |= dict(zip(knob, sorted(losses[item] for item in knob), strict=True))
        savings |= dict(zip(knob, sorted((savings[item] for item in knob), reverse=True), strict=True))
    space = simple_space(losses, savings)
    found = figures(space.search().run()).values()
    for quality, ratio in best(space, LOSSLESS, 0.5).values():
        assert any(ours[0] >= quality - 1e-8 and ours[1] <= ratio + 1e-8 for ours in found)


@given(st.integers(0, 2**32))
@settings(max_examples=20)
def test_the_frontier_of_any_space_whose_settings_add_up_is_found(seed: int) -> None:
    """Every turn saves the same and costs more than the one before it: taking the cheapest next is then right."""
    rng = random.Random(seed)
    losses, savings = {}, {}
    for share, knobs in ((rng.uniform(0.7, 0.95), ELASTIC[:4]), (rng.uniform(0.7, 0.95), ELASTIC[4:6])):
        for knob in knobs:
            steps = sorted(rng.uniform(0.002, 0.06) for _ in knob.settings)
            losses |= {setting: sum(steps[: count + 1]) for count, setting in enumerate(knob.settings)}
            savings |= {setting: share ** (count + 1) for count, setting in enumerate(knob.settings)}
    losses |= dict(zip(SIZES, (0.03, 0.12), strict=False))
    savings |= dict(zip(SIZES, (0.7, 0.5), strict=False))
    space = simple_space(losses, savings, knobs=ELASTIC)
    found = figures(space.search(Effort(recombined=400, keep=400)).run()).values()
    for quality, ratio in best(space, LOSSLESS, 0.5).values():
        assert any(ours[0] >= quality - 1e-8 and ours[1] <= ratio + 1e-8 for ours in found)


def test_a_milder_turn_of_a_knob_makes_way_for_a_stronger_one_where_that_is_cheaper() -> None:
    """Halving the depth at once costs no more than the first step: no path stops half way."""
    (mild, strong), other = PARTS[0], PARTS[1][0]
    losses = {mild: 0.05, strong: 0.05, other: 0.06}
    knobs = [Knob("depth", (mild, strong)), Knob("ratio", (other,))]
    space = simple_space(losses, {mild: 0.9, strong: 0.6, other: 0.8}, knobs=knobs)
    found = [item.spec.id for item in space.search().run()]
    assert found == ["lossless", "lossless+subnet=d3:0", "lossless+subnet=d3:0,e3:25"]


@pytest.mark.parametrize("most", [1, 12, 40])
def test_of_too_many_combinations_the_promising_ones_are_left(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = best(a_space(), LOSSLESS, 0.5)
    monkeypatch.setattr("gearshift.paths.search.MOST_COMBINATIONS", most)
    found = figures(a_space().search().run())
    assert len(found.keys() & expected.keys()) >= min(most, len(expected)) / 2
    assert most < 40 or found == expected


@pytest.mark.parametrize("factor", [0.3, 0.5, 1.5, 2.0])
def test_the_prediction_learns_how_settings_work_together(factor: float) -> None:
    """Settings that together lose less, or more, than each alone: the second pass knows."""
    space = a_space()
    alone = space.quality

    def quality(spec: PathSpec) -> float:
        skip = spec.get("skip")
        turned = len(spec.transforms) - 1 + (len(skip.blocks) - 1 if isinstance(skip, Skip) else 0)
        return 0.8 - (0.8 - alone(spec)) * (factor if turned > 1 else 1)

    space.quality = quality
    found = set(figures(space.search(Effort(recombined=24, keep=200)).run()).values())
    expected = set(best(space, LOSSLESS, 0.5).values())
    assert len(found & expected) >= 0.9 * len(expected)


def test_the_descent_alone_reaches_down_to_the_floor() -> None:
    """Without recombining: the greedy way down turns several knobs, as far as quality allows."""
    space = a_space()
    fastest = space.search(Effort(recombined=0, keep=200)).run()[-1]
    assert len(fastest.spec.transforms) > 3
    assert 0.4 <= fastest.quality < 0.5
    assert fastest.latency_ratio < 0.7 * min(space.time(turn(LOSSLESS, size)) / 10 for size in SIZES[:2])


def test_less_effort_finds_a_part_of_it_and_keeps_its_ends() -> None:
    space = a_space()
    whole = space.search().run()
    few = space.search(Effort(recombined=4, keep=5)).run()
    assert len(few) == 5
    assert few[0].spec == LOSSLESS
    assert few[-1].latency_ratio <= 1.1 * whole[-1].latency_ratio


@pytest.mark.parametrize("recombined", [0, 1, 2, 3, 10])
def test_no_more_is_recombined_than_allowed(recombined: int) -> None:
    without, space = a_space(), a_space()
    without.search(Effort(recombined=0)).run()
    space.search(Effort(recombined=recombined)).run()
    assert 0 <= len(space.judged) - len(without.judged) <= recombined


# What holds in any space, however the settings work together


def unruly_space(seed: int, refusals: float, knobs: list[Knob]) -> Space:
    """Quality and time of every path are drawn at random: no rule that the search relies on is true."""

    def value(spec: PathSpec, what: str) -> float:
        return random.Random(f"{seed}/{spec.id}/{what}").random()

    return Space(
        quality=lambda spec: value(spec, "quality"),
        time=lambda spec: 1 + 20 * value(spec, "time"),
        refused=lambda spec: spec not in (LOSSLESS, MERGED) and value(spec, "refused") < refusals,
        knobs=knobs,
    )


unruly_spaces = st.builds(
    unruly_space, st.integers(0, 100_000), st.sampled_from([0.0, 0.3]), st.sampled_from([KNOBS, ELASTIC])
)


@given(unruly_spaces, st.integers(2, 12), st.integers(0, 30), st.sampled_from([0.1, 0.5, 0.9, 1.0]))
@settings(max_examples=60)
def test_in_any_space_the_result_is_sound(space: Space, keep: int, recombined: int, floor: float) -> None:
    search = space.search(Effort(keep=keep, recombined=recombined, floor=floor))
    found = search.run()
    assert search.base in (LOSSLESS, MERGED)
    assert sum(item.spec == search.base for item in found) == 1
    assert len(found) <= max(keep, 3)  # the two ends and the base
    start, whole = space.quality(search.base), set(whole_space(search.base, space.knobs))
    for item in found:
        assert item.spec in whole
        assert item.quality == space.quality(item.spec) >= floor * start
        assert item.latency_ratio == pytest.approx(space.time(item.spec) / space.time(search.base))
        assert not space.refused(item.spec)
    others = [item for item in found if item.spec != search.base]
    for slower, faster in pairwise(others):
        assert slower.latency_ratio > faster.latency_ratio
        assert slower.quality > faster.quality
    assert [item.latency_ratio for item in found] == sorted((item.latency_ratio for item in found), reverse=True)
    assert len(space.judged) == len(set(space.judged))


def test_the_base_is_kept_even_where_another_path_beats_it() -> None:
    """Skipping a block may even raise the quality on a few frames; the base stays the reference."""
    losses = dict.fromkeys([*BLOCKS, *SIZES, *DECODERS], 0.1) | {BLOCKS[0]: -0.01}
    space = simple_space(losses, dict.fromkeys(losses, 0.8))
    for effort in (GENEROUS, Effort(keep=2)):
        found = space.search(effort).run()
        assert found[0].spec == LOSSLESS
        assert found[0].latency_ratio == 1.0
        assert len(found) <= effort.keep
    assert space.search().run()[1].quality > found[0].quality


def test_no_setting_behind_one_that_fell_below_the_floor_is_tried_alone() -> None:
    losses = dict.fromkeys([*BLOCKS, *DECODERS], 0.0) | dict(zip(SIZES, (0.1, 0.5, 0.6), strict=True))
    space = simple_space(losses, dict.fromkeys(losses, 0.8))
    space.search().run()
    assert "lossless+size=60%" in space.judged
    assert not any("size=40%" in path for path in space.judged)


def test_the_knobs_given_are_all_that_is_turned() -> None:
    space = a_space()
    found = space.search(knobs=[Knob("size", tuple(SIZES))]).run()
    assert [item.spec.id for item in found] == [
        "lossless",
        *(f"lossless+{size.name}={size.value()}" for size in SIZES),
    ]
    assert len(space.judged) == 4


def test_progress_names_every_measurement() -> None:
    space, lines = a_space(), list[str]()
    space.search(progress=lines.append).run()
    assert lines[0] == "lossless: mIoU 0.800, latency x1.00"
    assert [line.split(":")[0] for line in lines] == space.judged


# The base


@pytest.mark.parametrize(("merged", "base"), [(0.9, MERGED), (0.98, LOSSLESS), (1.2, LOSSLESS)])
def test_the_base_is_the_fastest_exact_path_if_it_is_worth_its_memory(merged: float, base: PathSpec) -> None:
    space = a_space(merged=merged)
    search = space.search()
    assert search.base == base
    assert all(base.transforms == item.spec.transforms[: len(base.transforms)] for item in search.run())


# The journal


def test_a_finished_search_is_recalled_without_measuring(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "search.jsonl"
    first, second = a_space(), a_space()
    found = first.search(journal=Journal(file, "made")).run()
    assert second.search(journal=Journal(file, "made")).run() == found
    assert second.judged == second.timed == []


@pytest.mark.parametrize("cut", [0, 1, 30])
def test_a_search_interrupted_anywhere_goes_on_to_the_same_end(cut: int, tmp_path: Path) -> None:
    """`cut`: bytes of the journal's last line that the kill took away."""
    whole = a_space()
    expected = whole.search().run()
    for allowed in range(0, len(whole.judged), 3):
        file = tmp_path / f"{allowed}.jsonl"
        stopping = a_space()
        judge = stopping.judge

        def interrupted(
            path: Any, every: int = 1, *, judge: Any = judge, space: Space = stopping, allowed: int = allowed
        ) -> Quality:
            if len(space.judged) == allowed:
                raise KeyboardInterrupt
            return judge(path, every)  # type: ignore[no-any-return]

        stopping.judge = interrupted  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            stopping.search(journal=Journal(file, "made")).run()
        if cut:
            file.write_bytes(file.read_bytes()[:-cut])
        resumed = a_space()
        assert resumed.search(journal=Journal(file, "made")).run() == expected
        lost = 1 if cut > 1 and allowed else 0
        assert resumed.judged == whole.judged[allowed - lost :]
        again = a_space()
        assert again.search(journal=Journal(file, "made")).run() == expected
        assert again.judged == []


def test_a_resumed_search_keeps_its_base(tmp_path: Path) -> None:
    """Latencies are relative to it: chosen anew, the old ones would be compared with the new ones."""
    file = tmp_path / "search.jsonl"
    first = a_space(merged=0.9)
    found = first.search(journal=Journal(file, "made")).run()
    other = a_space(merged=1.2)
    search = other.search(journal=Journal(file, "made"))
    assert search.base == MERGED
    assert search.run() == found
    assert other.timed == []


def test_measurements_relative_to_another_base_are_dropped(tmp_path: Path) -> None:
    file = tmp_path / "search.jsonl"
    journal = Journal(file, "made")
    journal.set_base(MERGED)
    journal.add(Candidate(spec=MERGED, quality=0.5, latency_ratio=1.0))
    journal.set_base(MERGED)
    assert journal.get(MERGED) is not None
    journal.set_base(LOSSLESS)
    assert journal.get(MERGED) is None
    assert Journal(file, "made").get(MERGED) is None
    assert Journal(file, "made").base == LOSSLESS


def test_another_fingerprint_starts_anew_beside_the_old(tmp_path: Path) -> None:
    file = tmp_path / "search.jsonl"
    a_space().search(journal=Journal(file, "one device")).run()
    other = a_space()
    other.search(journal=Journal(file, "another device")).run()
    assert other.judged == a_space_judged()
    again = a_space()
    again.search(journal=Journal(file, "one device")).run()
    assert again.judged == []


def a_space_judged() -> list[str]:
    space = a_space()
    space.search().run()
    return space.judged


def test_a_smaller_space_takes_nothing_from_outside_it(tmp_path: Path) -> None:
    """The journal may hold paths that the knobs of today do not reach."""
    file = tmp_path / "search.jsonl"
    a_space().search(journal=Journal(file, "made")).run()
    found = a_space().search(journal=Journal(file, "made"), knobs=KNOBS[:3]).run()
    assert all(item.spec.get("size") is None and item.spec.get("decoder") is None for item in found)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{",
        "12",
        "[]",
        "null",
        '"text"',
        "{}",
        '{"fingerprint": "made"}',
        '{"fingerprint": "made", "path": "frobnicate=3", "quality": 1, "latency_ratio": 1}',
        '{"fingerprint": "made", "path": "lossless", "quality": null, "latency_ratio": 1}',
        '{"fingerprint": "made", "base": "frobnicate"}',
        "\udcff\udcfe",
    ],
)
def test_an_unreadable_line_is_passed_over(line: str, tmp_path: Path) -> None:
    file = tmp_path / "search.jsonl"
    row = {"fingerprint": "made", "path": "lossless", "quality": 0.5, "latency_ratio": 1.0}
    text = f"{json.dumps(row)}\n{line}\n{json.dumps(row | {'path': 'lossless+qkv'})}"
    file.write_bytes(text.encode("utf-8", errors="surrogateescape"))
    journal = Journal(file, "made")
    assert journal.get(LOSSLESS) == Candidate(spec=LOSSLESS, quality=0.5, latency_ratio=1.0)
    assert journal.get(MERGED) is not None


# On a real model


def test_paths_are_timed_in_turn_in_inference_mode() -> None:
    frame, calls = torch.zeros(1, 3, 2, 2), list[str]()

    class Named(torch.nn.Module):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def forward(self, pixels: torch.Tensor) -> None:
            assert pixels is frame
            assert torch.is_inference_mode_enabled()
            calls.append(self.name)

    times = frame_timer(frame, lambda: calls.append("wait"))({"a": Named("a"), "b": Named("b")}, 3)
    assert times.keys() == {"a", "b"}
    assert all(value > 0 for value in times.values())
    assert [name for name in calls if name != "wait"].count("a") == 4  # one of them to warm up


def test_a_real_search_ends_with_paths_that_run(stock: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    unlabelled = np.full((64, 96), IGNORE_INDEX, np.uint8)
    frames = [LabelledFrame(rng.integers(0, 256, (64, 96, 3), np.uint8), unlabelled) for _ in range(2)]
    factory, frame = PathFactory(stock), normalise(frames[0].image)
    effort = Effort(timing_rounds=1, recombined=4, keep=6, floor=0.2)
    journal = Journal(tmp_path / "search.jsonl", "real")
    knobs = [
        knob for knob in factory.family.knobs(stock, factory.derived) if knob.name in ("block 2.1", "size", "fuse")
    ]
    search = Search(factory, Judge(stock, frames), frame, effort, journal, knobs=knobs)
    found = search.run()
    (base,) = [item for item in found if item.spec == search.base]
    assert base.latency_ratio == 1.0
    assert base.quality == pytest.approx(1.0, abs=1e-3)
    assert len(found) <= 6
    for item in found:
        with torch.inference_mode():
            assert factory.build(item.spec)(frame).logits.shape == (1, 7, 16, 24)
