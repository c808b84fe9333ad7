"""What the decoder's queries start with, whatever the image: made once from the weights.

The queries enter the first decoder layer as constants (zeros in DETR, learned in Deformable DETR) with learned
positions, so that its self-attention, the norm behind it and the linear maps that read the result give the same for
every image.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from gearshift.errors import InputError
from gearshift.paths.sharing import DerivedTensors
from gearshift.paths.spec import PathSpec
from gearshift.paths.transforms.depth import SkippedBlock


def first_layer(layers: nn.ModuleList) -> int:
    """Index of the first layer that is not skipped; the number of layers where all are."""
    present = (index for index, layer in enumerate(layers) if not isinstance(layer, SkippedBlock))
    return next(present, len(layers))


def start(layers: nn.ModuleList, content: Tensor, positions: Tensor) -> Tensor:
    """The queries `(1, Q, C)` where the first layer turns to the image: what they enter with, if none does."""
    first = first_layer(layers)
    return content if first == len(layers) else attend_queries(layers[first], content, positions)


def attend_queries(layer: Any, hidden: Tensor, positions: Tensor) -> Tensor:
    """A decoder layer's self-attention with its residual and norm; `(B, Q, C)` to `(B, Q, C)`."""
    attended, _ = layer.self_attn(hidden_states=hidden, position_embeddings=positions)
    normed: Tensor = layer.self_attn_layer_norm(hidden + attended)
    return normed


def mix_queries(layer: Any, hidden: Tensor, attended: Tensor) -> Tensor:
    """What follows a decoder layer's cross-attention; `(B, Q, C)` to `(B, Q, C)`."""
    hidden = layer.encoder_attn_layer_norm(hidden + attended)
    mixed: Tensor = layer.final_layer_norm(hidden + layer.mlp(hidden))
    return mixed


def keep(module: nn.Module, name: str, key: str, make: Callable[[], Tensor], derived: DerivedTensors) -> None:
    """Register a constant of the weights, made once for all paths whose decoders start alike."""
    module.register_buffer(name, derived.get(f"{key}/{name}", make, stored=False), persistent=False)


def start_key(spec: PathSpec, layers: nn.ModuleList) -> str:
    """A key for constants: the layer they belong to, and what of a path may have changed that layer."""
    kept = spec
    for name in ("lossless", "norms", "blocks", "skip", "size"):
        kept = kept.without(name)
    return f"queries/{kept.id}/{first_layer(layers)}"


def refuse_others(arguments: dict[str, Any]) -> None:
    """Raise `InputError` where something else than detections is asked for, such as a loss or attention maps."""
    asked = sorted(name for name, value in arguments.items() if value is not None and value is not False)
    if asked:
        raise InputError(f"a lossless path takes frames and a pixel_mask, not {asked[0]}; use the stock form")
