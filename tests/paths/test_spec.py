"""Path ids: what reads back, what is canonical, and what each refusal says."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gearshift.errors import SpecError
from gearshift.paths.ofa import Subnet
from gearshift.paths.spec import PathSpec
from gearshift.paths.transforms import (
    ORDER,
    Blocks,
    DecoderChannels,
    ElasticSubnet,
    FoldedNorms,
    FuseChannels,
    Heads,
    InputSize,
    Lossless,
    LowRank,
    MergedProjections,
    MergedTokens,
    Mlp,
    Prune,
    Skip,
    Transform,
    read_transform,
)

counts = st.integers(0, 999_999)
positive = st.integers(1, 999_999)
shares = st.integers(1, 99)
addresses = st.tuples(counts, counts)
transforms: dict[str, st.SearchStrategy[Transform]] = {
    "lossless": st.just(Lossless()),
    "qkv": st.just(MergedProjections()),
    "norms": st.just(FoldedNorms()),
    "blocks": st.lists(counts, min_size=1, max_size=6).map(lambda kept: Blocks(tuple(kept))),
    "skip": st.lists(addresses, min_size=1, max_size=6, unique=True).map(lambda found: Skip(tuple(found))),
    "subnet": st.integers(0, 2**32).map(lambda seed: ElasticSubnet(Subnet.sample(random.Random(seed)))),
    "heads": shares.map(Heads),
    "mlp": shares.map(Mlp),
    "prune": shares.map(Prune),
    "lowrank": st.builds(
        lambda ranks, distilled: LowRank(tuple(ranks.items()), distilled),
        st.dictionaries(counts, positive, min_size=1, max_size=6),
        st.booleans(),
    ),
    "merge": st.one_of(positive.map(MergedTokens), st.builds(MergedTokens, percent=st.integers(1, 50))),
    "fuse": positive.map(FuseChannels),
    "decoder": positive.map(DecoderChannels),
    "size": st.one_of(
        st.builds(InputSize, height=positive, width=positive),
        st.builds(InputSize, percent=st.integers(1, 400)),
    ),
}
any_transform = st.one_of(*transforms.values())


@st.composite
def specs(draw: st.DrawFn) -> PathSpec:
    """Any subset of the kinds, given in any order."""
    kinds = draw(st.lists(st.sampled_from(sorted(transforms)), unique=True))
    return PathSpec(tuple(draw(transforms[kind]) for kind in kinds))


def refusal(text: str) -> str:
    """Return the one line with which a text is refused."""
    with pytest.raises(SpecError) as caught:
        PathSpec.parse(text)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_every_kind_takes_part_in_these_tests() -> None:
    assert set(transforms) == set(ORDER)


@given(specs())
def test_an_id_reads_back_as_the_same_path(spec: PathSpec) -> None:
    assert PathSpec.parse(spec.id) == spec
    assert str(spec) == spec.id
    assert PathSpec.parse(f"  {spec.id.replace('+', ' + ')} ") == spec


@given(specs())
def test_json_reads_back_as_the_same_path(spec: PathSpec) -> None:
    assert PathSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec


@given(st.permutations(sorted(transforms)), st.data())
def test_equal_paths_have_equal_ids_whatever_the_order_given(kinds: list[str], data: st.DataObject) -> None:
    drawn = [data.draw(transforms[kind]) for kind in kinds]
    forward, backward = PathSpec(tuple(drawn)), PathSpec(tuple(reversed(drawn)))
    assert forward == backward
    assert hash(forward) == hash(backward)
    assert forward.id == backward.id
    assert [item.name for item in forward.transforms] == list(ORDER)


@given(st.text())
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    try:
        spec = PathSpec.parse(text)
    except SpecError:
        return
    assert PathSpec.parse(spec.id) == spec


@given(st.sampled_from(ORDER), st.none() | st.text() | st.from_regex(r"[0-9.,x%-]*", fullmatch=True))
def test_any_value_is_read_or_refused(kind: str, value: str | None) -> None:
    try:
        transform = read_transform(kind, value)
    except SpecError as error:
        assert kind in str(error)  # noqa: PT017 (most texts are no values)
        return
    assert read_transform(kind, transform.value()) == transform


@given(specs(), any_transform)
def test_a_transform_replaces_its_own_kind_and_leaves_the_others(spec: PathSpec, new: Transform) -> None:
    changed = spec.with_transform(new)
    assert changed.get(new.name) == new
    assert changed.without(new.name) == spec.without(new.name)
    assert spec.without(new.name).get(new.name) is None


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("stock", "stock"),
        (" stock ", "stock"),
        ("size=75%+lossless", "lossless+size=75%"),
        ("skip=3.0,2.1,2.0", "skip=2.0,2.1,3.0"),
        ("size=512", "size=512x512"),
        ("fuse=0256", "fuse=256"),
        ("blocks=03-4-05-3", "blocks=3-4-5-3"),
    ],
)
def test_ids_are_canonical(text: str, canonical: str) -> None:
    assert PathSpec.parse(text).id == canonical


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", 'a path needs a text such as "lossless+size=75%"; "stock" is the stock model'),
        ("losless", 'unknown transform "losless" in path "losless"; did you mean "lossless"?'),
        ("lossless+frobnicate=3", f"known: {', '.join(ORDER)}"),
        ("lossless++size=75%", 'unknown transform ""'),
        ("stock+size=75%", '"stock" is the path that changes nothing; drop it from "stock+size=75%"'),
        ("size=75%+size=50%", '"size" is given twice; a path takes each transform at most once'),
        ("lossless=yes", '"lossless" takes no value, got "yes"; write "lossless" alone'),
        ("qkv=", '"qkv" takes no value, got ""; write "qkv" alone'),
        ("blocks", 'blocks="" is not a list of counts; write, e.g., "blocks=3-4-5-3"'),
        ("blocks=3,4", 'blocks="3,4" is not a list of counts'),
        ("skip=2", 'skip="2" is not a list of stage.block; write, e.g., "skip=2.1,2.3"'),
        ("skip=2.1,2.1", 'skip="2.1,2.1" must name at least one block, each once'),
        ("fuse=many", 'fuse="many" is not a number of channels; write, e.g., "fuse=256"'),
        ("fuse=0", "fuse=0 must be at least 1"),
        ("decoder=-3", 'decoder="-3" is not a number of channels'),
        ("decoder=0", "decoder=0 must be at least 1"),
        ("size=big", 'size="big" is neither HxW nor a percentage; write "size=384x512" or "size=75%"'),
        ("size=0x512", "size needs a height and a width of at least 1, got 0x512"),
        ("size=0%", "size=0% is out of range; allowed are 1% to 400%"),
        ("size=401%", "size=401% is out of range; allowed are 1% to 400%"),
        ("heads=0%", "heads=0% is out of range; allowed are 1% to 99%"),
        ("mlp=75", 'mlp="75" is no percentage; write, e.g., "mlp=75%"'),
        ("prune=100%", "prune=100% is out of range; allowed are 1% to 99%"),
        ("merge=0", "merge=0 must be at least 1 token per block"),
        ("lowrank=3", 'lowrank="3" is not a list of layer:rank; write, e.g., "lowrank=3:48,7:40"'),
        ("lowrank=3:0", "needs layers counted from 0 and ranks of at least 1"),
        ("prune=macs:80%", "a target belongs in a space file, which turns it into one"),
        ("lowrank=falor:5%", "a target belongs in a space file, which turns it into ranks"),
        ("norms=1", '"norms" takes no value'),
        (f"fuse={'9' * 5000}", "is not a number of channels"),
    ],
)
def test_what_cannot_be_read_is_refused_with_what_is_allowed(text: str, said: str) -> None:
    assert said in refusal(text)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Blocks(()),
        lambda: Blocks((1, -1)),
        lambda: Skip(()),
        lambda: Skip(((-1, 0),)),
        lambda: FuseChannels(-1),
        lambda: DecoderChannels(0),
        lambda: InputSize(),
        lambda: InputSize(height=3),
        lambda: InputSize(height=-3, width=4),
        lambda: InputSize(height=3, width=4, percent=50),
        lambda: PathSpec((Lossless(), Lossless())),
    ],
)
def test_no_value_can_be_made_that_would_not_read_back(make: object) -> None:
    with pytest.raises(SpecError):
        make()  # type: ignore[operator]


@pytest.mark.parametrize(
    "entry", [{}, {"transform": "fuse"}, {"transform": None, "value": None}, {"value": "3", "name": "fuse"}]
)
def test_json_of_another_shape_is_refused(entry: dict[str, str | None]) -> None:
    with pytest.raises(SpecError, match="is no transform"):
        PathSpec.from_json([entry])


def test_json_with_an_unknown_transform_is_refused() -> None:
    with pytest.raises(SpecError, match='unknown transform "frobnicate"; known: lossless'):
        PathSpec.from_json([{"transform": "frobnicate", "value": None}])


@given(st.integers(1, 4000), st.integers(1, 4000), st.integers(1, 400), st.integers(0, 400))
def test_a_percentage_gives_multiples_of_32_and_never_shrinks_as_it_grows(
    height: int, width: int, percent: int, more: int
) -> None:
    sides = InputSize(percent=percent).resolve(height, width)
    larger = InputSize(percent=min(400, percent + more)).resolve(height, width)
    assert all(side >= 32 and side % 32 == 0 for side in sides)
    assert all(
        abs(side - max(32, length * percent / 100)) <= 16 for side, length in zip(sides, (height, width), strict=True)
    )
    assert all(a <= b for a, b in zip(sides, larger, strict=True))


def test_a_fixed_size_is_the_same_for_every_frame() -> None:
    assert InputSize(height=384, width=512).resolve(1080, 1920) == (384, 512)
