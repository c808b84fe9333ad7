"""Sums over rows: layers, shares, MACs, years, the published figures, CSV."""

import csv
import io
from collections import Counter
from statistics import median

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from gearshift.profiler.survey import Layer, Row, Survey, architectures_csv, compare, layers_csv, summarise
from gearshift.profiler.survey.layers import layers_of, together
from gearshift.profiler.survey.library import Facts
from gearshift.profiler.survey.row import failed
from gearshift.profiler.survey.summary import is_power_of_two

names = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=5)
sizes = st.integers(1, 64)
layers = st.builds(
    Layer,
    kind=st.just("Conv2d"),
    class_name=st.sampled_from(["Conv2d", "StdConv2d"]),
    in_features=sizes,
    out_features=sizes,
    kernel=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    stride=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    groups=st.sampled_from([1, 2, 8]),
    bias=st.booleans(),
    count=st.integers(1, 9),
) | st.builds(
    Layer,
    kind=st.just("Linear"),
    class_name=st.just("Linear"),
    in_features=sizes,
    out_features=sizes,
    bias=st.booleans(),
    count=st.integers(1, 9),
)
rows = st.builds(
    Row,
    name=names,
    status=st.just("ok"),
    facts=st.builds(
        Facts, family=st.just("f"), year=st.none() | st.integers(2014, 2017), weights=st.none() | st.integers(0, 3)
    ),
    params=st.integers(1, 10**9),
    layers=st.lists(layers, max_size=4).map(tuple),
    macs=st.none() | st.dictionaries(st.sampled_from(["convolution", "linear"]), st.integers(1, 10**12), min_size=1),
) | st.builds(failed, names, st.just("why"))
many = st.lists(rows, max_size=6)


class Odd(nn.Module):
    """Shared layers, subclasses, a namesake, and parameters that are no layer."""

    class Linear(nn.Linear):
        pass

    class StdConv2d(nn.Conv2d):
        pass

    def __init__(self) -> None:
        super().__init__()
        self.first = self.StdConv2d(3, 8, (1, 5), stride=2, bias=False)
        self.again = self.first
        self.depthwise = nn.Conv2d(8, 16, 3, groups=8)
        self.grouped = nn.Conv2d(16, 16, 3, groups=4)
        self.up = nn.ConvTranspose2d(16, 4, 2, stride=2)
        self.line = nn.Conv1d(4, 4, 7)
        self.heads = nn.ModuleList([nn.Linear(4, 5) for _ in range(3)])
        self.namesake = self.Linear(5, 6, bias=False)
        self.attention = nn.MultiheadAttention(8, 2)
        self.token = nn.Parameter(torch.zeros(3))


def test_layers_of_a_module() -> None:
    found = {(x.kind, x.class_name, x.in_features, x.out_features): x for x in layers_of(Odd())}
    first = found["Conv2d", "StdConv2d", 3, 8]
    assert (first.kernel, first.stride, first.bias, first.count) == ((1, 5), (2, 2), False, 1)
    assert not first.is_depthwise
    assert found["Conv2d", "Conv2d", 8, 16].is_depthwise
    assert not found["Conv2d", "Conv2d", 16, 16].is_depthwise
    assert found["Linear", "Linear", 4, 5].count == 3
    assert found["Linear", f"{__name__}.Linear", 5, 6].bias is False
    assert found["Linear", "NonDynamicallyQuantizableLinear", 8, 8].count == 1
    assert found["ConvTranspose2d", "ConvTranspose2d", 16, 4].kernel == (2, 2)
    assert found["Conv1d", "Conv1d", 4, 4].kernel == (7,)
    assert len(found) == 8


@given(st.lists(layers, max_size=8))
def test_counting_together_loses_no_layer(given_layers: list[Layer]) -> None:
    once = together(given_layers)
    assert together(once) == once
    assert sum(x.count for x in once) == sum(x.count for x in given_layers)
    assert len(
        {(x.kind, x.class_name, x.in_features, x.out_features, x.kernel, x.stride, x.groups, x.bias) for x in once}
    ) == len(once)


@given(st.integers(-5, 1 << 20))
def test_powers_of_two(number: int) -> None:
    assert is_power_of_two(number) == (number in {2**exponent for exponent in range(21)})


@given(many)
def test_every_table_counts_every_layer_of_its_kind(given_rows: list[Row]) -> None:
    summary = summarise(given_rows)
    counts = Counter[str]()
    for row in given_rows:
        for layer in row.layers:
            counts[layer.kind] += layer.count
    for parts in (summary.kernels, summary.strides, summary.groups):
        assert sum(part.count for part in parts) == counts["Conv2d"]
    for parts in (summary.kinds, summary.classes):
        assert sum(part.count for part in parts) == counts.total()
        assert [part.count for part in parts] == sorted((part.count for part in parts), reverse=True)
    for parts in (summary.kinds, summary.kernels, summary.groups):
        assert not parts or sum(part.share or 0.0 for part in parts) == pytest.approx(1)
    assert {part.name: part.count for part in summary.kinds} == {kind: n for kind, n in counts.items() if n}


@given(many)
def test_macs_add_up(given_rows: list[Row]) -> None:
    summary = summarise(given_rows)
    assert sum(part.macs for part in summary.macs) == sum(row.total_macs or 0 for row in given_rows)
    if summary.macs:
        assert sum(part.share for part in summary.macs) == pytest.approx(1)
        assert sum(part.mean_share for part in summary.macs) == pytest.approx(1)
    built = [row for row in given_rows if row.is_ok]
    assert (summary.architectures, summary.failed) == (len(given_rows), len(given_rows) - len(built))
    assert summary.without_macs == sum(row.macs is None for row in built)


@given(many)
def test_years_hold_every_dated_row(given_rows: list[Row]) -> None:
    for part in summarise(given_rows).years:
        those = [row for row in given_rows if row.facts is not None and row.facts.year == part.year]
        assert part.architectures == len(those)
        assert part.params is not None
        assert part.params[1] == median(row.params or 0 for row in those)
        assert part.params[0] <= part.params[1] <= part.params[2]


@given(many, st.randoms())
def test_the_order_of_rows_does_not_matter(given_rows: list[Row], random: object) -> None:
    mixed = given_rows.copy()
    random.shuffle(mixed)  # type: ignore[attr-defined]
    for before, after in zip(summarise(given_rows).kernels, summarise(mixed).kernels, strict=True):
        assert before == after
    assert summarise(given_rows).powers_of_two == summarise(mixed).powers_of_two


# Published figures.


def linear(bias: bool, count: int, features: int = 3) -> Layer:
    return Layer(kind="Linear", class_name="Linear", in_features=features, out_features=8, bias=bias, count=count)


def conv(size: int, count: int, groups: int = 1) -> Layer:
    common = {"kind": "Conv2d", "class_name": "Conv2d", "in_features": 8, "out_features": 8, "bias": True}
    return Layer(kernel=(size, size), stride=(1, 1), groups=groups, count=count, **common)  # type: ignore[arg-type]


def architecture(name: str, weights: int, *own: Layer) -> Row:
    return Row(name=name, status="ok", facts=Facts(family="f", weights=weights), layers=own)


def test_published_figures_in_every_way_of_counting() -> None:
    found = Survey(
        library="timm",
        library_version="1",
        rows=(
            architecture("a", 3, conv(1, 6), conv(7, 2, groups=8), linear(True, 4), linear(False, 4)),
            architecture("b", 1, conv(3, 1), conv(5, 1), linear(True, 2, features=16)),
            architecture("c", 0, conv(7, 2)),
            failed("d", "why"),
        ),
    )
    kernels, bias, inputs, outputs = compare(found)
    assert kernels.published == 0.9271
    assert kernels.ours == pytest.approx((6 + 1) / (8 + 2 + 2))
    assert kernels.other_ways == pytest.approx(
        {
            "architectures with weights": (6 + 1) / (8 + 2),
            "once per set of weights": (3 * 6 + 1) / (3 * 8 + 2),
            "mean over architectures": (6 / 8 + 1 / 2 + 0) / 3,
            "without grouped layers": (6 + 1) / (6 + 2 + 2),
        }
    )
    assert (bias.published, bias.ours) == (0.9153, pytest.approx(6 / 10))
    assert bias.other_ways["once per set of weights"] == pytest.approx((3 * 4 + 2) / (3 * 8 + 2))
    assert "without grouped layers" not in bias.other_ways
    assert (inputs.published, inputs.ours) == (0.33, pytest.approx(2 / 10))
    assert (outputs.published, outputs.ours) == (0.25, 1.0)
    assert all(one.why for one in (kernels, bias, inputs, outputs))


@pytest.mark.parametrize("unlike", [{"library": "transformers"}, {"pattern": "vit_*"}])
def test_only_a_survey_of_all_of_timm_is_compared(unlike: dict[str, str]) -> None:
    kind = {"library": "timm", "library_version": "1", "rows": (architecture("a", 1, linear(True, 1)),)}
    assert compare(Survey(**kind)) != ()  # type: ignore[arg-type]
    assert compare(Survey(**(kind | unlike))) == ()  # type: ignore[arg-type]


def test_of_no_layer_there_is_no_share() -> None:
    kernels, *_ = compare(Survey(library="timm", library_version="1", rows=(failed("a", "why"),)))
    assert kernels.ours is None
    assert set(kernels.other_ways.values()) == {None}


# CSV.


@given(many)
def test_csv_holds_what_the_rows_hold(given_rows: list[Row]) -> None:
    lines = list(csv.DictReader(io.StringIO(architectures_csv(given_rows))))
    assert [line["status"] for line in lines] == [row.status for row in given_rows]
    for line, row in zip(lines, given_rows, strict=True):
        assert line["macs"] == ("" if row.total_macs is None else str(row.total_macs))
        assert line["flops"] == ("" if row.total_macs is None else str(2 * row.total_macs))
        if row.is_ok:
            assert int(line["conv2d"]) == row.count("Conv2d")
            assert int(line["linear"]) == row.count("Linear")
            assert int(line["conv2d_depthwise"]) <= int(line["conv2d_grouped"]) <= int(line["conv2d"])
        else:
            assert line["conv2d"] == line["macs_linear"] == ""
            assert line["reason"] == "why"
    counted = list(csv.DictReader(io.StringIO(layers_csv(given_rows))))
    assert sum(int(line["count"]) for line in counted) == sum(x.count for row in given_rows for x in row.layers)
