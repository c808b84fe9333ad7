"""The elastic ResNet-50 as published, written down a second time: tables of channels, and plain functional calls."""

import random
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from gearshift.paths.ofa import Subnet

# By width index: channels of the stem, and of each stage with its middle channels at ratios 0.2, 0.25 and 0.35.
STEM_MIDDLE = (24, 24, 32)
STEM_OUT = (40, 48, 64)
STAGES: tuple[dict[int, tuple[int, int, int]], ...] = (
    {168: (32, 40, 56), 208: (40, 56, 72), 256: (48, 64, 88)},
    {336: (64, 88, 120), 408: (80, 104, 144), 512: (104, 128, 176)},
    {664: (136, 168, 232), 816: (160, 208, 288), 1024: (208, 256, 360)},
    {1328: (264, 336, 464), 1640: (328, 408, 576), 2048: (408, 512, 720)},
)
FIRST_BLOCKS = (0, 4, 8, 14)
BASE_DEPTHS = (2, 2, 4, 2)
RATIOS = (0.2, 0.25, 0.35)

R50 = Subnet(depths=(2, 1, 2, 2, 1), expand_ratios=(0.25,) * 18, widths=(1.0,) * 6)
"""Depths and channels of ResNet-50-D."""
ENDS = [Subnet.largest(), Subnet.smallest()]
SAMPLES = [Subnet.sample(random.Random(seed)) for seed in range(20)]

subnets = st.builds(
    Subnet,
    depths=st.tuples(*[st.sampled_from((0, 1, 2))] * 5),
    expand_ratios=st.tuples(*[st.sampled_from(RATIOS)] * 18),
    widths=st.tuples(*[st.sampled_from((0.65, 0.8, 1.0))] * 6),
)


def blocks_of(subnet: Subnet) -> Iterator[tuple[int, int, int, int]]:
    """Index, middle channels, output channels and stride of every block."""
    d, e, w = (subnet.to_json()[key] for key in "dew")
    for stage, (first, base, table) in enumerate(zip(FIRST_BLOCKS, BASE_DEPTHS, STAGES, strict=True)):
        channels, middles = list(table.items())[int(w[2 + stage])]
        for index in range(first, first + base + int(d[1 + stage])):
            stride = 2 if stage and index == first else 1
            yield index, middles[RATIOS.index(e[index])], channels, stride


def net_config(subnet: Subnet) -> dict[str, Any]:
    """The description that is published with a single network."""
    d, _, w = (subnet.to_json()[key] for key in "dew")
    middle, out = STEM_MIDDLE[int(w[0])], STEM_OUT[int(w[1])]

    def convolution(before: int, behind: int, stride: int) -> dict[str, Any]:
        channels = {"in_channels": before, "out_channels": behind}
        return {"name": "ConvLayer", "kernel_size": 3, "stride": stride, "groups": 1, "act_func": "relu"} | channels

    stem = [convolution(3, middle, 2), convolution(middle, out, 1)]
    if d[0] == 2:
        stem.insert(1, {"name": "ResidualBlock", "conv": convolution(middle, middle, 1), "shortcut": {}})
    blocks = []
    before = out
    for _, middle_channels, channels, stride in blocks_of(subnet):
        blocks.append(
            {
                "name": "ResNetBottleneckBlock",
                "in_channels": before,
                "out_channels": channels,
                "mid_channels": middle_channels,
                "kernel_size": 3,
                "stride": stride,
                "act_func": "relu",
                "groups": 1,
                "downsample_mode": "avgpool_conv",
            }
        )
        before = channels
    classifier = {"name": "LinearLayer", "in_features": before, "out_features": 1000}
    return {"name": "ResNets", "input_stem": stem, "blocks": blocks, "classifier": classifier}


def forward(weights: Mapping[str, Tensor], subnet: Subnet, pixels: Tensor) -> Tensor:
    """Logits from the supernet's tensors, its statistics included, without any module."""

    def convolution(name: str, features: Tensor, out: int, stride: int = 1, *, activated: bool = True) -> Tensor:
        weight = weights[f"{name}.conv.conv.weight"][:out, : features.shape[1]]
        mixed = F.conv2d(features, weight, stride=stride, padding=weight.shape[-1] // 2)
        mean, variance, scale, shift = (
            weights[f"{name}.bn.bn.{kind}"][:out, None, None]
            for kind in ("running_mean", "running_var", "weight", "bias")
        )
        normed = (mixed - mean) / torch.sqrt(variance + 1e-5) * scale + shift
        return normed.clamp_min(0) if activated else normed

    d, _, w = (subnet.to_json()[key] for key in "dew")
    middle = STEM_MIDDLE[int(w[0])]
    features = convolution("input_stem.0", pixels, middle, 2)
    if d[0] == 2:
        features = convolution("input_stem.1.conv", features, middle) + features
    features = F.max_pool2d(convolution("input_stem.2", features, STEM_OUT[int(w[1])]), 3, 2, padding=1)
    for index, middle_channels, channels, stride in blocks_of(subnet):
        name = f"blocks.{index}"
        inner = convolution(f"{name}.conv1", features, middle_channels)
        inner = convolution(f"{name}.conv2", inner, middle_channels, stride)
        inner = convolution(f"{name}.conv3", inner, channels, activated=False)
        if index in FIRST_BLOCKS:
            pooled = F.avg_pool2d(features, stride, stride, ceil_mode=True)
            features = convolution(f"{name}.downsample", pooled, channels, activated=False)
        features = (inner + features).clamp_min(0)
    pooled = features.mean(dim=(2, 3))
    weight = weights["classifier.linear.linear.weight"][:, : pooled.shape[1]]
    return pooled @ weight.T + weights["classifier.linear.linear.bias"]
