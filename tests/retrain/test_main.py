"""`python -m gearshift.retrain`: exit codes, one line for what is wrong, and weights that load."""

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from safetensors.torch import load_file

from gearshift.paths.data import LabelledFrame
from gearshift.paths.models import build_described
from gearshift.retrain import train as train_module
from gearshift.retrain.__main__ import main
from gearshift.retrain.train import learning_rate

MakeDocument = Callable[..., dict[str, Any]]
MakeFrames = Callable[..., list[LabelledFrame]]


@pytest.fixture
def folder(tmp_path: Path, make_frames: MakeFrames, write_folder: Callable[..., Path]) -> Path:
    """Two labelled photographs."""
    return write_folder(tmp_path / "town" / "train", make_frames(2))


@pytest.fixture
def recipe(tmp_path: Path, make_document: MakeDocument) -> Path:
    """Four steps on two photographs and a rendered scene."""
    return write_recipe(tmp_path, make_document(steps=4, warmup_steps=1, decay_steps=2, rendered_pool=1))


def write_recipe(folder: Path, document: dict[str, Any]) -> Path:
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def refusal(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Return the one line on stderr with which the command ends, with exit code 2."""
    assert main([str(argument) for argument in arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("error: ")
    return lines[0]


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_run_that_is_stopped_and_started_again_writes_the_weights_of_one_that_was_not(
    recipe: Path,
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def command(out: str) -> list[str]:
        chosen = {"--images": folder, "--validation": folder, "--scenes-held-out": 1, "--out": tmp_path / out}
        return [str(recipe), *(str(word) for pair in chosen.items() for word in pair)]

    assert main(command("whole")) == 0
    captured = capsys.readouterr()
    assert captured.err == ""  # no terminal, no progress bars
    rendered, photographs = captured.out.splitlines()
    assert rendered.startswith("rendered: mIoU 0.")
    assert photographs.startswith("town: mIoU 0.")
    assert photographs.endswith(" on 2 images")

    def stop(step: int, *rest: Any) -> float:
        if step == 3:
            raise KeyboardInterrupt
        return learning_rate(step, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(train_module, "learning_rate", stop)
        assert main(command("broken")) == 130
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"stopped; run the same command again to go on from {tmp_path / 'broken'}\n"
    assert not (tmp_path / "broken" / "model.safetensors").exists()

    assert main(command("broken")) == 0
    assert capsys.readouterr().out == f"{rendered}\n{photographs}\n"
    assert sha256(tmp_path / "broken" / "model.safetensors") == sha256(tmp_path / "whole" / "model.safetensors")

    weights = load_file(tmp_path / "whole" / "model.safetensors")
    model = build_described("segformer-street")
    assert model.load_state_dict(weights, strict=True)
    assert all(torch.isfinite(value).all() for value in weights.values())
    rows = [json.loads(line) for line in (tmp_path / "broken" / "log.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [2, 4, 4]
    assert rows[0].keys() == {"step", "labels", "learning_rate", "skipped"}
    assert rows[-1].keys() == {"step", "mIoU rendered", "mIoU town"}


def test_with_a_teacher_and_nothing_rendered(
    folder: Path, tmp_path: Path, make_document: MakeDocument, capsys: pytest.CaptureFixture[str]
) -> None:
    timm = pytest.importorskip("timm")
    from safetensors.torch import save_file

    save_file(timm.create_model("vit_tiny_patch16_224").state_dict(), tmp_path / "vit")
    head = {"weight": (11, 576, 1, 1), "bias": (11,), "feature_mean": (576,), "feature_std": (576,)}
    save_file({name: torch.ones(shape) for name, shape in head.items()}, tmp_path / "head")
    distillation = {"logits_weight": 0.5, "features_weight": 1.0}
    changes = {"batch_rendered": 0, "rendered_pool": 0, "warmup_steps": 0, "decay_steps": 1, "steps": 1}
    recipe = write_recipe(tmp_path, make_document(distillation=distillation, bfloat16=True, **changes))
    command = [str(recipe), "--images", str(folder), "--scenes-held-out", "0", "--out", str(tmp_path / "out")]
    assert main([*command, "--teacher", str(tmp_path / "vit"), str(tmp_path / "head")]) == 0
    assert capsys.readouterr().out == ""  # nothing to judge on
    row = json.loads((tmp_path / "out" / "log.jsonl").read_text().splitlines()[0])
    assert {"teacher logits", "teacher features"} <= row.keys()

    assert "distils: give --teacher BACKBONE HEAD, or drop its distillation" in refusal(capsys, *command)


def test_a_recipe_that_does_not_fit_is_refused(
    folder: Path, tmp_path: Path, make_document: MakeDocument, capsys: pytest.CaptureFixture[str]
) -> None:
    for changes, message in (
        ({"batch_label": 3}, 'unknown key "batch_label"; did you mean "batch_labelled"?'),
        ({"steps": "x"}, "\"steps\" is 'x'"),
        (
            {"model": "segformer-streat"},
            'no model description "segformer-streat"; did you mean "segformer-street"?',
        ),
    ):
        recipe = write_recipe(tmp_path, make_document(**changes))
        assert message in refusal(capsys, recipe, "--images", folder, "--out", tmp_path / "out")
    assert "absent.yaml" in refusal(capsys, tmp_path / "absent.yaml", "--images", folder)


def test_images_that_cannot_be_used_are_refused(
    recipe: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def message(images: Path, *more: object) -> str:
        return refusal(capsys, recipe, "--images", images, "--out", tmp_path / "out", *more)

    assert "does not exist" in message(tmp_path / "absent")
    Image.fromarray(np.full((48, 64), 255, np.uint8)).save(folder / "labels" / "0.png")
    Image.fromarray(np.full((48, 64), 255, np.uint8)).save(folder / "labels" / "1.png")
    assert "nothing is left to learn from" in message(folder)
    Image.fromarray(np.full((48, 64), 11, np.uint8)).save(folder / "labels" / "1.png")
    assert "labels/1.png holds class 11, but the model has classes 0..10" in message(folder)
    (folder / "labels" / "1.png").unlink()
    assert "images/1.png" in message(folder)
    assert not (tmp_path / "out" / "checkpoint.pt").exists()


def test_the_ignored_value_may_be_another(
    recipe: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Image.fromarray(np.full((48, 64), 11, np.uint8)).save(folder / "labels" / "1.png")
    message = refusal(capsys, recipe, "--images", folder, "--out", tmp_path / "out", "--ignore-index", 11)
    assert "labels/0.png holds class 255" in message  # now 255 is no longer the one that is ignored


def test_places_and_numbers_that_cannot_be_used_are_refused(
    recipe: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        assert f"cannot write into {out}" in refusal(capsys, recipe, "--images", folder, "--out", out)
    message = refusal(capsys, recipe, "--images", folder, "--out", tmp_path, "--scenes-held-out", -1)
    assert message == "error: --scenes-held-out is -1, but 0 or more are possible"


def test_a_folder_of_another_run_is_refused(
    recipe: Path,
    folder: Path,
    tmp_path: Path,
    make_document: MakeDocument,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["--images", str(folder), "--scenes-held-out", "0", "--out", str(tmp_path / "out")]
    changes = {"batch_rendered": 0, "rendered_pool": 0, "warmup_steps": 0, "decay_steps": 1, "steps": 1}
    assert main([str(write_recipe(tmp_path, make_document(**changes))), *command]) == 0
    capsys.readouterr()
    other = write_recipe(tmp_path, make_document(seed=9, weight_decay=0.1, **changes))
    assert "made with another recipe (optimiser.weight_decay, seed differ)" in refusal(capsys, other, *command)


@pytest.mark.parametrize("arguments", [[], ["--no-such-option"]])
def test_arguments_that_are_wrong_end_with_2(
    arguments: list[str], recipe: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main([str(recipe), *arguments])
    assert caught.value.code == 2
    assert "--images" in capsys.readouterr().err or arguments


def test_help_says_what_the_command_does(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    shown = capsys.readouterr().out
    assert "python -m gearshift.retrain" in shown
    assert "--scenes-held-out" in shown


def test_as_a_module(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gearshift.retrain", "absent.yaml", "--images", "absent"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr == ("error: cannot read absent.yaml: No such file or directory; give an existing YAML file\n")
