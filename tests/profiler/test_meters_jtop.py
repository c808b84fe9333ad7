"""jtop over a double of jetson-stats' client: what its service tells, and what happens when it falls silent.

A double in the shape of the client (`attach`, `start`, `interval`, `power`), since its service runs on a Jetson only.
"""

import queue
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from gearshift.errors import MeterUnavailableError
from gearshift.profiler.meters import JtopMeter, Seams, open_meter
from tests.support import Clock


class Service:
    """The package `jtop` together with its service: `deliver` is what the client's thread does."""

    class JtopException(Exception): ...  # noqa: N818

    def __init__(self) -> None:
        self.power: dict[str, Any] = {}
        self.total(10_000, name="VDD_IN")
        self.interval, self.failure = 1.0, None
        self.observers: set[Callable[[Any], None]] = set()
        self.clients = 0
        self.failure: BaseException | None

    def total(self, power_mw: int, name: str | None = None, rails: dict[str, int] | None = None) -> None:
        total = {"power": power_mw, "avg": 1, **({"name": name} if name else {})}
        self.power = {"tot": total, "rail": {key: {"power": mw, "avg": 1} for key, mw in (rails or {}).items()}}

    def deliver(self) -> None:
        for observer in set(self.observers):
            observer(self)

    def jtop(self) -> "Service":
        self.clients += 1
        return self

    def attach(self, observer: Callable[[Any], None]) -> None:
        self.observers.add(observer)

    def detach(self, observer: Callable[[Any], None]) -> None:
        self.observers.discard(observer)

    def start(self) -> None:
        if self.failure is not None:
            raise self.failure
        self.deliver()

    def close(self) -> None:
        self.clients -= 1


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "jtop.sock").touch()
    return tmp_path


@pytest.fixture
def meter(service: Service, root: Path, clock: Clock) -> JtopMeter:
    return JtopMeter(module=service, root=root, clock=clock, background=False)


def run(service: Service, meter: JtopMeter, clock: Clock, powers_mw: list[int]) -> None:
    """One delivery a second, looked at twice a second."""
    for power_mw in powers_mw:
        for delivers in (False, True):
            clock.now_s += 0.5
            if delivers:
                service.power["tot"]["power"] = power_mw
                service.deliver()
            meter.sample()


class TestEnergy:
    def test_milliwatts_are_integrated(self, service: Service, meter: JtopMeter, clock: Clock) -> None:
        with meter.window() as w:
            run(service, meter, clock, [10_000] * 10)
        assert w.energy_j == pytest.approx(100.0)
        assert w.source == "measured:jtop"

    def test_only_deliveries_count_as_fresh(self, service: Service, meter: JtopMeter, clock: Clock) -> None:
        with meter.window() as w:
            run(service, meter, clock, [10_000] * 10)
        assert w.samples == 1 + 10

    def test_the_mean_of_the_service_is_not_used_and_the_note_says_so(self, meter: JtopMeter) -> None:
        assert "exponentially weighted" in meter.notes[0]
        assert "whole mW" in meter.notes[0]

    def test_a_window_shorter_than_the_service_s_interval_is_flagged(
        self, service: Service, meter: JtopMeter, clock: Clock
    ) -> None:
        with meter.window() as w:
            clock.now_s += 0.4
            service.deliver()
        assert w.warnings == ("shorter than service interval: 0.4 s < 1 s",)

    def test_the_interval_is_that_of_the_service(self, service: Service, root: Path, clock: Clock) -> None:
        service.interval = 0.2
        meter = JtopMeter(module=service, root=root, clock=clock, background=False)
        assert (meter.precision.period_s, meter.precision.resolution_s) == (0.2, 0.2)

    def test_rails_beside_the_total_are_not_added(self, service: Service, meter: JtopMeter, clock: Clock) -> None:
        service.total(10_000, name="VDD_IN", rails={"GPU": 4_000})
        service.deliver()
        meter.sample()
        with meter.window() as w:
            run(service, meter, clock, [10_000] * 2)
        assert w.energy_j == pytest.approx(20.0)
        assert w.parts == pytest.approx({"GPU": 8.0})

    def test_a_sum_of_rails_is_named_partial(self, service: Service, root: Path, clock: Clock) -> None:
        service.total(7_000, rails={"GPU": 4_000, "CPU": 3_000})
        meter = JtopMeter(module=service, root=root, clock=clock, background=False)
        assert "sum of rails" in meter.boundary
        assert "partial" in meter.notes[1]


class TestFailures:
    def test_a_service_that_falls_silent_stops_the_measurement(
        self, service: Service, meter: JtopMeter, clock: Clock
    ) -> None:
        with meter.window() as w:
            run(service, meter, clock, [10_000] * 2)
            clock.now_s += 3.5
        assert w.energy_j is None
        assert w.reason == "no news from the service of jtop for 3.5 s: is it running?"

    @pytest.mark.parametrize(
        "failure",
        [
            Service.JtopException("The jtop.service is not active.\nPlease run:\nsudo jtop"),
            ConnectionRefusedError("refused"),
            EOFError(),
            queue.Empty(),
        ],
    )
    def test_a_service_that_does_not_answer_says_how_to_start_it(
        self, service: Service, root: Path, failure: BaseException
    ) -> None:
        service.failure = failure
        with pytest.raises(MeterUnavailableError, match="sudo jtop --install-service") as caught:
            JtopMeter(module=service, root=root, background=False)
        assert "\n" not in str(caught.value)
        assert service.clients == 0

    def test_without_the_socket_the_client_is_not_started(self, service: Service, tmp_path: Path) -> None:
        with pytest.raises(MeterUnavailableError, match=r"does not run \(no .*run/jtop.sock\)"):
            JtopMeter(module=service, root=tmp_path, background=False)
        assert service.clients == 0

    @pytest.mark.parametrize("power", [{}, {"tot": {}, "rail": {}}, {"tot": {"power": None}}])
    def test_a_board_without_a_monitor_is_no_meter(self, service: Service, root: Path, power: dict[str, Any]) -> None:
        service.power = power
        with pytest.raises(MeterUnavailableError, match="tells no total power"):
            JtopMeter(module=service, root=root, background=False)
        assert (service.clients, service.observers) == (0, set())

    def test_a_rail_that_is_off_is_unknown(self, service: Service, meter: JtopMeter, clock: Clock) -> None:
        service.power["rail"] = {"CV": {"online": False}}
        service.deliver()
        with meter.window() as w:
            run(service, meter, clock, [10_000])
        assert (w.energy_j, w.parts["CV"]) == (pytest.approx(10.0), None)

    def test_closing_ends_the_client(self, service: Service, meter: JtopMeter) -> None:
        meter.close()
        meter.close()
        assert (service.clients, service.observers) == (0, set())

    def test_a_missing_package_says_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "jtop", None)
        with pytest.raises(MeterUnavailableError, match="pip3 install -U jetson-stats"):
            JtopMeter(background=False)


@pytest.mark.parametrize("device", [torch.device("cpu"), torch.device("cuda", 0)])
def test_it_serves_where_no_rail_can_be_read(service: Service, root: Path, device: torch.device) -> None:
    class NoNvml:
        class NVMLError(Exception): ...

    seams = Seams(
        binding=NoNvml(), jtop=service, is_hip=False, root=root, powercap=root, environ={}, uuid_of=lambda _: None
    )
    meter = open_meter(device=device, seams=seams)
    assert meter.source == "measured:jtop"
    meter.close()
