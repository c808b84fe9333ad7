"""UPerNet beyond the properties of every path: shifted sums, totals at full size, refusals."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from gearshift.errors import InputError, PathRefusedError
from gearshift.paths.build import PathFactory, build_path
from gearshift.paths.knobs import turn
from gearshift.paths.models import load_model
from gearshift.paths.spec import PathSpec
from gearshift.paths.upernet.shifted import _kept_strips, add_shifted, stacked_taps
from gearshift.profiler import count
from tests.paths.specimens.upernet import lossless_macs, on_convnext, on_resnet, on_swin, stock_macs

LOSSLESS = PathSpec.parse("lossless")
SWIN_T = {"embed": 96, "depths": (2, 2, 6, 2), "window": 7, "ratio": 4, "hidden": 512, "classes": 150}
SIDES = st.integers(1, 40)


@given(small=st.tuples(SIDES, SIDES), large=st.tuples(SIDES, SIDES), batch=st.integers(1, 2))
def test_shifted_sums_are_the_convolution_of_the_upsampled_map(
    small: tuple[int, int], large: tuple[int, int], batch: int
) -> None:
    """Any two sizes, whole scales or not, up or down, tiles or not."""
    generator = torch.Generator().manual_seed(0)
    image = torch.randn(batch, 3, *small, generator=generator, dtype=torch.float64)
    kernel = torch.randn(4, 3, 3, 3, generator=generator, dtype=torch.float64)
    before = torch.randn(batch, *large, 4, generator=generator, dtype=torch.float64)
    upsampled = F.interpolate(image, size=large, mode="bilinear", align_corners=False)
    expected = before + F.conv2d(upsampled, kernel, padding=1).permute(0, 2, 3, 1)

    total = before.clone()
    add_shifted(total, image, stacked_taps(kernel))
    torch.testing.assert_close(total, expected, rtol=0, atol=1e-12)


def test_strips_kept_are_few_and_serve_gradients_after_inference_mode() -> None:
    _kept_strips.cache_clear()
    taps = torch.randn(3, 3, 12)
    with torch.inference_mode():
        for side in range(1, 100):
            add_shifted(torch.zeros(1, side, 5, 4), torch.randn(1, 3, 2, 2), taps)
    assert _kept_strips.cache_info().currsize == 64
    image = torch.randn(1, 3, 2, 2, requires_grad=True)
    total = torch.zeros(1, 99, 5, 4)
    add_shifted(total, image, taps)
    total.sum().backward()
    assert image.grad is not None


def test_swin_tiny_at_512() -> None:
    """The stock total is 236.87 G without its auxiliary head; below the upsampling it is 131.8 G."""
    model = load_model("config:swin-tiny-upernet").module
    frame = torch.empty(1, 3, 512, 512)
    stock = count(model, (frame,), on_meta=True)
    lossless = count(build_path(model, LOSSLESS), (frame,), on_meta=True)

    assert stock.macs == stock_macs(512, 512, auxiliary=0, **SWIN_T)  # type: ignore[arg-type]
    assert stock.macs / 1e9 == pytest.approx(236.865, abs=5e-4)
    assert lossless.macs == lossless_macs(512, 512, **SWIN_T)  # type: ignore[arg-type]
    assert lossless.macs / 1e9 == pytest.approx(131.835, abs=5e-4)
    assert lossless.uncounted == {}


@pytest.mark.parametrize("make", [on_swin, on_convnext, on_resnet])
def test_every_setting_of_every_knob_runs_exactly_as_its_lossless_form(make: Any) -> None:
    """The stock form and the exact form of a path are one function."""
    factory = PathFactory(make())
    frame = torch.randn(2, 3, 61, 99)
    for knob in factory.family.knobs(factory.stock, factory.derived):
        for setting in knob.settings:
            stock_form = factory.build(PathSpec((setting,)))
            exact = factory.build(turn(LOSSLESS, setting))
            with torch.inference_mode():
                expected = stock_form(frame).logits
                difference = (exact(frame).logits - expected).abs().max() / expected.abs().max()
            assert float(difference) < 1e-4, setting


def test_the_auxiliary_head_is_not_run() -> None:
    model = on_swin()
    frame = torch.randn(1, 3, 61, 99)
    assert count(model, (frame,)).by_module["auxiliary_head"].macs > 0
    path = build_path(model, LOSSLESS)
    assert not any("auxiliary" in name for name, _ in path.named_modules())
    with pytest.raises(InputError, match="not labels"):
        path(frame, labels=torch.zeros(1, 61, 99, dtype=torch.long))


def test_paths_with_as_many_channels_share_what_they_fold() -> None:
    factory = PathFactory(on_swin())
    whole = factory.build(PathSpec.parse("lossless+decoder=24")).extra_bytes
    before = len(factory.derived.tensors())
    other = factory.build(PathSpec.parse("lossless+decoder=24+size=75%"))
    assert len(factory.derived.tensors()) == before
    assert other.extra_bytes == whole


@pytest.mark.parametrize("path", ["decoder=33", "lossless+decoder=33"])
def test_channels_that_do_not_exist_are_refused(path: str) -> None:
    with pytest.raises(PathRefusedError, match="decoder=33 is out of range; this model's decoder allows 1 to 32"):
        build_path(on_swin(), PathSpec.parse(path))


def strided(head: Any) -> None:
    head.fpn_convs[0].conv.stride = (2, 2)


def aligned(head: Any) -> None:
    head.align_corners = True


def dilated(head: Any) -> None:
    head.fpn_bottleneck.conv.dilation = (2, 2)


def reflecting(head: Any) -> None:
    head.bottleneck.conv.padding_mode = "reflect"


def smooth(head: Any) -> None:
    head.fpn_bottleneck.activation = nn.GELU()


def grouped_norm(head: Any) -> None:
    head.lateral_convs[1].batch_norm = nn.GroupNorm(4, 32)


def without_statistics(head: Any) -> None:
    head.fpn_convs[1].batch_norm = nn.BatchNorm2d(32, track_running_stats=False)


def own_convolution(head: Any) -> None:
    class Own(nn.Conv2d):
        pass

    head.bottleneck.conv.__class__ = Own


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (strided, "a stride, a dilation"),
        (aligned, "aligns corners"),
        (dilated, "a stride, a dilation"),
        (reflecting, "another padding than zeros"),
        (smooth, "GELU, not ReLU"),
        (grouped_norm, "GroupNorm stands behind a convolution"),
        (without_statistics, "not a batch norm with statistics"),
        (own_convolution, "is a Own, not a Conv2d"),
    ],
)
def test_a_head_that_computes_something_else_is_refused(change: Any, reason: str) -> None:
    model = on_swin()
    change(model.decode_head)
    with pytest.raises(PathRefusedError, match=reason):
        build_path(model, LOSSLESS)
    factory = PathFactory(model)
    assert factory.family.base(model) == [PathSpec()]


def test_frames_that_convnext_cannot_take_are_refused() -> None:
    path = build_path(on_convnext(), LOSSLESS)
    with pytest.raises(InputError, match="the minimum is 32x32"):
        path(torch.randn(1, 3, 31, 64))
    with torch.inference_mode():
        assert path(torch.randn(1, 3, 32, 32)).logits.shape == (1, 7, 32, 32)
