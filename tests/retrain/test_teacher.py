"""The teacher: frozen, run once, centred on whole patches; what does not fit it is refused in one line."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional as F

from gearshift.errors import CheckpointError, DataError, InputError
from gearshift.paths.data import LabelledFrame
from gearshift.retrain.teacher import TeacherMaps, teach

timm = pytest.importorskip("timm")

MakeFrames = Callable[..., list[LabelledFrame]]
CLASSES = 5
# Two rows and three columns of whole patches: 4 rows above and below are left out, 3 and 4 columns beside.
SIZE = (2 * 16 + 8, 3 * 16 + 7)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A backbone and a head with random weights."""
    folder = tmp_path_factory.mktemp("teacher")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        backbone = timm.create_model("vit_tiny_patch16_224")
        head = {
            "weight": torch.randn(CLASSES, 576, 1, 1) * 0.1,
            "bias": torch.randn(CLASSES),
            "feature_mean": torch.randn(576),
            "feature_std": torch.rand(576) + 0.5,
        }
    save_file(backbone.state_dict(), folder / "vit.safetensors")
    save_file(head, folder / "head.safetensors")
    return folder / "vit.safetensors", folder / "head.safetensors"


def ignore(done: int) -> None:
    """Take progress that no one looks at."""


@pytest.fixture
def frames(make_frames: MakeFrames) -> list[LabelledFrame]:
    return make_frames(2, size=SIZE)


@pytest.fixture
def maps(files: tuple[Path, Path], frames: list[LabelledFrame]) -> TeacherMaps:
    return teach(*files, frames, ignore)


def reference(files: tuple[Path, Path], image: np.ndarray) -> tuple[Tensor, Tensor]:
    """Features and logits of one image, from hooks on the blocks in the backbone's own forward pass."""
    model = timm.create_model("vit_tiny_patch16_224", img_size=image.shape[:2]).eval()
    state, head = load_file(files[0]), load_file(files[1])
    grid = state["pos_embed"][0, 1:].T.reshape(1, 192, 14, 14)
    grid = F.interpolate(grid, size=(image.shape[0] // 16, image.shape[1] // 16), mode="bicubic")
    state["pos_embed"] = torch.cat([state["pos_embed"][:, :1], grid[0].reshape(192, -1).T[None]], dim=1)
    model.load_state_dict(state)
    taken: dict[int, Tensor] = {}
    for index in (5, 8, 11):
        model.blocks[index].register_forward_hook(
            lambda module, given, output, index=index: taken.update({index: model.norm(output)})
        )
    with torch.no_grad():
        model(torch.from_numpy(image.astype(np.float32) / 127.5 - 1).permute(2, 0, 1)[None])
    features = torch.cat([taken[index][0, 1:] for index in (5, 8, 11)], dim=1)
    features = (features - head["feature_mean"]) / head["feature_std"]
    logits = features @ head["weight"][:, :, 0, 0].T + head["bias"]
    shape = (image.shape[0] // 16, image.shape[1] // 16, -1)
    return features.reshape(shape), logits.reshape(shape)


def test_maps_are_the_mean_of_an_image_and_its_mirror(
    files: tuple[Path, Path], frames: list[LabelledFrame], maps: TeacherMaps
) -> None:
    assert maps.features.shape == (2, 576, 2, 3)
    assert maps.logits.shape == (2, CLASSES, 2, 3)
    assert maps.features.dtype == maps.logits.dtype == torch.float16
    image = frames[1].image[4:36, 3:51]
    as_is, mirrored = reference(files, image), reference(files, image[:, ::-1].copy())
    for got, one, other in zip((maps.features, maps.logits), as_is, mirrored, strict=True):
        wanted = ((one + other.flip(1)) / 2).permute(2, 0, 1)
        assert torch.allclose(got[1].float(), wanted, atol=0.01, rtol=0.002)


def test_maps_say_which_part_of_the_image_they_cover(maps: TeacherMaps) -> None:
    assert (maps.top, maps.bottom) == (4 / 40, 36 / 40)
    assert (maps.left, maps.right) == (3 / 55, 51 / 55)


def test_an_image_of_whole_patches_is_covered(files: tuple[Path, Path], make_frames: MakeFrames) -> None:
    maps = teach(*files, make_frames(1, size=(32, 48)), ignore)
    assert (maps.top, maps.bottom, maps.left, maps.right) == (0, 1, 0, 1)


def test_the_backbone_is_frozen_in_evaluation_mode(
    files: tuple[Path, Path], frames: list[LabelledFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    create = timm.create_model
    monkeypatch.setattr(timm, "create_model", lambda *given, **named: made.append(create(*given, **named)) or made[0])
    maps = teach(*files, frames, ignore)
    (backbone,) = made
    assert not any(module.training for module in backbone.modules())
    assert not any(parameter.requires_grad for parameter in backbone.parameters())
    assert all(parameter.grad is None for parameter in backbone.parameters())
    assert not maps.features.requires_grad
    assert not maps.features.is_inference()  # the student's backward pass meets them
    weights = load_file(files[0])
    for name, value in backbone.state_dict().items():
        assert name == "pos_embed" or torch.equal(value, weights[name])


def test_progress_counts_photographs(files: tuple[Path, Path], frames: list[LabelledFrame]) -> None:
    seen: list[int] = []
    teach(*files, frames, seen.append)
    assert seen == [1, 2]


def refusal(error: type[InputError], *given: Any) -> str:
    with pytest.raises(error) as caught:
        teach(*given, ignore)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_photographs_of_several_sizes_are_refused(
    files: tuple[Path, Path], frames: list[LabelledFrame], make_frames: MakeFrames
) -> None:
    message = refusal(DataError, *files, [*frames, *make_frames(1, size=(48, 64))])
    assert message.startswith("photograph 2 is 64x48, but the first is 55x40")


def test_photographs_below_a_patch_are_refused(files: tuple[Path, Path], make_frames: MakeFrames) -> None:
    assert "64x15, smaller than the teacher's 16x16 patch" in refusal(DataError, *files, make_frames(1, size=(15, 64)))
    assert "no photograph" in refusal(DataError, *files, [])


def test_files_that_are_absent_or_damaged_are_refused(
    files: tuple[Path, Path], frames: list[LabelledFrame], tmp_path: Path
) -> None:
    (tmp_path / "damaged").write_bytes(b"not safetensors")
    for name in ("absent", "damaged"):
        for pair in ((tmp_path / name, files[1]), (files[0], tmp_path / name)):
            assert f"cannot read the teacher's weights {tmp_path / name}" in refusal(CheckpointError, *pair, frames)


def test_another_backbone_is_refused(files: tuple[Path, Path], frames: list[LabelledFrame], tmp_path: Path) -> None:
    weights = load_file(files[0])
    for name, state in {
        "head": load_file(files[1]),
        "wider": weights | {"norm.weight": torch.zeros(193)},
        "cut": {key: value for key, value in weights.items() if key != "norm.weight"},
        "places": weights | {"pos_embed": torch.zeros(1, 8, 192)},
        "flat": weights | {"pos_embed": torch.zeros(7)},
    }.items():
        save_file(state, tmp_path / name)
        assert "does not hold timm's vit_tiny_patch16_224" in refusal(
            CheckpointError, tmp_path / name, files[1], frames
        )


@pytest.mark.parametrize("name", ["weight", "bias", "feature_mean", "feature_std"])
def test_another_head_is_refused(
    files: tuple[Path, Path], frames: list[LabelledFrame], tmp_path: Path, name: str
) -> None:
    head = load_file(files[1])
    save_file({key: value for key, value in head.items() if key != name}, tmp_path / "cut")
    assert f"{name} is missing" in refusal(CheckpointError, files[0], tmp_path / "cut", frames)
    for number, odd in enumerate((torch.zeros(()), torch.zeros(4, 4), torch.zeros(577))):
        file = tmp_path / str(number)
        save_file(head | {name: odd}, file)
        assert f"{file} is no head for this teacher" in refusal(CheckpointError, files[0], file, frames)


def test_a_missing_library_is_named(
    files: tuple[Path, Path], frames: list[LabelledFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "timm", None)
    assert refusal(InputError, *files, frames) == (
        "the teacher needs timm; install it with: pip install 'gearshift[timm]'"
    )


def test_frames_are_not_changed(files: tuple[Path, Path], frames: list[LabelledFrame]) -> None:
    before = [replace(frame, image=frame.image.copy(), labels=frame.labels.copy()) for frame in frames]
    teach(*files, frames, ignore)
    for frame, copy in zip(frames, before, strict=True):
        assert np.array_equal(frame.image, copy.image)
        assert np.array_equal(frame.labels, copy.labels)
