"""Properties of the count over small but real models of every family, each built by its own library.

A total is a property of shapes: the same under grad, no-grad and inference mode, eager and compiled, on a real
device and on the meta device, and each model is left as found, also when its forward raises.
"""

from collections import Counter

import pytest
import torch
import torchvision
from torch import nn
from transformers import (
    DeformableDetrConfig,
    DeformableDetrForObjectDetection,
    DetrConfig,
    DetrForObjectDetection,
    Mask2FormerConfig,
    Mask2FormerForUniversalSegmentation,
    ResNetConfig,
    SegformerConfig,
    SegformerForSemanticSegmentation,
    SwinConfig,
    UperNetConfig,
    UperNetForSemanticSegmentation,
)

from gearshift.profiler import CallRecorder, Count, OperatorType, count

timm = pytest.importorskip("timm")

STAGES = ["stage1", "stage2", "stage3", "stage4"]


def swin_backbone(**options):
    return SwinConfig(
        embed_dim=16, depths=[1, 1, 2, 1], num_heads=[1, 1, 2, 2], window_size=4, out_features=STAGES, **options
    )


def resnet_backbone(*stages: str):
    return ResNetConfig(embedding_size=8, hidden_sizes=[8, 16, 16, 32], depths=[1, 1, 1, 1], out_features=list(stages))


DETR = {
    "use_timm_backbone": False,
    "num_queries": 5,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
}
MODELS = {
    "segformer": lambda: SegformerForSemanticSegmentation(
        SegformerConfig(
            num_labels=5,
            hidden_sizes=[8, 16, 16, 32],
            depths=[1, 1, 1, 1],
            num_attention_heads=[1, 2, 2, 4],
            decoder_hidden_size=16,
        )
    ),
    "vit": lambda: timm.create_model("vit_tiny_patch16_224", depth=2, img_size=64),
    "deit": lambda: timm.create_model("deit_tiny_distilled_patch16_224", depth=2, img_size=64),
    "swin": lambda: timm.create_model(
        "swin_tiny_patch4_window7_224", img_size=64, window_size=4, depths=(2, 2), num_heads=(1, 2), embed_dim=16
    ),
    "upernet": lambda: UperNetForSemanticSegmentation(
        UperNetConfig(
            backbone_config=swin_backbone(),
            num_labels=5,
            hidden_size=16,
            auxiliary_channels=8,
            auxiliary_in_channels=64,
        )
    ),
    "detr": lambda: DetrForObjectDetection(DetrConfig(backbone_config=resnet_backbone("stage4"), d_model=16, **DETR)),
    "deformable detr": lambda: DeformableDetrForObjectDetection(
        DeformableDetrConfig(backbone_config=resnet_backbone(*STAGES[1:]), d_model=32, **DETR)
    ),
    "mask2former": lambda: Mask2FormerForUniversalSegmentation(
        Mask2FormerConfig(
            backbone_config=swin_backbone(image_size=64),
            feature_size=32,
            mask_feature_size=32,
            hidden_dim=32,
            encoder_feedforward_dim=16,
            encoder_layers=1,
            decoder_layers=2,
            num_attention_heads=2,
            dim_feedforward=16,
            num_queries=5,
        )
    ),
    "resnet50": lambda: torchvision.models.resnet50(),
    "convnext": lambda: timm.create_model("convnext_atto", depths=(1, 1, 1, 1), dims=(8, 16, 16, 32)),
    "efficientnet": lambda: timm.create_model("efficientnet_lite0"),
    "mobilevit": lambda: timm.create_model("mobilevit_xxs"),
    "xcit": lambda: timm.create_model("xcit_nano_12_p16_224", img_size=64, depth=2),
}
SIZES = {"deformable detr": 128}  # smaller, and its group norms have one value per group
# Asks whether a mask that it made itself is all ones, and fused attention does without it then.
READS_VALUES = {"detr"}
# A bias table is added to the scores: where that needs a gradient PyTorch takes fused attention apart.
LEARNT_MASKS = {"upernet", "mask2former"}


@pytest.fixture(scope="module", params=MODELS)
def case(request) -> tuple[str, nn.Module, torch.Tensor, Count]:
    torch.manual_seed(0)
    model = MODELS[request.param]().eval()
    size = SIZES.get(request.param, 64)
    image = torch.rand(1, 3, size, size)
    return request.param, model, image, count(model, image)


def by_module(calls) -> Counter[str]:
    macs: Counter[str] = Counter()
    for call in calls:
        macs[call.module] += call.macs
    return macs


def flops(calls) -> int:
    return sum(call.elementwise_flops for call in calls)


def test_everything_is_counted(case):
    _, _, _, expected = case

    assert expected.uncounted == {}
    assert expected.macs > 0
    assert expected.elementwise_flops > 0


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_totals_do_not_depend_on_the_gradient_mode(case, mode):
    name, model, image, expected = case
    with mode(), CallRecorder(model) as recorder:
        model(image)

    assert by_module(recorder.calls) == by_module(expected.calls)
    kept = {(call.operator, call.module) for call in recorder.calls}
    apart = [call for call in expected.calls if "_dot_" in call.operator and (call.operator, call.module) not in kept]
    assert bool(apart) == (mode is torch.enable_grad and name in LEARNT_MASKS)
    assert flops(recorder.calls) == flops(expected.calls) + sum(extra_when_taken_apart(call) for call in apart)


def extra_when_taken_apart(call) -> int:
    """What unfused attention adds: query and key are scaled, and not the scores."""
    (batch, heads, n, width), (_, _, m, _) = call.input_shapes[:2]
    return batch * heads * (n * width + m * width - n * m)


def test_compiled_models_count_as_eager_ones_do(case):
    _, model, image, expected = case

    compiled = torch.compile(model, backend="eager")

    assert count(compiled, image) == expected


def test_the_meta_device_counts_what_the_real_one_does(case):
    name, model, image, expected = case
    if name in READS_VALUES:
        with pytest.raises(RuntimeError, match="meta tensors"):
            count(model, image, on_meta=True)
        return

    meta = count(model, image, on_meta=True)

    assert by_module(meta.calls) == by_module(expected.calls)
    assert flops(meta.calls) == flops(expected.calls)
    assert {name: totals.macs for name, totals in meta.by_type.items() if totals.macs} == {
        name: totals.macs for name, totals in expected.by_type.items() if totals.macs
    }


def test_totals_of_modules_and_types_are_the_whole(case):
    _, _, _, expected = case

    assert expected.by_module[""].macs == sum(totals.macs for totals in expected.by_type.values()) == expected.macs
    assert expected.by_module[""].elementwise_flops == expected.elementwise_flops
    assert sum(totals.elementwise_flops for totals in expected.by_type.values()) == expected.elementwise_flops
    assert sum(totals.elementwise_flops for totals in expected.by_operator.values()) == expected.elementwise_flops
    report = expected.to_dict()
    assert report["elementwise_flops"] == sum(row["elementwise_flops"] for row in report["by_type"])


def test_no_work_is_booked_twice(case):
    """Plain multiply-adds have no element-wise work, and everything without multiply-adds has no MACs."""
    _, _, _, expected = case
    for call in expected.calls:
        if call.operator_type in (OperatorType.CONVOLUTION, OperatorType.LINEAR, OperatorType.MATMUL):
            assert (call.macs > 0, call.elementwise_flops) == (True, 0)
        elif call.operator_type is not OperatorType.ATTENTION:
            assert call.macs == 0
        if call.operator_type is OperatorType.DATA_MOVEMENT and "col2im" not in call.operator:
            assert call.elementwise_flops == 0


def state_of(model):
    return (
        [module.training for module in model.modules()],
        [{key: id(value) for key, value in vars(module).items()} for module in model.modules()],
        [(tensor.data_ptr(), tensor._version) for tensor in model.state_dict().values()],
        torch.random.get_rng_state().tolist(),
    )


@pytest.mark.parametrize("fails", [False, True], ids=["succeeds", "raises"])
def test_models_are_left_as_found(case, fails):
    _, model, image, expected = case
    last = model.get_submodule([call.module for call in expected.calls if call.macs][-1])

    def fail(*_):
        raise RuntimeError("on purpose")

    handle = last.register_forward_hook(fail) if fails else None
    last.train()
    try:
        before = state_of(model)
        if fails:
            with pytest.raises(RuntimeError, match="on purpose"):
                count(model, image)
        else:
            count(model, image)
        assert state_of(model) == before
    finally:
        last.eval()
        if handle is not None:
            handle.remove()
