"""What a survey says of architectures: golden figures, and the same from models built and counted the plain way."""

from contextlib import AbstractContextManager, nullcontext

import pytest
import timm
import torch
from torch import nn

from gearshift.profiler import Call, CallRecorder, count
from gearshift.profiler.survey.assumed import TruthAssumed
from gearshift.profiler.survey.measure import measure
from gearshift.profiler.survey.remembered import RememberedShapes
from gearshift.profiler.survey.row import Row
from gearshift.profiler.survey.timm_library import TimmLibrary
from gearshift.profiler.survey.transformers_library import TransformersLibrary, input_size
from gearshift.profiler.survey.without_values import WithoutValues

# Conv2d, 1x1, grouped, without bias; Linear, without bias; parameters; MACs. Of timm 1.0.31.
GOLDEN = {
    "resnet18": (20, 3, 0, 20, 1, 0, 11_689_512, 1_814_073_344),
    "resnetv2_50x1_bit": (54, 37, 0, 53, 0, 0, 25_549_352, 4_089_184_256),
    "nf_resnet50": (53, 36, 0, 0, 1, 0, 25_557_032, 5_340_348_416),
    "dm_nfnet_f0": (81, 53, 22, 0, 1, 0, 71_489_284, 6_977_003_520),
    "tf_efficientnet_b0": (81, 64, 16, 49, 1, 0, 5_288_548, 385_814_752),
    "mobilenetv3_small_100": (53, 41, 11, 34, 1, 0, 2_542_856, 56_510_400),
    "repvgg_a0": (44, 22, 0, 44, 1, 0, 9_108_968, 1_512_581_120),
    "inception_v3": (94, 40, 0, 94, 1, 0, 23_834_568, 5_713_216_096),
    "xception41": (84, 43, 39, 84, 1, 0, 26_969_560, 9_204_134_312),
    "densenet121": (120, 61, 0, 120, 1, 0, 7_978_856, 2_834_161_664),
    "regnetx_002": (44, 30, 13, 44, 1, 0, 2_684_792, 199_039_872),
    "convnext_atto": (40, 24, 12, 0, 1, 0, 3_695_520, 547_332_480),
    "convnextv2_atto": (40, 24, 12, 0, 1, 0, 3_708_400, 547_332_480),
    "vit_tiny_patch16_224": (1, 0, 0, 0, 49, 0, 5_717_416, 1_253_683_200),
    "swin_tiny_patch4_window7_224": (1, 0, 0, 0, 52, 3, 28_288_354, 4_490_566_656),
    "swinv2_base_window8_256": (1, 0, 0, 0, 148, 51, 87_918_816, 20_325_134_336),
    "maxvit_nano_rw_256": (40, 31, 7, 26, 57, 0, 15_451_148, 4_416_999_424),
    "efficientvit_b0": (50, 34, 19, 38, 2, 1, 3_410_008, 100_233_216),
    "coat_mini": (20, 0, 16, 0, 81, 0, 10_337_004, 6_772_601_512),
    "xcit_nano_12_p16_224": (29, 1, 24, 4, 61, 0, 3_053_224, 550_952_448),
    "mixer_s32_224": (1, 0, 0, 0, 33, 0, 19_104_624, 1_002_426_368),
    "levit_128": (4, 0, 0, 4, 60, 58, 9_213_936, 405_321_728),
    "fastvit_t8": (68, 39, 40, 46, 1, 0, 4_026_232, 690_149_376),
    "hiera_tiny_224": (1, 0, 0, 0, 52, 0, 27_910_216, 4_900_830_720),
    "edgenext_xx_small": (20, 1, 15, 0, 31, 0, 1_327_216, 257_905_088),
    "ghostnet_100": (95, 53, 41, 80, 1, 0, 5_182_508, 141_150_512),
    "hrnet_w18_small": (91, 26, 0, 87, 1, 0, 13_187_464, 1_601_508_352),
}
of_this_timm = pytest.mark.skipif(timm.__version__ != "1.0.31", reason="figures of timm 1.0.31")


@pytest.fixture(scope="module")
def measured() -> dict[str, Row]:
    shapes = RememberedShapes()  # one memory for all, as in a worker
    return {name: measure(TimmLibrary(), name, shapes) for name in GOLDEN}


def plain(name: str) -> tuple[nn.Module, torch.Tensor]:
    """Build it with timm alone."""
    with torch.device("meta"):
        module = timm.create_model(name, pretrained=False).eval()
        return module, torch.empty(1, *module.pretrained_cfg["input_size"])


@of_this_timm
@pytest.mark.parametrize("name", GOLDEN)
def test_golden_figures(name: str, measured: dict[str, Row]) -> None:
    row = measured[name]
    convolutions = [layer for layer in row.layers if layer.kind == "Conv2d"]
    linear = [layer for layer in row.layers if layer.kind == "Linear"]
    assert (
        sum(layer.count for layer in convolutions),
        sum(layer.count for layer in convolutions if layer.kernel == (1, 1)),
        sum(layer.count for layer in convolutions if layer.groups > 1),
        sum(layer.count for layer in convolutions if not layer.bias),
        sum(layer.count for layer in linear),
        sum(layer.count for layer in linear if not layer.bias),
        row.params,
        row.total_macs,
    ) == GOLDEN[name]
    assert (row.status, row.uncounted, row.assumed) == ("ok", {}, 0)


@pytest.mark.parametrize("name", GOLDEN)
def test_macs_are_those_of_count(name: str, measured: dict[str, Row]) -> None:
    module, pixels = plain(name)
    result = count(module, pixels)
    assert measured[name].macs == {str(kind): totals.macs for kind, totals in result.by_type.items() if totals.macs}
    assert measured[name].params == result.params
    assert measured[name].input_shape == tuple(pixels.shape)


@pytest.mark.parametrize("name", GOLDEN)
def test_layers_are_those_of_the_module(name: str, measured: dict[str, Row]) -> None:
    module, _ = plain(name)
    expected: dict[tuple[object, ...], int] = {}
    for item in module.modules():
        if isinstance(item, nn.Conv2d):
            key = (type(item).__name__, item.in_channels, item.out_channels, tuple(item.kernel_size))
            key += (tuple(item.stride), item.groups, item.bias is not None)
        elif isinstance(item, nn.Linear):
            key = (type(item).__name__, item.in_features, item.out_features, (), (), 1, item.bias is not None)
        else:
            continue
        expected[key] = expected.get(key, 0) + 1
    found = {
        (x.class_name.rpartition(".")[2], x.in_features, x.out_features, x.kernel, x.stride, x.groups, x.bias): x.count
        for x in measured[name].layers
        if x.kind in ("Conv2d", "Linear")
    }
    assert found == expected


def test_concrete_classes_are_kept(measured: dict[str, Row]) -> None:
    def classes(name: str) -> set[str]:
        return {layer.class_name for layer in measured[name].layers}

    assert classes("nf_resnet50") == {"ScaledStdConv2d", "Linear"}
    assert classes("dm_nfnet_f0") == {"ScaledStdConv2dSame", "Conv2d", "Linear"}
    assert classes("resnetv2_50x1_bit") == {"StdConv2d", "Conv2d"}
    assert {"Conv2dSame", "Conv2d"} < classes("tf_efficientnet_b0")
    assert "timm.layers.linear.Linear" in classes("mobilenetv3_small_100"), "a class of PyTorch's name is told apart"


# The shortcuts that a survey takes.


@pytest.mark.parametrize(
    "name", ["resnet18", "levit_128", "coat_mini", "swin_tiny_patch4_window7_224", "xcit_nano_12_p16_224"]
)
def test_remembered_shapes_change_no_call(name: str) -> None:
    shapes = RememberedShapes()
    runs = [recorded(name, mode) for mode in (nullcontext(), shapes, shapes)]
    assert runs[0] == runs[1] == runs[2], "operators, modules, MACs, bytes and shapes, call by call"
    assert shapes.hits > len(runs[0][0]) / 4


def recorded(name: str, mode: AbstractContextManager[object]) -> tuple[list[Call], torch.Size, tuple[int, ...]]:
    """The calls of a pass of a new module (some keep what they have worked out), and the form of its result."""
    module, pixels = plain(name)
    recorder, below = CallRecorder(module), torch._C._AutoDispatchBelowAutograd()
    with torch.device("meta"), torch.no_grad(), mode, below, recorder:
        out = module(pixels)
    return recorder.calls, out.shape, out.stride()


def test_remembered_shapes_tell_types_of_numbers_and_of_tensors_apart() -> None:
    x = torch.empty(2, 3, device="meta", dtype=torch.int64)
    with RememberedShapes():
        for _ in range(2):
            assert (x + 1).dtype is torch.int64
            assert (x + 1.0).dtype is torch.float32
            assert (x.to(torch.float64) + 1).dtype is torch.float64
            assert (x.t() + 1).stride() == (1, 3)


def test_remembered_shapes_leave_values_and_views_alone() -> None:
    real = torch.arange(6.0)
    x = torch.empty(2, 3, device="meta")
    with RememberedShapes():
        assert torch.equal(real + 1, torch.arange(1.0, 7.0))
        assert torch.equal(real + 2, torch.arange(2.0, 8.0))
        for _ in range(2):
            assert x.view(3, 2)._base is x
            assert x.add_(1) is x


def test_building_without_values_gives_the_same_module() -> None:
    with torch.device("meta"), WithoutValues():
        quick = timm.create_model("vit_tiny_patch16_224", pretrained=False)
    slow, _ = plain("vit_tiny_patch16_224")
    kinds = [
        {name: (t.shape, t.dtype, t.device) for name, t in module.state_dict().items()} for module in (quick, slow)
    ]
    assert kinds[0] == kinds[1]


def test_building_without_values_still_fills_real_tensors() -> None:
    with WithoutValues():
        layer = nn.Linear(3, 4)
        nn.init.constant_(layer.weight, 2.0)
        nn.init.zeros_(layer.bias)
    assert layer.weight.tolist() == [[2.0] * 3] * 4
    assert layer.bias.tolist() == [0.0] * 4


def test_questions_about_truth_are_answered_and_counted() -> None:
    unknown = torch.empty(3, dtype=torch.bool, device="meta")
    with TruthAssumed() as asked:
        assert unknown.all()
        assert unknown.any().item() is True
        assert not torch.zeros(1, dtype=torch.bool), "real tensors answer for themselves"
        with pytest.raises(RuntimeError, match="meta"):
            torch.empty((), device="meta").item()
    assert asked.answers == 2
    with pytest.raises((RuntimeError, NotImplementedError)):
        bool(unknown.all())


# transformers.


@pytest.mark.parametrize("name", ["segformer", "vit", "detr", "upernet", "depth_anything", "yolos", "dinov3_vit"])
def test_vision_models_of_transformers(name: str) -> None:
    row = measure(TransformersLibrary(), name, RememberedShapes())
    assert (row.status, row.macs_reason) == ("ok", None)
    assert row.total_macs
    assert row.facts is not None
    assert row.facts.model_class is not None


def test_a_transformers_model_costs_what_its_own_class_costs() -> None:
    from transformers import SegformerConfig, SegformerForImageClassification

    with torch.device("meta"):
        module = SegformerForImageClassification(SegformerConfig()).eval()
        result = count(module, torch.empty(1, 3, 224, 224))
    row = measure(TransformersLibrary(), "segformer", RememberedShapes())
    assert (row.total_macs, row.params) == (result.macs, result.params)


def test_names_of_transformers_are_vision_models_once_each() -> None:
    names = TransformersLibrary().names()
    assert list(names) == sorted(set(names))
    assert {"segformer", "vit", "swin", "detr", "dinov2", "depth_anything", "sam"} - set(names) <= {"sam"}
    assert not {"bert", "llama", "whisper"} & set(names)


class Config:
    def __init__(self, **values: object) -> None:
        self.__dict__.update(values)


@pytest.mark.parametrize(
    ("config", "size"),
    [
        (Config(), (3, 224, 224)),
        (Config(image_size=384), (3, 384, 384)),
        (Config(image_size=(512, 864), num_channels=4), (4, 512, 864)),
        (Config(image_size={"height": 8, "width": 9}), (3, 8, 9)),
        (Config(vision_config=Config(image_size=336, num_channels=1)), (1, 336, 336)),
        (Config(image_size=None, backbone_config=Config(image_size=[518, 518])), (3, 518, 518)),
        (Config(input_size=(3, 64, 80)), (3, 64, 80)),
    ],
)
def test_the_input_size_comes_from_the_configuration(config: Config, size: tuple[int, int, int]) -> None:
    assert input_size(config) == size
