"""The bundle that ships with Gearshift: whole, small, honest about itself, and good at what its card says."""

from pathlib import Path

import pytest
import torch

from gearshift.paths.bundle import read_bundle
from gearshift.paths.data import CAMVID_CLASSES, SceneStream, SegmentationFolder
from gearshift.paths.judge import Judge
from gearshift.paths.spec import PathSpec
from gearshift.profiler.meters import open_meter
from gearshift.retrain.recipe import HELD_OUT_SCENES
from gearshift.runtime import Budget, DynamicModel
from gearshift.runtime.bench.bench import default_bundle

CAMVID = Path(__file__).resolve().parents[2] / "shared" / "data" / "camvid" / "val"
LARGEST_BYTES = 16_000_000


def test_it_is_whole_and_small() -> None:
    bundle = read_bundle(default_bundle())
    assert bundle.record.classes == CAMVID_CLASSES
    assert bundle.record.checkpoint.trained
    assert sum(file.stat().st_size for file in default_bundle().rglob("*.safetensors")) <= LARGEST_BYTES


def test_its_card_says_what_it_may_be_used_for() -> None:
    card = (default_bundle() / "README.md").read_text(encoding="utf-8")
    for fact in ("CC BY-NC", "research", "mIoU", "segformer-street.yaml"):
        assert fact in card


def test_its_frontier_has_at_least_six_paths_that_each_earn_their_place() -> None:
    record = read_bundle(default_bundle()).record
    frontier = [path for path in record.paths if "frontier" in path.roles]
    assert len(frontier) >= 6
    for path in frontier:
        assert path.quality is not None
        assert path.quality.metric == "mIoU"
        assert path.energy.gross_j is not None


def test_its_lossless_path_is_as_good_as_the_stock_model() -> None:
    record = read_bundle(default_bundle()).record
    stock, lossless = record.with_role("stock").quality, record.with_role("lossless").quality
    assert stock is not None
    assert lossless is not None
    assert lossless.value == pytest.approx(stock.value, abs=1e-4)  # 0.01 points


def test_every_path_answers_a_frame_under_a_budget() -> None:
    frame = torch.zeros(1, 3, 96, 128)
    with DynamicModel.load(default_bundle(), meter=open_meter("none")) as model:
        model.budget = Budget(latency="10 s")
        for path_id in model.paths:
            model.pin(path_id)
            assert model(frame).logits.shape == (1, len(CAMVID_CLASSES), 24, 32)


def test_it_segments_scenes_that_it_was_not_trained_on() -> None:
    factory = read_bundle(default_bundle()).load()
    frames = [SceneStream(seed=HELD_OUT_SCENES + 500 + seed).frame(seed * 11) for seed in range(6)]
    quality = Judge(factory.stock, frames).judge(factory.build(PathSpec.parse("lossless")))
    assert quality.value > 0.4


@pytest.mark.data
@pytest.mark.skipif(not CAMVID.is_dir(), reason="the CamVid photographs are not beside the repository")
def test_it_is_as_good_on_photographs_as_its_record_says() -> None:
    bundle = read_bundle(default_bundle())
    factory = bundle.load()
    frames = list(SegmentationFolder(CAMVID, num_classes=len(CAMVID_CLASSES), ignore_index=11))
    quality = Judge(factory.stock, frames).judge(factory.build(PathSpec.parse("lossless")))
    recorded = bundle.record.with_role("lossless").quality
    assert recorded is not None
    assert quality.value == pytest.approx(recorded.value, abs=1e-3)
