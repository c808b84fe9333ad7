"""All of timm: every architecture is built and counted, and the sums are those counted by hand."""

import pytest
import timm

from gearshift.profiler.survey import Survey, compare, summarise, survey

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(timm.__version__ != "1.0.31", reason="figures of timm 1.0.31"),
]


@pytest.fixture(scope="module")
def everything() -> Survey:
    return survey("timm")


def test_every_architecture_is_built_and_counted(everything: Survey) -> None:
    assert len(everything.rows) == len({row.name for row in everything.rows}) == 1371
    assert everything.failed == ()
    assert [row.name for row in everything.rows if row.macs is None] == []
    assert {operator for row in everything.rows for operator in row.uncounted} == set()


def test_sums_over_all_layers(everything: Survey) -> None:
    summary = summarise(everything.rows)
    layers = [layer for row in everything.rows for layer in row.layers]
    convolutions = [layer for layer in layers if layer.kind == "Conv2d"]
    linear = [layer for layer in layers if layer.kind == "Linear"]
    assert {part.name: part.count for part in summary.kinds} == {
        "Conv2d": 91_589,
        "Linear": 59_658,
        "Conv1d": 691,
        "ConvTranspose2d": 65,
        "Conv3d": 10,
    }
    assert sum(layer.count for layer in convolutions if layer.groups > 1) == 20_854
    assert sum(layer.count for layer in convolutions if len(set(layer.kernel)) > 1) == 574
    assert sum(layer.count for layer in convolutions if not layer.bias) == 58_957
    assert sum(layer.count for layer in linear if not layer.bias) == 5_853
    kernels = {part.name: part.count for part in summary.kernels}
    assert list(kernels.items())[:7] == [
        ("1x1", 58_363),
        ("3x3", 25_900),
        ("7x7", 2_795),
        ("5x5", 2_581),
        ("2x2", 592),
        ("9x9", 252),
        ("16x16", 216),
    ]
    assert (kernels["1x5"], kernels["5x1"], kernels["1x11"], kernels["11x1"]) == (98, 98, 90, 90)
    classes = {part.name: part.count for part in summary.classes}
    assert classes["ScaledStdConv2d"] == 3_445
    assert classes["ScaledStdConv2dSame"] == 1_407
    assert classes["StdConv2d"] == 624
    assert classes["Conv2dSame"] == 384
    assert classes["StdConv2dSame"] == 299
    assert classes["timm.layers.linear.Linear"] == 100


def test_published_figures_and_ours(everything: Survey) -> None:
    found = {one.published: one for one in compare(everything)}
    assert found[0.9271].ours == pytest.approx(0.9200, abs=5e-5)
    assert found[0.9271].other_ways["without grouped layers"] == pytest.approx(0.9801, abs=5e-5)
    assert found[0.9153].ours == pytest.approx(0.9019, abs=5e-5)
    assert found[0.33].ours == pytest.approx(0.3433, abs=5e-5)
    assert found[0.25].ours == pytest.approx(0.2660, abs=5e-5)
