"""`runtime bench`: a stream under budgets, beside the stock, the lossless and the best fixed path."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from gearshift.errors import BudgetError, InputError
from gearshift.files import write_text
from gearshift.profiler.meters.discover import Kind
from gearshift.runtime.bench.bench import BenchRequest, run_bench
from gearshift.runtime.bench.scenario import Scenario
from gearshift.runtime.budget import EXAMPLES, Budget
from gearshift.runtime.cli.output import choose_device, choose_meter, emit_json, tell
from gearshift.runtime.report import html, terminal


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Drive a camera-like stream through a model that holds a budget, and report how it was held."""

    bundle: Annotated[Path | None, tyro.conf.Positional] = None
    """Folder of the bundle; the small model that ships with Gearshift if left out."""
    budget: tyro.conf.UseAppendAction[list[str]] = field(default_factory=list)
    """What must hold, such as 60W, 60%, 33ms, 250mJ or 40Wh/3h; give it several times for several budgets."""
    scenario: Path | None = None
    """YAML file with budgets over time and co-running loads, or the name of one that ships (budget-steps, co-runner)."""
    seconds: float = 20.0
    """Length of the run."""
    fps: float | None = None
    """Frames per second of the camera; the fastest that the stock model keeps up with if left out."""
    baseline_seconds: float | None = None
    """Length of each comparison run; half of --seconds if left out, 0 for none."""
    data: Path | None = None
    """Folder with images/ and labels/ to show; rendered street scenes if left out."""
    ignore_index: int = 255
    """Label value that means "not labelled" in --data."""
    pictures: int = 48
    """How many different frames are shown, to the end and back."""
    seed: int = 20_000
    """Which drive is rendered."""
    calibrate: bool = True
    """Measure all paths here before the run."""
    checkpoint: str | None = None
    """Another place of the bundle's weights, where they have moved."""
    meter: Kind = "auto"
    """Where energy is read."""
    measured_only: bool = False
    """Refuse to estimate energy where no meter works; power and energy budgets are then refused too."""
    device: str = "cpu"
    """cpu, cuda or cuda:N."""
    json: str | None = None
    """Write the whole record as JSON to this file, or to stdout for -."""
    html: Path | None = None
    """Write a self-contained HTML report to this file."""

    def run(self) -> int:
        """Run it; 1 if no path can meet the budget."""
        scenario = self._scenario()
        for name, value in (("--fps", self.fps), ("--seconds", self.seconds)):
            if value is not None and not 0 < value < 1e6:
                raise InputError(f"{name} {value:g} must be a positive number below a million")
        if self.pictures < 1:
            raise InputError(f"--pictures {self.pictures} must be at least 1")
        device = choose_device(self.device)
        meter = choose_meter(self.meter, device, not self.measured_only)
        request = BenchRequest(
            bundle=self.bundle,
            scenario=scenario,
            fps=self.fps,
            baseline_seconds=scenario.seconds / 2 if self.baseline_seconds is None else self.baseline_seconds,
            data=self.data,
            ignore_index=self.ignore_index,
            pictures=self.pictures,
            seed=self.seed,
            calibrate=self.calibrate,
            checkpoint=self.checkpoint,
            device=device,
        )
        document = run_bench(request, meter, tell)
        if not emit_json(document, self.json):
            terminal(document, Console(highlight=False))
        if self.html is not None:
            write_text(self.html, html(document))
            tell(f"wrote {self.html}")
        if not document["met"]:
            tell(f"budget not met: {document['shortfall']}")
            return 1
        return 0

    def _scenario(self) -> Scenario:
        if self.scenario is not None:
            if self.budget:
                raise InputError("give either --scenario, which holds its budgets, or --budget")
            return Scenario.read(self.scenario)
        if not self.budget:
            raise BudgetError(f"no budget; give at least one --budget, for example {EXAMPLES}")
        Budget.parse(*self.budget)
        return Scenario.steady(self.budget, self.seconds)
