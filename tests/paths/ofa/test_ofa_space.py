"""The design space: what is allowed, what each fault says, texts and JSON, shapes and costs."""

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gearshift.errors import SpecError
from gearshift.paths.ofa import Subnet, shape_of, subnet_from_net_config
from tests.paths.ofa.published import ENDS, R50, SAMPLES, blocks_of, net_config, subnets

WHOLE: dict[str, Any] = {"d": [2, 1, 2, 0, 1], "e": [0.2, 0.25, 0.35] * 6, "w": [2, 1, 0, 2, 1, 0]}


def refusal(value: Any) -> str:
    """Return the one line with which a subnet is refused."""
    with pytest.raises(SpecError) as caught:
        Subnet.from_json(value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# Texts and JSON


@given(subnet=subnets)
def test_text_and_json_read_back(subnet: Subnet) -> None:
    assert Subnet.parse(subnet.id) == subnet
    assert Subnet.parse(str(subnet)).id == subnet.id
    assert Subnet.from_json(json.loads(json.dumps(subnet.to_json()))) == subnet
    assert subnet_from_net_config(json.loads(json.dumps(net_config(subnet)))) == subnet


def test_texts_are_short_and_readable() -> None:
    assert Subnet.largest().id == "d=2x5,w=100x6,e=35x18"
    assert Subnet.smallest().id == "d=0x5,w=65x6,e=20x10"
    assert R50.id == "d=2-1-2x2-1,w=100x6,e=25x16"
    assert max(len(subnet.id) for subnet in SAMPLES) < 100


def test_a_text_needs_no_shortening_and_no_order() -> None:
    text = "e=25-25-25-25x13, d=2-1-2-2-1 ,w=100-100-100-100-100-100"
    assert Subnet.parse(text) == R50


@given(subnet=subnets, cut=st.tuples(st.integers(0, 60), st.integers(0, 8)), put=st.text("dew=-x,012356 +", max_size=4))
def test_a_text_with_a_slip_is_read_or_refused_in_one_line(subnet: Subnet, cut: tuple[int, int], put: str) -> None:
    start, length = cut
    text = subnet.id[:start] + put + subnet.id[start + length :]
    read, said = None, ""
    try:
        read = Subnet.parse(text)
    except SpecError as error:
        said = str(error)
    assert (read is None) == bool(said)
    assert "\n" not in said
    assert read is None or Subnet.parse(read.id) == read


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", 'unknown key "" in the subnet ""; allowed: d = depths of stem and stages: 5 values; e = '),
        ("d=2x5,w=100x6", 'missing key "e"'),
        ("d=2x5,w=100x6,e=35x18,ks=3", 'unknown key "ks" in the subnet "d=2x5,w=100x6,e=35x18,ks=3"; allowed: d ='),
        ("d=2x5,d=2x5,w=100x6,e=35x18", 'key given twice "d"'),
        ("d=2x5,w=100x6,e=35x17", '"e" has 17 values, but these depths keep 18 blocks; give one each'),
        ("d=0x5,w=100x6,e=35x18", '"e" has 18 values, but these depths keep 10 blocks'),
        ("d=2x5,w=100x6,e=30x18", '"e" holds 30; allowed, in percent: 20, 25, 35'),
        ("d=2x5,w=70x6,e=35x18", '"w" holds 70; allowed, in percent: 65, 80, 100'),
        ("d=2x5,w=100x7,e=35x18", '"w" has 7 values; it takes widths of the stem\'s two convolutions'),
        ("d=3x5,w=100x6,e=35x18", '"d" holds 3 at place 0; allowed: 0, 1, 2'),
        ("d=2x5,w=1.0x6,e=35x18", '"w" holds "1.0x6"; write whole numbers such as 35, or 35x4'),
        ("d=2x5,w=,e=35x18", '"w" holds ""; write whole numbers'),
    ],
)
def test_a_text_that_is_no_subnet_is_refused_with_what_is_allowed(text: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        Subnet.parse(text)
    assert said in str(caught.value)


# Keys and values (as published, and as other search spaces write them)


@pytest.mark.parametrize("key", ["ks", "r", "image_size", "depth", "D"])
def test_an_unknown_key_is_refused(key: str) -> None:
    said = refusal(WHOLE | {key: 7})
    assert said.startswith(f'unknown key "{key}" in a subnet; allowed: d = depths of stem and stages: 5 values; e = ')
    assert all(part in said for part in ("e = expand ratios of the blocks: 18 values", "w = widths of"))


@pytest.mark.parametrize("key", ["d", "e", "w"])
def test_a_missing_key_is_refused(key: str) -> None:
    assert f'missing key "{key}" in a subnet; allowed: ' in refusal(
        {name: value for name, value in WHOLE.items() if name != key}
    )


def with_first(key: str, value: Any) -> dict[str, Any]:
    return WHOLE | {key: [value, *WHOLE[key][1:]]}


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("e", 5, "0.2, 0.25, 0.35"),
        ("e", 3, "0.2, 0.25, 0.35"),
        ("e", 0, "0.2, 0.25, 0.35"),
        ("e", None, "0.2, 0.25, 0.35"),
        ("e", float("nan"), "0.2, 0.25, 0.35"),
        ("d", 4, "0, 1, 2"),
        ("d", -1, "0, 1, 2"),
        ("d", True, "0, 1, 2"),
        ("d", "2", "0, 1, 2"),
        ("d", 1.5, "0, 1, 2"),
        ("w", 3, "0, 1, 2"),
        ("w", -1, "0, 1, 2"),
    ],
)
def test_a_value_that_is_not_allowed_is_named_with_those_that_are(key: str, value: Any, allowed: str) -> None:
    assert refusal(with_first(key, value)) == f'"{key}" holds {value!r} at place 0; allowed: {allowed}'


@pytest.mark.parametrize("key", ["d", "e", "w"])
@pytest.mark.parametrize("change", ["shorter", "longer", "empty", "one value", "text"])
def test_another_number_of_values_is_refused(key: str, change: str) -> None:
    values = WHOLE[key]
    changed: dict[str, Any] = {
        "shorter": values[:-1],
        "longer": [*values, values[0]],
        "empty": [],
        "one value": values[0],
        "text": "2" * len(values),
    }
    said = refusal(WHOLE | {key: changed[change]})
    assert f"{len(values)} values" in said
    assert said.startswith(f'"{key}" ')


def test_widths_are_indices_or_factors_but_not_both() -> None:
    factors = [1.0, 0.8, 0.65, 1.0, 0.8, 0.65]
    assert Subnet.from_json(WHOLE | {"w": factors}) == Subnet.from_json(WHOLE)
    assert Subnet.from_json(WHOLE | {"w": [1] * 6}).widths[1:] == (0.8,) * 5
    assert Subnet.from_json(WHOLE | {"w": [1.0] * 6}).widths == (1.0,) * 6
    said = refusal(WHOLE | {"w": [1, 0.8, 0.65, 1, 0.8, 0.65]})
    assert "mixes indices and factors" in said
    assert "0.65 or index 0, 0.8 or index 1, 1.0 or index 2" in said
    assert '"w" holds 0.7 at place 5; allowed: 0.65, 0.8, 1.0' in refusal(WHOLE | {"w": [*factors[:5], 0.7]})


@pytest.mark.parametrize("value", [None, [], "d=2x5", 3])
def test_what_is_no_mapping_is_refused(value: Any) -> None:
    assert 'write {"d": [...], "e": [...], "w": [...]}' in refusal(value)


def test_the_echo_is_the_request() -> None:
    asked = {"d": [2, 2, 2, 2, 2], "e": [0.2, 0.25, 0.35] * 6, "w": [2, 1, 0, 2, 1, 0]}
    assert Subnet.from_json(asked).to_json() == asked


# Equal networks, equal values


@given(one=subnets, other=subnets)
def test_subnets_are_equal_where_their_networks_are(one: Subnet, other: Subnet) -> None:
    assert (one == other) == (one.id == other.id) == (shape_of(one) == shape_of(other))


@given(subnet=subnets, data=st.data())
def test_a_changed_value_changes_the_shape_or_nothing(subnet: Subnet, data: st.DataObject) -> None:
    value = subnet.to_json()
    key = data.draw(st.sampled_from("dew"))
    place = data.draw(st.integers(0, len(value[key]) - 1))
    changed = list(value[key])
    changed[place] = data.draw(st.sampled_from((0.2, 0.25, 0.35) if key == "e" else (0, 1, 2)))
    other = Subnet.from_json(value | {key: changed})
    assert (other == subnet) == (shape_of(other) == shape_of(subnet))


def test_what_no_output_depends_on_is_the_same_value() -> None:
    value = Subnet.smallest().to_json()
    dropped = [0.35 if index in (2, 3, 6, 7, 12, 13, 16, 17) else 0.2 for index in range(18)]
    assert Subnet.from_json(value | {"e": dropped}) == Subnet.smallest()
    assert Subnet.from_json(value | {"d": [1, 0, 0, 0, 0]}) == Subnet.smallest()
    assert Subnet.from_json(value | {"w": [1, 0, 0, 0, 0, 0]}) == Subnet.smallest()


# Drawing


def test_a_seed_gives_the_same_networks_each_time() -> None:
    first, second = ([Subnet.sample(rng) for _ in range(5)] for rng in (random.Random(3), random.Random(3)))
    assert first == second
    assert len(set(first)) == 5


def test_a_seed_gives_the_published_code_s_networks() -> None:
    """What `random.seed(7); sample_active_subnet()` gives there (tested against it where it is installed)."""
    ratios = [0.25, 0.2, 0.25, 0.35, 0.2, 0.2, 0.35, 0.2, 0.25, 0.35, 0.2, 0.35, 0.2, 0.2, 0.2, 0.25, 0.25, 0.2]
    drawn = {"d": [2, 0, 2, 1, 0], "e": ratios, "w": [2, 0, 0, 2, 2, 2]}
    assert Subnet.sample(random.Random(7)) == Subnet.from_json(drawn)


def test_every_value_is_drawn() -> None:
    rng = random.Random(0)
    drawn = [Subnet.sample(rng) for _ in range(300)]
    for stage in range(1, 5):
        assert {subnet.depths[stage] for subnet in drawn} == {0, 1, 2}
    assert {subnet.depths[0] for subnet in drawn} == {0, 2}
    for place in range(1, 6):
        assert {subnet.widths[place] for subnet in drawn} == {0.65, 0.8, 1.0}
    assert {subnet.widths[0] for subnet in drawn} == {0.65, 1.0}
    for index in range(18):
        assert {subnet.expand_ratios[index] for subnet in drawn} == {0.2, 0.25, 0.35}


# Shapes and costs


@given(subnet=subnets)
def test_channels_are_the_published_ones(subnet: Subnet) -> None:
    shape = shape_of(subnet)
    ours = [(block.index, block.middle_channels, block.out_channels, block.stride) for block in shape.blocks]
    assert ours == list(blocks_of(subnet))
    assert [block.index for block in shape.blocks] == list(subnet.kept_blocks)
    assert [block.in_channels for block in shape.blocks[1:]] == [block.out_channels for block in shape.blocks[:-1]]
    assert shape.blocks[0].in_channels == shape.stem_out


@pytest.mark.parametrize(
    ("subnet", "size", "mmacs"),
    [
        (Subnet.largest(), 224, 7492),
        (Subnet.largest(), 128, 2448),
        (R50, 224, 4329),
        (Subnet.smallest(), 224, 962),
        (Subnet.smallest(), 128, 315),
    ],
)
def test_costs_are_the_published_ones(subnet: Subnet, size: int, mmacs: int) -> None:
    """Figures of the published code's own counter (`count_flops_given_config`), in millions."""
    assert round(shape_of(subnet).macs(size, size) / 1e6) == mmacs


@given(subnet=subnets)
def test_no_network_costs_less_than_the_smallest_or_more_than_the_largest(subnet: Subnet) -> None:
    low, cost, high = (shape_of(each).macs(160, 128) for each in (Subnet.smallest(), subnet, Subnet.largest()))
    assert low <= cost <= high


# Published descriptions of single networks


@pytest.mark.parametrize(
    ("place", "key", "value", "said"),
    [
        (3, "mid_channels", 100, 'blocks.3 has "mid_channels" 100; allowed: 48, 64, 88'),
        (0, "out_channels", 100, 'blocks.0 has "out_channels" 100; allowed: 256, 208, 168'),
        (3, "kernel_size", 5, 'blocks.3 has "kernel_size" 5, where it takes 3'),
        (4, "stride", 1, 'blocks.4 has "stride" 1, where it takes 2'),
        (5, "downsample_mode", "conv", "blocks.5 has \"downsample_mode\" 'conv', where it takes 'avgpool_conv'"),
        (0, "in_channels", 48, 'blocks.0 has "in_channels" 48, where it takes 64'),
        (
            2,
            "in_channels",
            48,
            "stages of [2, 2, 4, 6, 4] blocks; allowed: [[2, 3, 4], [2, 3, 4], [4, 5, 6], [2, 3, 4]]",
        ),
    ],
)
def test_a_description_of_another_network_is_refused(place: int, key: str, value: object, said: str) -> None:
    config = net_config(Subnet.largest())
    config["blocks"][place][key] = value
    with pytest.raises(SpecError) as caught:
        subnet_from_net_config(config)
    assert str(caught.value).startswith(said)
    assert str(caught.value).endswith("give the net.config of a Once-for-All ResNet-50, or {d, e, w}")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"input_stem": []}, "input_stem holds 0 layers"),
        ({"input_stem": [{}, {}]}, 'input_stem.0 has "out_channels" None; allowed: 32, 24'),
        ({"input_stem": None}, 'no list "input_stem" of layers'),
        ({"blocks": []}, "stages of [] blocks"),
        ({"blocks": [1]}, 'no list "blocks" of layers'),
    ],
)
def test_a_description_without_layers_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=r"net\.config") as caught:
        subnet_from_net_config(net_config(R50) | change)
    assert said in str(caught.value)


def test_the_ends_are_what_they_say() -> None:
    assert [len(subnet.kept_blocks) for subnet in ENDS] == [18, 10]
