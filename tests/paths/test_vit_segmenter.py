"""`VitSegmenter`: logits that lie where they belong; real weights, where they are beside the repository."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import nn

from gearshift.errors import ModelError
from gearshift.paths.build import PathFactory
from gearshift.paths.data import CAMVID_CLASSES, SegmentationFolder
from gearshift.paths.quality import class_map, mean_iou
from gearshift.paths.spec import PathSpec
from gearshift.paths.vit.segmenter import VitSegmenter, load_segmenter
from tests.paths.specimens.vit import CLASSES, PATCH, TAKEN, segmenter, timm_vit

timm = pytest.importorskip("timm")

DATA = Path(__file__).parents[3] / "shared" / "data"
WEIGHTS = DATA / "weights" / "vit_tiny_patch16_224.safetensors"
HEAD = DATA / "weights" / "vit_tiny_camvid_head.safetensors"
beside = pytest.mark.skipif(not HEAD.is_file(), reason="the real weights are not beside the repository")


def test_features_are_those_of_the_blocks_normalised_and_standardised() -> None:
    """Against timm's own way to take features of several blocks."""
    model = segmenter().double()
    pixels = torch.randn(2, 3, 32, 40, dtype=torch.float64)
    taken = model.backbone.forward_intermediates(pixels, indices=list(TAKEN), norm=True, intermediates_only=True)
    expected = (torch.cat(taken, dim=1) - model.feature_mean[:, None, None]) / model.feature_std[:, None, None]
    assert torch.allclose(model.features(pixels), expected)
    assert torch.allclose(model(pixels), model.classifier(expected))


@pytest.mark.parametrize("size", [(32, 40), (35, 47), (39, 40)])
def test_upsampled_logits_lie_where_the_patches_do(size: tuple[int, int]) -> None:
    """A head that reads colours off the embedding: the boundary of two halves stays at the middle of the frame."""
    model = segmenter()
    backbone = model.backbone
    with torch.no_grad():
        for parameter in (*backbone.parameters(), *model.classifier.parameters()):
            parameter.zero_()
        backbone.patch_embed.proj.weight[:2, 0] = torch.tensor([1.0, -1.0])[:, None, None] / PATCH**2
        backbone.norm.weight.fill_(1)
        model.feature_mean.zero_()
        model.feature_std.fill_(1)
        model.classifier.weight[0, 0], model.classifier.weight[1, 1] = 1, 1
    height, width = size
    pixels = torch.ones(1, 3, height, width)
    pixels[..., : width // 2] = -1
    for text in ("stock", "lossless", "lossless+norms"):
        logits = PathFactory(model).build(PathSpec.parse(text))(pixels)
        assert logits.shape == (1, CLASSES, height // PATCH, width // PATCH)
        classes = class_map(logits, size)[0]
        assert (classes[:, : width // 2 - PATCH // 2] == 1).all()
        assert (classes[:, width // 2 + PATCH // 2 :] == 0).all()


def test_backbones_and_blocks_that_do_not_fit_are_refused() -> None:
    for backbone, blocks, match in (
        (nn.Linear(2, 2), TAKEN, "not on Linear"),
        (timm_vit(distilled=True), TAKEN, "not on VisionTransformerDistilled"),
        (timm_vit(reg_tokens=2), TAKEN, "one class token"),
        (timm_vit(no_embed_class=True), TAKEN, "one class token that has a position"),
        (timm_vit(embed_norm_layer="layernorm"), TAKEN, "may not normalise its patches"),
        (timm_vit(), (1, 4), "ascending numbers from 0 to 3"),
        (timm_vit(), (2, 1), "ascending"),
        (timm_vit(), (), "ascending"),
    ):
        with pytest.raises(ModelError, match=match):
            VitSegmenter(backbone, blocks, ["a", "b"])


def photographs(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Evenly drawn photographs, as the weights' card prepares them, with their classes."""
    with (DATA / "imagenet_dev" / "labels.csv").open() as file:
        rows = list(csv.DictReader(file))
    rows = rows[:: len(rows) // count][:count]
    images = []
    for row in rows:
        image: Any = Image.open(DATA / "imagenet_dev" / "images" / row["file"]).convert("RGB")
        image = image.resize((248, 248), Image.Resampling.BICUBIC).crop((12, 12, 236, 236))
        images.append(torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 127.5 - 1)
    return torch.stack(images), torch.tensor([int(row["label"]) for row in rows])


@pytest.mark.data
@beside
def test_a_real_model_is_the_same_on_real_photographs_and_loses_little_when_tokens_merge() -> None:
    model = timm.create_model("vit_tiny_patch16_224").eval()
    model.load_state_dict(load_file(WEIGHTS))
    factory = PathFactory(model)
    images, classes = photographs(32)
    with torch.inference_mode():
        expected = model(images)
        for text in ("lossless", "lossless+norms"):
            got = factory.build(PathSpec.parse(text))(images)
            assert (got - expected).abs().max() / expected.abs().max() < 1e-5
            assert torch.equal(got.argmax(1), expected.argmax(1))
        right = (expected.argmax(1) == classes).float().mean()
        merged = factory.build(PathSpec.parse("lossless+merge=8"))(images)
        assert right > 0.75
        assert (merged.argmax(1) == classes).float().mean() > right - 0.1


@pytest.mark.data
@beside
def test_the_real_segmenter_segments_and_merging_tokens_costs_it_little() -> None:
    """All 101 photographs of the validation split: mIoU 58.0 %; these every twentieth."""
    factory = PathFactory(load_segmenter(WEIGHTS, HEAD))
    folder = SegmentationFolder(DATA / "camvid" / "val", num_classes=len(CAMVID_CLASSES), ignore_index=11)
    frames = [folder[index] for index in range(0, len(folder), 20)]

    def quality(text: str) -> float:
        path = factory.build(PathSpec.parse(text))
        half = torch.full((1, 3, 1, 1), 0.5)
        mean, std = (torch.tensor(v)[None, :, None, None] for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
        return mean_iou(lambda x: path(((x * std + mean) - half) / half), frames, len(CAMVID_CLASSES)).value

    stock = quality("stock")
    assert stock > 0.52
    assert quality("lossless") == pytest.approx(stock, abs=1e-3)
    assert quality("lossless+merge=16") > stock - 0.02
