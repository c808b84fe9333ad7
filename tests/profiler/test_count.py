"""Counting: totals, tables, modules, units, unknown operators, and what a report has to carry."""

import json

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from transformers import SegformerConfig, SegformerForSemanticSegmentation, ViTConfig, ViTModel

import gearshift.profiler
from gearshift.errors import InputError, ModelError
from gearshift.profiler import CallRecorder, OperatorType, Traffic, count, operators, register_operator


def tiny_segformer() -> nn.Module:
    return SegformerForSemanticSegmentation(
        SegformerConfig(
            num_labels=5,
            hidden_sizes=[8, 16, 16, 32],
            depths=[1, 1, 1, 1],
            num_attention_heads=[1, 2, 2, 4],
            decoder_hidden_size=16,
        )
    )


def tiny_vit() -> nn.Module:
    return ViTModel(
        ViTConfig(
            hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, image_size=32,
            patch_size=8,
        )
    )  # fmt: skip


@torch.library.custom_op("gearshift_test::op", mutates_args=())
def custom_op(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@custom_op.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class Calls(nn.Module):
    """A module around a function, with the parameters that it may use."""

    def __init__(self, function, **parameters):
        super().__init__()
        self.function = function
        for name, value in parameters.items():
            setattr(self, name, value)

    def forward(self, *args, **kwargs):
        return self.function(*args, **kwargs)


def test_the_public_face_is_complete_and_sorted():
    assert gearshift.profiler.__all__ == sorted(gearshift.profiler.__all__)
    assert all(hasattr(gearshift.profiler, name) for name in gearshift.profiler.__all__)


def test_macs_and_flops_are_two_fields():
    result = count(nn.Linear(10, 20, bias=False), torch.zeros(3, 10))

    assert (result.macs, result.flops) == (3 * 10 * 20, 2 * 3 * 10 * 20)
    report = result.to_dict()
    assert (report["macs"], report["flops"]) == (600, 1200)
    assert "flops = 2 * macs" in report["convention"]
    assert all(row["flops"] == 2 * row["macs"] for row in report["by_type"] + report["by_module"])


def test_element_wise_work_is_a_third_field_and_in_neither_of_the_others():
    model = nn.Sequential(nn.Linear(10, 20), nn.GELU(), nn.LayerNorm(20))
    report = count(model, torch.zeros(3, 10)).to_dict()

    assert (report["macs"], report["flops"]) == (600, 1200)
    assert report["elementwise_flops"] == 3 * 20 * (5 + 7)  # GELU, and a layer norm with weight and bias
    assert "elementwise_flops" in report["convention"]
    assert {row["name"]: row["elementwise_flops"] for row in report["by_type"]} == {
        "linear": 0, "activation": 300, "norm": 420, "data movement": 0,
    }  # fmt: skip
    assert [row["elementwise_flops"] for row in report["by_module"]] == [720, 0, 300, 420]


def test_functional_calls_are_counted_like_modules():
    conv, matrix = torch.zeros(4, 3, 3, 3), torch.zeros(6, 8)

    def forward(image, tokens):
        F.conv2d(image, conv, padding=1)
        F.linear(tokens, matrix)
        return torch.einsum("bnc,bmc->bnm", tokens, tokens)

    result = count(Calls(forward), (torch.zeros(1, 3, 5, 5), torch.zeros(2, 7, 8)))

    by_type = {operator_type: totals.macs for operator_type, totals in result.by_type.items()}
    assert by_type[OperatorType.CONVOLUTION] == 5 * 5 * 4 * 3 * 3 * 3
    assert by_type[OperatorType.LINEAR] == 2 * 7 * 8 * 6
    assert by_type[OperatorType.MATMUL] == 2 * 7 * 7 * 8


@pytest.mark.parametrize(
    "product", [torch.matmul, lambda a, b: a @ b, lambda a, b: torch.einsum("abij,abjk->abik", a, b)]
)
def test_every_spelling_of_a_product_counts_alike(product):
    result = count(Calls(product), (torch.zeros(2, 3, 5, 7), torch.zeros(2, 3, 7, 11)))

    assert result.macs == 2 * 3 * 5 * 7 * 11 == 2310
    assert result.by_type[OperatorType.MATMUL].macs == 2310


@pytest.mark.parametrize(
    "use",
    [
        pytest.param(lambda x, w: F.linear(x, w.t()), id="linear"),
        pytest.param(lambda x, w: x @ w, id="at"),
        pytest.param(lambda x, w: torch.addmm(x.new_zeros(6), x, w), id="addmm"),
        pytest.param(lambda x, w: x.bfloat16() @ w.bfloat16(), id="cast"),
        pytest.param(lambda x, w: x @ w[:, :].contiguous().clone(), id="copy"),
        pytest.param(lambda x, w: torch.einsum("nc,cd->nd", x, w), id="einsum"),
    ],
)
def test_a_product_with_a_weight_is_linear(use):
    weight = nn.Parameter(torch.zeros(8, 6))
    result = count(Calls(lambda x: use(x, weight), weight=weight), torch.zeros(7, 8))

    assert result.by_type[OperatorType.LINEAR].macs == result.macs == 7 * 8 * 6


def test_unknown_operators_are_listed_and_make_the_total_a_lower_bound():
    result = count(Calls(lambda x: custom_op(x @ x)), torch.zeros(4, 4))

    assert result.uncounted == {"gearshift_test::op": 1}
    assert result.is_lower_bound
    assert result.macs == 4**3
    assert result.to_dict()["uncounted"] == {"gearshift_test::op": 1}


def test_known_operators_without_macs_are_not_a_lower_bound():
    def forward(x):
        x = F.interpolate(F.gelu(F.layer_norm(x, x.shape[-1:])), scale_factor=2, mode="bilinear")
        return torch.cat([x.softmax(1), x + 1], 1).mean().float()

    result = count(Calls(forward), torch.zeros(1, 2, 4, 4))

    assert (result.macs, result.uncounted, result.is_lower_bound) == (0, {}, False)
    assert {OperatorType.NORM, OperatorType.ACTIVATION, OperatorType.RESAMPLE} <= set(result.by_type)


def test_a_registered_operator_is_counted():
    torch.library.define("gearshift_test::known", "(Tensor x) -> Tensor")
    torch.library.impl("gearshift_test::known", "CPU", torch.clone)
    operator = torch.ops.gearshift_test.known
    register_operator(operator, OperatorType.OTHER, lambda args, out: 3 * args[0].numel(), Traffic.FREE)

    result = count(Calls(operator), torch.zeros(5))

    assert (result.macs, result.bytes_moved, result.uncounted) == (15, 0, {})


@pytest.mark.parametrize("build", [tiny_segformer, tiny_vit])
def test_totals_scale_with_the_batch_and_per_image_does_not(build):
    model = build()
    size = 64 if build is tiny_segformer else 32
    one, four = (count(model, torch.zeros(n, 3, size, size)) for n in (1, 4))

    assert four.macs == 4 * one.macs
    assert one.per_image_macs == four.per_image_macs == one.macs
    assert (one.batch_size, four.batch_size) == (1, 4)


@pytest.mark.parametrize("build", [tiny_segformer, tiny_vit])
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_totals_do_not_depend_on_the_gradient_mode(build, mode):
    model = build().eval()
    image = torch.zeros(1, 3, 32, 32)
    expected = count(model, image)

    with mode():
        counted = count(model, image)
        with CallRecorder(model) as recorder:
            model(image)

    assert counted == expected
    recorded = {}
    for call in recorder.calls:
        recorded[call.operator_type] = recorded.get(call.operator_type, 0) + call.macs
    assert recorded == {operator_type: totals.macs for operator_type, totals in expected.by_type.items()}


@pytest.mark.parametrize("build", [tiny_segformer, tiny_vit])
def test_the_meta_device_counts_what_the_real_one_does(build):
    model = build()
    image = torch.zeros(1, 3, 32, 32)
    real, meta = count(model, image), count(model, image, on_meta=True)

    assert {name: totals.macs for name, totals in real.by_type.items()} == {
        name: totals.macs for name, totals in meta.by_type.items()
    }
    assert {name: totals.macs for name, totals in real.by_module.items()} == {
        name: totals.macs for name, totals in meta.by_module.items()
    }
    assert real.params == meta.params == sum(parameter.numel() for parameter in model.parameters())
    assert all(not parameter.is_meta for parameter in model.parameters())


def test_fused_and_eager_attention_agree():
    model = tiny_vit()
    image = torch.zeros(1, 3, 32, 32)
    totals = {}
    for implementation in ("sdpa", "eager"):
        model.set_attn_implementation(implementation)
        totals[implementation] = count(model, image)

    assert totals["sdpa"].macs == totals["eager"].macs
    n, layers = 4 * 4 + 1, 2  # patches and class token
    assert totals["sdpa"].by_type[OperatorType.ATTENTION].macs == layers * 2 * n * n * 32
    assert totals["eager"].by_type[OperatorType.MATMUL].macs == layers * 2 * n * n * 32
    assert totals["sdpa"].settings["attention_implementation"] == "sdpa"
    assert totals["eager"].settings["attention_implementation"] == "eager"


def test_masks_and_zeroed_weights_save_nothing_and_are_noted():
    model = tiny_vit()
    image = torch.zeros(1, 3, 32, 32)
    before = count(model, image)
    with torch.no_grad():
        name, layer = next((n, m) for n, m in model.named_modules() if isinstance(m, nn.Linear))
        layer.weight[: layer.out_features // 2] = 0

    after = count(model, image)

    assert after.macs == before.macs
    assert before.notes == ()
    half, whole = layer.out_features // 2, layer.out_features
    assert after.notes == (
        f"{name}: {half} of {whole} output channels are zero and still computed; "
        "only removing them from the shapes saves work",
    )


def test_the_report_carries_what_the_count_depends_on():
    model = tiny_segformer()
    small, wide = (count(model, kwargs={"pixel_values": torch.zeros(1, 3, 32, w)}) for w in (32, 128))

    assert small.to_dict()["inputs"] == [
        {"name": "pixel_values", "shape": [1, 3, 32, 32], "dtype": "float32", "device": "cpu"}
    ]
    assert wide.to_dict()["inputs"][0]["shape"] == [1, 3, 32, 128]
    assert wide.by_type[OperatorType.CONVOLUTION].macs == 4 * small.by_type[OperatorType.CONVOLUTION].macs
    assert small.settings["model"] == "SegformerForSemanticSegmentation"


def test_window_sizes_are_reported():
    swin = pytest.importorskip("timm").create_model("swin_tiny_patch4_window7_224", device="meta")

    assert count(swin, torch.empty(1, 3, 224, 224, device="meta")).settings["window_sizes"] == [7]


def test_modules_sum_to_the_whole():
    model = tiny_segformer()
    result = count(model, torch.zeros(1, 3, 32, 32))

    whole, modules = result.by_module[""], result.by_module
    assert whole.macs == result.macs
    assert whole.bytes_moved == result.bytes_moved
    assert whole.calls == len(result.calls)
    children = [name for name, _ in model.named_children()]
    assert sum(modules[name].macs for name in children) == whole.macs
    assert modules["decode_head.linear_fuse"].macs == 8 * 8 * (4 * 16) * 16
    assert [row.name for row in result.modules(depth=1)] == ["", *children]
    assert result.modules(depth=0)[0].macs_share == 1.0
    assert sum(row.macs_share for row in result.table()) == pytest.approx(1.0)


def test_a_shared_module_belongs_to_its_caller():
    shared = nn.Linear(4, 4, bias=False)
    first, second = nn.Sequential(shared), nn.Sequential(shared, shared)
    result = count(nn.Sequential(first, second), torch.zeros(1, 4))

    macs = {name: totals.macs for name, totals in result.by_module.items()}
    assert macs == {"": 48, "0": 16, "0.0": 16, "1": 32, "1.0": 32}
    assert result.params == 16


def test_bytes_are_the_least_traffic():
    def bytes_of(function, *args):
        (call,) = (call for call in count(Calls(function), args).calls if call.bytes_written)
        return call.bytes_read, call.bytes_written

    x, row = torch.zeros(8, 16), torch.zeros(16)
    assert bytes_of(lambda x: x + 1, x) == (512, 512)
    assert bytes_of(lambda x: x + x, x) == (512, 512)  # one tensor twice is read once
    assert bytes_of(lambda x, row: x + row.expand(8, 16), x, row) == (512 + 64, 512)  # as held in memory
    assert bytes_of(lambda x: x.add_(1), x) == (512, 512)
    assert bytes_of(lambda x: x.half(), x) == (512, 256)
    assert bytes_of(lambda x: F.embedding(torch.tensor([3, 1]), x), x) == (16 + 128, 128)
    assert bytes_of(lambda x: x.new_zeros(4), x) == (0, 16)
    assert bytes_of(lambda x, row: x[0].copy_(row), x, row) == (64, 64)


def test_views_are_free_and_move_data():
    result = count(Calls(lambda x: x.view(4, 8).t()[1:].unsqueeze(0).expand(3, -1, -1)), torch.zeros(32))

    assert result.bytes_moved == 0
    assert set(result.by_type) == {OperatorType.DATA_MOVEMENT}


def test_compiled_modules_are_counted_from_the_eager_one():
    model = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False))
    x = torch.zeros(4, 8)
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(model, backend=backend)
    outer = nn.Sequential(compiled)
    before = count(model, x)
    assert before.flops == 2 * 2 * 4 * 8 * 8 == 1024
    assert count(compiled, x) == before
    assert graphs == []
    compiled(x)
    traced = len(graphs)
    assert count(compiled, x) == before
    assert count(outer, x).flops == 1024
    assert "0.1" in count(outer, x).by_module
    compiled(x)
    assert len(graphs) == traced == 1  # counting neither traced nor threw away a trace


def test_integer_weights_are_counted():
    weight, scales = torch.ones(6, 32, dtype=torch.int8), torch.ones(6, dtype=torch.bfloat16)
    result = count(
        Calls(lambda x: torch._weight_int8pack_mm(x, weight, scales)), torch.ones(3, 32, dtype=torch.bfloat16)
    )

    assert result.by_type[OperatorType.LINEAR].macs == 3 * 32 * 6


def test_a_report_is_strict_json():
    result = count(tiny_segformer(), torch.zeros(1, 3, 32, 32))

    assert json.loads(json.dumps(result.to_dict(), allow_nan=False))["macs"] == result.macs


def test_inputs_may_be_nested_and_named():
    def forward(pair, scale):
        return pair[0] @ pair[1]["right"] * scale

    pair = (torch.zeros(2, 3), {"right": torch.zeros(3, 4)})
    result = count(Calls(forward), (pair,), {"scale": torch.ones(())})

    assert result.macs == 24
    assert {spec.shape for spec in result.inputs} == {(2, 3), (3, 4), ()}


def test_what_cannot_be_counted_is_refused():
    with pytest.raises(InputError, match="pass a torch"):
        count(lambda x: x, torch.zeros(1))
    with pytest.raises(ModelError, match="weight has no shape yet"):
        count(nn.LazyLinear(3), torch.zeros(1, 4))


@pytest.mark.parametrize(
    ("name", "operator_type", "said"),
    [
        ("nonsense", OperatorType.MATMUL, '"nonsense" names no operator; write namespace::name'),
        ("::op", OperatorType.MATMUL, "names no operator"),
        ("my::op", "matmull", '"matmull" is no type of work; choose one of convolution, linear'),
    ],
)
def test_an_operator_is_registered_by_its_whole_name_and_a_known_type(name, operator_type, said):
    with pytest.raises(InputError, match=said):
        register_operator(name, operator_type)


@pytest.mark.parametrize("wrong", ["macs", "flops"])
def test_a_registered_formula_that_fails_is_named(wrong, monkeypatch):
    monkeypatch.setattr(operators, "_OPERATORS", dict(operators._OPERATORS))  # what is registered is gone afterwards

    @torch.library.custom_op(f"gearshift_count::broken_{wrong}", mutates_args=())
    def broken(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    class Broken(nn.Module):
        def forward(self, x):
            return broken(x)

    register_operator(f"gearshift_count::broken_{wrong}", OperatorType.OTHER, **{wrong: lambda args, out: 1 // 0})
    with pytest.raises(ModelError, match=f"formula of gearshift_count::broken_{wrong} fails on shapes .*ZeroDivision"):
        count(Broken(), torch.ones(2, 3))


def test_what_is_no_input_is_refused():
    with pytest.raises(InputError, match="cannot call a module with a int; pass a tensor, or a tuple"):
        count(nn.Linear(2, 2), 5)
