"""`runtime profile`: where a model's operations, time and energy go."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import torch
import tyro
from torch import nn

from gearshift.errors import InputError, ModelError, PathRefusedError
from gearshift.paths.build import PathFactory, family_of
from gearshift.paths.family import dtype_of
from gearshift.paths.models import LoadedModel, load_model
from gearshift.paths.spec import PathSpec
from gearshift.profiler import Count, Profile, count, profile
from gearshift.profiler.meters.discover import Kind
from gearshift.profiler.operator_energy import OperatorEnergy, measure_operator_energy
from gearshift.profiler.peaks import DTYPES, peaks_of
from gearshift.runtime.cli import profile_view as view
from gearshift.runtime.cli.output import (
    JsonTarget,
    check_targets,
    choose_device,
    choose_meter,
    emit_json,
    screen,
    show,
    tell,
)

STOCK = "stock"


@dataclass(frozen=True, kw_only=True)
class ProfileCommand:
    """Profile a model, or one of its paths."""

    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
    """hf:NAME_OR_DIR, config:NAME or timm:NAME."""
    size: Annotated[str, tyro.conf.arg(metavar="HxW")] = ""
    """Height x width of the input; the model's own if left out."""
    batch: int = 1
    """Frames at once."""
    path: Annotated[str, tyro.conf.arg(metavar="PATH_ID")] = STOCK
    """Which path through the model, such as lossless+skip=2.1."""
    dtype: str = "float32"
    """float32, bfloat16 or float16."""
    depth: int = 3
    """Levels of modules to list."""
    repeats: int = 5
    """Timed passes."""
    seconds: float = 3.0
    """Begin no further pass after so long; one is timed at least."""
    counts_only: bool = False
    """Count on the meta device: no computation, no time."""
    energy: bool = False
    """Also measure the energy of every type of work, by replaying its calls under a meter."""
    meter: Kind = "auto"
    """Which meter reads the energy."""
    fresh_peaks: bool = False
    """Measure this device's peak arithmetic and bandwidth again."""
    device: str = "cpu"
    """cpu, cuda or cuda:N."""
    json: JsonTarget = None
    """Write JSON to this file, or to stdout for -."""

    def run(self) -> int:
        """Profile it."""
        self._check()
        check_targets(self.json)
        device = choose_device(self.device)
        loaded = load_model(self.model, random_init=True)  # what it costs does not depend on what it was taught
        height, width = parse_size(self.size) if self.size else loaded.image_size
        module, lossless, factory = self._module(loaded, height, width, device)
        frames = torch.zeros(self.batch, 3, height, width, device=device, dtype=DTYPES[self.dtype])
        title = f"{self.model}, path {self.path}, {self.batch}x3x{height}x{width}, {self.dtype}"
        heading = {"model": self.model, "path": self.path, "lossless": lossless.to_dict()}
        if self.counts_only:
            counted = _counted(module, frames)
            return self._show_counts(counted, lossless, heading, title)
        warmed = factory is not None and device.type == "cpu" and _warm(module, factory, frames)
        profiled = profile(module, (frames,), repeats=self.repeats, warmup=0 if warmed else 1, max_seconds=self.seconds)
        return self._measure(module, frames, profiled, lossless, heading, title)

    def _measure(
        self,
        module: nn.Module,
        frames: torch.Tensor,
        profiled: Profile,
        lossless: "Lossless",
        heading: Mapping[str, Any],
        title: str,
    ) -> int:
        roofline = profiled.roofline(peaks_of(frames.device, frames.dtype, fresh=self.fresh_peaks))
        energy = self._energy(module, frames) if self.energy else None
        document = {
            **heading,
            **profiled.to_dict(self.depth),
            "roofline": roofline.to_dict(),
            "energy": None if energy is None else energy.to_dict(),
            "energy_reason": "not asked for: --energy measures it" if energy is None else energy.reason,
        }
        if emit_json(document, self.json):
            return 0
        lines = [
            f"{title}, {profiled.device} ({profiled.threads} threads)",
            view.operations_line(profiled.count),
            view.time_line(profiled, self.repeats),
            *view.warning_lines(profiled),
            lossless.line(profiled.macs),
            view.launch_line(profiled),
            view.correlation_line(roofline),
            None if energy is None else view.energy_line(energy),
            view.uncounted_line(profiled.count),
            *profiled.count.notes,
        ]
        screen().print("\n".join(line for line in lines if line), markup=False, soft_wrap=True)
        show(view.type_table("By operator type", profiled.table(), timed=True, roofline=roofline, energy=energy))
        screen().print(view.peaks_line(roofline), markup=False, soft_wrap=True)
        show(view.type_table("By module", profiled.modules(self.depth), timed=True))
        return 0

    def _show_counts(self, counted: Count, lossless: "Lossless", heading: Mapping[str, Any], title: str) -> int:
        if emit_json({**heading, **counted.to_dict(self.depth)}, self.json):
            return 0
        lines = [
            title,
            view.operations_line(counted),
            lossless.line(counted.macs),
            view.uncounted_line(counted),
            *counted.notes,
        ]
        screen().print("\n".join(line for line in lines if line), markup=False, soft_wrap=True)
        show(view.type_table("By operator type", counted.table(), timed=False))
        show(view.type_table("By module", counted.modules(self.depth), timed=False))
        return 0

    def _module(
        self, loaded: LoadedModel, height: int, width: int, device: torch.device
    ) -> tuple[nn.Module, "Lossless", PathFactory | None]:
        """The module to profile, what the exact rewrite would make of the stock model, and what builds its paths."""
        stock: nn.Module = loaded.module.to(DTYPES[self.dtype])
        spec = PathSpec.parse(self.path)
        try:
            family_of(stock)
        except ModelError as error:
            if spec.transforms:
                raise
            return stock.to(device), Lossless(reason=str(error)), None
        factory = PathFactory(stock)
        factory.to(device)
        factory.family.check_input(factory.stock, height, width)
        lossless = _lossless(factory, self.path, (self.batch, 3, height, width))
        if not spec.transforms:
            return stock, lossless, factory
        path = factory.build(spec)
        # Without a change of input size, show the model's own module names.
        return path if spec.get("size") else path.inner, lossless, factory

    def _energy(self, module: nn.Module, frames: torch.Tensor) -> OperatorEnergy:
        tell("measuring idle power, then replaying every type of work under the meter")
        meter = choose_meter(self.meter, frames.device, allow_estimate=True)
        try:
            return measure_operator_energy(module, (frames,), meter=meter)
        finally:
            meter.close()

    def _check(self) -> None:
        if self.batch < 1 or self.repeats < 1:
            raise InputError(f"--batch {self.batch} and --repeats {self.repeats} must both be at least 1")
        if self.depth < 0:
            raise InputError(f"--depth {self.depth} must be at least 0")
        if not self.seconds > 0:
            raise InputError(f"--seconds {self.seconds:g} must be above 0")
        if self.dtype not in DTYPES:
            raise InputError(f'--dtype "{self.dtype}" is not known; write one of {", ".join(DTYPES)}')
        if self.energy and self.counts_only:
            raise InputError("--counts-only runs nothing whose energy could be measured; leave out --energy")


@dataclass(frozen=True, kw_only=True)
class Lossless:
    """Whether the exact rewrite applies to a model, and what it saves."""

    macs: int | None = None
    path: str | None = None
    reason: str | None = None

    def line(self, macs: int) -> str:
        """One line about it; `macs` are those of what was profiled."""
        if self.macs is None:
            return f"lossless rewrite: none applies ({self.reason})"
        if self.path is None:
            return "lossless rewrite: applied in this path"
        return (
            f"lossless rewrite: applies, {macs / 1e9:.2f} to {self.macs / 1e9:.2f} GMAC "
            f"({self.macs / macs - 1:+.1%}) with the same output; profile it with --path {self.path}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {"applies": self.macs is not None, "macs": self.macs, "path": self.path, "reason": self.reason}


def _lossless(factory: PathFactory, asked: str, shape: tuple[int, ...]) -> Lossless:
    """Try the exact rewrite on the stock model, and count it on the meta device."""
    applied = PathSpec.parse(asked).get("lossless") is not None
    try:
        exact = factory.build(PathSpec.parse("lossless"))
    except PathRefusedError as error:
        return Lossless(reason=str(error))
    like = torch.empty(shape, device="meta", dtype=dtype_of(factory.stock))
    try:
        macs = count(exact.inner, (like,), on_meta=True).macs
    except (RuntimeError, NotImplementedError):  # its course depends on values (DETR's): only a real pass counts it
        place = next(factory.stock.parameters()).device
        with torch.inference_mode():
            macs = count(exact.inner, (torch.zeros(shape, device=place, dtype=like.dtype),)).macs
    return Lossless(macs=macs, path=None if applied else "lossless")


def _warm(module: nn.Module, factory: PathFactory, frames: torch.Tensor) -> bool:
    """Warm a processor up on frames of a quarter of the side: a whole pass first can take seconds and teaches no more.

    False, and nothing done, where the model takes no such frames.
    """
    height, width = (size // 4 for size in frames.shape[2:])
    try:
        factory.family.check_input(factory.stock, height, width)
        with torch.no_grad():
            for _ in range(2):
                module(frames[:, :, :height, :width])
    except InputError:  # from here, or from a path that makes them smaller still
        return False
    return True


def _counted(module: nn.Module, frames: torch.Tensor) -> Count:
    """Count on the meta device; a model whose course depends on values runs once instead."""
    tell("counting on the meta device: no time is measured")
    try:
        return count(module, (frames,), on_meta=True)
    except (RuntimeError, NotImplementedError) as error:
        tell(f"cannot run there ({' '.join(str(error).split())[:120]}); counting while it runs once for real")
        return count(module, (frames,))


def parse_size(text: str) -> tuple[int, int]:
    """Read `HxW`, or one number for a square.

    Raises:
        InputError: It is neither.
    """
    parts = text.split("x")
    if len(parts) not in (1, 2) or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise InputError(f'--size "{text}" is not height x width; write, for example, 512x512')
    return int(parts[0]), int(parts[-1])
