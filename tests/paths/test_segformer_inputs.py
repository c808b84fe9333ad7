"""What a path takes and gives: frame sizes, channels, types, layouts, bad pixels, results as tuples."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.modeling_outputs import SemanticSegmenterOutput

from gearshift.errors import InputError
from gearshift.paths.build import PathFactory, build_path
from gearshift.paths.spec import PathSpec

MakeStock = Callable[..., Any]
FORMS = [
    "stock",
    "fuse=300",
    "decoder=64",
    "skip=2.1",
    "size=50%",
    "lossless",
    "lossless+qkv",
    "lossless+size=50%",
]


@pytest.fixture(params=FORMS)
def path(request: pytest.FixtureRequest, stock: Any) -> nn.Module:
    """One path of each kind, stock form and lossless."""
    return build_path(stock, PathSpec.parse(request.param))


def run(module: nn.Module, pixels: Tensor, **arguments: Any) -> Any:
    with torch.inference_mode():
        return module(pixels, **arguments)


# Sizes (B106)


@pytest.mark.parametrize("text", ["stock", "fuse=300", "skip=0.0,0.1", "lossless", "lossless+qkv"])
@pytest.mark.parametrize("size", [(7, 7), (1, 1), (28, 28), (28, 200), (200, 28)])
def test_a_frame_that_is_too_small_is_refused_with_the_minimum(size: tuple[int, int], text: str, stock: Any) -> None:
    with pytest.raises(InputError) as caught:
        build_path(stock, PathSpec.parse(text))(torch.zeros(1, 3, *size))
    assert str(caught.value) == (f"a frame of {size[0]}x{size[1]} is too small for this model; the minimum is 29x29")


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"sr_ratios": [1, 1, 1, 1]},
        {"sr_ratios": [2, 8, 1, 3]},
        {"strides": [2, 3, 1, 2], "sr_ratios": [3, 2, 2, 1]},
    ],
    ids=str,
)
def test_refused_are_exactly_the_sizes_that_the_stock_model_fails_on(
    changes: dict[str, Any], make_stock: MakeStock
) -> None:
    model = make_stock(depths=[1, 1, 1, 1], **changes)
    path = build_path(model, PathSpec())
    refused, failed = set(), set()
    for side in range(1, 72):
        for height, width in ((side, side), (side, 96), (96, side)):
            pixels = torch.zeros(1, 3, height, width)
            try:
                run(path, pixels)
            except InputError:
                refused.add((height, width))
                with pytest.raises(RuntimeError):
                    run(model, pixels)
                failed.add((height, width))
    assert refused == failed
    if refused:
        side = min(side for side in range(1, 97) if (side, side) not in refused)
        with pytest.raises(InputError, match=f"the minimum is {side}x{side}"):
            run(path, torch.zeros(1, 3, side - 1, side - 1))


@pytest.mark.parametrize("size", [(1, 1), (7, 7), (29, 29)])
def test_a_path_with_a_size_of_its_own_takes_frames_of_any(size: tuple[int, int], stock: Any) -> None:
    for text in ("size=64x64", "lossless+size=64x64", "lossless+size=50%"):
        logits = run(build_path(stock, PathSpec.parse(text)), torch.randn(1, 3, *size)).logits
        assert logits.shape == (1, 7, -(-size[0] // 4), -(-size[1] // 4))
        assert logits.isfinite().all()


@pytest.mark.parametrize("size", [(32, 32), (29, 31), (61, 99), (96, 64)])
def test_logits_have_the_stock_models_size(size: tuple[int, int], path: nn.Module, stock: Any) -> None:
    pixels = torch.randn(2, 3, *size)
    assert run(path, pixels).logits.shape == run(stock, pixels).logits.shape


# Channels, rank, type (B109, B110)


@pytest.mark.parametrize("shape", [(1, 1, 64, 64), (1, 4, 64, 64), (3, 64, 64), (64, 64), (1, 3, 1, 64, 64)])
def test_frames_of_another_shape_are_refused_with_the_remedy(shape: tuple[int, ...], path: nn.Module) -> None:
    with pytest.raises(InputError) as caught:
        path(torch.zeros(shape))
    assert str(caught.value) == (
        f"expected frames (B, 3, H, W), got {shape}; a grey image can be repeated with .expand(-1, 3, -1, -1)"
    )


def test_the_remedy_for_grey_images_works(path: nn.Module) -> None:
    grey = torch.randn(1, 1, 64, 64)
    assert torch.equal(run(path, grey.expand(-1, 3, -1, -1)).logits, run(path, grey.repeat(1, 3, 1, 1)).logits)


@pytest.mark.parametrize("kind", [torch.uint8, torch.int64, torch.bool])
def test_raw_pixels_are_refused(kind: torch.dtype, path: nn.Module) -> None:
    """The stock model would fail on them; cast silently, they would be 255 times too large."""
    with pytest.raises(InputError, match="expected normalised frames of a floating type"):
        path(torch.zeros(1, 3, 64, 64, dtype=kind))


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64])
def test_frames_of_another_precision_are_cast(kind: torch.dtype, path: nn.Module) -> None:
    pixels = torch.randn(1, 3, 64, 64).to(kind)
    output = run(path, pixels).logits
    assert output.dtype == torch.float32
    assert torch.equal(output, run(path, pixels.float()).logits)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("text", FORMS)
def test_a_model_in_half_precision_has_every_path(text: str, kind: torch.dtype, make_stock: MakeStock) -> None:
    model = make_stock()
    pixels = torch.randn(1, 3, 128, 128)
    expected = run(build_path(model, PathSpec.parse(text)), pixels).logits
    output = run(build_path(model.to(kind), PathSpec.parse(text)), pixels).logits
    assert output.dtype == kind
    difference = (output.float() - expected).abs().max() / expected.abs().max()
    assert float(difference) < 32 * torch.finfo(kind).eps


# Layouts (B111) and bad pixels (B112)


def test_the_layout_of_a_frame_does_not_matter(path: nn.Module) -> None:
    pixels = torch.randn(2, 3, 61, 99)
    wide = torch.zeros(2, 3, 122, 198)
    wide[:, :, ::2, ::2] = pixels
    layouts = {
        "channels last": pixels.contiguous(memory_format=torch.channels_last),
        "strided": wide[:, :, ::2, ::2],
        "transposed": pixels.transpose(2, 3).contiguous().transpose(2, 3),
        "one frame expanded": pixels[:1].expand(2, -1, -1, -1),
    }
    expected = run(path, pixels).logits
    for name, layout in layouts.items():
        got = run(path, layout).logits
        reference = expected if name != "one frame expanded" else expected[:1].expand(2, -1, -1, -1)
        assert float((got - reference).abs().max() / expected.abs().max()) < 1e-5, name


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_bad_frame_does_not_touch_the_others_of_its_batch(bad: float, path: nn.Module) -> None:
    pixels = torch.randn(3, 3, 64, 64)
    alone = run(path, pixels[1:2]).logits
    pixels[0, 1, 5, 5] = bad
    pixels[2] = bad
    together = run(path, pixels).logits
    torch.testing.assert_close(together[1:2], alone, rtol=1e-4, atol=1e-4)
    assert torch.equal(run(path, pixels[1:2]).logits, alone)


def test_a_frame_is_not_written_to(path: nn.Module) -> None:
    pixels = torch.randn(2, 3, 64, 64)
    before = pixels.clone()
    run(path, pixels)
    assert torch.equal(pixels, before)


# Results


def test_the_result_is_of_the_stock_models_kind(path: nn.Module, stock: Any) -> None:
    pixels = torch.randn(1, 3, 64, 64)
    output = run(path, pixels)
    assert type(output) is type(run(stock, pixels)) is SemanticSegmenterOutput
    assert list(output.keys()) == list(run(stock, pixels).keys()) == ["logits"]


def test_return_dict_is_understood_as_the_stock_model_does(path: nn.Module, stock: Any) -> None:
    pixels = torch.randn(1, 3, 64, 64)
    logits = run(path, pixels).logits
    for arguments in ({"return_dict": True}, {"return_dict": None}):
        assert torch.equal(run(path, pixels, **arguments).logits, logits)
    as_tuple = run(path, pixels, return_dict=False)
    assert len(as_tuple) == len(run(stock, pixels, return_dict=False)) == 1
    assert torch.equal(as_tuple[0], logits)


@pytest.mark.parametrize("text", ["stock", "fuse=300", "size=50%"])
def test_a_stock_form_gives_loss_and_attentions_as_the_stock_model_does(text: str, make_stock: MakeStock) -> None:
    model = make_stock(attention="eager")
    path = build_path(model, PathSpec.parse(text))
    pixels, labels = torch.randn(1, 3, 64, 64), torch.zeros(1, 64, 64).long()
    output = run(path, pixels, labels=labels, output_attentions=True, output_hidden_states=True)
    assert list(output.keys()) == ["loss", "logits", "hidden_states", "attentions"]
    as_tuple = run(path, pixels, labels=labels, return_dict=False)
    assert as_tuple[0].ndim == 0
    assert torch.equal(as_tuple[1], output.logits)
    expected = F.cross_entropy(F.interpolate(output.logits, (64, 64), mode="bilinear"), labels)
    if text != "size=50%":  # there the loss is that of the logits before they are resized
        torch.testing.assert_close(output.loss, expected)


def test_a_path_says_what_it_is(stock: Any) -> None:
    spec = PathSpec.parse("size=50%+lossless")
    path = PathFactory(stock).build(spec)
    assert path.spec == spec
    assert path.id == "lossless+size=50%"
    assert "_stock" not in dict(path.named_modules())
