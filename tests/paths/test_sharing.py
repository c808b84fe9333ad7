"""One set of weights under many module trees: what is shared, what is not, and what it costs."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gearshift.paths.build import PathFactory, build_path
from gearshift.paths.models import build_described
from gearshift.paths.sharing import (
    DerivedTensors,
    clone_structure,
    extra_bytes,
    storage_bytes,
    tensors_of,
)
from gearshift.paths.spec import PathSpec

MakeStock = Callable[..., Any]


@pytest.fixture
def model(make_stock: MakeStock) -> Any:
    """A stock model of the test's own."""
    return make_stock()


PIXELS = (2, 3, 64, 96)


def run(module: nn.Module, **arguments: Any) -> Any:
    with torch.inference_mode():
        return module(torch.ones(PIXELS), **arguments)


# Cloning the structure


def test_a_clone_aliases_every_tensor_under_its_name(model: Any) -> None:
    clone = clone_structure(model)
    for kind in ("named_parameters", "named_buffers"):
        ours, theirs = dict(getattr(clone, kind)()), dict(getattr(model, kind)())
        assert ours.keys() == theirs.keys()
        assert all(ours[name] is theirs[name] for name in theirs)
    assert not {id(part) for part in clone.modules()} & {id(part) for part in model.modules()}


def test_tied_tensors_stay_tied() -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    module[1].weight = module[0].weight
    clone = clone_structure(module)
    assert clone[0].weight is clone[1].weight is module[0].weight


def test_a_clone_computes_the_same_bits(model: Any) -> None:
    assert torch.equal(run(clone_structure(model)).logits, run(model).logits)


def test_changes_of_a_clone_do_not_reach_the_original(model: Any) -> None:
    before = run(model).logits
    clone = clone_structure(model)
    clone.train()
    clone.config.depths = [0]
    clone.segformer.stages[2].blocks = nn.ModuleList()
    del clone.segformer.stages[0].blocks[1]
    clone.decode_head = nn.Identity()
    clone.register_buffer("more", torch.zeros(3))
    assert not any(part.training for part in model.modules())
    assert model.config.depths == [2, 1, 3, 1]
    assert [len(stage.blocks) for stage in model.segformer.stages] == [2, 1, 3, 1]
    assert torch.equal(run(model).logits, before)


def test_changes_of_the_original_do_not_reach_a_clone(model: Any) -> None:
    before = run(model).logits
    clone = clone_structure(model)
    model.train()
    model.segformer.stages[2].blocks = nn.ModuleList()
    assert not any(part.training for part in clone.modules())
    assert torch.equal(run(clone).logits, before)


def test_a_path_is_in_evaluation_mode_whatever_the_stock_model_is_in(model: Any) -> None:
    model.train()
    path = build_path(model, PathSpec.parse("fuse=300"))
    assert not any(part.training for part in path.modules())
    assert all(part.training for part in model.modules())


def put_on_all_hooks(module: nn.Module, called: list[str]) -> None:
    module.register_forward_hook(lambda *_: called.append("forward"))
    module.register_forward_hook(lambda *_, **__: called.append("keywords"), with_kwargs=True)
    module.register_forward_pre_hook(lambda *_: called.append("before"))
    module.register_full_backward_hook(lambda *_: called.append("backward"))
    module.register_state_dict_post_hook(lambda *_: called.append("state"))


def test_hooks_stay_behind_and_stay_in_force(model: Any) -> None:
    called: list[str] = []
    for part in (model.segformer.stages[1], model.decode_head.linear_fuse, model.decode_head.classifier):
        put_on_all_hooks(part, called)
    for text in ("stock", "fuse=300", "lossless"):
        path = build_path(model, PathSpec.parse(text))
        path(torch.ones(PIXELS, requires_grad=True)).logits.sum().backward()
        path.state_dict()
    assert called == []
    model(torch.ones(PIXELS, requires_grad=True)).logits.sum().backward()
    model.state_dict()
    assert {name: called.count(name) for name in set(called)} == dict.fromkeys(
        ("forward", "keywords", "before", "backward", "state"), 3
    )


def test_a_hook_that_cannot_be_copied_is_no_obstacle(model: Any) -> None:
    class Recorder:
        def __init__(self) -> None:
            self.lock = threading.Lock()

        def __call__(self, *_: object) -> None:
            pass

    model.decode_head.register_forward_hook(Recorder())
    assert torch.equal(run(clone_structure(model)).logits, run(model).logits)


@pytest.mark.parametrize("stock_ran_before", [False, True])
@pytest.mark.parametrize("text", ["stock", "skip=2.1", "fuse=300"])
def test_hidden_states_are_recorded_on_a_clone(text: str, stock_ran_before: bool, model: Any) -> None:
    """transformers puts its recording hooks on at the first call and remembers that it did."""
    if stock_ran_before:
        run(model, output_hidden_states=True)
    path = build_path(model, PathSpec.parse(text))
    for _ in range(2):
        got = run(path, output_hidden_states=True)
        assert len(got.hidden_states) == 4
    expected = run(model, output_hidden_states=True)
    assert len(expected.hidden_states) == 4
    assert torch.equal(got.hidden_states[1], expected.hidden_states[1])  # skip=2.1 changes later stages only
    assert len(run(model, output_hidden_states=True).hidden_states) == 4


# Counting memory


def test_every_tensor_is_listed_once() -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    module.add_module("again", module[0])
    assert sorted(tensor.numel() for tensor in tensors_of(module)) == [1, 3, 3, 3, 3, 3, 9]


def test_a_storage_counts_once_and_in_full() -> None:
    base = torch.zeros(10, 4)
    assert storage_bytes([base]) == 160
    assert storage_bytes([base[:2], base[:, :1], base.T]) == 160
    assert storage_bytes([base, base.clone()]) == 320
    assert storage_bytes([torch.zeros(0), torch.zeros(5, device="meta")]) == 0
    assert storage_bytes([]) == 0


class Holding(nn.Module):
    def __init__(self, **tensors: Tensor) -> None:
        super().__init__()
        for name, tensor in tensors.items():
            self.register_buffer(name, tensor)


def test_extra_memory_is_what_the_base_does_not_hold() -> None:
    base = Holding(weight=torch.zeros(10, 4))
    assert extra_bytes(Holding(view=base.weight[:3]), base) == 0
    new = torch.zeros(6)
    assert extra_bytes(Holding(view=base.weight[:3], new=new, part=new[:2]), base) == 24
    # A view on a large tensor keeps all of it in memory (B091).
    assert extra_bytes(Holding(part=torch.zeros(1000)[:1]), base) == 4000


def test_paths_that_drop_or_resize_need_no_memory(stock: Any) -> None:
    for text in ("stock", "skip=2.1", "blocks=1-1-2-1", "size=50%", "fuse=300", "fuse=1024+decoder=256"):
        assert build_path(stock, PathSpec.parse(text)).extra_bytes == 0, text


def test_extra_memory_of_a_lossless_path_is_its_folded_matrices(stock: Any) -> None:
    """4 bytes x (256 fused channels x all stages' channels + one shift per fused channel)."""
    path = build_path(stock, PathSpec.parse("lossless"))
    assert path.extra_bytes == 4 * (256 * (16 + 24 + 40 + 48) + 256)


def test_extra_memory_of_merged_projections_is_their_copy(stock: Any) -> None:
    """Two of three projections where keys and values are reduced, all three in the last stage."""
    lossless = build_path(stock, PathSpec.parse("lossless")).extra_bytes
    merged = build_path(stock, PathSpec.parse("lossless+qkv")).extra_bytes
    per_block = [2 * (16 * 16 + 16), 2 * (24 * 24 + 24), 2 * (40 * 40 + 40), 3 * (48 * 48 + 48)]
    assert merged - lossless == 4 * sum(n * part for n, part in zip([2, 1, 3, 1], per_block, strict=True))


def test_all_paths_of_a_factory_share_what_they_derive(stock: Any) -> None:
    factory = PathFactory(stock)
    texts = ["lossless", "lossless+skip=2.1", "lossless+size=50%", "lossless+skip=2.1,0.0+size=75%"]
    paths = [factory.build(PathSpec.parse(text)) for text in texts]
    together = storage_bytes(tensor for path in (stock, *paths) for tensor in tensors_of(path))
    assert together - storage_bytes(tensors_of(stock)) == paths[0].extra_bytes


def test_twelve_paths_of_a_large_model_cost_a_quarter_of_it_at_most() -> None:
    """B092, on SegFormer-B2: the frontier that a search would keep, stock and exact forms included."""
    model = build_described("segformer-b2")
    factory = PathFactory(model)
    texts = [
        "stock",
        "lossless",
        "lossless+qkv",
        "lossless+qkv+skip=2.1",
        "lossless+qkv+skip=2.1,2.3",
        "lossless+qkv+skip=2.1,2.3+decoder=576",
        "lossless+qkv+skip=2.1,2.3+fuse=2304+decoder=576",
        "lossless+qkv+skip=0.1,2.1,2.3+fuse=2304+decoder=384",
        "lossless+qkv+skip=0.1,2.1,2.3+fuse=1536+decoder=384+size=80%",
        "lossless+qkv+decoder=192+size=60%",
        "lossless+qkv+blocks=2-2-3-2+fuse=1536+decoder=192+size=50%",
        "lossless+qkv+size=33%",
    ]
    paths = [factory.build(PathSpec.parse(text)) for text in texts]
    parameters = sum(parameter.numel() * 4 for parameter in model.parameters())
    together = storage_bytes(tensor for path in (model, *paths) for tensor in tensors_of(path))
    assert together <= 1.25 * parameters
    skipping = [factory.build(PathSpec.parse(text)) for text in ("skip=2.1", "skip=0.1,2.1", "skip=3.1")]
    assert all(path.extra_bytes == 0 for path in skipping)


# Derived tensors


def test_a_derived_tensor_is_made_once() -> None:
    made: list[str] = []

    def make() -> Tensor:
        made.append("now")
        return torch.ones(3)

    derived = DerivedTensors()
    assert derived.get("ones", make) is derived.get("ones", make)
    assert made == ["now"]
    assert derived.tensors().keys() == {"ones"}


def test_a_derived_tensor_owns_its_storage_and_no_history() -> None:
    weight = torch.zeros(10, 4, requires_grad=True)
    column = DerivedTensors().get("column", lambda: weight[:, :1])
    assert column.is_contiguous()
    assert column.untyped_storage().nbytes() == 40  # B091
    assert not column.requires_grad


def test_known_tensors_are_used_as_they_are() -> None:
    known = torch.zeros(2)
    derived = DerivedTensors({"known": known})
    assert derived.get("known", lambda: torch.ones(2)) is known
    derived.tensors().clear()
    assert derived.tensors().keys() == {"known"}


def test_given_what_it_derives_a_path_recomputes_nothing(stock: Any, exact: PathSpec) -> None:
    factory = PathFactory(stock)
    spec = exact.with_transform(PathSpec.parse("decoder=100").transforms[0])
    first = factory.build(spec)
    again = PathFactory(stock, DerivedTensors(factory.derived.tensors()))
    second = again.build(spec)
    assert again.derived.tensors().keys() == factory.derived.tensors().keys()
    ours = {id(tensor) for tensor in tensors_of(second)}
    assert all(id(tensor) in ours for tensor in factory.derived.tensors().values())
    assert torch.equal(run(first).logits, run(second).logits)


# Serving, then training in the same process (B117)

STOCK_FORMS = [
    "stock",
    "skip=2.1",
    "blocks=1-1-2-1",
    "fuse=300",
    "decoder=64",
    "size=50%",
    "fuse=9+decoder=9",
]


@pytest.mark.parametrize("built_while_serving", [False, True])
@pytest.mark.parametrize("text", STOCK_FORMS)
def test_a_stock_form_trains_after_serving(text: str, built_while_serving: bool, model: Any) -> None:
    with torch.inference_mode(mode=built_while_serving):
        path = PathFactory(model).build(PathSpec.parse(text))
    for size in ((32, 32), (64, 96), (96, 64)):
        with torch.inference_mode():
            path(torch.zeros(1, 3, *size))
    path.train()
    optimiser = torch.optim.SGD(path.parameters(), lr=0.1)
    first = path.inner.segformer.stages[0].patch_embeddings.proj.weight
    before = first.detach().clone()
    loss = path(torch.randn(PIXELS)).logits.square().mean()
    loss.backward()
    optimiser.step()
    assert float(loss.detach()) > 0
    assert not torch.equal(first, before)
    assert first is model.segformer.stages[0].patch_embeddings.proj.weight


def test_gradients_through_a_lossless_form_are_the_stock_models(exact: PathSpec, model: Any) -> None:
    """Its decoder is constant, its encoder learns as the stock model's would; channels last too (B111)."""
    pixels = torch.randn(PIXELS).contiguous(memory_format=torch.channels_last)
    weight = model.segformer.stages[0].patch_embeddings.proj.weight
    gradients = []
    for module in (model, build_path(model, exact)):
        module.zero_grad()
        module(pixels).logits.square().mean().backward()
        gradients.append(weight.grad.clone())
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-3, atol=1e-5)
