"""Fewer output channels of UPerNet's last convolution: the most important ones to the classifier."""

from typing import Any

from torch import Tensor, nn

from gearshift.errors import PathRefusedError
from gearshift.paths.cutting import by_importance, count_again, put
from gearshift.paths.moments import channel_importance, relu_mean
from gearshift.paths.sharing import DerivedTensors

_LAYER, _CLASSIFIER = "decode_head.fpn_bottleneck", "decode_head.classifier"


def check_channels(head: Any, kept: int) -> None:
    """Raise `PathRefusedError` where the head has no such channels, or is none that can be cut."""
    layer, available = head.fpn_bottleneck, head.fpn_bottleneck.conv.out_channels
    if not 1 <= kept <= available:
        raise PathRefusedError(f"decoder={kept} is out of range; this model's decoder allows 1 to {available}")
    if type(layer.activation) is not nn.ReLU or layer.batch_norm.weight is None:
        raise PathRefusedError("decoder cuts behind a batch norm and a ReLU, and this model's head has others")


def cut_decoder(model: Any, kept: int, derived: DerivedTensors) -> None:
    """Leave the last convolution of a clone its `kept` most important channels; the others' mean joins the bias.

    Weights are sorted once for all paths; each has a view of them.
    """
    head = model.decode_head
    check_channels(head, kept)
    layer, classifier = head.fpn_bottleneck, head.classifier
    if kept == layer.conv.out_channels:
        return
    norm = layer.batch_norm
    order = derived.get("decoder/order", lambda: by_importance(channel_importance(norm, classifier)))
    bias = derived.get(f"decoder={kept}/bias", lambda: _bias(norm, classifier, order[kept:]), stored=False)
    for name, module in ((f"{_LAYER}.conv", layer.conv), (f"{_LAYER}.batch_norm", norm)):
        for part, tensor in (*module.named_parameters(), *module.named_buffers()):
            if tensor.ndim:  # a count of batches has no channels
                put(model, f"{name}.{part}", _sorted(tensor, 0, order, f"{name}.{part}", derived)[:kept])
        count_again(module)
    weight = _sorted(classifier.weight, 1, order, f"{_CLASSIFIER}.weight", derived)
    put(model, f"{_CLASSIFIER}.weight", weight[:, :kept])
    put(model, f"{_CLASSIFIER}.bias", bias)
    count_again(classifier)


def _sorted(tensor: Tensor, axis: int, order: Tensor, name: str, derived: DerivedTensors) -> Tensor:
    return derived.get(f"decoder/sorted/{name}", lambda: tensor.index_select(axis, order), stored=False)


def _bias(norm: Any, classifier: Any, dropped: Tensor) -> Tensor:
    """The classifier's bias with what the dropped channels add on average."""
    columns = classifier.weight.detach()[:, dropped, 0, 0].double()
    bias: Tensor = classifier.bias.detach().double() + columns @ relu_mean(norm)[dropped]
    return bias.to(classifier.weight.dtype)
