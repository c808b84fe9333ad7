"""Token merging: what stays true of any merge, and what is refused. Its values: `specimens/tome.py`."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from gearshift.errors import PathRefusedError, SpecError
from gearshift.paths.build import PathFactory
from gearshift.paths.cost import count_macs
from gearshift.paths.spec import PathSpec
from gearshift.paths.transforms import MergedTokens
from gearshift.paths.vit.matching import Merging, Tokens
from tests.paths.specimens import SPECIMENS
from tests.paths.specimens.vit import DEPTH, merged_timm, segmenter, timm_vit

WIDTH, KEYS = 5, 4


def drawn(length: int, batch: int = 2, seed: int = 0) -> tuple[Tokens, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(batch, length, WIDTH, generator=generator, dtype=torch.float64)
    return Tokens(values), torch.randn(batch, length, KEYS, generator=generator, dtype=torch.float64)


@given(st.integers(0, 3), st.integers(1, 21), st.integers(1, 15), st.integers(1, 5), st.integers(0, 99))
def test_whatever_is_merged_nothing_is_lost(prefix: int, patches: int, count: int, rounds: int, seed: int) -> None:
    """Sizes count the first tokens, sums are kept, prefix tokens stay alone, each first token knows where it went."""
    first, _ = drawn(prefix + patches, seed=seed)
    merging, tokens = Merging(count=lambda _: count, prefix=prefix, placed=True), first
    for number in range(rounds):
        before = tokens.values.shape[1]
        _, keys = drawn(before, seed=seed + number + 1)
        tokens = merging(tokens, keys)
        assert tokens.values.shape[1] == before - min(count, (before - prefix) // 2)
    sizes = torch.ones(2, prefix + patches, 1).double() if tokens.sizes is None else tokens.sizes
    assert torch.equal(sizes.sum(dim=1), torch.full((2, 1), prefix + patches, dtype=torch.float64))
    assert torch.allclose((tokens.values * sizes).sum(dim=1), first.values.sum(dim=1))
    assert torch.equal(tokens.values[:, :prefix], first.values[:, :prefix])
    if tokens.places is not None:
        for sample in range(2):
            for place in range(tokens.values.shape[1]):
                members = tokens.places[sample] == place
                assert members.sum() == sizes[sample, place]
                assert torch.allclose(first.values[sample, members].mean(dim=0), tokens.values[sample, place])
    assert tokens.every().shape == first.values.shape


def test_the_most_alike_pairs_are_merged() -> None:
    """By hand: of patches 1 to 6 behind a class token, 2 is like 5 and 4 like 1; 6 is like nothing."""
    keys = torch.eye(7).double()
    keys[2] = keys[5] + 0.1 * keys[6]
    keys[4] = keys[1] + 0.2 * keys[6]
    values = torch.arange(7).double()[None, :, None]
    one = Merging(count=lambda _: 1, prefix=1, placed=True)(Tokens(values), keys[None])
    assert one.values.flatten().tolist() == [0, 4, 6, 1, 3, 3.5]
    two = Merging(count=lambda _: 2, prefix=1, placed=True)(Tokens(values), keys[None])
    assert two.values.flatten().tolist() == [0, 6, 2.5, 3, 3.5]
    assert two.every().flatten().tolist() == [0, 2.5, 3.5, 3, 2.5, 3.5, 6]


def test_merging_leaves_one_patch_in_the_end() -> None:
    """As in the paper, no block merges more than half of what it has."""
    for prefix in (0, 1, 2):
        tokens, _ = drawn(prefix + 9)
        lengths = []
        for number in range(6):
            tokens = Merging(count=lambda _: 1000, prefix=prefix, placed=False)(
                tokens, drawn(tokens.values.shape[1], seed=number)[1]
            )
            lengths.append(tokens.values.shape[1] - prefix)
        assert lengths == [5, 3, 2, 1, 1, 1]


def test_more_is_merged_the_larger_the_number() -> None:
    for make in (timm_vit, segmenter):
        factory = PathFactory(make())
        pixels = torch.randn(1, 3, 32, 40)
        macs = [count_macs(factory.build(PathSpec.parse(f"lossless+merge={n}")), pixels) for n in (1, 2, 4, 8, 10)]
        assert macs == sorted(set(macs), reverse=True)


def test_merging_needs_the_lossless_forward_and_something_to_gain() -> None:
    for path, match in (
        ("merge=8", r'write "lossless\+merge=8"'),
        ("lossless+merge=4+skip=0.0,0.1,0.2", "merge=4 changes nothing: no block runs on merged tokens"),
    ):
        with pytest.raises(PathRefusedError, match=match):
            PathFactory(timm_vit()).build(PathSpec.parse(path))


def test_the_setting_reads_back_and_refuses_nonsense() -> None:
    assert PathSpec.parse("merge=8+lossless").id == "lossless+merge=8"
    assert MergedTokens.read("12") == MergedTokens(12)
    assert MergedTokens.read("6%") == MergedTokens(percent=6)
    assert [MergedTokens(percent=6).count(length) for length in (197, 101, 3)] == [12, 6, 1]
    for text in ("", "0", "-3", "51%", "0%", "1.5"):
        with pytest.raises(SpecError, match="merge="):
            PathSpec.parse(f"merge={text}")


@pytest.mark.parametrize("skipped", [(), (DEPTH - 1,), (0, 2)])
def test_the_short_last_block_and_skipped_blocks_agree_with_the_paper(skipped: tuple[int, ...]) -> None:
    """The reference merges in every block that is left, the last one included: the class token does not see that."""
    model: Any = timm_vit().double()
    pixels = torch.randn(2, 3, 32, 40, dtype=torch.float64)
    text = "lossless+merge=3" + ("+skip=" + ",".join(f"0.{block}" for block in skipped) if skipped else "")
    with torch.inference_mode():
        got = PathFactory(model).build(PathSpec.parse(text))(pixels)
        reference: Any = merged_timm(3)(model)
        reference.blocks = nn.ModuleList(block for index, block in enumerate(model.blocks) if index not in skipped)
        assert torch.allclose(got, reference(pixels), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ["vit of timm", "averaging vit of timm", "deit with a teacher"])
def test_merging_is_exact_where_all_tokens_are_alike(name: str) -> None:
    """Equal tokens: their mean is what each was, and proportional attention weighs it as often as it was there."""
    factory = SPECIMENS[name].factory()
    model: Any = factory.stock.double()
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if "pos_embed" in parameter_name or "position_embeddings" in parameter_name:
                parameter.zero_()
    pixels = torch.ones(1, 3, *SPECIMENS[name].sizes[0], dtype=torch.float64)
    with torch.inference_mode():
        outputs = [factory.build(PathSpec.parse(text))(pixels) for text in ("stock", "lossless+merge=4")]
    logits = [output if isinstance(output, Tensor) else output.logits for output in outputs]
    assert torch.allclose(*logits, rtol=1e-10, atol=1e-10)
