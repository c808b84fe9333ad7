"""Our counts beside those of fvcore and of PyTorch's FlopCounterMode, and every difference as arithmetic.

    python benchmarks/counters.py [--json FILE|-] [NAME ...]

fvcore counts a multiply-accumulate as one and adds some element-wise work to it; FlopCounterMode counts two and
is halved here. A difference is a list of terms `sign sum(products)`, derived from the shapes of the calls and
from nothing that the other counter says; the table shows the terms and whether they are exactly the difference.
"""

import argparse
import json
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import timm
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode, flop_registry
from torchvision.models import resnet50
from torchvision.ops import DeformConv2d
from transformers import (
    SegformerConfig,
    SegformerForSemanticSegmentation,
    SwinConfig,
    UperNetConfig,
    UperNetForSemanticSegmentation,
)

from gearshift.profiler import Call, CallRecorder, OperatorType, count


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """Part of a difference: why, and `sign * sum(times * product(factors))` over calls of equal shapes."""

    why: str
    sign: int
    products: Mapping[tuple[int, ...], int]

    @property
    def value(self) -> int:
        """What it adds to our count."""
        return self.sign * sum(times * prod(factors) for factors, times in self.products.items())

    def __str__(self) -> str:
        shown = [f"{times}x{'*'.join(map(str, factors))}" for factors, times in self.products.items()]
        rest = f" + {len(shown) - 3} more" if len(shown) > 3 else ""
        return f"{'+' if self.sign > 0 else '-'} {abs(self.value):,} {self.why} ({' + '.join(shown[:3])}{rest})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One model or operator as the three count it, in MACs; None where a counter could not run."""

    name: str
    ours: int
    fvcore: int | None
    stock: int
    fvcore_terms: tuple[Term, ...]
    stock_terms: tuple[Term, ...]

    @property
    def is_explained(self) -> bool:
        """Whether the terms are exactly the differences."""
        fvcore = self.fvcore is None or self.fvcore == self.ours + sum(term.value for term in self.fvcore_terms)
        return fvcore and self.stock == self.ours + sum(term.value for term in self.stock_terms)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {
            "name": self.name,
            "macs": self.ours,
            "fvcore_macs": self.fvcore,
            "fvcore_ratio": None if self.fvcore is None else self.fvcore / self.ours if self.ours else None,
            "flop_counter_mode_macs": self.stock,
            "flop_counter_mode_ratio": self.stock / self.ours if self.ours else None,
            "fvcore_terms": [{"why": term.why, "macs": term.value} for term in self.fvcore_terms],
            "flop_counter_mode_terms": [{"why": term.why, "macs": term.value} for term in self.stock_terms],
            "is_explained": self.is_explained,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What to count.

    Attributes:
        build: Makes the module.
        shapes: Of its inputs.
        trains: Count a forward and a backward pass, which fvcore cannot.
        unread: Modules whose results nothing reads: they run, and tracing, as fvcore does, drops them.
    """

    build: Callable[[], nn.Module]
    shapes: tuple[tuple[int, ...], ...]
    trains: bool = False
    unread: tuple[str, ...] = ()


class Calls(nn.Module):
    """A module around a function."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Tensor:
        """Call it."""
        return self.function(*inputs)


class Logits(nn.Module):
    """A transformers model that returns its logits, as tracing wants."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixel_values: Tensor) -> Tensor:
        """Return the logits alone."""
        logits: Tensor = self.model(pixel_values).logits
        return logits


def _segformer() -> nn.Module:
    return Logits(SegformerForSemanticSegmentation(SegformerConfig(num_labels=150)))


def _upernet() -> nn.Module:
    backbone = SwinConfig(out_features=["stage1", "stage2", "stage3", "stage4"])
    return Logits(
        UperNetForSemanticSegmentation(
            UperNetConfig(backbone_config=backbone, num_labels=150, hidden_size=64, use_auxiliary_head=False)
        )
    )


def _attention_by_parts(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(q, k, v)


IMAGE = (1, 3, 224, 224)
ATTENTION = ((1, 12, 64, 64),) * 3
CASES: dict[str, Case] = {
    "SegFormer-B0 256x256": Case(build=_segformer, shapes=((1, 3, 256, 256),)),
    "Swin-T + UPerNet (64 wide) 128x128": Case(
        build=_upernet, shapes=((1, 3, 128, 128),), unread=("model.backbone.swin.layernorm",)
    ),
    "ViT-Ti/16 224x224": Case(build=lambda: timm.create_model("vit_tiny_patch16_224"), shapes=(IMAGE,)),
    "Swin-T 224x224": Case(build=lambda: timm.create_model("swin_tiny_patch4_window7_224"), shapes=(IMAGE,)),
    "ConvNeXt-atto 224x224": Case(build=lambda: timm.create_model("convnext_atto"), shapes=(IMAGE,)),
    "EfficientNet-lite0 224x224": Case(build=lambda: timm.create_model("efficientnet_lite0"), shapes=(IMAGE,)),
    "ResNet-50 224x224": Case(build=resnet50, shapes=(IMAGE,)),
    "convolution": Case(build=lambda: nn.Conv2d(8, 16, 3, padding=1), shapes=((1, 8, 16, 16),)),
    "convolution, 4 groups": Case(build=lambda: nn.Conv2d(8, 16, 3, padding=1, groups=4), shapes=((1, 8, 16, 16),)),
    "depthwise convolution": Case(build=lambda: nn.Conv2d(8, 8, 3, padding=1, groups=8), shapes=((1, 8, 16, 16),)),
    "transposed convolution": Case(build=lambda: nn.ConvTranspose2d(8, 16, 3, stride=2), shapes=((1, 8, 16, 16),)),
    "linear": Case(build=lambda: nn.Linear(64, 32), shapes=((2, 5, 64),)),
    "matmul": Case(build=lambda: Calls(torch.matmul), shapes=((2, 3, 5, 7), (2, 3, 7, 11))),
    "einsum": Case(
        build=lambda: Calls(lambda a, b: torch.einsum("bnc,bmc->bnm", a, b)), shapes=((2, 5, 7), (2, 11, 7))
    ),
    "matrix x vector": Case(build=lambda: Calls(torch.mv), shapes=((5, 7), (7,))),
    "fused attention": Case(build=lambda: Calls(F.scaled_dot_product_attention), shapes=ATTENTION),
    "attention by parts": Case(build=lambda: Calls(_attention_by_parts), shapes=ATTENTION),
    "deformable convolution": Case(build=lambda: DeformConv2d(4, 6, 3), shapes=((2, 4, 9, 9), (2, 18, 7, 7))),
    "LSTM": Case(build=lambda: nn.LSTM(16, 32), shapes=((7, 2, 16),)),
    "layer norm": Case(build=lambda: nn.LayerNorm(64), shapes=((2, 5, 64),)),
    "bilinear upsampling": Case(build=lambda: nn.Upsample(scale_factor=4, mode="bilinear"), shapes=((1, 8, 16, 16),)),
    "training step, linear": Case(build=lambda: nn.Linear(64, 32), shapes=((10, 64),), trains=True),
    "training step, convolution": Case(
        build=lambda: nn.Conv2d(8, 16, 3, padding=1), shapes=((1, 8, 16, 16),), trains=True
    ),
    "training step, 4 groups": Case(
        build=lambda: nn.Conv2d(8, 16, 3, padding=1, groups=4), shapes=((1, 8, 16, 16),), trains=True
    ),
    "training step, fused attention": Case(
        build=lambda: Calls(F.scaled_dot_product_attention), shapes=ATTENTION, trains=True
    ),
}


def compare(name: str) -> Row:
    """Count one case by all three."""
    case = CASES[name]
    torch.manual_seed(0)
    model = case.build().eval()
    inputs = tuple(torch.rand(shape, requires_grad=case.trains) for shape in case.shapes)
    calls = _recorded(model, inputs) if case.trains else count(model, inputs).calls
    return Row(
        name=name,
        ours=sum(call.macs for call in calls),
        fvcore=None if case.trains else _by_fvcore(model, inputs),
        stock=_by_stock(model, inputs, trains=case.trains),
        fvcore_terms=() if case.trains else tuple(fvcore_terms(model, calls, case.unread)),
        stock_terms=tuple(stock_terms(calls)),
    )


def _recorded(model: nn.Module, inputs: tuple[Tensor, ...]) -> list[Call]:
    with CallRecorder(model) as recorder:
        model(*inputs).sum().backward()
    return recorder.calls


def _by_stock(model: nn.Module, inputs: tuple[Tensor, ...], *, trains: bool) -> int:
    with torch.set_grad_enabled(trains), FlopCounterMode(display=False) as counter:
        out = model(*inputs)
        if trains:
            out.sum().backward()
    return counter.get_total_flops() // 2


def _by_fvcore(model: nn.Module, inputs: tuple[Tensor, ...]) -> int:
    with warnings.catch_warnings():
        # its import uses what PyTorch deprecates, and tracing warns of sizes that become constants: as wanted
        warnings.filterwarnings("ignore", message=r"`torch\.jit", category=FutureWarning)
        warnings.filterwarnings("ignore", message=r"`torch\.jit", category=DeprecationWarning)
        warnings.filterwarnings("ignore", category=torch.jit.TracerWarning)
        from fvcore.nn import FlopCountAnalysis

        analysis = FlopCountAnalysis(model, inputs)
        analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False)
        return int(analysis.total())


# --- What the others count otherwise ---------------------------------------------------------------------


def stock_terms(calls: Iterable[Call]) -> Iterator[Term]:
    """Yield what FlopCounterMode lacks (operators that it has no formula for), and what it counts too often."""
    calls = list(calls)
    known = {str(packet).replace(".", "::") for packet in flop_registry}
    yield from _lacking(calls, lambda call: call.operator not in known)
    # It forgets to divide a weight's gradient by the groups: pytorch/pytorch#183405.
    grouped: Counter[tuple[int, ...]] = Counter()
    for call in calls:
        if call.operator == "aten::convolution_backward":
            _, x, weight = call.input_shapes[:3]
            groups = x[1] // weight[1]
            if groups > 1:
                grouped[(groups - 1, call.macs // 2)] += 1
    if grouped:
        yield Term(why="weight gradients of grouped convolutions, times the groups", sign=1, products=grouped)


FVCORE_PRODUCTS = {"aten::convolution", "aten::mm", "aten::bmm", "aten::addmm"}


def fvcore_terms(model: nn.Module, calls: Iterable[Call], unread: tuple[str, ...] = ()) -> Iterator[Term]:
    """Yield what fvcore lacks, and the element-wise work that it adds to the multiply-accumulates.

    It knows composite operators by their names, so that attention is one to it, however it is computed.
    """
    calls = list(calls)
    yield from _lacking(
        calls,
        lambda call: call.operator not in FVCORE_PRODUCTS or call.operator_type is OperatorType.ATTENTION,
    )
    modules = dict(model.named_modules())
    added: dict[str, Counter[tuple[int, ...]]] = {}
    dropped: Counter[tuple[int, ...]] = Counter()
    for call in calls:
        for why, factors in _added_by_fvcore(call, modules.get(call.module)):
            added.setdefault(why, Counter())[factors] += 1
            if call.module in unread:
                dropped[factors] += 1
    for why, products in added.items():
        yield Term(why=why, sign=1, products=products)
    if dropped:
        yield Term(why=f"of these in {', '.join(unread)}: nothing reads its result", sign=-1, products=dropped)


def _added_by_fvcore(call: Call, module: nn.Module | None) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield why and how much; `len(input_shapes)` tells whether a norm has weights."""
    x = call.input_shapes[0] if call.input_shapes else ()
    match call.operator:
        case "aten::native_layer_norm" | "aten::native_group_norm":
            affine = len(call.input_shapes) > 1
            yield f"{5 if affine else 4} per element of layer and group norms", (5 if affine else 4, *x)
        case "aten::native_batch_norm":
            yield "2 per element of batch norms", (2, *x)
        case "aten::upsample_bilinear2d":
            yield "4 per output of bilinear upsampling", (4, call.elementwise_flops // 8)
        case "aten::_adaptive_avg_pool2d":
            yield "1 per element that adaptive pooling takes in", x
        case "aten::mean" if isinstance(module, nn.AdaptiveAvgPool2d):
            yield "1 per element that adaptive pooling takes in", x


def _lacking(calls: Iterable[Call], is_lacking: Callable[[Call], bool]) -> Iterator[Term]:
    products: dict[str, Counter[tuple[int, ...]]] = {}
    for call in calls:
        if call.macs and is_lacking(call):
            apart = call.operator == "aten::bmm" and call.operator_type is OperatorType.ATTENTION
            name = f"attention by {call.operator}" if apart else call.operator
            products.setdefault(name, Counter())[_arithmetic(call)] += 1
    for name, found in products.items():
        yield Term(why=f"of {name}, which it does not know", sign=-1, products=found)


def _arithmetic(call: Call) -> tuple[int, ...]:
    """Write the MACs of a call as the product of its sizes."""
    if "scaled_dot_product" in call.operator and "backward" not in call.operator:
        query, key, value = call.input_shapes[:3]
        return (*query[:-1], key[-2], query[-1] + value[-1])
    if call.operator == "aten::bmm":
        return (*call.input_shapes[0], call.input_shapes[1][-1])
    return (call.macs,)


# --- The table -------------------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of: {'; '.join(CASES)}")
    parser.add_argument("--json", metavar="FILE|-", help="write JSON to this file, or to stdout for -")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in CASES]:
        parser.error(f"no case {unknown[0]!r}; known: {'; '.join(CASES)}")
    rows = [compare(name) for name in options.names or CASES]
    if options.json is None:
        for row in rows:
            show(row)
    else:
        document = json.dumps([row.to_dict() for row in rows], indent=2, allow_nan=False) + "\n"
        sys.stdout.write(document) if options.json == "-" else Path(options.json).write_text(document, encoding="utf-8")
    return 0 if all(row.is_explained for row in rows) else 1


def show(row: Row) -> None:
    """Print one row, and below it each term of the differences."""
    verdict = "explained" if row.is_explained else "NOT EXPLAINED"
    fvcore = "-" if row.fvcore is None else f"{row.fvcore:,} ({_ratio(row.fvcore, row.ours)})"
    stock = f"{row.stock:,} ({_ratio(row.stock, row.ours)})"
    print(f"{row.name:36s} ours {row.ours:,} | fvcore {fvcore} | FlopCounterMode/2 {stock} | {verdict}")
    for counter, terms in (("fvcore", row.fvcore_terms), ("FlopCounterMode", row.stock_terms)):
        for term in terms:
            print(f"    {counter}: {term}")


def _ratio(theirs: int, ours: int) -> str:
    return f"{theirs / ours:.4f}" if ours else "-"


if __name__ == "__main__":
    sys.exit(main())
