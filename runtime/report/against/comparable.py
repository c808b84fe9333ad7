"""Why two reports may not be compared, and how else they differ."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from gearshift.runtime.report.energy.model import EnergyReport
from gearshift.runtime.report.words import count, number

RATE_TOLERANCE = 0.01
"""Camera rates that differ by less are one rate."""
CLOCK_TOLERANCE = 0.05
TEMPERATURE_TOLERANCE_C = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trait:
    """One thing about a report.

    Attributes:
        name: Of the thing.
        a, b: As text.
        differs: Whether both are different.
        matters: What a difference does to the comparison; None where it is of no matter.
    """

    name: str
    a: str
    b: str
    differs: bool
    matters: str | None

    @property
    def warning(self) -> str | None:
        """The difference, if it forbids a comparison."""
        if not self.differs or self.matters is None:
            return None
        return f"{self.name}: {self.a or 'unknown'} against {self.b or 'unknown'}; {self.matters}"


def traits(a: EnergyReport, b: EnergyReport) -> list[Trait]:
    """Everything about two reports that a reader compares before the figures."""
    return [Trait(name=name, a=of(a), b=of(b), differs=_differ(a, b, of), matters=why) for name, of, why in _TRAITS] + [
        _rate(a, b)
    ]


def warnings(a: EnergyReport, b: EnergyReport) -> list[str]:
    """Why the two may not be compared, a line each; empty where they may."""
    return [found for trait in traits(a, b) if (found := trait.warning)]


def notes(a: EnergyReport, b: EnergyReport) -> list[str]:
    """What else a reader should know: the same run twice, other temperatures and clocks, something throttled."""
    return list(_notes(a, b))


def _notes(a: EnergyReport, b: EnergyReport) -> Iterator[str]:
    if a == b:
        yield "both files hold the same run"
    if a.meter.estimated and b.meter.estimated:
        yield "the energy of both is ESTIMATED, not measured"
    for name, run in a.baselines.items():
        if name in b.baselines and run.path != b.baselines[name].path:
            yield f"the {name} is {run.path} in A and {b.baselines[name].path} in B"
    grids = [report.grid for report in (a, b)]
    if None not in grids and grids[0] != grids[1]:
        yield "CO2e is worked out with two grid intensities; give one with --country or --grid-intensity"
    before = (a.run.conditions_before, b.run.conditions_before)
    clocks = [one.clock_mhz for one in before]
    if clocks[0] and clocks[1] and abs(clocks[1] / clocks[0] - 1) > CLOCK_TOLERANCE:
        yield f"clocks differ when the runs began: {number(clocks[0])} against {number(clocks[1])} MHz"
    heat = [one.temperature_c for one in before]
    if heat[0] is not None and heat[1] is not None and abs(heat[1] - heat[0]) > TEMPERATURE_TOLERANCE_C:
        yield f"temperatures differ when the runs began: {number(heat[0])} against {number(heat[1])} °C"
    for name, report in zip("AB", (a, b), strict=True):
        found = {
            *(report.run.conditions_before.throttle_reasons or ()),
            *(report.run.conditions_after.throttle_reasons or ()),
        }
        if found:
            yield f"{name} was held down by {', '.join(sorted(found))}"


def _differ(a: EnergyReport, b: EnergyReport, of: Callable[[EnergyReport], str]) -> bool:
    return of(a) != of(b)


def _device(report: EnergyReport) -> str:
    device = report.setting.device
    threads = device.get("threads")
    return f"{device.get('name') or 'unknown'}{'' if threads is None else f', {threads} hardware threads'}"


def _method(report: EnergyReport) -> str:
    return "estimated" if report.meter.estimated else "measured" if report.meter.source != "none" else "not measured"


def _data(report: EnergyReport) -> str:
    setting = report.setting
    seed = "" if setting.seed is None else f", seed {setting.seed}"
    return f"{setting.data}, {count(setting.pictures, 'picture')}{seed}"


def _versions(report: EnergyReport) -> str:
    return ", ".join(f"{name} {version}" for name, version in report.setting.versions.items() if version)


def _power_limit(report: EnergyReport) -> str:
    found = report.run.conditions_before.power_limit_w
    return "" if found is None else f"{number(found)} W"


_ENERGY = "energies cannot be compared"
_TRAITS: tuple[tuple[str, Callable[[EnergyReport], str], str | None], ...] = (
    ("Device", _device, "time and energy are of different devices"),
    ("Energy", _method, "an estimate and a measurement cannot be compared"),
    ("Meter", lambda report: f"{report.meter.name}, {report.meter.source}", _ENERGY),
    ("Boundary", lambda report: report.meter.boundary, _ENERGY),
    ("Input", lambda report: " × ".join(map(str, report.setting.input_shape)), "frames cost differently"),
    ("Number format", lambda report: report.setting.dtype or "", None),
    ("Model", lambda report: f"{report.setting.model}, SHA-256 {report.setting.weights_sha256[:16]}", "other weights"),
    ("Frames", _data, "quality is of different pictures"),
    ("Quality", lambda report: report.run.quality.metric or "", "quality is of different metrics"),
    ("Threads", lambda report: str(report.setting.threads), "time and energy are of different settings"),
    ("Power limit", _power_limit, None),
    ("Versions", _versions, None),
    ("Budget", lambda report: report.setting.budget, None),
    ("Recorded", lambda report: report.created, None),
)


def _rate(a: EnergyReport, b: EnergyReport) -> Trait:
    rates = [report.run.camera_fps for report in (a, b)]
    texts = [f"{number(rate)} frames/s" for rate in rates]
    apart: Any = abs(rates[1] - rates[0]) > RATE_TOLERANCE * max(rates)
    return Trait(
        name="Camera",
        a=texts[0],
        b=texts[1],
        differs=bool(apart),
        matters="idle power falls upon another number of frames, and other deadlines hold",
    )
