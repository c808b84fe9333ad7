"""Record every operator call that a piece of code makes, with its cost and the module that made it.

    with CallRecorder(module) as recorder:
        module(x).sum().backward()
    recorder.calls

What other threads run is not seen, as none of PyTorch's own modes sees it. Everything is counted as PyTorch
carries it out: an outer product, or `linalg.vecdot`, is a multiplication and a sum there, hence element-wise.

Composite operators (`linear`, `matmul`, `einsum`, `scaled_dot_product_attention`) are followed down to the
operators that they are made of, so totals do not depend on grad, no-grad or inference mode. How a matrix
product is booked:

* `attention`, with everything around it but copies, inside a composite `scaled_dot_product_attention`;
* `linear`, inside a composite `linear`, in an `nn.Linear`, or where an operand is a parameter or buffer of
  the module (or a view, cast or copy of one);
* `matmul` otherwise. With grad enabled PyTorch takes composites apart before they can be seen, so the unfused
  form of `scaled_dot_product_attention` is `matmul` there.

Calls of a backward pass belong to the module whose forward call they differentiate, if that was recorded too,
and the gradients of a `linear` call are `linear`. Else they belong to the root, as the accumulation of gradients
does.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Self, TypeAlias

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from gearshift.errors import ModelError
from gearshift.profiler.calls import Call
from gearshift.profiler.macs import TAKE_NESTED, Macs, OperatorType
from gearshift.profiler.module_path import ModulePath
from gearshift.profiler.operators import Rule, find_rule, qualified_name
from gearshift.profiler.origins import Origins
from gearshift.profiler.stopwatch import Stopwatch
from gearshift.profiler.traffic import bytes_moved, tensors_in

_COMPOSITE = "CompositeImplicitAutograd"
_ATTENTION = "aten::scaled_dot_product_attention"
_QUERIES = frozenset({"size", "sym_size", "stride", "sym_stride", "numel", "sym_numel", "sym_storage_offset"})

OnCall: TypeAlias = Callable[[Any, Sequence[Any], Mapping[str, Any]], None]


class CallRecorder:
    """Records into `calls` what runs inside its `with` block, in this thread.

    Args:
        module: Names of modules are relative to it; `linear` multiplies by its parameters and buffers.
        stopwatch: Told of the begin and end of every call, to time it.
        on_call: Given every operator with its arguments before it runs, to run it again later.
    """

    def __init__(self, module: nn.Module, stopwatch: Stopwatch | None = None, on_call: OnCall | None = None) -> None:
        self.calls: list[Call] = []
        self._path = ModulePath(module)
        self._weights = _Weights(module)
        self._origins = Origins()
        self._stopwatch = stopwatch
        self._on_call = on_call
        self._composites: list[str] = []
        self._mode: Any = _Mode(self._dispatch)

    def __enter__(self) -> Self:
        self._origins.begin()
        self._path.__enter__()
        self._mode.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        self._mode.__exit__(*exception)
        self._path.__exit__(*exception)

    def _dispatch(self, operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if _is_query(operator):
            return NotImplemented
        if _is_composite(operator, args):
            with self._inside(operator), self._mode:
                return operator._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)
        return self._run(operator, args, kwargs)

    def _run(self, operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        operands = [*tensors_in(args), *tensors_in(list(kwargs.values()))]
        shapes = tuple(_shape(tensor) for tensor in operands)
        if self._on_call is not None:
            self._on_call(operator, args, kwargs)
        out = self._timed(operator, args, kwargs)
        rule = find_rule(operator)
        arguments = _positional(operator, args, kwargs)
        macs, apart = self._work(operator, rule, operands, arguments, out)
        read, written = (0, 0) if rule is None else bytes_moved(operator, args, kwargs, out, rule.traffic)
        operator_type, module = self._booked_as(rule, operands, out)
        self.calls.append(
            Call(
                operator=qualified_name(operator),
                operator_type=operator_type,
                module=module,
                macs=sum(macs.values()) if isinstance(macs, Mapping) else macs or 0,
                macs_by_type=macs if isinstance(macs, Mapping) else {},
                elementwise_flops=apart,
                bytes_read=read,
                bytes_written=written,
                input_shapes=shapes,
                is_counted=macs is not None,
            )
        )
        return out

    def _work(
        self, operator: Any, rule: Rule | None, operands: Sequence[torch.Tensor], args: Sequence[Any], out: Any
    ) -> tuple[Macs | None, int]:
        """MACs and FLOPs apart of a call; a formula that fails, such as a registered one, is named."""
        try:
            macs = _macs(rule, operands, args, out)
            return macs, 0 if macs is None else _flops(rule, args, out)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise ModelError(
                f"the formula of {qualified_name(operator)} fails on shapes {[_shape(item) for item in operands]} "
                f"({type(error).__name__}: {error}); mend what register_operator was given"
            ) from error

    def _timed(self, operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if self._stopwatch is None:
            return operator(*args, **kwargs)
        self._stopwatch.begin()
        try:
            return operator(*args, **kwargs)
        finally:
            self._stopwatch.end()

    def _booked_as(self, rule: Rule | None, operands: Sequence[torch.Tensor], out: Any) -> tuple[OperatorType, str]:
        """Return the type of a call that has just run, and the module that it belongs to."""
        operator_type, module = self._type(rule, operands, out), self._path.name
        origin = self._origins.current()
        if origin is not None:
            module = module or origin.module  # a module is running where a checkpoint computes again
            if operator_type is OperatorType.MATMUL and origin.operator_type is OperatorType.LINEAR:
                operator_type = OperatorType.LINEAR
        self._origins.note(module, operator_type)
        return operator_type, module

    def _type(self, rule: Rule | None, operands: Sequence[torch.Tensor], out: Any) -> OperatorType:
        operator_type = OperatorType.OTHER if rule is None else rule.operator_type
        if operator_type is OperatorType.DATA_MOVEMENT:
            self._weights.follow(operands, out)
            return operator_type
        if _ATTENTION in self._composites:
            return OperatorType.ATTENTION
        if operator_type is OperatorType.MATMUL and self._is_linear(operands):
            return OperatorType.LINEAR
        return operator_type

    def _is_linear(self, operands: Sequence[torch.Tensor]) -> bool:
        return (
            "aten::linear" in self._composites
            or isinstance(self._path.module, nn.Linear)
            or any(tensor in self._weights for tensor in operands)
        )

    @contextmanager
    def _inside(self, composite: Any) -> Iterator[None]:
        self._composites.append(qualified_name(composite))
        try:
            yield
        finally:
            self._composites.pop()


class _Mode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Hands every operator call to `dispatch`; apart from the recorder since it is entered many times."""

    supports_higher_order_operators = True

    def __init__(self, dispatch: Callable[[Any, Sequence[Any], Mapping[str, Any]], Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._dispatch = dispatch

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return self._dispatch(func, args, kwargs or {})


class _Weights:
    """The memory of a module's parameters and buffers, and of casts and copies made of them.

    Tensors are known by their storage, so that views are weights too; the tensors are kept, so that no
    storage's identity is used again.
    """

    def __init__(self, module: nn.Module) -> None:
        self._kept: list[torch.Tensor] = [*module.parameters(), *module.buffers()]
        self._storages = {_storage(tensor) for tensor in self._kept} - {None}

    def __contains__(self, tensor: torch.Tensor) -> bool:
        return _storage(tensor) in self._storages

    def follow(self, inputs: Sequence[torch.Tensor], out: Any) -> None:
        """Take the output of a copy to be a weight if all that was copied are weights."""
        if not inputs or not all(tensor in self for tensor in inputs):
            return
        for tensor in tensors_in(out):
            if tensor not in self and _storage(tensor) is not None:
                self._kept.append(tensor)
                self._storages.add(_storage(tensor))


def _storage(tensor: torch.Tensor) -> int | None:
    if tensor.layout is not torch.strided or tensor.is_nested:
        return None
    return int(tensor.untyped_storage()._cdata)


def _macs(rule: Rule | None, operands: Sequence[torch.Tensor], args: Sequence[Any], out: Any) -> Macs | None:
    if rule is None:
        return None
    if rule.macs is None:
        return 0
    if rule.macs not in TAKE_NESTED and any(tensor.is_nested for tensor in operands):
        return None
    return rule.macs(args, out)


def _flops(rule: Rule | None, args: Sequence[Any], out: Any) -> int:
    return 0 if rule is None or rule.flops is None else rule.flops(args, out)


def _positional(operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Sequence[Any]:
    """Return the arguments as the schema lists them, keyword-only ones behind the positional."""
    if not kwargs or not isinstance(operator, torch._ops.OpOverload):
        return args
    rest = operator._schema.arguments[len(args) :]
    return [*args, *(kwargs.get(argument.name, argument.default_value) for argument in rest)]


def _shape(tensor: torch.Tensor) -> tuple[int, ...]:
    return (tensor.numel(),) if tensor.is_nested else tuple(tensor.shape)


@cache
def _is_query(operator: Any) -> bool:
    namespace, _, name = qualified_name(operator).partition("::")
    return namespace == "prim" or (namespace == "aten" and (name in _QUERIES or "is_contiguous" in name))


def _is_composite(operator: Any, args: Sequence[Any]) -> bool:
    """Whether the operator is made of others on this device, and has no kernel of its own there."""
    return _is_ever_composite(operator) and _is_composite_on(
        operator, next((_BACKENDS.get(t.device.type) for t in tensors_in(list(args))), None)
    )


@cache
def _is_ever_composite(operator: Any) -> bool:
    overloaded: bool = isinstance(operator, torch._ops.OpOverload)
    return overloaded and _has_kernel(operator.name(), _COMPOSITE)


@cache
def _is_composite_on(operator: Any, backend: str | None) -> bool:
    """The meta device stands for real ones, which have a fused attention kernel."""
    if backend == "Meta" and operator.name() == _ATTENTION:
        return False
    return backend is None or not _has_kernel(operator.name(), backend)


_has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
_BACKENDS = {"cpu": "CPU", "cuda": "CUDA", "meta": "Meta", "mps": "MPS", "xpu": "XPU"}
