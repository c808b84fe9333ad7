"""What is refused, and the line that says why: settings that do not fit, rewrites whose ground is missing."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from gearshift.errors import InputError, ModelError, PathRefusedError
from gearshift.paths.build import PathFactory, build_path, family_of
from gearshift.paths.sharing import DerivedTensors
from gearshift.paths.spec import PathSpec

MakeStock = Callable[..., Any]


def refusal(stock: Any, text: str) -> str:
    """Return the one line with which a path is refused."""
    with pytest.raises(PathRefusedError) as caught:
        build_path(stock, PathSpec.parse(text))
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("form", ["", "lossless+"])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("fuse=1025", "fuse=1025 is out of range; this model's decoder allows 1 to 1024"),
        ("decoder=257", "decoder=257 is out of range; this model's decoder allows 1 to 256"),
        ("blocks=3-1-3-1", "blocks=3-1-3-1 does not fit; this model has blocks=2-1-3-1 at most"),
        ("blocks=2-1-3", "blocks=2-1-3 does not fit; this model has blocks=2-1-3-1 at most"),
        ("blocks=2-1-3-1-1", "blocks=2-1-3-1-1 does not fit"),
        ("skip=4.0", "skip=4.0 does not exist; this model has 0.0-0.1, 1.0-1.0, 2.0-2.2, 3.0-3.0"),
        ("skip=0.0,2.3", "skip=2.3 does not exist"),
        (
            "size=28x64",
            "size=28x64 does not fit: a frame of 28x64 is too small for this model; the minimum is 29x29",
        ),
    ],
)
def test_a_setting_that_does_not_fit_is_refused_with_what_does(form: str, text: str, said: str, stock: Any) -> None:
    assert said in refusal(stock, form + text)


def test_qkv_belongs_to_the_lossless_form(stock: Any) -> None:
    assert refusal(stock, "qkv") == '"qkv" rewrites the lossless path; write "lossless+qkv"'


def test_a_stage_without_blocks_has_none_to_skip(make_stock: MakeStock) -> None:
    model = make_stock(depths=[1, 0, 1, 1])
    assert "this model has 0.0-0.0, 2.0-2.0, 3.0-3.0" in refusal(model, "skip=1.0")


# Preconditions on the actual modules. Each entry changes one thing in the decode head.

PROJECTION = "a stage's projection is more than one linear layer with a bias"


def replace(**modules: nn.Module) -> Callable[[Any], None]:
    def change(head: Any) -> None:
        for name, module in modules.items():
            setattr(head, name, module)

    return change


def deepen_projection(head: Any) -> None:
    head.linear_projections[1].more = nn.ReLU()


def drop_projection_bias(head: Any) -> None:
    head.linear_projections[2].proj = nn.Linear(40, 256, bias=False)


class Doubled(nn.Linear):
    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(tokens)


def subclass_projection(head: Any) -> None:
    head.linear_projections[0].proj = Doubled(16, 256)


class DoubledFuse(nn.Conv2d):
    pass


HEAD_FAULTS = [
    (deepen_projection, PROJECTION),
    (drop_projection_bias, PROJECTION),
    (subclass_projection, PROJECTION),
    (
        replace(linear_fuse=nn.Conv2d(1024, 256, 3, bias=False)),
        "the fuse convolution has kernel (3, 3), not 1x1",
    ),
    (
        replace(linear_fuse=nn.Conv2d(1024, 256, 1, stride=2, bias=False)),
        "the fuse convolution has stride (2, 2), not 1",
    ),
    (
        replace(linear_fuse=nn.Conv2d(1024, 256, 1, groups=4, bias=False)),
        "the fuse convolution has 4 groups, not 1",
    ),
    (
        replace(linear_fuse=nn.Conv2d(1024, 256, 1, padding=1, bias=False)),
        "the fuse convolution pads by (1, 1)",
    ),
    (replace(linear_fuse=nn.Conv2d(1024, 256, 1)), "the fuse convolution has a bias, which is not handled"),
    (
        replace(linear_fuse=DoubledFuse(1024, 256, 1, bias=False)),
        "the fuse convolution is a DoubledFuse, not a Conv2d",
    ),
    (replace(batch_norm=nn.GroupNorm(1, 256)), "GroupNorm stands behind it, not a batch norm"),
    (replace(batch_norm=nn.SyncBatchNorm(256)), "SyncBatchNorm stands behind it, not a batch norm"),
    (replace(batch_norm=nn.Identity()), "Identity stands behind it, not a batch norm"),
    (
        replace(batch_norm=nn.BatchNorm2d(256, track_running_stats=False)),
        "the batch norm has no running statistics",
    ),
    (replace(batch_norm=nn.BatchNorm2d(256, affine=False)), "the batch norm has no scale and shift"),
    (replace(activation=nn.GELU()), "its activation is GELU, not ReLU"),
    (replace(activation=nn.Softmax(dim=1)), "its activation is Softmax, not ReLU"),
    (replace(classifier=nn.Conv2d(256, 7, 3)), "the classifier has kernel (3, 3), not 1x1"),
    (replace(classifier=nn.Conv2d(256, 7, 1, bias=False)), "the classifier has no bias"),
    (replace(classifier=nn.Sequential(nn.Conv2d(256, 7, 1))), "the classifier is a Sequential, not a Conv2d"),
]


@pytest.mark.parametrize("text", ["lossless", "lossless+qkv", "fuse=300", "decoder=64"])
@pytest.mark.parametrize(("change", "reason"), HEAD_FAULTS, ids=[reason for _, reason in HEAD_FAULTS])
def test_a_head_that_is_not_plain_is_neither_folded_nor_sliced(
    change: Callable[[Any], None], reason: str, text: str, make_stock: MakeStock
) -> None:
    model = make_stock()
    change(model.decode_head)
    assert refusal(model, text) == (
        f"the decoder can be neither folded nor sliced: {reason}; use paths without lossless, fuse and decoder"
    )


@pytest.mark.parametrize(("change", "reason"), HEAD_FAULTS, ids=[reason for _, reason in HEAD_FAULTS])
def test_such_a_model_still_has_its_other_paths(
    change: Callable[[Any], None], reason: str, make_stock: MakeStock
) -> None:
    model = make_stock()
    change(model.decode_head)
    factory = PathFactory(model.eval())
    assert factory.family.base(model) == [PathSpec()]
    knobs = factory.family.knobs(model, DerivedTensors())
    assert {knob.name.partition(" ")[0] for knob in knobs} == {"block", "size"}
    pixels = torch.randn(1, 3, 64, 96)
    with torch.inference_mode():
        assert torch.equal(factory.build(PathSpec()).inner(pixels).logits, model(pixels).logits)
        factory.build(PathSpec.parse("skip=2.1+size=32x32"))(pixels)


@pytest.mark.parametrize(
    ("place", "stock_class"),
    [
        ("segformer.stages.1", "SegformerStage"),
        ("segformer.stages.2.patch_embeddings", "SegformerOverlapPatchEmbeddings"),
        ("segformer.stages.2.blocks.1", "SegformerLayer"),
        ("segformer.stages.2.blocks.1.attention", "SegformerAttention"),
        ("segformer.stages.0.blocks.0.mlp", "SegformerMixMLP"),
        ("decode_head", "SegformerDecodeHead"),
    ],
)
def test_a_module_of_another_class_is_not_rewritten(place: str, stock_class: str, make_stock: MakeStock) -> None:
    model = make_stock()
    module = model.get_submodule(place)
    module.__class__ = type("Own", (type(module),), {})
    for text in ("lossless", "lossless+qkv"):
        assert refusal(model, text) == (
            f"lossless rewrites {stock_class}, and this model has Own in its place; use paths without lossless"
        )
    assert PathFactory(model).family.base(model) == [PathSpec()]
    build_path(model, PathSpec.parse("skip=2.0"))


def test_a_last_stage_of_tokens_is_not_rewritten(make_stock: MakeStock) -> None:
    model = make_stock(reshape_last_stage=False)
    assert "lossless needs reshape_last_stage=True" in refusal(model, "lossless")
    assert PathFactory(model).family.base(model) == [PathSpec()]


@pytest.mark.parametrize(
    ("projection", "other"),
    [("v_proj", Doubled(24, 24)), ("k_proj", nn.Linear(24, 24, bias=False)), ("k_proj", nn.Identity())],
)
def test_projections_that_are_not_plain_are_not_merged_but_the_rest_is_exact(
    projection: str, other: nn.Module, make_stock: MakeStock
) -> None:
    model = make_stock()
    setattr(model.segformer.stages[1].blocks[0].attention, projection, other)
    assert "qkv merges linear layers with a bias, and this model has" in refusal(model, "lossless+qkv")
    factory = PathFactory(model)
    assert factory.family.base(model) == [PathSpec.parse("lossless")]
    pixels = torch.randn(1, 3, 64, 96)
    with torch.inference_mode():
        torch.testing.assert_close(
            factory.build(PathSpec.parse("lossless"))(pixels).logits,
            model(pixels).logits,
            rtol=1e-4,
            atol=1e-4,
        )


@pytest.mark.parametrize("width", [256, 768, 9, 8, 1])
def test_every_setting_of_every_knob_is_admitted_and_differs(width: int, make_stock: MakeStock) -> None:
    model = make_stock(decoder_hidden_size=width)
    factory = PathFactory(model)
    for base in factory.family.base(model):
        for knob in factory.family.knobs(model, DerivedTensors()):
            assert knob.settings
            assert len(set(knob.settings)) == len(knob.settings)
            for setting in knob.settings:
                factory.build(base.with_transform(setting))


def test_another_family_is_refused_by_name() -> None:
    with pytest.raises(ModelError, match="no family of paths knows Linear; known: segformer"):
        family_of(nn.Linear(3, 3))


def test_a_subclass_may_compute_something_else_and_is_no_family(make_stock: MakeStock) -> None:
    model = make_stock()
    model.__class__ = type("Changed", (type(model),), {})
    with pytest.raises(ModelError, match="Changed"):
        PathFactory(model)


@pytest.mark.parametrize("arguments", [{"labels": torch.zeros(1, 64, 96).long()}, {"output_attentions": True}])
def test_a_lossless_path_says_what_it_does_not_return(arguments: dict[str, Any], stock: Any) -> None:
    path = build_path(stock, PathSpec.parse("lossless"))
    (name,) = arguments
    with pytest.raises(InputError, match=f"gives logits and hidden states, not {name}; use the stock form"):
        path(torch.zeros(1, 3, 64, 96), **arguments)
    path(torch.zeros(1, 3, 64, 96), labels=None, output_attentions=False)
