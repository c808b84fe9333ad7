"""`count`: what one forward pass of a module costs, in multiply-accumulates, element-wise FLOPs and bytes.

Counts are taken at operator level while the module runs once, so functional calls, fused attention and
modules written elsewhere are included. Conventions: `flops = 2 * macs`; only multiply-add operators have
MACs; the work of all others is `elementwise_flops`, apart (`gearshift.profiler.flops`); what is counted is a
property of shapes, so masks and zeroed weights save nothing (`Count.notes` says so where it finds some).
Work that a forward hands to threads of its own is not seen.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_leaves

from gearshift.errors import InputError, ModelError
from gearshift.profiler.calls import Call, Totals, totals_by_module, totals_by_operator, totals_by_type
from gearshift.profiler.inputs import Arguments, InputSpec, input_specs, positional
from gearshift.profiler.macs import OperatorType
from gearshift.profiler.module_path import module_names
from gearshift.profiler.preserve import as_found
from gearshift.profiler.recorder import CallRecorder
from gearshift.profiler.rows import Row, module_rows, operator_rows, type_rows
from gearshift.profiler.run import run_recorded
from gearshift.profiler.structure import meta_copy, meta_inputs
from gearshift.profiler.zeros import zeroed_channels

CONVENTION = (
    "macs: multiply-accumulates of multiply-add operators, dense; flops = 2 * macs; elementwise_flops: operations "
    "beside these (norms, activations, softmax, resampling, pooling, sums), 1 each per element, in no other field"
)
Setting: TypeAlias = str | list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """The cost of one forward pass.

    Attributes:
        calls: Every operator call, in order.
        inputs: The tensors that the module was called with.
        module_params: Parameters below every module, each counted once; "" is the root.
        settings: What else the count depends on: model, attention implementation, sizes of windows.
        notes: What a reader should know, such as weights that are zero but still computed.
    """

    calls: tuple[Call, ...]
    inputs: tuple[InputSpec, ...]
    module_params: Mapping[str, int]
    settings: Mapping[str, Setting]
    notes: tuple[str, ...] = ()

    @property
    def macs(self) -> int:
        """Multiply-accumulates of the whole batch."""
        return sum(call.macs for call in self.calls)

    @property
    def flops(self) -> int:
        """Floating-point operations of multiply-adds, `2 * macs`."""
        return 2 * self.macs

    @property
    def elementwise_flops(self) -> int:
        """Floating-point operations beside the multiply-adds, of the whole batch."""
        return sum(call.elementwise_flops for call in self.calls)

    @property
    def params(self) -> int:
        """Parameters; shared ones count once."""
        return self.module_params[""]

    @property
    def bytes_moved(self) -> int:
        """Least bytes read and written, operator by operator."""
        return sum(call.bytes_read + call.bytes_written for call in self.calls)

    @property
    def batch_size(self) -> int:
        """First size of the first input that has one; 1 where there is none."""
        return next((spec.shape[0] for spec in self.inputs if spec.shape), 1)

    @property
    def per_image_macs(self) -> float:
        """Multiply-accumulates per image of the batch."""
        return self.macs / max(self.batch_size, 1)

    @property
    def by_operator(self) -> dict[str, Totals]:
        """Sums by qualified operator name, dearest first."""
        return totals_by_operator(self.calls)

    @property
    def by_type(self) -> dict[OperatorType, Totals]:
        """Sums by operator type, dearest first."""
        return totals_by_type(self.calls)

    @property
    def by_module(self) -> dict[str, Totals]:
        """Sums by dotted module name, children included; "" is the root."""
        return totals_by_module(self.calls)

    @property
    def uncounted(self) -> dict[str, int]:
        """Operators that no rule knows, and how often each was called."""
        return dict(Counter(call.operator for call in self.calls if not call.is_counted))

    @property
    def is_lower_bound(self) -> bool:
        """Whether `macs` and `elementwise_flops` lack the work of uncounted operators."""
        return any(not call.is_counted for call in self.calls)

    def table(self) -> tuple[Row, ...]:
        """Return one row per operator type, dearest first."""
        return type_rows(self.calls)

    def operators(self) -> tuple[Row, ...]:
        """Return one row per operator, dearest first."""
        return operator_rows(self.calls)

    def modules(self, depth: int = 2) -> tuple[Row, ...]:
        """Return one row per module down to `depth` names, parents first, children included."""
        return module_rows(self.calls, self.module_params, depth)

    def to_dict(self, depth: int = 2) -> dict[str, Any]:
        """Return plain values, ready for strict JSON; modules down to `depth`."""
        return {
            "convention": CONVENTION,
            "macs": self.macs,
            "flops": self.flops,
            "elementwise_flops": self.elementwise_flops,
            "params": self.params,
            "bytes_moved": self.bytes_moved,
            "batch_size": self.batch_size,
            "macs_per_image": self.per_image_macs,
            "flops_per_image": 2 * self.per_image_macs,
            "is_lower_bound": self.is_lower_bound,
            "uncounted": self.uncounted,
            "inputs": [spec.to_dict() for spec in self.inputs],
            "settings": dict(self.settings),
            "notes": list(self.notes),
            "by_type": [row.to_dict() for row in self.table()],
            "by_operator": [row.to_dict() for row in self.operators()],
            "by_module": [row.to_dict() for row in self.modules(depth)],
        }


def count(
    module: nn.Module,
    args: Arguments = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    on_meta: bool = False,
) -> Count:
    """Count one forward pass of `module(*args, **kwargs)`, in evaluation mode and without gradients.

    The module may live on any device, the meta device included, and is left exactly as found. A compiled
    module is counted from the eager module inside it.

    Args:
        module: What to run.
        args: Positional inputs; a single tensor stands for itself.
        kwargs: Inputs by name.
        on_meta: Count a structural copy on the meta device: nothing is computed. Models whose control flow
            depends on values cannot run there; many of them can under PyTorch's `FakeTensorMode`, if they and
            their inputs were made under it.

    Raises:
        ModelError: Parameters are not initialised yet, or the module cannot be copied to the meta device.
    """
    module = eager(module)
    inputs, named_inputs = positional(args), dict(kwargs or {})
    notes = zeroed_channels(module)
    if on_meta:
        module, inputs, named_inputs = meta_copy(module), meta_inputs(inputs), meta_inputs(named_inputs)
    recorder = CallRecorder(module)
    with as_found(module), torch.device("meta") if on_meta else nullcontext():
        run_recorded(module, inputs, named_inputs, recorder)
    return summarise(recorder.calls, module, inputs, named_inputs, notes)


def summarise(
    calls: Iterable[Call],
    module: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    notes: Iterable[str] = (),
) -> Count:
    """Join recorded calls with what they depended on."""
    calls = tuple(calls)
    return Count(
        calls=calls,
        inputs=tuple(input_specs(module, args, kwargs)),
        module_params=_module_params(module),
        settings=_settings(module, calls),
        notes=tuple(notes),
    )


def eager(module: nn.Module) -> nn.Module:
    """Return the eager module inside a compiled one, ready to run.

    Raises:
        ModelError: Some parameter is not initialised.
        InputError: It is no module.
    """
    if not isinstance(module, nn.Module):
        raise InputError(f"cannot count a {type(module).__name__}; pass a torch.nn.Module")
    while isinstance(inner := getattr(module, "_orig_mod", None), nn.Module):
        module = inner
    lazy = next((name for name, parameter in module.named_parameters() if is_lazy(parameter)), None)
    if lazy is not None:
        raise ModelError(f"parameter {lazy} has no shape yet; run the module once before counting it")
    return module


def _module_params(module: nn.Module) -> dict[str, int]:
    by_id = {id(item): sum(parameter.numel() for parameter in item.parameters()) for item in module.modules()}
    return {name: by_id[key] for key, names in module_names(module).items() for name in names}


def _settings(module: nn.Module, calls: Iterable[Call]) -> dict[str, Setting]:
    """Read what else the count depends on: the model's class, how attention is computed, sizes of windows."""
    settings: dict[str, Setting] = {"model": type(module).__name__}
    implementation = getattr(getattr(module, "config", None), "_attn_implementation", None)
    if isinstance(implementation, str):
        settings["attention_implementation"] = implementation
    elif any(call.operator_type is OperatorType.ATTENTION for call in calls):
        settings["attention_implementation"] = "fused"
    if sizes := _window_sizes(module):
        settings["window_sizes"] = sizes
    return settings


def _window_sizes(module: nn.Module) -> list[int]:
    found = (getattr(item, "window_size", None) for item in module.modules())
    return sorted({size for size in tree_leaves(list(found)) if isinstance(size, int)})
