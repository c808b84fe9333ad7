"""The published `net.config` of a single network, read as the subnet that it describes.

Such a file lists every layer. The subnet follows from numbers of channels, and its own list must then be the same.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from gearshift.errors import SpecError
from gearshift.paths.ofa.shape import STAGE_CHANNELS, Shape, divisible, shape_of, stem_channels
from gearshift.paths.ofa.space import BASE_DEPTHS, DEPTHS, EXPAND_RATIOS, STAGE_BLOCKS, WIDTHS, Subnet

Layer = dict[str, Any]
_HINT = "give the net.config of a Once-for-All ResNet-50, or {d, e, w}"


def subnet_from_net_config(config: Mapping[str, Any]) -> Subnet:
    """Read the parsed JSON of a published `net.config`.

    Raises:
        SpecError: It describes no network of this space; the message names the first layer that does not fit.
    """
    stem, blocks = (_layers(config, key) for key in ("input_stem", "blocks"))
    convolutions = [_convolution(layer) for layer in stem]
    if len(convolutions) not in (2, 3):
        raise SpecError(f"input_stem holds {len(convolutions)} layers; allowed: 2, or 3 with its block; {_HINT}")
    depths = [max(DEPTHS) if len(convolutions) == 3 else min(DEPTHS)]
    widths = [
        _find("input_stem.0", convolutions[0], lambda width: stem_channels(width)[0]),
        _find("input_stem.-1", convolutions[-1], lambda width: stem_channels(width)[1]),
    ]
    ratios: list[float] = []
    for stage, (first, layers) in enumerate(_stages(blocks)):
        depths.append(len(layers) - BASE_DEPTHS[stage])
        widths.append(_find(f"blocks.{first}", layers[0], partial(_stage_channels, stage)))
        out_channels = _stage_channels(stage, widths[-1])
        ratios += [_ratio(f"blocks.{first + number}", layer, out_channels) for number, layer in enumerate(layers)]
        ratios += [min(EXPAND_RATIOS)] * (STAGE_BLOCKS[stage] - len(layers))
    subnet = Subnet(depths=tuple(depths), expand_ratios=tuple(ratios), widths=tuple(widths))
    given = {f"input_stem.{place}": layer for place, layer in enumerate(convolutions)}
    given |= {f"blocks.{place}": layer for place, layer in enumerate(blocks)}
    _check_same(given, _described(shape_of(subnet)))
    return subnet


def _layers(config: Any, key: str) -> list[Layer]:
    layers = config.get(key) if isinstance(config, Mapping) else None
    if not isinstance(layers, list) or not all(isinstance(layer, dict) for layer in layers):
        raise SpecError(f'the description holds no list "{key}" of layers; {_HINT}')
    return layers


def _convolution(layer: Layer) -> Layer:
    """The layer itself, or the one inside the stem's residual block."""
    inner = layer.get("conv", layer)
    return inner if isinstance(inner, dict) else layer


def _stages(blocks: Sequence[Layer]) -> list[tuple[int, list[Layer]]]:
    """The place of each stage's first block, and its blocks: a stage begins where the number of channels changes."""
    stages: list[tuple[int, list[Layer]]] = []
    for place, block in enumerate(blocks):
        if not stages or block.get("in_channels") != block.get("out_channels"):
            stages.append((place, []))
        stages[-1][1].append(block)
    lengths = [len(layers) for _, layers in stages]
    allowed = [[base + depth for depth in DEPTHS] for base in BASE_DEPTHS]
    if len(lengths) != len(allowed) or any(length not in known for length, known in zip(lengths, allowed, strict=True)):
        raise SpecError(f"stages of {lengths} blocks; allowed: {allowed}; {_HINT}")
    return stages


def _find(name: str, layer: Layer, channels: Callable[[float], int]) -> float:
    """The width that gives a layer its output channels."""
    known = {channels(width): width for width in reversed(WIDTHS)}
    given = layer.get("out_channels")
    if given not in known:
        raise SpecError(f'{name} has "out_channels" {given!r}; allowed: {", ".join(map(str, known))}; {_HINT}')
    return known[given]


def _ratio(name: str, layer: Layer, out_channels: int) -> float:
    known = {divisible(round(out_channels * ratio)): ratio for ratio in EXPAND_RATIOS}
    given = layer.get("mid_channels")
    if given not in known:
        raise SpecError(f'{name} has "mid_channels" {given!r}; allowed: {", ".join(map(str, known))}; {_HINT}')
    return known[given]


def _stage_channels(stage: int, width: float) -> int:
    return divisible(STAGE_CHANNELS[stage] * width)


def _described(shape: Shape) -> dict[str, Layer]:
    """Every layer as a `net.config` describes it, as far as it decides what is computed."""
    middle = shape.stem_middle
    stem = [(3, middle, 2), *([(middle, middle, 1)] if shape.stem_block else []), (middle, shape.stem_out, 1)]
    common = {"kernel_size": 3, "groups": 1, "act_func": "relu"}
    layers: dict[str, Layer] = {
        f"input_stem.{place}": common | {"in_channels": before, "out_channels": behind, "stride": stride}
        for place, (before, behind, stride) in enumerate(stem)
    }
    for place, block in enumerate(shape.blocks):
        layers[f"blocks.{place}"] = common | {
            "in_channels": block.in_channels,
            "mid_channels": block.middle_channels,
            "out_channels": block.out_channels,
            "stride": block.stride,
            "downsample_mode": "avgpool_conv",
        }
    return layers


def _check_same(given: Mapping[str, Layer], expected: Mapping[str, Layer]) -> None:
    for name, layer in expected.items():
        for key, value in layer.items():
            if given[name].get(key) != value:
                raise SpecError(f'{name} has "{key}" {given[name].get(key)!r}, where it takes {value!r}; {_HINT}')
