"""Swin beyond the properties of every path: windows, history, sizes, threads, pairs."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from transformers.models.swin.modeling_swin import SwinLayer

from gearshift.errors import InputError, PathRefusedError
from gearshift.paths.build import PathFactory, build_path
from gearshift.paths.spec import PathSpec
from gearshift.paths.swin.windows import _kept_plan, region_masks, window_plan
from tests.paths.specimens.swin import SIZES, WINDOW, small_swin
from tests.paths.specimens.upernet import on_swin

LOSSLESS, STOCK = PathSpec.parse("lossless"), PathSpec()
SWIN = small_swin()  # only to be read


@given(batch=st.integers(1, 2), height=st.integers(1, 13), width=st.integers(1, 13), shifted=st.booleans())
def test_windows_are_those_that_the_stock_block_cuts(batch: int, height: int, width: int, shifted: bool) -> None:
    """Each window of the plan holds the tokens, and has the mask, of one of the stock block's windows."""
    block: SwinLayer = SWIN.swin.encoder.layers[0].blocks[int(shifted)]
    shift = block.shift_size
    assert bool(shift) == shifted
    numbers = torch.arange(1.0, batch * height * width + 1).view(batch, height, width, 1)
    padded, _ = block.maybe_pad(numbers, height, width)
    rows, columns = padded.shape[1] // WINDOW, padded.shape[2] // WINDOW
    rolled = block.cyclic_shift(padded).view(batch, rows, WINDOW, columns, WINDOW)
    windows = rolled.transpose(2, 3).reshape(batch * rows * columns, WINDOW**2)
    mask = block.get_attn_mask(padded.shape[1], padded.shape[2], dtype=torch.float32, device=torch.device("cpu"))
    masks = (torch.zeros(1, WINDOW**2, WINDOW**2) if mask is None else mask).expand(rows * columns, -1, -1)
    expected = [(tokens.tolist(), masks[i % (rows * columns)].tolist()) for i, tokens in enumerate(windows)]

    plan = window_plan(torch.empty(batch, height * width, 1), height, width, WINDOW, shift)
    source = (plan.source + 1).index_fill(0, plan.beyond, 0).view(-1, WINDOW**2)
    kinds = [kind for kind, count in plan.groups for _ in range(count)]
    found = [
        (tokens.tolist(), region_masks(WINDOW, shift)[k].tolist()) for tokens, k in zip(source, kinds, strict=True)
    ]
    assert sorted(found) == sorted(expected)
    assert torch.equal(plan.source[plan.target], torch.arange(batch * height * width))


def test_plans_kept_are_few_and_those_of_a_tracer_are_not_kept() -> None:
    _kept_plan.cache_clear()
    for height in range(4, 80):
        window_plan(torch.empty(1, height * 4, 1), height, 4, WINDOW, 0)
    assert _kept_plan.cache_info().currsize == 64
    _kept_plan.cache_clear()

    class Standing(torch.Tensor):
        pass

    window_plan(torch.empty(1, 16, 1).as_subclass(Standing), 4, 4, WINDOW, 0)
    assert _kept_plan.cache_info().currsize == 0


def test_a_plan_first_made_in_inference_mode_serves_gradients_too() -> None:
    _kept_plan.cache_clear()
    path = build_path(small_swin(), LOSSLESS)
    frame = torch.randn(1, 3, *SIZES[0])
    with torch.inference_mode():
        path(frame)
    path(frame).logits.sum().backward()
    assert all(p.grad is not None for name, p in path.named_parameters() if "q_proj.weight" in name)


@pytest.mark.parametrize("path", ["stock", "lossless"])
def test_a_path_forgets_small_frames_which_the_stock_model_remembers(path: str) -> None:
    """A grid no larger than a window is not shifted; a larger one is, whatever came before."""
    small, large = torch.randn(1, 3, 61, 99), torch.randn(1, 3, *SIZES[0])
    built = build_path(small_swin(), PathSpec.parse(path))
    with torch.inference_mode():
        expected = {size: small_swin()(frame).logits for size, frame in (("small", small), ("large", large))}
        for size, frame in (("small", small), ("large", large), ("small", small)):
            torch.testing.assert_close(built(frame).logits, expected[size])
        remembering = small_swin()
        remembering(small)
        assert not torch.allclose(remembering(large).logits, expected["large"], atol=1e-3)
        used = build_path(remembering, PathSpec.parse(path))
        torch.testing.assert_close(used(large).logits, expected["large"])


@pytest.mark.parametrize("path", ["stock", "lossless"])
def test_threads_run_frames_of_two_sizes_at_once(path: str) -> None:
    built = build_path(small_swin(), PathSpec.parse(path))
    frames = [torch.randn(1, 3, *size) for size in ((61, 99), SIZES[0])]

    def run(index: int) -> torch.Tensor:
        with torch.inference_mode():
            return built(frames[index % 2]).logits

    expected = [run(0), run(1)]
    with ThreadPoolExecutor(4) as pool:
        for index, logits in enumerate(pool.map(run, range(40))):
            assert torch.equal(logits, expected[index % 2])


def test_frames_too_small_are_refused_and_leave_no_trace() -> None:
    built = build_path(small_swin(), STOCK)
    frame = torch.randn(1, 3, *SIZES[0])
    with torch.inference_mode():
        before = built(frame).logits
        for size in ((48, 99), (49, 48), (1, 1)):
            with pytest.raises(InputError, match="the minimum is 49x49"):
                built(torch.randn(1, 3, *size))
        assert built(torch.randn(1, 3, 49, 49)).logits.isfinite().all()
        assert torch.equal(built(frame).logits, before)
    with pytest.raises(PathRefusedError, match="minimum is 49x49"):
        build_path(small_swin(), PathSpec.parse("size=32x64"))


def test_learned_positions_fit_one_size() -> None:
    model = small_swin(use_absolute_embeddings=True, image_size=80)
    frame = torch.randn(2, 3, 78, 80)
    with torch.inference_mode():
        torch.testing.assert_close(build_path(model, LOSSLESS)(frame).logits, model(frame).logits)
        with pytest.raises(InputError, match="it takes 80x80"):
            build_path(model, LOSSLESS)(torch.randn(1, 3, 72, 99))


@pytest.mark.parametrize(
    ("make", "path"),
    [
        (small_swin, "skip=1.0"),
        (small_swin, "lossless+skip=0.0,0.1,1.1"),
        (small_swin, "blocks=2-1-2"),
        (on_swin, "skip=1.0"),
        (on_swin, "lossless+skip=1.0,3.0,3.1"),
        (on_swin, "lossless+blocks=2-1-2-2"),
    ],
)
def test_half_a_pair_is_refused(make: Callable[[], Any], path: str) -> None:
    with pytest.raises(PathRefusedError, match=r"2 at a time, and 1\.[01] would go without 1\.[01]"):
        build_path(make(), PathSpec.parse(path))


def test_the_search_skips_pairs() -> None:
    factory = PathFactory(small_swin())
    knobs = {knob.name: knob.settings for knob in factory.family.knobs(factory.stock, factory.derived)}
    assert [knobs[f"block {stage}.0"][0].value() for stage in range(3)] == ["0.0,0.1", "1.0,1.1", "2.0,2.1"]
    assert {"heads", "mlp", "size"} < set(knobs)
    for settings in knobs.values():
        for setting in settings:
            factory.build(PathSpec((setting,)))


def test_every_share_works_with_pairs_skipped() -> None:
    """Widths follow from the weights: no share leaves a norm or a bias table of another size."""
    factory = PathFactory(small_swin())
    frame = torch.randn(1, 3, *SIZES[0])
    for percent in range(10, 100, 20):
        for form in ("", "lossless+"):
            path = factory.build(PathSpec.parse(f"{form}skip=1.0,1.1+heads=80%+mlp={max(percent, 25)}%"))
            with torch.inference_mode():
                assert path(frame).logits.isfinite().all()


def test_other_blocks_are_refused() -> None:
    class OwnLayer(SwinLayer):
        pass

    model = small_swin()
    model.swin.encoder.layers[1].blocks[0].__class__ = OwnLayer
    with pytest.raises(PathRefusedError, match="lossless rewrites SwinLayer, and this model has OwnLayer"):
        build_path(model, LOSSLESS)
    factory = PathFactory(model)
    assert factory.family.base(model) == [STOCK]


def test_a_loss_is_left_to_the_stock_form() -> None:
    model = small_swin()
    frame = torch.randn(2, 3, *SIZES[0])
    with pytest.raises(InputError, match="not labels"):
        build_path(model, LOSSLESS)(frame, labels=torch.tensor([0, 1]))
    assert build_path(model, STOCK)(frame, labels=torch.tensor([0, 1])).loss.isfinite()


def test_changed_weights_are_seen_by_a_path_built_after() -> None:
    model = small_swin()
    frame = torch.randn(1, 3, *SIZES[0])
    with torch.inference_mode():
        build_path(model, LOSSLESS)(frame)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(table := getattr(module, "relative_position_bias_table", None), nn.Parameter):
                table.add_(1.0 + torch.arange(len(table))[:, None] % 3)
    with torch.inference_mode():
        torch.testing.assert_close(build_path(model, LOSSLESS)(frame).logits, model(frame).logits)
