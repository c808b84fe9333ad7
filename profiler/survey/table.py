"""Rows as CSV: one line per architecture, or one per kind of layer."""

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from gearshift.profiler.macs import OperatorType
from gearshift.profiler.survey.layers import KINDS, Layer
from gearshift.profiler.survey.row import Row
from gearshift.profiler.survey.summary import is_power_of_two, size_text

_MULTIPLYING = (OperatorType.CONVOLUTION, OperatorType.LINEAR, OperatorType.ATTENTION, OperatorType.MATMUL)
_TESTS: Mapping[str, tuple[str, Callable[[Layer], bool]]] = {
    "conv2d_1x1": ("Conv2d", lambda layer: layer.kernel == (1, 1)),
    "conv2d_3x3": ("Conv2d", lambda layer: layer.kernel == (3, 3)),
    "conv2d_not_square": ("Conv2d", lambda layer: len(set(layer.kernel)) > 1),
    "conv2d_strided": ("Conv2d", lambda layer: max(layer.stride) > 1),
    "conv2d_grouped": ("Conv2d", lambda layer: layer.groups > 1),
    "conv2d_depthwise": ("Conv2d", lambda layer: layer.is_depthwise),
    "conv2d_without_bias": ("Conv2d", lambda layer: not layer.bias),
    "linear_without_bias": ("Linear", lambda layer: not layer.bias),
    "linear_in_power_of_two": ("Linear", lambda layer: is_power_of_two(layer.in_features)),
    "linear_out_power_of_two": ("Linear", lambda layer: is_power_of_two(layer.out_features)),
}


def architectures_csv(rows: Iterable[Row]) -> str:
    """One line per architecture; what is not known is empty."""
    return _csv([_architecture(row) for row in rows])


def layers_csv(rows: Iterable[Row]) -> str:
    """One line per architecture and kind of layer, with how many of these it has."""
    return _csv([{"name": row.name, **_layer(layer)} for row in rows for layer in row.layers])


def _architecture(row: Row) -> dict[str, Any]:
    facts = row.facts
    return {
        "name": row.name,
        "status": row.status,
        "reason": row.reason,
        "family": facts and facts.family,
        "model_class": facts and facts.model_class,
        "year": facts and facts.year,
        "year_from": facts and facts.year_from,
        "weights": facts and facts.weights,
        "input_shape": row.input_shape and size_text(row.input_shape),
        "params": row.params,
        **{kind.lower(): row.count(kind) if row.is_ok else None for kind in KINDS},
        **{name: _tested(row, *test) if row.is_ok else None for name, test in _TESTS.items()},
        "macs": row.total_macs,
        "flops": None if row.total_macs is None else 2 * row.total_macs,
        **{f"macs_{kind}": None if row.macs is None else row.macs.get(kind, 0) for kind in _MULTIPLYING},
        "macs_reason": row.macs_reason,
        "uncounted": " ".join(row.uncounted),
    }


def _tested(row: Row, kind: str, test: Callable[[Layer], bool]) -> int:
    return sum(layer.count for layer in row.layers if layer.kind == kind and test(layer))


def _layer(layer: Layer) -> dict[str, Any]:
    return {
        "kind": layer.kind,
        "class": layer.class_name,
        "in_features": layer.in_features,
        "out_features": layer.out_features,
        "kernel": size_text(layer.kernel),
        "stride": size_text(layer.stride),
        "groups": layer.groups,
        "bias": int(layer.bias),
        "count": layer.count,
    }


def _csv(lines: Sequence[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(lines[0]) if lines else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()
