"""Recorded calls run again: the same calls, of the same shapes, strides and types, without the model."""

import weakref
from collections import Counter

import pytest
import torch
from torch import nn

from gearshift.errors import InputError
from gearshift.profiler import CallRecorder, OperatorType
from gearshift.profiler.replay import RecordedPass


class Mixed(nn.Module):
    """Convolution, norm, in-place activation, attention, lookup by index, expanded and strided operands."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.table = nn.Embedding(16, 8)
        self.register_buffer("index", torch.tensor([3, 1, 2]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu_(self.norm(self.convolution(x)))
        tokens = x.flatten(2).transpose(1, 2)
        tokens = nn.functional.scaled_dot_product_attention(tokens, tokens, tokens)
        looked_up = self.table(self.index).sum(dim=0)
        return tokens + looked_up.expand_as(tokens) * tokens.mean()


def test_a_replay_of_all_types_makes_the_calls_of_the_pass_and_no_other() -> None:
    model, x = Mixed().eval(), torch.randn(2, 3, 8, 8)
    recorded = RecordedPass(model, (x,))
    replays = [recorded.replay(operator_type) for operator_type in recorded.operator_types]
    with CallRecorder(model) as again:
        for replay in replays:
            replay()
    made, expected = (
        Counter((call.operator, call.input_shapes, call.macs, call.bytes_read) for call in calls)
        for calls in (again.calls, recorded.calls)
    )
    assert made == expected


def test_a_replay_holds_the_calls_of_its_type() -> None:
    recorded = RecordedPass(Mixed().eval(), (torch.randn(1, 3, 8, 8),))
    assert recorded.operator_types[0] is OperatorType.CONVOLUTION
    for operator_type in recorded.operator_types:
        wanted = sum(call.operator_type is operator_type for call in recorded.calls)
        assert recorded.replay(operator_type).calls == wanted > 0


def test_weights_are_the_models_own_and_activations_are_not_kept() -> None:
    model, x = Mixed().eval(), torch.randn(1, 3, 8, 8)
    recorded = RecordedPass(model, (x,))
    operands = [
        leaf
        for operator_type in recorded.operator_types
        for _, args, kwargs in recorded.replay(operator_type)._steps
        for leaf in torch.utils._pytree.tree_leaves((args, kwargs))
        if isinstance(leaf, torch.Tensor)
    ]
    pointers = {leaf.data_ptr() for leaf in operands}
    assert {model.convolution.weight.data_ptr(), model.table.weight.data_ptr()} <= pointers
    assert x.data_ptr() not in pointers
    assert any(leaf.dtype is torch.int64 and leaf.tolist() == [3, 1, 2] for leaf in operands)
    assert any(0 in leaf.stride() for leaf in operands), "the expanded operand stays expanded"


def test_operands_live_no_longer_than_their_replay() -> None:
    recorded = RecordedPass(Mixed().eval(), (torch.randn(1, 3, 8, 8),))
    replay = recorded.replay(OperatorType.ACTIVATION)
    operand = weakref.ref(replay._steps[0][1][0])
    assert operand() is not None
    del replay
    assert operand() is None


def test_a_model_is_left_as_found_and_may_be_replayed_many_times() -> None:
    model, x = Mixed().train(), torch.randn(2, 3, 8, 8)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    recorded = RecordedPass(model, (x,))
    for operator_type in recorded.operator_types:
        replay = recorded.replay(operator_type)
        for _ in range(3):
            replay()
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_module_that_does_nothing_has_nothing_to_replay() -> None:
    with pytest.raises(InputError, match="Identity made no operator call"):
        RecordedPass(nn.Identity(), (torch.ones(1),))
