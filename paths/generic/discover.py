"""Find a model's parts by running it once: blocks that keep the shape, norms right behind convolutions."""

import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from gearshift.errors import ModelError
from gearshift.paths.anatomy import Anatomy, AttentionSite, MlpSite
from gearshift.paths.outputs import logits_of

Size = tuple[int, int]
DEFAULT_SIZE = (224, 224)
BYPASS = 0.3
"""Mean diagonal of a module's Jacobian from which on it counts as residual."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What one forward pass tells.

    Attributes:
        anatomy: The parts.
        foldable: Convolutions, each with the batch norm that reads it, by name.
        size: Frames that it was run on.
        output: Shape of the logits for one of them.
        any_size: Whether it also takes smaller frames.
    """

    anatomy: Anatomy
    foldable: tuple[tuple[str, str], ...]
    size: Size
    output: torch.Size
    any_size: bool


@dataclass(slots=True)
class _Call:
    """A module's call during the pass."""

    inputs: tuple[Any, ...]
    options: dict[str, Any]
    output: Any
    times: int = 1


@dataclass(slots=True)
class _Pass:
    calls: dict[str, _Call] = field(default_factory=dict)
    output: Any = None


_known: "weakref.WeakKeyDictionary[nn.Module, Findings]" = weakref.WeakKeyDictionary()


def discover(stock: nn.Module) -> Findings:
    """Run the model on a random frame and see what its modules take and give; remembered per model.

    Raises:
        ModelError: It does not run on a frame of its own size, or gives no logits.
    """
    if stock not in _known:
        _known[stock] = _discover(stock)
    return _known[stock]


def _discover(stock: nn.Module) -> Findings:
    size = native_size(stock)
    try:
        seen = _run(stock, size)
        logits = logits_of(seen.output)
    except (RuntimeError, ValueError, TypeError, AttributeError, AssertionError, IndexError) as error:
        reason = " ".join(str(error).split())[:160]
        raise ModelError(
            f"{type(stock).__name__} cannot be run on a frame of {size[0]}x{size[1]}, so nothing is known of its "
            f"parts: {reason}"
        ) from error
    fixed = tuple(_classifiers(stock, logits.shape[1]))
    stages = _stages(stock, seen)
    return Findings(
        anatomy=Anatomy(
            stages=stages,
            attentions=tuple(_attentions(stock)),
            mlps=tuple(_mlps(stock)),
            linears=tuple(
                name
                for name, module in stock.named_modules()
                if isinstance(module, nn.Linear | nn.Conv2d) and name not in fixed and name in seen.calls
            ),
            fixed=fixed,
            example_shape=(channels_of(stock), *size),
        ),
        foldable=tuple(_foldable(stock, seen)),
        size=size,
        output=logits.shape,
        any_size=_takes(stock, (max(32, size[0] * 3 // 4 // 32 * 32), max(32, size[1] * 3 // 4 // 32 * 32))),
    )


def native_size(stock: Any) -> Size:
    """Height and width that a model is made for."""
    settings = getattr(stock, "pretrained_cfg", None) or {}
    size = settings.get("input_size", (3, None))[1:] if isinstance(settings, dict) else None
    if size and len(size) == 2:
        return int(size[0]), int(size[1])
    configured = getattr(getattr(stock, "config", None), "image_size", None)
    if isinstance(configured, int):
        return configured, configured
    if isinstance(configured, list | tuple) and len(configured) == 2:
        return int(configured[0]), int(configured[1])
    return DEFAULT_SIZE


def channels_of(stock: Any) -> int:
    """Channels of a frame."""
    configured = getattr(getattr(stock, "config", None), "num_channels", None)
    if isinstance(configured, int):
        return configured
    first = next((module for module in stock.modules() if isinstance(module, nn.Conv2d)), None)
    return 3 if first is None else first.in_channels


def _run(stock: nn.Module, size: Size) -> _Pass:
    """One pass with every module's call written down."""
    parameter = next(stock.parameters())
    generator = torch.Generator().manual_seed(0)
    frame = torch.randn(1, channels_of(stock), *size, generator=generator).to(parameter)
    seen = _Pass()
    names = {module: name for name, module in stock.named_modules()}

    def note(module: nn.Module, inputs: tuple[Any, ...], options: dict[str, Any], output: Any) -> None:
        name = names[module]
        if name in seen.calls:
            seen.calls[name].times += 1
        else:
            seen.calls[name] = _Call(inputs, options, output)

    handles = [module.register_forward_hook(note, with_kwargs=True) for module in names]
    try:
        with torch.inference_mode():
            seen.output = stock(frame)
    finally:
        for handle in handles:
            handle.remove()
    return seen


def _takes(stock: nn.Module, size: Size) -> bool:
    try:
        _run(stock, size)
    except (RuntimeError, ValueError, TypeError, AssertionError, IndexError):
        return False
    return True


def _stages(stock: nn.Module, seen: _Pass) -> tuple[tuple[str, ...], ...]:
    """The innermost residual modules, by the module that holds them."""
    residual = [name for name, module in stock.named_modules() if _is_residual(module, name, seen)]
    innermost = [name for name in residual if not any(other.startswith(f"{name}.") for other in residual)]
    stages: dict[str, list[str]] = {}
    for name in innermost:
        stages.setdefault(name.rpartition(".")[0], []).append(name)
    return tuple(tuple(blocks) for blocks in stages.values())


def _is_residual(module: nn.Module, name: str, seen: _Pass) -> bool:
    """Whether a module, called once, gives its first input with something added.

    Of `y = x + g(x)` the Jacobian's mean diagonal is about 1 (half of it behind a ReLU), of a layer without a bypass
    about 0. It is estimated by one small random step. A gate, whose weights see the pooled input only, is no bypass.
    """
    call = seen.calls.get(name)
    maps = [
        f"{name}.{inner}" for inner, part in module.named_modules() if inner and isinstance(part, nn.Linear | nn.Conv2d)
    ]
    if call is None or call.times != 1 or len(maps) < 2 or not call.inputs:
        return False
    given = call.inputs[0]
    if not (isinstance(given, Tensor) and isinstance(call.output, Tensor) and given.shape == call.output.shape):
        return False
    if all(_positions(seen.calls[inner]) <= 1 for inner in maps if inner in seen.calls):
        return False
    return _mean_diagonal(module, call) > BYPASS


def _positions(call: _Call) -> int:
    """Number of places in a module's first input: pixels or tokens."""
    given = call.inputs[0]
    return int(given[0].numel() // given.shape[1 if given.ndim == 4 else -1]) if isinstance(given, Tensor) else 0


def _mean_diagonal(module: nn.Module, call: _Call) -> float:
    given = call.inputs[0]
    generator = torch.Generator().manual_seed(0)
    direction = torch.randn(given.shape, generator=generator).to(given)
    step = 1e-2 * float(given.std()) + 1e-6
    with torch.inference_mode():
        moved = module(given + step * direction, *call.inputs[1:], **call.options)
    return float(((moved - call.output) * direction).sum() / (step * (direction * direction).sum()))


def _classifiers(stock: nn.Module, classes: int) -> Iterator[str]:
    """Maps to the classes."""
    for name, module in stock.named_modules():
        if (isinstance(module, nn.Linear) and module.out_features == classes) or (
            isinstance(module, nn.Conv2d) and module.out_channels == classes
        ):
            yield name


def _attentions(stock: nn.Module) -> Iterator[AttentionSite]:
    """Attentions as timm writes them: one map to queries, keys and values, and one back."""
    for name, module in stock.named_modules():
        qkv, output = getattr(module, "qkv", None), getattr(module, "proj", None)
        heads, head_dim = getattr(module, "num_heads", None), getattr(module, "head_dim", None)
        if not (isinstance(qkv, nn.Linear) and isinstance(output, nn.Linear)):
            continue
        if isinstance(heads, int) and isinstance(head_dim, int) and qkv.out_features == 3 * heads * head_dim:
            attributes: dict[str, Literal["heads", "channels"]] = {"num_heads": "heads"}
            if hasattr(module, "attn_dim"):
                attributes["attn_dim"] = "channels"
            yield AttentionSite(
                name=name,
                heads=heads,
                head_dim=head_dim,
                projections={f"{name}.qkv": 3},
                output=f"{name}.proj",
                attributes=attributes,
            )


def _mlps(stock: nn.Module) -> Iterator[MlpSite]:
    """Feed-forward parts as timm writes them: two maps and nothing with weights between."""
    for name, module in stock.named_modules():
        children = {child: part for child, part in module.named_children() if list(part.parameters())}
        if list(children) != ["fc1", "fc2"] or not all(isinstance(part, nn.Linear) for part in children.values()):
            continue
        if children["fc1"].out_features == children["fc2"].in_features:
            yield MlpSite(expand=f"{name}.fc1", reduce=f"{name}.fc2")


def _foldable(stock: nn.Module, seen: _Pass) -> Iterator[tuple[str, str]]:
    """Batch norms whose input is, as an object, what a convolution gave."""
    modules = dict(stock.named_modules())
    given = {id(call.output): name for name, call in seen.calls.items() if type(modules[name]) is nn.Conv2d}
    for name, call in seen.calls.items():
        if isinstance(modules[name], nn.BatchNorm2d) and call.times == 1 and id(call.inputs[0]) in given:
            convolution = given[id(call.inputs[0])]
            if seen.calls[convolution].times == 1:
                yield convolution, name
