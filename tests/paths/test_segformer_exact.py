"""What paths compute, against the stock model: every setting of every knob, alone and combined.

Weights, biases and batch-norm statistics are random (see `conftest`); frames have odd sizes and come in
threes.
"""

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gearshift.paths.build import PathFactory, build_path
from gearshift.paths.segformer.heads import decoder_importance
from gearshift.paths.spec import PathSpec
from gearshift.paths.transforms import Blocks, DecoderChannels, FuseChannels, Skip

MakeStock = Callable[..., Any]


@pytest.fixture(scope="module")
def factory(stock: Any) -> PathFactory:
    return PathFactory(stock)


def frames(height: int = 61, width: int = 99, batch: int = 3) -> Tensor:
    return torch.randn(batch, 3, height, width)


def logits(module: nn.Module, pixels: Tensor) -> Tensor:
    with torch.inference_mode():
        found: Tensor = module(pixels).logits
    return found


def assert_exact(got: Tensor, expected: Tensor, tolerance: float = 1e-4) -> None:
    """Equal to `tolerance` of the largest logit, and of the same class everywhere."""
    assert got.shape == expected.shape
    assert got.isfinite().all()
    assert float((got - expected).abs().max() / expected.abs().max()) < tolerance
    assert torch.equal(got.argmax(1), expected.argmax(1))


def joined(*specs: PathSpec) -> PathSpec:
    return PathSpec(tuple(transform for spec in specs for transform in spec.transforms))


# Lossless forms


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("width", [256, 768])  # B084: read from the model
def test_a_lossless_form_equals_the_stock_model(
    exact: PathSpec, width: int, attention: str, make_stock: MakeStock
) -> None:
    model = make_stock(seed=width, attention=attention, decoder_hidden_size=width)
    pixels = frames()
    assert_exact(logits(build_path(model, exact), pixels), logits(model, pixels))


@pytest.mark.parametrize("size", [(29, 29), (32, 64), (47, 131), (128, 96)])
@pytest.mark.parametrize("batch", [1, 3])
def test_a_lossless_form_takes_any_size_and_batch(
    exact: PathSpec, size: tuple[int, int], batch: int, factory: PathFactory
) -> None:
    pixels = frames(*size, batch)
    assert_exact(logits(factory.build(exact), pixels), logits(factory.stock, pixels))


def test_a_lossless_form_is_exact_in_double_precision(exact: PathSpec, make_stock: MakeStock) -> None:
    """What is left in single precision is rounding, not a wrong formula."""
    model = make_stock().double()
    pixels = frames().double()
    assert_exact(logits(build_path(model, exact), pixels), logits(model, pixels), 1e-12)


@pytest.mark.parametrize(
    "changes",
    [
        {"strides": [4, 2, 1, 1]},  # three stages of one size
        {"strides": [4, 1, 2, 2]},  # two stages of the full size
        {"strides": [4, 1, 1, 1]},  # nothing is upsampled
        {"sr_ratios": [1, 1, 1, 1]},
        {"depths": [1, 0, 1, 1]},
        {"hidden_act": "relu"},
        {"num_labels": 1},
        {"decoder_hidden_size": 8},
        {"num_channels": 4},
    ],
    ids=str,
)
def test_a_lossless_form_follows_the_configuration(
    exact: PathSpec, changes: dict[str, Any], make_stock: MakeStock
) -> None:
    model = make_stock(**changes)
    pixels = torch.randn(2, model.config.num_channels, 61, 99)
    assert_exact(logits(build_path(model, exact), pixels), logits(model, pixels))


def test_a_lossless_form_of_a_setting_computes_what_its_stock_form_does(
    exact: PathSpec, setting: PathSpec, factory: PathFactory
) -> None:
    pixels = frames()
    assert_exact(logits(factory.build(joined(exact, setting)), pixels), logits(factory.build(setting), pixels))


def test_a_lossless_form_of_a_combination_computes_what_its_stock_form_does(
    exact: PathSpec, combination: PathSpec, factory: PathFactory
) -> None:
    pixels = frames(batch=2)
    assert_exact(logits(factory.build(joined(exact, combination)), pixels), logits(factory.build(combination), pixels))


@pytest.mark.parametrize("width", [256, 768])
@pytest.mark.parametrize("part", [1, 3, 5, 8, 11, 13, 15])
def test_slicing_is_exact_at_every_decoder_width(width: int, part: int, make_stock: MakeStock) -> None:
    model = make_stock(decoder_hidden_size=width)
    factory, pixels = PathFactory(model), frames(batch=2)
    sliced = PathSpec((FuseChannels(4 * width * part // 16), DecoderChannels(width * part // 16)))
    exact = joined(PathSpec.parse("lossless"), sliced)
    assert_exact(logits(factory.build(exact), pixels), logits(factory.build(sliced), pixels))


def test_the_empty_path_is_the_stock_model_bit_for_bit(factory: PathFactory) -> None:
    pixels = frames()
    assert torch.equal(logits(factory.build(PathSpec()), pixels), logits(factory.stock, pixels))


# Skipped blocks (B077)


def shallower(stock: Any, skipped: set[tuple[int, int]]) -> Any:
    """The stock weights in a model built without some of the blocks."""
    kept = [
        [block for block in range(depth) if (stage, block) not in skipped]
        for stage, depth in enumerate(stock.config.depths)
    ]
    config = copy.deepcopy(stock.config)
    config.depths = [len(blocks) for blocks in kept]
    weights = {name: value for name, value in stock.state_dict().items() if ".blocks." not in name}
    for stage, blocks in enumerate(kept):
        for new, old in enumerate(blocks):
            prefix = f"segformer.stages.{stage}.blocks."
            for name, value in stock.state_dict().items():
                if name.startswith(f"{prefix}{old}."):
                    weights[name.replace(f"{prefix}{old}.", f"{prefix}{new}.", 1)] = value
    model = type(stock)(config)
    model.load_state_dict(weights)
    return model.eval()


@pytest.mark.parametrize(
    ("text", "skipped"),
    [
        ("skip=0.0", {(0, 0)}),
        ("skip=2.1", {(2, 1)}),
        ("skip=1.0", {(1, 0)}),
        ("skip=0.1,2.0,3.0", {(0, 1), (2, 0), (3, 0)}),
        ("blocks=1-1-2-1", {(0, 1), (2, 2)}),
        ("blocks=2-0-1-1+skip=0.0", {(1, 0), (2, 1), (2, 2), (0, 0)}),
        ("blocks=0-0-0-0", {(0, 0), (0, 1), (1, 0), (2, 0), (2, 1), (2, 2), (3, 0)}),
    ],
)
@pytest.mark.parametrize("form", ["", "lossless+", "lossless+qkv+"])
def test_a_skipped_block_is_a_model_built_without_it(
    form: str, text: str, skipped: set[tuple[int, int]], factory: PathFactory
) -> None:
    reference = shallower(factory.stock, skipped)
    expected = build_path(reference, PathSpec.parse(f"{form}".rstrip("+") or "stock"))
    pixels = frames()
    assert torch.equal(logits(factory.build(PathSpec.parse(form + text)), pixels), logits(expected, pixels))


def test_a_stock_form_says_how_deep_it_is(factory: PathFactory) -> None:
    path = factory.build(PathSpec((Blocks((1, 1, 3, 1)), Skip(((2, 0),)))))
    assert path.inner.config.depths == [1, 1, 2, 1]
    assert factory.stock.config.depths == [2, 1, 3, 1]


# Sliced decoders


@pytest.mark.parametrize("kept", [1, 200, 256, 300, 640, 1000, 1024])
def test_fuse_keeps_the_first_input_channels(kept: int, factory: PathFactory) -> None:
    """The same as the stock model with the other columns of its fuse convolution at zero."""
    masked = copy.deepcopy(factory.stock)
    masked.decode_head.linear_fuse.weight.data[:, kept:] = 0
    pixels = frames()
    assert_exact(logits(factory.build(PathSpec((FuseChannels(kept),))), pixels), logits(masked, pixels))


def rectified_moment(beta: float, gamma: float, power: int) -> float:
    """`E relu(x)^power` for x normal with mean `beta` and deviation `|gamma|`, by summing over a grid."""
    x = torch.linspace(beta - 9 * abs(gamma), beta + 9 * abs(gamma), 40_001, dtype=torch.float64)
    density = torch.exp(-0.5 * ((x - beta) / gamma) ** 2) / (abs(gamma) * math.sqrt(2 * math.pi))
    return float(torch.trapezoid(x.clamp(min=0) ** power * density, x))


@pytest.mark.parametrize("kept", [1, 64, 200, 255])
def test_decoder_keeps_the_channels_that_matter_most_to_the_classifier(kept: int, factory: PathFactory) -> None:
    """The same as the stock model with every other channel replaced by its expected value."""
    head = factory.stock.decode_head
    pairs = list(zip(head.batch_norm.bias.tolist(), head.batch_norm.weight.tolist(), strict=True))
    mean = torch.tensor([rectified_moment(beta, gamma, 1) for beta, gamma in pairs])
    square = torch.tensor([rectified_moment(beta, gamma, 2) for beta, gamma in pairs])
    importance = square.sqrt() * head.classifier.weight[:, :, 0, 0].norm(dim=0)
    dropped = importance.argsort()[: len(pairs) - kept]

    class Replacing(nn.Module):
        def forward(self, activated: Tensor) -> Tensor:
            activated = activated.clone()
            activated[:, dropped] = mean[dropped][:, None, None]
            return activated

    masked = copy.deepcopy(factory.stock)
    masked.decode_head.dropout = Replacing()
    pixels = frames()
    assert_exact(logits(factory.build(PathSpec((DecoderChannels(kept),))), pixels), logits(masked, pixels))


@pytest.mark.parametrize("text", ["fuse=1024", "decoder=256", "fuse=1024+decoder=256"])
def test_keeping_everything_changes_nothing(text: str, factory: PathFactory) -> None:
    pixels = frames()
    assert_exact(logits(factory.build(PathSpec.parse(text)), pixels), logits(factory.stock, pixels))


# Input sizes


@pytest.mark.parametrize("text", ["size=64x32", "size=50%", "size=150%", "size=33x95"])
def test_size_is_the_stock_model_on_a_resized_frame_with_logits_resized_back(text: str, factory: PathFactory) -> None:
    spec, pixels = PathSpec.parse(text), frames(90, 130)
    path = factory.build(spec)
    size = spec.get("size").resolve(90, 130)  # type: ignore[union-attr]
    small = F.interpolate(pixels, size=size, mode="bilinear", align_corners=False)
    expected = F.interpolate(logits(factory.stock, small), size=(23, 33), mode="bilinear", align_corners=False)
    assert torch.equal(logits(path, pixels), expected)
    assert logits(factory.stock, pixels).shape[2:] == (23, 33)


def test_the_frames_own_size_changes_nothing(factory: PathFactory) -> None:
    pixels = frames(64, 96)
    expected = logits(factory.stock, pixels)
    for text in ("size=64x96", "size=100%"):
        assert torch.equal(logits(factory.build(PathSpec.parse(text)), pixels), expected)


# Every path


def test_every_path_delivers_four_stages_at_strides_4_to_32(combination: PathSpec, factory: PathFactory) -> None:
    """B096: whatever is skipped or sliced, the decoder gets what it expects."""
    for spec in (combination, joined(PathSpec.parse("lossless"), combination)):
        with torch.inference_mode():
            output = factory.build(spec.without("size"))(frames(64, 96), output_hidden_states=True)
        shapes = [tuple(stage.shape[1:]) for stage in output.hidden_states]
        assert shapes == [(16, 16, 24), (24, 8, 12), (40, 4, 6), (48, 2, 3)]


def test_hidden_states_of_a_lossless_form_are_the_stock_models(exact: PathSpec, factory: PathFactory) -> None:
    pixels = frames()
    with torch.inference_mode():
        expected = factory.stock(pixels, output_hidden_states=True).hidden_states
        got = factory.build(exact)(pixels, output_hidden_states=True).hidden_states
    for ours, theirs in zip(got, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_shifting_there_and_back_changes_no_bit(stock: Any) -> None:
    factory, pixels = PathFactory(stock), frames(batch=1)
    texts = ["stock", "lossless", "lossless+qkv", "fuse=300", "decoder=64", "lossless+skip=2.1+size=50%"]
    paths = [factory.build(PathSpec.parse(text)) for text in texts]
    first = [logits(path, pixels) for path in paths]
    stock_first = logits(stock, pixels)
    for away in paths:
        for path, expected in zip(paths, first, strict=True):
            logits(away, pixels)
            assert torch.equal(logits(path, pixels), expected)
    assert torch.equal(logits(stock, pixels), stock_first)


def test_building_more_paths_changes_no_bit_of_those_that_exist(combination: PathSpec, factory: PathFactory) -> None:
    pixels = frames(batch=1)
    before = logits(factory.stock, pixels)
    path = factory.build(combination)
    expected = logits(path, pixels)
    for other in ("lossless", "lossless+qkv", "fuse=7", "decoder=3"):
        factory.build(PathSpec.parse(other))
    assert torch.equal(logits(path, pixels), expected)
    assert torch.equal(logits(factory.stock, pixels), before)


def test_a_path_built_alone_equals_the_one_that_shares_what_it_derives(
    exact: PathSpec, combination: PathSpec, factory: PathFactory
) -> None:
    """Names of derived tensors never mix up two paths."""
    spec, pixels = joined(exact, combination), frames(batch=1)
    assert torch.equal(logits(factory.build(spec), pixels), logits(build_path(factory.stock, spec), pixels))


def test_importance_is_the_rms_that_a_channel_adds_to_the_logits(stock: Any) -> None:
    head = stock.decode_head
    x = torch.randn(200_000, 256, generator=torch.Generator().manual_seed(0))
    activated = F.relu(x * head.batch_norm.weight + head.batch_norm.bias)
    sampled = activated.square().mean(0).sqrt() * head.classifier.weight[:, :, 0, 0].norm(dim=0)
    torch.testing.assert_close(decoder_importance(head).float(), sampled, rtol=0.05, atol=0.01)
