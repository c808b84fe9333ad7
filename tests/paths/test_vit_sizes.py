"""ViT at other sizes than its own: positions resampled as the libraries do; sizes that do not fit are refused."""

from typing import Any

import pytest
import torch
from torch import Tensor

from gearshift.errors import InputError, PathRefusedError
from gearshift.paths.build import PathFactory
from gearshift.paths.cost import count_macs
from gearshift.paths.spec import PathSpec
from gearshift.paths.vit.embedding import KEPT_SIZES
from gearshift.paths.vit.family import VitFamily
from gearshift.paths.vit.sizes import sizes_knob
from tests.paths.specimens import SPECIMENS
from tests.paths.specimens.vit import PATCH, SIZE, SQUARE, lossless_macs, patches, segmenter, timm_vit

timm = pytest.importorskip("timm")

SIZES = ((32, 40), (40, 32), (8, 8), (64, 24), (16, 96))


def frames(size: tuple[int, int], dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(2, 3, *size, generator=torch.Generator().manual_seed(sum(size)), dtype=dtype)


def path_of(model: Any, text: str) -> Any:
    return PathFactory(model).build(PathSpec.parse(text))


def close(ours: Tensor, theirs: Tensor) -> bool:
    return bool((ours - theirs).abs().max() / theirs.abs().max() < 1e-10)


@pytest.mark.parametrize("distilled", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_lossless_takes_sizes_as_timm_with_dynamic_sizes(size: tuple[int, int], distilled: bool) -> None:
    model = timm_vit(distilled).double()
    dynamic = timm_vit(distilled, dynamic_img_size=True).double()
    path = path_of(model, "lossless")
    with torch.inference_mode():
        assert close(path(frames(size)), dynamic(frames(size)))
        assert close(path(frames(size)), dynamic(frames(size)))  # now from the positions that were kept
    assert count_macs(path, frames(size)[:1]) == lossless_macs(patches(*size), 1 + distilled, 4)


@pytest.mark.parametrize("name", ["vit of transformers", "deit of transformers", "deit with a teacher"])
@pytest.mark.parametrize("size", [*SIZES, (37, 45)])
def test_lossless_takes_sizes_as_transformers_with_interpolation(size: tuple[int, int], name: str) -> None:
    model: Any = SPECIMENS[name].make().double()
    whole = tuple(side // PATCH * PATCH for side in size)
    pixels = frames(size)[:, :, : whole[0], : whole[1]]
    with torch.inference_mode():
        assert close(path_of(model, "lossless")(pixels).logits, model(pixels, interpolate_pos_encoding=True).logits)


def test_padding_to_whole_patches_is_done_where_the_stock_model_does_it() -> None:
    model = timm_vit(dynamic_img_size=True, dynamic_img_pad=True).double()
    path = path_of(model, "lossless")
    for size in ((33, 41), (32, 47), (5, 70)):
        with torch.inference_mode():
            assert close(path(frames(size)), model(frames(size)))
            assert path_of(model, "size=30x30")(frames(size)).isfinite().all()


def test_kept_positions_follow_the_weights_and_do_not_grow() -> None:
    model = timm_vit().double()
    path, size = path_of(model, "lossless"), (64, 24)
    with torch.inference_mode():
        before = path(frames(size))
    with torch.no_grad():
        model.pos_embed.mul_(2)
    with torch.inference_mode():
        after = path(frames(size))
        assert not close(after, before)
        assert close(after, path_of(model, "lossless")(frames(size)))
        for rows in range(1, 3 * KEPT_SIZES):
            path(frames((8 * rows, 16)))
    assert len(path.inner.embedding._resampled) <= KEPT_SIZES


def test_gradients_reach_resampled_positions() -> None:
    model = timm_vit()
    path = path_of(model, "lossless")
    with torch.inference_mode():
        path(frames((64, 24), torch.float32))
    path(frames((64, 24), torch.float32)).sum().backward()
    assert model.pos_embed.grad is not None
    assert model.pos_embed.grad.abs().max() > 0


def refused(path: Any, size: tuple[int, int]) -> str:
    with pytest.raises(InputError) as caught:
        path(torch.zeros(1, 3, *size))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_frame_of_another_size_is_refused_with_the_size_and_the_option() -> None:
    model = timm.create_model("vit_tiny_patch16_224", depth=1).eval()
    message = refused(path_of(model, "stock"), (256, 256))
    assert message == (
        "a frame of 256x256 does not fit: this model takes 224x224 alone; resize frames, or use a path with "
        '"size=224x224" (which resizes them) or "lossless" (which resamples positions, for multiples of 16x16)'
    )
    for option in ("lossless", "size=224x224"):
        path = path_of(model, option)
        assert path(torch.zeros(1, 3, 256, 256)).shape == (1, 1000)
    own, larger = (count_macs(path_of(model, "lossless"), torch.zeros(1, 3, side, side)) for side in (224, 256))
    assert larger - own > 60 * 192 * 768  # 60 patches more


def test_sizes_that_are_not_of_whole_patches_are_refused() -> None:
    for model in (timm_vit(), timm_vit(dynamic_img_size=True), SPECIMENS["vit of transformers"].make()):
        text = "its height must be a multiple of 8 and its width one of 8"
        assert text in refused(path_of(model, "lossless"), (32, 41))
        with pytest.raises(
            PathRefusedError, match=r"size=30x40 does not fit: a frame of 30x40 is not of whole patches"
        ):
            path_of(model, "size=30x40")
    assert "takes 32x32 alone" in refused(path_of(SPECIMENS["vit of transformers"].make(), "skip=0.1"), (40, 32))
    assert path_of(timm_vit(dynamic_img_size=True), "skip=0.1")(torch.zeros(1, 3, 40, 40)).shape == (1, 7)


def test_a_segmenter_takes_every_size_from_a_patch_up() -> None:
    path = path_of(segmenter(), "lossless")
    assert "the minimum is 8x8" in refused(path, (7, 40))
    for size, grid in (((8, 8), (1, 1)), ((15, 41), (1, 5)), ((47, 31), (5, 3))):
        for text in ("stock", "lossless", "size=75%", "lossless+size=16x16"):
            assert path_of(segmenter(), text)(torch.zeros(1, 3, *size)).shape == (1, 7, *grid)


def test_the_size_knob_offers_whole_patches() -> None:
    for patch, own in ((14, 224), (16, 224), (8, 40)):
        model = timm_vit(img_size=own, patch_size=patch, depth=1)
        settings: list[Any] = list(sizes_knob(model).settings)
        assert all(item.height % patch == item.width % patch == 0 and 0 < item.height < own for item in settings)
        assert [item.height for item in settings] == sorted({item.height for item in settings}, reverse=True)
    assert sizes_knob(segmenter()).settings[0].value() == "90%"
    assert VitFamily().check_input(timm_vit(), *SIZE) is None
    with pytest.raises(InputError, match="takes 32x40 alone"):
        VitFamily().check_input(timm_vit(), *SQUARE)
