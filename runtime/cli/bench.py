"""`runtime bench`: a stream under budgets, beside the stock, the lossless and the best fixed path."""

from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import tyro

from gearshift.errors import BudgetError, InputError
from gearshift.files import write_text
from gearshift.profiler.meters.discover import Kind
from gearshift.runtime.bench.bench import BenchRequest, run_bench
from gearshift.runtime.bench.scenario import LONGEST_S, Scenario
from gearshift.runtime.budget import EXAMPLES, Budget
from gearshift.runtime.carbon import chosen_intensity
from gearshift.runtime.cli.output import (
    BundleFolder,
    Country,
    GramsPerKwh,
    GridSource,
    JsonTarget,
    check_targets,
    choose_device,
    choose_meter,
    emit_json,
    screen,
    tell,
    tell_if_estimated,
)
from gearshift.runtime.report import html, terminal

DEFAULT_SECONDS = 20.0


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Drive a camera-like stream through a model that holds a budget, and report how it was held."""

    bundle: BundleFolder = None
    """Folder of the bundle; the small model that ships with Gearshift if left out."""
    budget: tyro.conf.UseAppendAction[list[str]] = field(default_factory=list)
    """What must hold, such as 60W, 60%, 33ms, 250mJ or 40Wh/3h; give it several times for several budgets."""
    scenario: Annotated[Path | None, tyro.conf.arg(metavar="FILE|NAME")] = None
    """YAML file with budgets over time and co-running loads, or one that ships: budget-steps, co-runner."""
    seconds: Annotated[float | None, tyro.conf.arg(metavar="SECONDS")] = None
    """Length of the run; 20, or the scenario's own, if left out. A scenario is played faster or slower."""
    fps: Annotated[float | None, tyro.conf.arg(metavar="RATE")] = None
    """Frames per second of the camera; the fastest that the stock model keeps up with if left out."""
    baseline_seconds: Annotated[float | None, tyro.conf.arg(metavar="SECONDS")] = None
    """Length of each comparison run; half of the run's if left out, 0 for none."""
    data: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder with images/ and labels/ to show; rendered street scenes if left out."""
    ignore_index: int = 255
    """Label value that means "not labelled" in --data."""
    pictures: int = 48
    """How many different frames are shown, to the end and back."""
    seed: int = 20_000
    """Which drive is rendered."""
    calibrate: bool = True
    """Measure all paths here before the run."""
    checkpoint: Annotated[str | None, tyro.conf.arg(metavar="MODEL")] = None
    """Another place of the bundle's weights, where they have moved."""
    meter: Kind = "auto"
    """Where energy is read."""
    measured_only: bool = False
    """Refuse to estimate energy where no meter works; power and energy budgets are then refused too."""
    device: str = "cpu"
    """cpu, cuda or cuda:N."""
    country: Country = None
    """Report CO2e at this country's mean grid intensity, such as FRA; from codecarbon's data, no network."""
    grid_intensity: GramsPerKwh = None
    """Report CO2e at this grid intensity, in g/kWh."""
    grid_source: GridSource = None
    """Who says so."""
    json: JsonTarget = None
    """Write the whole record as JSON to this file, or to stdout for -."""
    html: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Write a self-contained HTML report to this file."""

    def run(self) -> int:
        """Run it; 1 if no path can meet the budget."""
        request = self._request()
        check_targets(self.json, self.html)
        with closing(choose_meter(self.meter, request.device, not self.measured_only)) as meter:
            document = run_bench(request, meter, tell, ready=partial(tell_if_estimated, meter))
        return self._report(document)

    def _request(self) -> BenchRequest:
        self._check_numbers()
        scenario = self._scenario()
        return BenchRequest(
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
            device=choose_device(self.device),
            grid=chosen_intensity(self.country, self.grid_intensity, self.grid_source),
        )

    def _check_numbers(self) -> None:
        for name, value in (("--fps", self.fps), ("--seconds", self.seconds)):
            if value is not None and not 0 < value < LONGEST_S:
                raise InputError(f"{name} {value:g} must be a positive number below a million")
        compared = self.baseline_seconds
        if compared is not None and not 0 <= compared < LONGEST_S:
            raise InputError(f"--baseline-seconds {compared:g} must be 0, or positive and below a million")
        if self.pictures < 1:
            raise InputError(f"--pictures {self.pictures} must be at least 1")

    def _scenario(self) -> Scenario:
        if self.scenario is not None:
            if self.budget:
                raise InputError("give either --scenario, which holds its budgets, or --budget")
            script = Scenario.read(self.scenario)
            return script if self.seconds is None else script.lasting(self.seconds)
        if not self.budget:
            raise BudgetError(f"no budget; give at least one --budget, for example {EXAMPLES}")
        Budget.parse(*self.budget)
        return Scenario.steady(self.budget, self.seconds or DEFAULT_SECONDS)

    def _report(self, document: dict[str, Any]) -> int:
        if not emit_json(document, self.json):
            terminal(document, screen())
        if self.html is not None:
            write_text(self.html, html(document))
            tell(f"wrote {self.html}")
        if document["met"]:
            return 0
        tell(f"budget not met: {document['shortfall']}")
        return 1
