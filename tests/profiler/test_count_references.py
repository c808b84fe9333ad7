"""Our counts against fvcore and PyTorch's own counter: equal, or different by the arithmetic that is given."""

import json
from collections import Counter

import pytest

pytest.importorskip("fvcore")
pytest.importorskip("timm")

from benchmarks import counters
from benchmarks.counters import CASES, Row, Term, compare


@pytest.mark.parametrize("name", CASES)
def test_every_difference_is_exactly_the_arithmetic_that_explains_it(name):
    row = compare(name)

    if row.fvcore is not None:
        assert row.fvcore - row.ours == sum(term.value for term in row.fvcore_terms)
    assert row.stock - row.ours == sum(term.value for term in row.stock_terms)
    assert row.is_explained


def test_the_references_agree_wherever_they_know_the_operator():
    """No explanation is needed for convolutions, linear layers and products, so none is given."""
    for name in ("convolution", "convolution, 4 groups", "depthwise convolution", "transposed convolution", "linear",
                 "matmul", "einsum"):  # fmt: skip
        row = compare(name)
        assert row.ours == row.fvcore == row.stock > 0
        assert row.fvcore_terms == row.stock_terms == ()


def test_what_the_references_lack_is_attention_to_the_last_digit():
    row = compare("ViT-Ti/16 224x224")
    attention = 12 * 2 * 3 * 197 * 197 * 64

    assert row.ours == 1_253_683_200
    assert row.stock == row.ours - attention == 1_074_851_328
    assert row.fvcore == row.ours - attention + 25 * 5 * 197 * 192  # and its layer norms


def test_a_difference_without_its_term_is_not_called_explained():
    row = compare("matrix x vector")
    lost = Row(name=row.name, ours=row.ours, fvcore=row.fvcore, stock=row.stock, fvcore_terms=(), stock_terms=())

    assert row.is_explained
    assert not lost.is_explained


def test_a_term_shows_the_arithmetic_that_it_is():
    term = Term(why="of attention", sign=-1, products=Counter({(2, 3, 5): 4, (7,): 1}))

    assert term.value == -(4 * 2 * 3 * 5 + 7)
    assert str(term) == "- 127 of attention (4x2*3*5 + 1x7)"


def test_the_command_prints_the_table_and_writes_json(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("sys.argv", ["counters.py", "linear", "fused attention"])
    assert counters.main() == 0
    printed = capsys.readouterr().out
    assert "linear" in printed
    assert "- 6,291,456 of aten::_scaled_dot_product_flash_attention_for_cpu" in printed

    file = tmp_path / "counters.json"
    monkeypatch.setattr("sys.argv", ["counters.py", "--json", str(file), "linear"])
    assert counters.main() == 0
    (row,) = json.loads(file.read_text(encoding="utf-8"))
    assert (row["name"], row["macs"], row["fvcore_ratio"], row["is_explained"]) == ("linear", 20_480, 1.0, True)
