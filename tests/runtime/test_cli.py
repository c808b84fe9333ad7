"""The command line: data on stdout, messages on stderr, exit codes, and one line for everything that is wrong."""

import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from gearshift import __version__
from gearshift.paths.bundle import BUNDLE_FILE, DERIVED_FILE, Bundle, read_bundle
from gearshift.runtime.bench import bench as bench_module
from gearshift.runtime.cli import bench as bench_command
from tests.conftest import HEIGHT, WIDTH, tiny_segformer
from tests.support import Outcome, Refused, Run

COMMANDS = ("bench", "build", "devices", "paths", "profile", "report", "survey")
SHORT = ("--seconds", "0.3", "--fps", "20", "--pictures", "2", "--baseline-seconds", "0.1", "--no-calibrate")
ESTIMATE = ("--meter", "cpu-time")

MakeBundle = Callable[..., Bundle]
StrictJson = Callable[[str], Any]


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("tests have no network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny SegFormer as `save_pretrained` writes it; only to be read."""
    folder = tmp_path_factory.mktemp("checkpoints") / "tiny"
    tiny_segformer().save_pretrained(folder)
    return folder


def write_frames(folder: Path, *, labels: bool = True, top: int = 11) -> Path:
    """Two frames, their labels below `top`."""
    rng = np.random.default_rng(0)
    for kind in ("images", "labels") if labels else ("images",):
        (folder / kind).mkdir(parents=True)
    for number in range(2):
        pixels = rng.integers(0, 255, (HEIGHT, WIDTH, 3), np.uint8)
        Image.fromarray(pixels).save(folder / "images" / f"{number}.png")
        if labels:
            values = rng.integers(0, top, (HEIGHT, WIDTH), np.uint8)
            Image.fromarray(values).save(folder / "labels" / f"{number}.png")
    return folder


# Help.


def test_help_lists_every_command(run: Run) -> None:
    outcome = run("--help")
    assert (outcome.code, outcome.err) == (0, "")
    assert all(f"• {name} " in outcome.out for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str, run: Run) -> None:
    outcome = run(name, "--help")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.startswith(f"usage: runtime {name} ")
    assert "{None}" not in outcome.out
    if name != "report":
        assert "--json FILE|-" in outcome.out


def test_the_version(run: Run) -> None:
    assert run("--version") == Outcome(0, f"gearshift {__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "Expected one of {bench, build, devices, paths, profile, report, survey}; see `runtime --help`"),
        (("fly",), "Unrecognized options: fly; see `runtime --help`"),
        (("bench", "--bugdet", "60W"), "did you mean --budget?; see `runtime bench --help`"),
        (("bench", "--budget"), "see `runtime bench --help`"),
        (("bench", "--budget", "60W", "--seconds", "soon"), "--seconds"),
        (("bench", "--budget", "60W", "--meter", "scales"), "'scales'"),
        (("profile",), "Missing from runtime profile: MODEL"),
        (("build", "config:segformer-b0"), "Missing from runtime build: --out BUNDLE"),
    ],
)
def test_what_is_no_command_is_refused_in_one_line(arguments: tuple[str, ...], said: str, refused: Refused) -> None:
    assert said in refused(*arguments)


# Every command at its work.


def test_devices(run: Run, read_strict_json: StrictJson) -> None:
    outcome = run("devices", "--json", "-")
    found = read_strict_json(outcome.out)
    assert (outcome.code, outcome.err) == (0, "")
    assert found["devices"][0]["kind"] == "cpu"
    for meter in found["meters"]:
        assert meter["measures"] if meter["available"] else meter["reason"]
    assert "cpu-time" in run("devices").out


def test_profile(run: Run, read_strict_json: StrictJson) -> None:
    arguments = ("profile", "config:segformer-street", "--size", "64x96", "--repeats", "1")
    outcome = run(*arguments, "--json", "-")
    found = read_strict_json(outcome.out)
    assert (outcome.code, outcome.err) == (0, "")
    assert found["model"] == "config:segformer-street"
    assert found["macs"] == sum(row["macs"] for row in found["by_type"])
    assert found["wall_ms"] > 0
    table = run(*arguments).out
    assert "decode_head" in table
    assert "ms" in table


def test_profile_counts_without_computing(run: Run, read_strict_json: StrictJson) -> None:
    outcome = run("profile", "config:segformer-b1", "--size", "1024", "--counts-only", "--json", "-")
    found = read_strict_json(outcome.out)
    assert found["macs"] > 1e10
    assert "wall_ms" not in found
    lossless = run("profile", "config:segformer-b1", "--path", "lossless", "--counts-only", "--json", "-")
    stock = run("profile", "config:segformer-b1", "--counts-only", "--json", "-")
    assert read_strict_json(lossless.out)["macs"] < read_strict_json(stock.out)["macs"]


def test_paths(run: Run, small_bundle: Path, read_strict_json: StrictJson) -> None:
    outcome = run("paths", small_bundle, "--json", "-")
    found = read_strict_json(outcome.out)
    assert (outcome.code, outcome.err) == (0, "")
    assert [path["roles"] for path in found["paths"]][:2] == [["stock"], ["lossless", "frontier"]]
    table = run("paths", small_bundle).out
    assert "lossless+size=75%" in table
    assert "Random weights: quality means nothing." in table


def test_paths_measured_again_are_written_into_the_bundle(run: Run, make_bundle_at: MakeBundle, tmp_path: Path) -> None:
    folder = make_bundle_at(tmp_path / "b").folder
    outcome = run("paths", folder, "--remeasure", "--rounds", "1", *ESTIMATE)
    assert outcome.code == 0
    assert "energy is ESTIMATED, not measured (estimated:cpu-time)" in outcome.err
    record = read_bundle(folder).record
    assert record.meter.source == "estimated:cpu-time"
    assert {path.energy.windows for path in record.paths} == {1}


def test_bench_to_stdout(run: Run, small_bundle: Path, read_strict_json: StrictJson) -> None:
    outcome = run("bench", small_bundle, "--budget", "500ms", *SHORT, *ESTIMATE, "--json", "-")
    found = read_strict_json(outcome.out)
    assert outcome.code == 0
    assert found["report"] == "runtime bench"
    assert found["run"]["frames"] + found["run"]["dropped"] == 6
    assert outcome.err.startswith("energy is ESTIMATED, not measured (estimated:cpu-time)")
    assert "running 0.3 s at 20 frames/s" in outcome.err


def test_bench_to_files_and_the_report_drawn_again(
    run: Run, small_bundle: Path, tmp_path: Path, read_strict_json: StrictJson
) -> None:
    json, page = tmp_path / "new" / "run.json", tmp_path / "new" / "page.html"
    outcome = run(
        *("bench", small_bundle, "--budget", "500ms", "--budget", "90W", *SHORT, *ESTIMATE),
        *("--json", json, "--html", page),
    )
    assert outcome.code == 0
    assert "ESTIMATED" in outcome.out
    assert max(map(len, outcome.out.splitlines())) > 80, "as wide as it needs where no terminal is"
    assert f"wrote {page}" in outcome.err.splitlines()
    assert read_strict_json(json.read_text())["budget"] == "90 W and p95 500 ms"

    again = run("report", json)
    assert (again.code, again.out, again.err) == (0, "", f"wrote {json.with_suffix('.html')}\n")
    assert json.with_suffix(".html").read_bytes() == page.read_bytes()
    assert run("report", json, "--out", tmp_path / "other.html").code == 0
    assert (tmp_path / "other.html").read_bytes() == page.read_bytes()


def test_bench_of_a_scenario_at_another_pace(run: Run, small_bundle: Path, read_strict_json: StrictJson) -> None:
    outcome = run("bench", small_bundle, "--scenario", "budget-steps", *SHORT, *ESTIMATE, "--json", "-")
    found = read_strict_json(outcome.out)
    assert found["scenario"]["seconds"] == 0.3
    assert len(found["run"]["budgets"]) == 4


@pytest.mark.parametrize("budget", ["0.1ms", "1mW"])
def test_a_budget_that_no_path_can_meet_is_one_line_and_exit_code_1(
    budget: str, run: Run, small_bundle: Path, read_strict_json: StrictJson
) -> None:
    outcome = run("bench", small_bundle, "--budget", budget, *SHORT, *ESTIMATE, "--json", "-")
    found = read_strict_json(outcome.out)
    assert outcome.code == 1
    assert [row["path"] for row in found["run"]["paths"]] == ["lossless+size=50%"]
    [line] = [line for line in outcome.err.splitlines() if "met" in line]
    assert line == f"budget not met: {found['shortfall']}"
    assert "needs" in line


def test_build_then_bench(
    run: Run, checkpoint: Path, tmp_path: Path, read_strict_json: StrictJson, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = tmp_path / "space.yaml"
    space.write_text("{blocks: false, fuse: [], decoder: [], size: [50%], timing_rounds: 1, floor: 0.01}")
    bundle = tmp_path / "deep" / "bundle"
    data = write_frames(tmp_path / "data")
    outcome = run(
        *("build", f"hf:{checkpoint}", "--out", bundle, "--data", data, "--space", space, *ESTIMATE),
        *("--copy-checkpoint", "--json", "-"),
    )
    assert outcome.code == 0, outcome.err
    found = read_strict_json(outcome.out)
    assert outcome.err.splitlines()[0].startswith("energy is ESTIMATED")
    assert f"wrote {bundle}" in outcome.err.splitlines()
    assert found["data"] == {"name": f"{tmp_path.name}/data", "images": 2, "labelled": True}
    roles = {role for path in found["paths"] for role in path["roles"]}
    assert roles == {"stock", "lossless", "frontier"}
    assert {path.name for path in bundle.parent.iterdir()} == {"bundle"}, "no journal is left"

    moved = bundle.rename(tmp_path / "moved")
    assert run("bench", moved, "--budget", "500ms", *SHORT, *ESTIMATE, "--json", tmp_path / "run.json").code == 0


# What is refused. Each is one line; nothing is written.


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("segformr", 'unknown model "segformr": it is no folder here, no architecture of timm, and none of'),
        ("onnx:segformer", 'unknown model "onnx:segformer"; write hf:NAME_OR_DIR'),
        ("", 'unknown model ""'),
        ("timm:resnet5000", 'timm has no architecture "resnet5000"'),
        ("config:segformer-b6", 'no model description "segformer-b6"; did you mean'),
        ("config:", 'unknown model "config:"'),
        ("hf:", 'unknown model "hf:"'),
        ("hf:nobody/no-such-model", "nobody/no-such-model is no folder here and could not be fetched from the hub"),
        ("hf:./no-such-folder", "no-such-folder"),
    ],
)
@pytest.mark.parametrize("command", ["profile", "build"])
def test_an_unknown_model(
    model: str, said: str, command: str, refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)  # the hub's client waits between its attempts
    out = ("--out", tmp_path / "out", "--random-init") if command == "build" else ()
    assert said in refused(command, model, *out)


def test_a_model_with_random_weights_is_built_only_when_asked_for(refused: Refused, tmp_path: Path) -> None:
    line = refused("build", "config:segformer-street", "--out", tmp_path / "out")
    assert "add --random-init if only costs are of interest" in line


def _cut_weights(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])


def _empty_weights(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"")


def _no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def _no_description(folder: Path) -> None:
    (folder / "config.json").unlink()


def _cut_description(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": "segf')


def _other_kind(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": "vit"}')


def _other_sizes(folder: Path) -> None:
    text = (folder / "config.json").read_text()
    (folder / "config.json").write_text(text.replace('"decoder_hidden_size": 16', '"decoder_hidden_size": 32'))


@pytest.mark.parametrize(
    "harm",
    [_cut_weights, _empty_weights, _no_weights, _no_description, _cut_description, _other_kind, _other_sizes],
    ids=lambda harm: harm.__name__,
)
@pytest.mark.parametrize("command", ["profile", "build"])
def test_a_damaged_checkpoint(
    harm: Callable[[Path], None], command: str, refused: Refused, checkpoint: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "checkpoint"
    shutil.copytree(checkpoint, folder)
    harm(folder)
    out = ("--out", tmp_path / "out") if command == "build" else ()
    assert str(folder) in refused(command, f"hf:{folder}", *out)


def test_build_from_images_without_labels(refused: Refused, checkpoint: Path, tmp_path: Path) -> None:
    data = write_frames(tmp_path / "data", labels=False)
    line = refused("build", f"hf:{checkpoint}", "--out", tmp_path / "out", "--data", data)
    assert f"{data} has images but no folder labels" in line


def test_build_from_labels_out_of_range(refused: Refused, checkpoint: Path, tmp_path: Path) -> None:
    data = write_frames(tmp_path / "data", top=40)
    line = refused("build", f"hf:{checkpoint}", "--out", tmp_path / "out", "--data", data)
    assert "labels/0.png holds class" in line
    assert "the model has classes 0..10" in line


def test_bench_with_labels_out_of_range(refused: Refused, small_bundle: Path, tmp_path: Path) -> None:
    data = write_frames(tmp_path / "data", top=40)
    assert "labels/0.png holds class" in refused("bench", small_bundle, "--budget", "60W", *SHORT, "--data", data)


@pytest.mark.parametrize("command", ["bench", "build"])
def test_no_images_at_all(command: str, refused: Refused, small_bundle: Path, checkpoint: Path, tmp_path: Path) -> None:
    start = ("bench", small_bundle, "--budget", "60W") if command == "bench" else ("build", f"hf:{checkpoint}")
    out = ("--out", tmp_path / "out") if command == "build" else ()
    assert "does not exist" in refused(*start, *out, "--data", tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    assert "has no folder images" in refused(*start, *out, "--data", tmp_path / "empty")


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        ("60", '"60" has no unit'),
        ("-5W", '"-5W" must be a positive, finite number'),
        ("0W", "must be a positive, finite number"),
        ("NaN", "must be a positive, finite number"),
        ("NaN W", "must be a positive, finite number"),
        ("inf W", "must be a positive, finite number"),
        ("60Wh", "energy without a time to spend it in"),
        ("60 W/h", "is not a number with a unit"),
        ("60W/2h", "is not energy over time"),
        ("60MW", "did you mean mW?"),
        ("60 w att", "is not a number with a unit"),
        ("60w", 'did you mean "W"?'),
        ("", "an empty budget"),
        ("-5%", "must be a positive, finite number"),
        ("--fps", "is not a number with a unit"),
    ],
)
def test_a_budget_that_cannot_be_read(budget: str, said: str, refused: Refused, small_bundle: Path) -> None:
    line = refused("bench", small_bundle, "--budget", budget)
    assert said in line
    assert "60W, 33ms" in line or "did you mean" in line or "write, for example" in line
    assert said in refused("bench", small_bundle, f"--budget={budget}")


def test_no_budget(refused: Refused, small_bundle: Path) -> None:
    assert "no budget; give at least one --budget, for example 60W" in refused("bench", small_bundle)


def test_two_sources_of_budgets(refused: Refused, small_bundle: Path) -> None:
    line = refused("bench", small_bundle, "--budget", "60W", "--scenario", "budget-steps")
    assert "give either --scenario" in line


def test_a_budget_of_energy_without_a_meter(refused: Refused, small_bundle: Path) -> None:
    line = refused("bench", small_bundle, "--budget", "60W", "--meter", "none")
    assert "a budget of 60 W needs an energy meter, and none works here: no meter was chosen" in line


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--fps", "0", "--fps 0 must be a positive number"),
        ("--fps", "nan", "--fps nan must be a positive number"),
        ("--seconds", "-1", "--seconds -1 must be a positive number"),
        ("--seconds", "inf", "--seconds inf must be a positive number"),
        ("--seconds", "nan", "--seconds nan must be a positive number"),
        ("--baseline-seconds", "-1", "--baseline-seconds -1 must be 0, or positive"),
        ("--baseline-seconds", "nan", "--baseline-seconds nan must be 0, or positive"),
        ("--pictures", "0", "--pictures 0 must be at least 1"),
        ("--seed", "-1", "seed"),
        ("--device", "tpu", '"tpu" is no device; write cpu, cuda or cuda:1'),
        ("--device", "meta", 'device "meta" is not supported'),
        ("--device", "cuda:99", 'device "cuda:99" is not here: torch finds'),
    ],
)
def test_numbers_and_devices_out_of_range(
    option: str, value: str, said: str, run: Run, refused: Refused, small_bundle: Path
) -> None:
    arguments = ("bench", small_bundle, "--budget", "500ms", option, value)
    if option == "--seed":  # known only when the scenes are drawn, after other messages
        outcome = run(*arguments, "--no-calibrate", *ESTIMATE)
        assert (outcome.code, outcome.out) == (2, "")
        assert outcome.err.splitlines()[-1].startswith("error: seed")
    else:
        assert said in refused(*arguments)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--size", "12by12"), '--size "12by12" is not height x width'),
        (("--size", "0x96"), "is not height x width"),
        (("--size", "²x9"), "is not height x width"),
        (("--size", "4x4"), "a frame of 4x4 is too small for this model"),
        (("--batch", "0"), "must both be at least 1"),
        (("--repeats", "0"), "must both be at least 1"),
        (("--depth", "-1"), "--depth -1 must be at least 0"),
        (("--path", "fastest"), "fastest"),
        (("--path", "lossless+size=4x4"), "does not fit"),
        (("--path", "blocks=9-9-9-9"), "does not fit"),
    ],
)
def test_profile_of_what_does_not_fit(arguments: tuple[str, ...], said: str, refused: Refused) -> None:
    assert said in refused("profile", "config:segformer-street", *arguments)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--limit", "0"), "--limit 0 must be at least 1"),
        (("--calibration-limit", "0"), "--calibration-limit 0 must be at least 1"),
        (("--calibration", "no-such-folder"), "data folder no-such-folder does not exist"),
        (("--size", "x"), '--size "x" is not height x width'),
        (("--space", "no-such-file.yaml"), "cannot read no-such-file.yaml"),
    ],
)
def test_build_options_out_of_range(
    arguments: tuple[str, ...], said: str, refused: Refused, checkpoint: Path, tmp_path: Path
) -> None:
    assert said in refused("build", f"hf:{checkpoint}", "--out", tmp_path / "out", *arguments)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("flor: 0.5", 'unknown key "flor"; did you mean "floor"?'),
        ("floor: 2", '"floor" is 2'),
        ("sizes: [50%]", 'unknown key "sizes"; did you mean "size"?'),
        ("size: [tiny]", '"size" is'),
        ("fuse: [0]", '"fuse" is'),
        ("{blocks: false, fuse: [], decoder: [], size: []}", "the path space is empty"),
    ],
)
def test_an_unknown_key_of_a_path_space(
    text: str, said: str, refused: Refused, checkpoint: Path, tmp_path: Path
) -> None:
    file = tmp_path / "space.yaml"
    file.write_text(text)
    assert said in refused("build", f"hf:{checkpoint}", "--out", tmp_path / "out", "--space", file)


def test_an_unknown_key_of_a_scenario(refused: Refused, small_bundle: Path, tmp_path: Path) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_text("{seconds: 2, budgets: [{at_s: 0, bugdet: [60W]}]}")
    line = refused("bench", small_bundle, "--scenario", file)
    assert f'{file}: unknown key "budgets.0.bugdet"; did you mean "budget"?' in line
    assert "no scenario file" in refused("bench", small_bundle, "--scenario", "nope")


# Bundles.


def _no_folder(folder: Path) -> None:
    shutil.rmtree(folder)


def _cut_record(folder: Path) -> None:
    text = (folder / BUNDLE_FILE).read_text()
    (folder / BUNDLE_FILE).write_text(text[: len(text) // 2])


def _changed_record(folder: Path) -> None:
    text = (folder / BUNDLE_FILE).read_text()
    (folder / BUNDLE_FILE).write_text(text.replace("0.8", "0.9"))


def _no_tensors(folder: Path) -> None:
    (folder / DERIVED_FILE).unlink()


def _cut_tensors(folder: Path) -> None:
    (folder / DERIVED_FILE).write_bytes((folder / DERIVED_FILE).read_bytes()[:-10])


@pytest.mark.parametrize(
    "harm", [_no_folder, _cut_record, _changed_record, _no_tensors, _cut_tensors], ids=lambda harm: harm.__name__
)
@pytest.mark.parametrize("command", ["bench", "paths"])
def test_a_damaged_bundle(
    harm: Callable[[Path], None], command: str, refused: Refused, small_bundle: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "bundle"
    shutil.copytree(small_bundle, folder)
    harm(folder)
    budget = ("--budget", "60W") if command == "bench" else ()
    assert str(folder) in refused(command, folder, *budget)


def test_a_bundle_whose_weights_have_moved(
    run: Run, refused: Refused, make_bundle_at: MakeBundle, tmp_path: Path
) -> None:
    folder = make_bundle_at(tmp_path / "b", inside=False).folder
    moved = (tmp_path / "b-weights").rename(tmp_path / "elsewhere")
    assert "b-weights" in refused("bench", folder, "--budget", "500ms", *SHORT)
    outcome = run("bench", folder, "--budget", "500ms", *SHORT, *ESTIMATE, "--checkpoint", f"hf:{moved}")
    assert outcome.code == 0, outcome.err


def test_other_weights_are_not_taken_for_the_bundle_s(
    refused: Refused, small_bundle: Path, checkpoint: Path, tmp_path: Path
) -> None:
    line = refused("bench", small_bundle, "--budget", "60W", *SHORT, "--checkpoint", "config:segformer-street")
    assert "the weights of config:segformer-street are not those" in line


# Places that cannot be written.


@pytest.fixture
def read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that may not be written, even for root, whom no permission stops."""
    folder = tmp_path / "read-only"
    folder.mkdir()
    folder.chmod(0o555)
    real_access, real_file, real_make = os.access, tempfile.TemporaryFile, tempfile.mkstemp

    def refuse_inside(place: object) -> None:
        if place is not None and Path(str(place)).is_relative_to(folder):
            raise PermissionError(13, "Permission denied", str(place))

    def access(path: Any, mode: int, **options: Any) -> bool:
        return not Path(path).is_relative_to(folder) and real_access(path, mode, **options)

    def temporary_file(*arguments: Any, dir: Any = None, **options: Any) -> Any:
        refuse_inside(dir)
        return real_file(*arguments, dir=dir, **options)

    def mkstemp(*arguments: Any, dir: Any = None, **options: Any) -> Any:
        refuse_inside(dir)
        return real_make(*arguments, dir=dir, **options)

    monkeypatch.setattr(os, "access", access)
    monkeypatch.setattr(tempfile, "TemporaryFile", temporary_file)
    monkeypatch.setattr(tempfile, "mkstemp", mkstemp)
    yield folder
    folder.chmod(0o755)


def test_build_into_a_read_only_folder(refused: Refused, checkpoint: Path, read_only: Path) -> None:
    line = refused("build", f"hf:{checkpoint}", "--out", read_only / "bundle")
    assert str(read_only) in line


def test_build_into_an_occupied_place(refused: Refused, checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    assert "is a file" in refused("build", f"hf:{checkpoint}", "--out", tmp_path / "file")
    assert "cannot write" in refused("build", f"hf:{checkpoint}", "--out", tmp_path / "file" / "deeper")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "notes.txt").write_text("mine")
    assert "holds files but no bundle" in refused("build", f"hf:{checkpoint}", "--out", tmp_path / "folder")


@pytest.mark.parametrize("option", ["--json", "--html"])
def test_bench_writes_nowhere_it_cannot(
    option: str, refused: Refused, small_bundle: Path, read_only: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("mine")
    start = ("bench", small_bundle, "--budget", "60W", option)
    assert "it is a folder; give the name of a file" in refused(*start, tmp_path)
    assert "is a file, not a folder" in refused(*start, tmp_path / "file" / "deeper" / "run.json")
    assert "is read-only; choose a folder" in refused(*start, read_only / "new" / "run.json")


@pytest.mark.parametrize(
    "start", [("devices",), ("profile", "config:segformer-street"), ("paths",)], ids=lambda start: start[0]
)
def test_no_command_writes_json_where_it_cannot(start: tuple[str, ...], refused: Refused, tmp_path: Path) -> None:
    assert "it is a folder" in refused(*start, "--json", tmp_path)


def test_a_bundle_that_cannot_be_written_is_not_measured_again(
    refused: Refused, make_bundle_at: MakeBundle, read_only: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = make_bundle_at(tmp_path / "b").folder.rename(read_only / "b")
    assert "is read-only" in refused("paths", folder, "--remeasure")
    assert "--rounds 0 must be at least 1" in refused("paths", folder, "--remeasure", "--rounds", "0")


def test_report_of_what_is_no_run(refused: Refused, tmp_path: Path) -> None:
    assert "cannot read" in refused("report", tmp_path / "nothing.json")
    for text in ("", "{", "[]", '{"report": "runtime bench", "schema_version": 1}', '{"a": NaN}'):
        (tmp_path / "run.json").write_text(text)
        assert str(tmp_path / "run.json") in refused("report", tmp_path / "run.json")


# What else can happen.


def test_stopped_with_ctrl_c(run: Run, small_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(bench_command, "run_bench", stop)
    assert run("bench", small_bundle, "--budget", "60W") == Outcome(130, "", "stopped\n")


def test_a_fault_of_ours_is_called_one(run: Run, small_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("two\nlines")

    monkeypatch.setattr(bench_command, "run_bench", fail)
    outcome = run("bench", small_bundle, "--budget", "60W")
    assert (outcome.code, outcome.out) == (3, "")
    assert outcome.err.startswith("error: RuntimeError: two lines (this is a fault of Gearshift")
    assert len(outcome.err.splitlines()) == 1

    monkeypatch.setenv("GEARSHIFT_DEBUG", "1")
    with pytest.raises(RuntimeError, match="two"):
        run("bench", small_bundle, "--budget", "60W")


def test_warnings_of_one_kind_do_not_flood(run: Run, small_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def warn(*_: object, **__: object) -> dict[str, object]:
        for number in range(50):
            logging.getLogger("gearshift.somewhere").warning("odd thing %d", number)
        raise KeyboardInterrupt

    monkeypatch.setattr(bench_command, "run_bench", warn)
    told = run("bench", small_bundle, "--budget", "60W").err.splitlines()
    assert told == ["warning: odd thing 0", "warning: odd thing 1", "warning: odd thing 2", "stopped"]


def test_the_library_alone_is_silent(capfd: pytest.CaptureFixture[str]) -> None:
    logging.getLogger("gearshift.runtime.dynamic").warning("nobody asked")
    assert capfd.readouterr() == ("", "")


def test_without_a_bundle_the_shipped_one_is_taken(
    run: Run, small_bundle: Path, monkeypatch: pytest.MonkeyPatch, read_strict_json: StrictJson
) -> None:
    monkeypatch.setattr(bench_module, "default_bundle", lambda: small_bundle)
    outcome = run("bench", "--budget", "500ms", *SHORT, *ESTIMATE, "--json", "-")
    assert read_strict_json(outcome.out)["bundle"] == str(small_bundle)


# The command as a process of its own.

LONG = "{seconds: 600, budgets: [{at_s: 0, budget: [500ms]}], loads: [{from_s: 0, to_s: 600, processes: 2}]}"


def started_long(bundle: Path, tmp_path: Path) -> tuple[subprocess.Popen[str], list[int]]:
    """A bench that would take ten minutes, and its co-running processes."""
    script = tmp_path / "long.yaml"
    script.write_text(LONG)
    options = ["--scenario", str(script), *SHORT[2:], *ESTIMATE]
    code = "import sys; from gearshift.runtime.cli import main; sys.exit(main())"
    bench = subprocess.Popen(
        [sys.executable, "-c", code, "bench", str(bundle), *options], stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    listed = Path(f"/proc/{bench.pid}/task/{bench.pid}/children")
    end = time.monotonic() + 300
    children: list[int] = []
    while len(children) < 2 and bench.poll() is None and time.monotonic() < end:
        time.sleep(0.1)
        children = [int(child) for child in listed.read_text().split()] if listed.exists() else []
    return bench, children


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks at /proc")
@pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_a_bench_that_is_stopped_leaves_nothing_behind(
    how: signal.Signals, code: int, run: Run, small_bundle: Path, tmp_path: Path
) -> None:
    bench, children = started_long(small_bundle, tmp_path)
    with bench:
        assert len(children) == 2
        bench.send_signal(how)
        _, told = bench.communicate(timeout=60)
    assert bench.returncode == code, told
    assert "Traceback" not in told
    if how is signal.SIGINT:
        assert told.splitlines()[-1] == "stopped"
    end = time.monotonic() + 30
    while any(Path(f"/proc/{child}").exists() for child in children) and time.monotonic() < end:
        time.sleep(0.1)
    assert not [child for child in children if Path(f"/proc/{child}").exists()]
    assert {path.name for path in tmp_path.iterdir()} == {"long.yaml"}
    assert run("bench", small_bundle, "--budget", "500ms", *SHORT, *ESTIMATE).code == 0, "and runs again"


@pytest.mark.slow
def test_a_reader_that_goes_away_is_no_fault(tmp_path: Path) -> None:
    code = "import sys; from gearshift.runtime.cli import main; sys.exit(main(['devices', '--json', '-']))"
    command = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    assert command.stdout is not None
    assert command.stderr is not None
    command.stdout.close()
    with command:
        assert command.wait() == 0
        assert command.stderr.read() == ""
