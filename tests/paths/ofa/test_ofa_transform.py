"""The transform `subnet`: ids, how settings add up, what is refused."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gearshift.errors import SpecError
from gearshift.paths.knobs import turn
from gearshift.paths.ofa import Subnet
from gearshift.paths.ofa.family import OnceForAllFamily, path_of
from gearshift.paths.sharing import DerivedTensors
from gearshift.paths.spec import PathSpec
from gearshift.paths.transforms import ElasticSubnet
from tests.paths.ofa.published import BASE_DEPTHS, FIRST_BLOCKS, R50, subnets

DEPTHS, WIDTHS, RATIOS = (0, 1, 2), (65, 80, 100), (20, 25, 35)
BLOCKS_AT_MOST = (4, 4, 6, 4)

items = st.one_of(
    st.tuples(st.just("d"), st.sampled_from(("", "0", "1", "2", "3", "4")), st.sampled_from(DEPTHS)),
    st.tuples(st.just("w"), st.sampled_from(("", "0", "0.0", "0.1", "1", "2", "3", "4")), st.sampled_from(WIDTHS)),
    st.tuples(st.just("e"), st.sampled_from(("", "1", "2", "3", "4", "1.3", "3.0", "3.5")), st.sampled_from(RATIOS)),
)
settings = st.lists(items, min_size=1, max_size=5, unique_by=lambda item: item[:2])


def text_of(given_items: list[tuple[str, str, int]]) -> str:
    return "subnet=" + ",".join(f"{key}{address}:{value}" for key, address, value in given_items)


def network_of(given_items: list[tuple[str, str, int]]) -> Subnet:
    """What the settings mean, by asking for each value on its own: the most particular setting that names it."""
    given = {(key, address): value for key, address, value in given_items}

    def value(key: str, largest: int, *addresses: str) -> int:
        return next((given[key, address] for address in addresses if (key, address) in given), largest)

    return Subnet(
        depths=tuple(value("d", 2, str(place), "") for place in range(5)),
        widths=tuple(
            value("w", 100, *addresses, "") / 100
            for addresses in (("0.0", "0"), ("0.1", "0"), ("1",), ("2",), ("3",), ("4",))
        ),
        expand_ratios=tuple(
            value("e", 35, f"{stage}.{number}", str(stage), "") / 100
            for stage, count in enumerate(BLOCKS_AT_MOST, 1)
            for number in range(count)
        ),
    )


def channels(subnet: Subnet) -> list[Any]:
    """Per stage and stem what a network has: blocks, width, and the ratio of each of its blocks."""
    kept = [base + depth for base, depth in zip(BASE_DEPTHS, subnet.depths[1:], strict=True)]
    ratios = [subnet.expand_ratios[first : first + count] for first, count in zip(FIRST_BLOCKS, kept, strict=True)]
    return [(subnet.depths[0], *subnet.widths[:2]), *zip(kept, subnet.widths[2:], ratios, strict=True)]


@given(settings)
def test_settings_mean_the_network_that_they_name(given_items: list[tuple[str, str, int]]) -> None:
    expected = network_of(given_items)
    if expected == Subnet.largest():
        with pytest.raises(SpecError, match="gives the largest network, which is the stock model; leave it out"):
            PathSpec.parse(text_of(given_items))
        return
    assert PathSpec.parse(text_of(given_items)) == path_of(expected)


@given(subnets)
def test_equal_networks_have_one_id_however_they_were_given(subnet: Subnet) -> None:
    if subnet == Subnet.largest():
        assert path_of(subnet).id == "stock"
        return
    spec = path_of(subnet)
    assert PathSpec.parse(spec.id) == spec == PathSpec.parse(f"subnet={subnet.id}")
    assert PathSpec.parse(f"subnet={subnet.id}+size=75%").id == f"{spec.id}+size=75%"
    assert PathSpec.from_json(spec.to_json()) == spec
    assert "100" not in spec.id
    assert "35" not in spec.id


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("subnet=e3:25,w4:80,d2:1", "subnet=d2:1,w4:80,e3:25"),
        ("subnet=d0:0,d1:0,d2:0,d3:0,d4:0,w:65,e:20", "subnet=d:0,w:65,e:20"),
        ("subnet=d0:1", "subnet=d0:0"),  # the stem has its block at depth 2 only
        ("subnet=d1:1,d2:1,d3:1,d4:1,d0:0", "subnet=d:1"),
        ("subnet=w0.0:80", "subnet=w0.0:65"),  # 24 channels both
        ("subnet=w0.0:80,w0.1:80", "subnet=w0:80"),
        ("subnet=e3.0:25,e3.1:25,e3.2:25,e3.3:25,d3:0", "subnet=d3:0,e3:25"),  # the last two are dropped
        ("subnet=d1:0,e1.3:20", "subnet=d1:0"),
        ("subnet=e:25,e2.1:35", "subnet=e1:25,e3:25,e4:25,e2.0:25,e2.2:25,e2.3:25"),
        ("subnet= d2:1 , e3:25 ", "subnet=d2:1,e3:25"),
        (f"subnet={R50.id}", "subnet=d1:1,d4:1,e:25"),
    ],
)
def test_an_id_holds_what_differs_from_the_largest_network(text: str, canonical: str) -> None:
    assert PathSpec.parse(text).id == canonical


def test_settings_add_up_whatever_their_order() -> None:
    texts = ["d2:1", "e3:25", "w4:80", "d0:0", "d2:0", "e3:20"]
    rng = random.Random(0)
    for _ in range(10):
        spec = PathSpec.parse("size=75%")
        for text in rng.sample(texts, len(texts)):
            spec = turn(spec, ElasticSubnet.read(text))
        assert spec.id == "subnet=d0:0,d2:0,w4:80,e3:20+size=75%"


@given(subnets, subnets)
def test_what_was_turned_on_is_within(first: Subnet, second: Subnet) -> None:
    if Subnet.largest() in (first, second):
        return
    one, other = ElasticSubnet(first), ElasticSubnet(second)
    both = one.onto(other)
    assert both == other.onto(one)
    assert one.within(both)
    assert other.within(both)
    assert one.within(one)
    assert not one.within(None)
    assert one.onto(None) == one
    # Nothing is smaller than the smaller of both.
    for ours, theirs, got in zip(channels(first), channels(second), channels(both.subnet), strict=True):
        assert got[:2] == (min(ours[0], theirs[0]), min(ours[1], theirs[1]))
    assert one.within(other) == (both == other)


def test_every_setting_of_every_knob_is_a_network_of_its_own() -> None:
    knobs = [knob for knob in OnceForAllFamily().knobs(None, DerivedTensors()) if knob.name != "size"]
    found = [setting for knob in knobs for setting in knob.settings]
    assert len({item.value() for item in found}) == len(found) == 4 * 6 + 2 + 1
    for knob in knobs:
        for milder, stronger in zip(knob.settings, knob.settings[1:], strict=False):
            assert milder.within(stronger)
            assert not stronger.within(milder)
    spec = PathSpec()
    for setting in found:
        spec = turn(spec, setting)
    assert spec == path_of(Subnet.smallest())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("subnet", 'subnet="" is no list of settings such as "d2:1,e3:25"; d (d0 stem, d1-d4) 0, 1, 2; w '),
        ("subnet=d2", 'subnet="d2" is no list of settings'),
        ("subnet=d2:1,", 'subnet="d2:1," is no list of settings'),
        ("subnet=ks:7", 'subnet="ks:7" is no list of settings'),
        ("subnet=d5:1", 'subnet has no "d5:1"; allowed: d (d0 stem, d1-d4) 0, 1, 2; w (w0 stem'),
        ("subnet=e0:20", 'subnet has no "e0:20"; allowed'),
        ("subnet=e1.4:20", 'subnet has no "e1.4:20"; allowed'),
        ("subnet=e2:5", 'subnet has no "e2:5"; allowed'),
        ("subnet=w1:70", 'subnet has no "w1:70"; allowed'),
        ("subnet=d1:4", 'subnet has no "d1:4"; allowed'),
        ("subnet=d1:0,d1:1", 'subnet="d1:0,d1:1" gives d1 twice; give it once'),
        ("subnet=d2:2", "subnet gives the largest network, which is the stock model; leave it out"),
        ("subnet=d=2-1", 'missing key "e"'),
        ("subnet=d=2x5,w=100x6,e=5x18", '"e" holds 5; allowed, in percent: 20, 25, 35'),
    ],
)
def test_what_is_outside_the_space_is_refused_with_what_is_allowed(text: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        PathSpec.parse(text)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
