"""Energy by type of work: a plant whose operators take known joules, read through the meters' own machinery."""

import json
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from gearshift.errors import InputError
from gearshift.profiler import OperatorType, register_operator
from gearshift.profiler.meters import CpuTimeEstimate, IdlePower, NullMeter, Precision, Reading
from gearshift.profiler.meters.base import BaseMeter
from gearshift.profiler.operator_energy import OperatorEnergy, measure_operator_energy
from gearshift.profiler.operators import _OPERATORS

IDLE_W = 5.0


class Plant:
    """A device: its clock moves only when operators run, and every operator takes known joules and seconds."""

    def __init__(self) -> None:
        self.now_s = self.active_j = 0.0
        self.warm_discount = 1.0

    def work(self, joules: float, seconds: float) -> None:
        self.active_j += joules
        self.now_s += seconds

    def clock(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    @property
    def energy_j(self) -> float:
        return self.active_j + IDLE_W * self.now_s


PLANT = Plant()


@torch.library.custom_op("gearshift_energy::hot", mutates_args=())
def hot(x: torch.Tensor) -> torch.Tensor:
    PLANT.work(3.0, 0.02)
    return x.clone()


@torch.library.custom_op("gearshift_energy::cold", mutates_args=())
def cold(x: torch.Tensor) -> torch.Tensor:
    PLANT.work(1.0 * PLANT.warm_discount, 0.05)
    return x.clone()


class PlantMeter(BaseMeter):
    """Reads the plant; fresh once a period."""

    def __init__(self, resolution_s: float = 0.1, failing: Callable[[float], str | None] = lambda now_s: None) -> None:
        super().__init__(
            name="plant",
            source="measured:plant",
            boundary="the plant",
            precision=Precision(resolution_s=resolution_s, relative=0.0),
            clock=PLANT.clock,
        )
        self._failing = failing

    def _read(self) -> Reading:
        now_s, reason = PLANT.now_s, self._failing(PLANT.now_s)
        energy_j = PLANT.energy_j if reason is None else None
        fresh = math.floor(now_s / self.precision.resolution_s)
        return Reading(time_s=now_s, energy_j=energy_j, reason=reason, fresh=fresh)


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return cold(hot(cold(hot(cold(x)))))


@pytest.fixture(autouse=True)
def plant() -> Iterator[None]:
    PLANT.__init__()  # type: ignore[misc]
    register_operator("gearshift_energy::hot", OperatorType.CONVOLUTION)
    register_operator("gearshift_energy::cold", OperatorType.NORM)
    yield
    for name in ("gearshift_energy::hot", "gearshift_energy::cold"):
        _OPERATORS.pop(name, None)


def measure(**changes: Any) -> OperatorEnergy:
    settings = {"meter": PlantMeter(), "clock": PLANT.clock, "sleep": PLANT.sleep} | changes
    return measure_operator_energy(Model(), torch.ones(4), **settings)


def test_every_type_gets_its_joules_and_together_they_explain_the_whole() -> None:
    found = measure()
    rows = {row.name: row for row in found.rows}
    assert list(rows) == ["convolution", "norm"]
    assert rows["convolution"].net_j == pytest.approx(2 * 3.0)
    assert rows["norm"].net_j == pytest.approx(3 * 1.0)
    assert found.whole is not None
    assert found.whole.net_j == pytest.approx(2 * 3.0 + 3 * 1.0)
    assert found.whole.gross_j == pytest.approx(9.0 + IDLE_W * (2 * 0.02 + 3 * 0.05))
    assert found.explained == pytest.approx(1.0)
    assert found.idle_power_w == pytest.approx(IDLE_W)
    assert rows["norm"].ms == pytest.approx(150)
    assert (rows["norm"].calls, found.whole.calls) == (3, 5)
    assert all(row.spread_j == pytest.approx(0, abs=1e-9) for row in found.rows)


def test_windows_last_ten_periods_of_the_meter() -> None:
    found = measure(meter=PlantMeter(resolution_s=2.0), rounds=1)
    assert found.window_s == 20.0
    assert all(row.readings is not None and row.readings >= 10 for row in (*found.rows, found.whole) if row)
    assert found.whole is not None
    assert found.whole.passes * found.whole.ms / 1e3 >= 20.0  # type: ignore[operator]


def test_what_the_replay_does_not_explain_is_said() -> None:
    """In the model the norms find their operands in memory; replayed alone they find them in a cache."""
    whole = measure(rounds=1)
    PLANT.warm_discount = 0.5
    cheap = measure(rounds=1)
    assert cheap.rows[1].net_j == pytest.approx(1.5)
    assert whole.whole is not None
    assert whole.whole.net_j is not None
    assert sum(row.net_j or 0 for row in cheap.rows) / whole.whole.net_j == pytest.approx(7.5 / 9)


def test_an_idle_power_that_is_known_is_not_measured_again() -> None:
    known = IdlePower(power_w=2.0, seconds=60, uncertainty_w=0.1, source="measured:plant", how="kept")
    found = measure(idle=known, rounds=1)
    assert found.idle_power_w == 2.0
    assert found.rows[0].net_j == pytest.approx(2 * 3.0 + (IDLE_W - 2.0) * 2 * 0.02)


@pytest.mark.parametrize(
    ("meter", "said"),
    [
        (NullMeter("no sensor here"), "no sensor here"),
        (CpuTimeEstimate(), "is an estimate from processor time"),
    ],
)
def test_without_a_meter_nothing_is_apportioned(meter: BaseMeter, said: str) -> None:
    found = measure(meter=meter)
    assert found.rows == ()
    assert found.whole is None
    assert found.explained is None
    assert found.reason is not None
    assert said in found.reason
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["explained"] is None


def test_a_meter_that_fails_half_way_leaves_none_with_the_reason() -> None:
    found = measure(meter=PlantMeter(failing=lambda now_s: "sensor lost" if now_s > 3.0 else None), rounds=1)
    assert any(row.net_j is None and row.reason == "sensor lost" for row in (*found.rows, found.whole) if row)
    assert found.explained is None


def test_rounds_are_checked() -> None:
    with pytest.raises(InputError, match="got rounds=0; use at least 1"):
        measure(rounds=0)
