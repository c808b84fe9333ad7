"""What tests of several folders share: a small bundle of known costs, and strict JSON."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import SegformerConfig, SegformerForSemanticSegmentation

from gearshift.paths.build import PathFactory
from gearshift.paths.bundle import Bundle, write_bundle
from gearshift.paths.data import CAMVID_CLASSES, IMAGENET_MEAN, IMAGENET_STD
from gearshift.paths.make import versions
from gearshift.paths.models import CHECKPOINT_FOLDER, save_checkpoint, weights_hash
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
from gearshift.paths.spec import PathSpec
from gearshift.profiler.device import identify

HEIGHT, WIDTH = 64, 96
IDLE_W = 1.0
# (path, roles, quality, latency in ms, net energy in J): dearer paths are better, the last one much cheaper.
PATHS: tuple[tuple[str, tuple[str, ...], float, float, float], ...] = (
    ("stock", ("stock",), 0.8, 40.0, 0.10),
    ("lossless", ("lossless", "frontier"), 0.8, 30.0, 0.08),
    ("lossless+size=75%", ("frontier",), 0.7, 20.0, 0.05),
    ("lossless+size=50%", ("frontier",), 0.5, 10.0, 0.02),
)


@pytest.fixture(autouse=True)
def device_figures(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is measured once and kept by device stays out of the user's own folder; the tests share it."""
    monkeypatch.setenv("GEARSHIFT_CACHE", str(tmp_path_factory.getbasetemp() / "device-figures"))


def tiny_segformer(labels: tuple[str, ...] = CAMVID_CLASSES) -> Any:
    """A stock SegFormer that takes a few milliseconds, with random weights."""
    config = SegformerConfig(
        hidden_sizes=[8, 8, 16, 16],
        depths=[1, 1, 1, 1],
        num_attention_heads=[1, 1, 2, 2],
        mlp_ratios=[2, 2, 2, 2],
        decoder_hidden_size=16,
        id2label=dict(enumerate(labels)),
        label2id={label: number for number, label in enumerate(labels)},
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return SegformerForSemanticSegmentation(config).eval()


def write_small_bundle(
    folder: Path,
    labels: tuple[str, ...] = CAMVID_CLASSES,
    *,
    energy: bool = True,
    inside: bool = True,
) -> Bundle:
    """A bundle over `tiny_segformer` whose figures are those of `PATHS`, made up.

    Args:
        folder: Where to.
        labels: The model's classes.
        energy: Whether it holds energy figures.
        inside: Whether it carries the weights; else it refers to `folder` with `-weights` behind it.
    """
    module = tiny_segformer(labels)
    weights = folder.with_name(f"{folder.name}-weights")
    if not inside:
        module.save_pretrained(weights)
    factory = PathFactory(module)
    record = BundleRecord(
        gearshift="0.1.0",
        created="2026-01-01T00:00:00+00:00",
        family="segformer",
        checkpoint=CheckpointRecord(
            reference=CHECKPOINT_FOLDER if inside else f"hf:{weights}",
            weights_sha256=weights_hash(module),
            trained=False,
        ),
        classes=labels,
        input_height=HEIGHT,
        input_width=WIDTH,
        mean=IMAGENET_MEAN,
        std=IMAGENET_STD,
        data=DataRecord(name="made up", images=1, labelled=True),
        device=identify("cpu").to_dict(),
        versions=versions(),
        meter=MeterRecord(
            name="made-up",
            source="measured:made-up" if energy else "none",
            boundary="made up",
            idle_power_w=IDLE_W if energy else None,
            idle_how="made up",
        ),
        files={},
        paths=tuple(path_record(*row, energy=energy) for row in PATHS),
    )
    for path in record.paths:
        factory.build(path.spec)
    derived = {name: tensor.cpu() for name, tensor in factory.derived.tensors().items()}
    return write_bundle(folder, record, derived, partial(save_checkpoint, module) if inside else None)


def path_record(
    text: str, roles: tuple[Any, ...], quality: float, ms: float, net_j: float, *, energy: bool
) -> PathRecord:
    """What a bundle says of a path."""
    return PathRecord(
        transforms=PathSpec.parse(text).to_json(),
        roles=roles,
        quality=QualityRecord(metric="mIoU", value=quality, images=1),
        latency=LatencyRecord(
            median_ms=ms,
            p95_ms=1.1 * ms,
            min_ms=ms,
            iqr_ms=0.1 * ms,
            n=10,
            first_call_ms=ms,
            source="measured:made-up",
        ),
        energy=EnergyRecord(
            gross_j=net_j + IDLE_W * ms / 1e3 if energy else None,
            net_j=net_j if energy else None,
            spread_j=0.0 if energy else None,
            power_w=IDLE_W + net_j / ms * 1e3 if energy else None,
            windows=5 if energy else 0,
            source="measured:made-up" if energy else "none",
            reason=None if energy else "no meter was chosen",
        ),
        macs=1000,
        extra_bytes=0,
        largest_difference=0.0 if roles != ("frontier",) else None,
    )


@pytest.fixture(scope="session")
def small_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a small bundle that carries its weights; only to be read."""
    return write_small_bundle(tmp_path_factory.mktemp("bundles") / "small").folder


@pytest.fixture(scope="session")
def make_bundle_at() -> Callable[..., Bundle]:
    """`write_small_bundle`, for tests that need a bundle of their own."""
    return write_small_bundle


@pytest.fixture(scope="session")
def read_strict_json() -> Callable[[str], Any]:
    """Parse JSON as strict parsers do: `NaN` and `Infinity` are refused."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    return lambda text: json.loads(text, parse_constant=refuse)
