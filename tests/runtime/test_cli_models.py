"""`runtime build`, `paths` and `bench` of models other than SegFormer: classifiers, detectors, and the rest."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn
from transformers import ViTConfig, ViTForImageClassification

from gearshift.paths.bundle import read_bundle
from gearshift.runtime import DynamicModel
from tests.paths.specimens.detr import SPECIMENS as DETECTORS
from tests.support import Refused, Run

ESTIMATE = ("--meter", "cpu-time")
SHORT = ("--seconds", "0.3", "--fps", "20", "--pictures", "2", "--baseline-seconds", "0.1", "--no-calibrate")
StrictJson = Callable[[str], Any]


@pytest.fixture
def classifier(tmp_path: Path) -> Path:
    """A tiny ViT of transformers with four classes and its processor."""
    torch.manual_seed(1)
    config = ViTConfig(
        image_size=32, patch_size=8, hidden_size=24, num_attention_heads=3, num_hidden_layers=3, intermediate_size=48
    )
    config.id2label = {0: "ant", 1: "bee", 2: "cat", 3: "dog"}
    ViTForImageClassification(config).save_pretrained(tmp_path / "vit")
    (tmp_path / "vit" / "preprocessor_config.json").write_text('{"size": {"height": 32, "width": 32}}')
    return tmp_path / "vit"


@pytest.fixture
def images(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for name in ("ant", "cat"):
        (tmp_path / "images" / name).mkdir(parents=True)
        for number in range(2):
            pixels = rng.integers(0, 255, (40, 50, 3), np.uint8)
            Image.fromarray(pixels).save(tmp_path / "images" / name / f"{number}.png")
    return tmp_path / "images"


def space(folder: Path, text: str) -> Path:
    file = folder / "space.yaml"
    file.write_text(f"{{{text}, timing_rounds: 1, recombined: 1, floor: 0.01}}")
    return file


def test_a_classifier_is_built_judged_by_top_1_and_served(
    run: Run, classifier: Path, images: Path, tmp_path: Path, read_strict_json: StrictJson
) -> None:
    limits = space(
        tmp_path, 'blocks: false, size: [24x24], merge: [10%], heads: [60%], mlp: [50%], lowrank: ["falor:40%"]'
    )
    bundle = tmp_path / "bundle"
    outcome = run(
        *("build", classifier, "--out", bundle, "--data", images, "--calibration", images, "--space", limits),
        *(*ESTIMATE, "--copy-checkpoint", "--json", "-"),
    )
    assert outcome.code == 0, outcome.err
    found = read_strict_json(outcome.out)
    assert (found["task"], found["family"], found["classes"]) == ("classification", "vit", ["ant", "bee", "cat", "dog"])
    assert {path["quality"]["metric"] for path in found["paths"]} == {"top-1"}
    assert (found["input_height"], found["input_width"]) == (32, 32)
    assert run("paths", bundle).code == 0
    served = run("bench", bundle, "--budget", "500ms", "--data", images, *SHORT, *ESTIMATE, "--json", "-")
    assert served.code == 0, served.err
    assert read_strict_json(served.out)["run"]["quality"]["metric"] == "top-1"
    with DynamicModel.load(bundle) as model:
        assert model(torch.zeros(1, 3, 32, 32)).logits.shape == (1, 4)


def test_a_detector_is_judged_by_agreement(
    run: Run, images: Path, tmp_path: Path, read_strict_json: StrictJson
) -> None:
    detector: Any = next(item for item in DETECTORS if type(item.make()).__name__ == "DetrForObjectDetection").make()
    detector.save_pretrained(tmp_path / "detr")
    (tmp_path / "detr" / "preprocessor_config.json").write_text('{"size": {"height": 64, "width": 96}}')
    bundle = tmp_path / "bundle"
    limits = space(tmp_path, "blocks: false, size: [75%], heads: [], mlp: []")
    outcome = run(
        "build", tmp_path / "detr", "--out", bundle, "--data", images, "--space", limits, *ESTIMATE, "--json", "-"
    )
    assert outcome.code == 0, outcome.err
    found = read_strict_json(outcome.out)
    assert (found["task"], found["data"]["labelled"]) == ("detection", False)
    assert {path["quality"]["metric"] for path in found["paths"]} == {"agreement"}
    assert run("bench", bundle, "--budget", "500ms", *SHORT, *ESTIMATE).code == 0


def test_a_model_without_a_family_is_told_what_is_missing_and_built_all_the_same(
    run: Run, images: Path, tmp_path: Path, read_strict_json: StrictJson
) -> None:
    torch.manual_seed(2)
    module: nn.Module = timm.create_model("resnet10t", pretrained=False)
    save_file(module.state_dict(), tmp_path / "weights.safetensors")
    bundle = tmp_path / "bundle"
    limits = space(tmp_path, 'blocks: false, size: [], prune: ["macs:60%"]')
    outcome = run(
        *(
            "build",
            f"timm:resnet10t={tmp_path / 'weights.safetensors'}",
            "--out",
            bundle,
            "--data",
            images,
            "--unlabelled",
        ),
        *("--space", limits, *ESTIMATE, "--copy-checkpoint", "--json", "-"),
    )
    assert outcome.code == 0, outcome.err
    assert "no family of paths knows ResNet: it has no exact rewrites of its own" in outcome.err
    assert "prune=" in outcome.err  # the target became a percentage that was tried
    assert read_strict_json(outcome.out)["task"] == "classification"
    (tmp_path / "weights.safetensors").unlink()
    moved = bundle.rename(tmp_path / "moved")
    assert read_bundle(moved).load().family.name == "generic"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("resnet10t",), "the weights of timm:resnet10t could not be fetched from the hub; give a file"),
        (("vit-base",), "could not be fetched from the hub"),
        (("resnet10t", "--random-init", "--ignore-index", "3", "--data", "."), "--ignore-index 3 is for segmentation"),
    ],
)
def test_what_cannot_be_built_is_refused(
    arguments: tuple[str, ...], said: str, refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert said in refused("build", *arguments, "--out", tmp_path / "out")
