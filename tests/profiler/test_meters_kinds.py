"""What holds for every kind of meter that is registered, each on a machine on which it works."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest
import torch

from gearshift.errors import MeterUnavailableError
from gearshift.profiler.meters import (
    METERS,
    BaseMeter,
    Seams,
    Window,
    discover,
    is_estimate,
    observe_period,
    open_meter,
)
from gearshift.profiler.meters.cpu_info import CpuInfo
from tests.profiler.test_meters_amd import PythonLibrary as AmdLibrary
from tests.profiler.test_meters_battery import battery
from tests.profiler.test_meters_ina3221 import NEW, write
from tests.profiler.test_meters_jtop import Service
from tests.profiler.test_meters_nvml import PythonLibrary as NvmlLibrary
from tests.support import Clock

CPU = CpuInfo(model="Chip 8", sockets=1, threads=4, usable_threads=4, is_virtual=False)


@dataclass
class Machine:
    """Seams on which one meter works, and a way to let a second at 10 W pass."""

    kind: str
    seams: Seams
    clock: Clock
    flow: Callable[[int], None]
    seconds = 0

    def open(self) -> BaseMeter:
        meter = open_meter(self.kind, seams=self.seams)  # type: ignore[arg-type]
        assert isinstance(meter, BaseMeter)
        return meter

    def pass_second(self) -> None:
        self.seconds += 1
        self.clock.now_s += 1.0
        self.flow(self.seconds)


def flow_of(kind: str, root: Path, nvml: NvmlLibrary, amd: AmdLibrary, jtop: Service) -> Callable[[int], None]:
    """Make the meter's sensor, and say how it moves in the n-th second."""

    def rapl(second: int) -> None:
        zone = root / "powercap/intel-rapl:0"
        zone.mkdir(parents=True, exist_ok=True)
        files = {"name": "package-0", "max_energy_range_uj": 262143328850, "energy_uj": second * 10_000_000}
        for file, value in files.items():
            (zone / file).write_text(str(value))

    def service(second: int) -> None:
        (root / "run").mkdir(exist_ok=True)
        (root / "run/jtop.sock").touch()
        jtop.deliver()

    def rail(second: int) -> None:
        write(root, NEW, {1: ("VDD_IN", 5000, 2000)})

    def gauge(second: int) -> None:
        battery(root, energy_now=50_000_000 - second * 10_000_000 // 3600)

    flows: dict[str, Callable[[int], None]] = {
        "nvml": lambda second: nvml.energy(0, 1_000_000 + second * 10_000),
        "amd": lambda second: amd.energy(0, 1000 + second * 1_000_000, resolution_uj=10.0),
        "rapl": rapl,
        "ina3221": rail,
        "jtop": service,
        "battery": gauge,
        "cpu-time": lambda second: None,
    }
    return flows[kind]


@pytest.fixture(params=list(METERS))
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Machine:
    nvml, amd, jtop, clock = NvmlLibrary(), AmdLibrary(), Service(), Clock()
    flow = flow_of(request.param, tmp_path, nvml, amd, jtop)
    flow(0)
    seams = Seams(
        binding=nvml,
        amd=amd,
        jtop=jtop,
        powercap=tmp_path / "powercap",
        root=tmp_path,
        clock=clock,
        cpu=CPU,
        environ={},
    )
    return Machine(request.param, seams, clock, flow)


@pytest.fixture
def meter(machine: Machine) -> Iterator[BaseMeter]:
    with machine.open() as opened:
        yield opened


def test_names_and_labels(machine: Machine, meter: BaseMeter) -> None:
    assert meter.name.partition(":")[0] == machine.kind
    assert meter.source.startswith("estimated:" if METERS[machine.kind].is_estimate else "measured:")
    assert is_estimate(meter.source) == METERS[machine.kind].is_estimate
    assert "excluded" in meter.boundary


def test_ten_watts_are_ten_joules_a_second(machine: Machine, meter: BaseMeter) -> None:
    with meter.window() as w:
        for _ in range(60):
            machine.pass_second()
            meter.sample()
    assert w.seconds == 60.0
    assert w.reason is None
    assert w.energy_j is not None
    if not is_estimate(w.source):
        assert w.energy_j == pytest.approx(600.0, rel=0.01)
        assert (w.samples or 0) >= 2


def work_and_fail(machine: Machine, meter: BaseMeter, window: Window) -> None:
    with window:
        for _ in range(60):
            machine.pass_second()
            meter.sample()
        raise KeyError("in the measured code")


def test_windows_nest_and_survive_exceptions(machine: Machine, meter: BaseMeter) -> None:
    with meter.window("outer") as outer:
        for _ in range(60):
            machine.pass_second()
            meter.sample()
        inner = meter.window("inner")
        with pytest.raises(KeyError):
            work_and_fail(machine, meter, inner)
    assert (outer.seconds, inner.seconds) == (120.0, 60.0)
    assert outer.energy_j is not None
    assert inner.energy_j == pytest.approx(outer.energy_j / 2, rel=0.02)


def test_a_measurement_says_how_fine_it_is(machine: Machine, meter: BaseMeter) -> None:
    with meter.window() as w:
        machine.pass_second()
    found = w.measurement
    assert found is not None
    assert (found.period_s is None) == is_estimate(found.source)
    assert found.resolution_s >= (found.period_s or 0.0)
    assert found.resolution_j is None or 0 < found.resolution_j <= 10.0
    if found.energy_j is not None:
        assert (found.uncertainty_j or 0.0) > 0
    json.dumps(asdict(found), allow_nan=False)


def test_a_window_shorter_than_the_meter_resolves_is_flagged_or_none(machine: Machine, meter: BaseMeter) -> None:
    if is_estimate(meter.source):
        pytest.skip("an estimate is continuous")
    with meter.window() as w:
        machine.clock.now_s += meter.precision.resolution_s / 10
        machine.flow(1)
    assert w.reason is not None or w.warnings[0].startswith("shorter than")


def test_the_list_shows_it(machine: Machine, meter: BaseMeter) -> None:
    status = next(status for status in discover(machine.seams) if status.name.partition(":")[0] == machine.kind)
    assert (status.available, status.reason, status.source) == (True, None, meter.source)
    assert status.period_s == meter.precision.period_s


def test_it_is_closed_twice_and_then_says_so(machine: Machine) -> None:
    before = threading.active_count()
    meter = machine.open()
    with meter.window():
        machine.pass_second()
    meter.close()
    meter.close()
    assert "was closed" in (meter.read().reason or "")
    deadline = time.monotonic() + 10.0
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.005)
    assert threading.active_count() <= before


def test_it_can_be_made_and_used_in_a_worker_thread(machine: Machine) -> None:
    found: list[float | None] = []

    def work() -> None:
        with machine.open() as meter, meter.window() as w:
            machine.pass_second()
        found.append(w.seconds)

    worker = threading.Thread(target=work)
    worker.start()
    worker.join()
    assert found == [1.0]


def test_its_sensor_can_be_watched(machine: Machine, meter: BaseMeter) -> None:
    if machine.kind in ("ina3221", "cpu-time"):
        pytest.skip("constant power, or no sensor, has nothing to see")

    def sleep(seconds: float) -> None:
        machine.clock.now_s += max(seconds, 0.05)
        machine.flow(int(machine.clock.now_s))

    if machine.kind == "jtop":
        assert meter.sensor_value() != (machine.flow(1), meter.sensor_value())[1]
        return
    found = observe_period(meter, 60.0, clock=machine.clock, sleep=sleep)
    assert found.period_s == pytest.approx(1.0, abs=1.6)


@pytest.mark.parametrize("device", [torch.device("cpu"), torch.device("cuda", 0)], ids=str)
def test_automatic_choice_takes_it_for_the_devices_that_it_serves(machine: Machine, device: torch.device) -> None:
    entry = METERS[machine.kind]
    alone = Seams(
        binding=machine.seams.binding if machine.kind == "nvml" else NoLibrary(),
        amd=machine.seams.amd if machine.kind == "amd" else NoLibrary(),
        jtop=machine.seams.jtop,
        is_hip=machine.kind == "amd",
        powercap=machine.seams.powercap,
        root=machine.seams.root,
        cpu=CPU,
        environ={},
        uuid_of=lambda _: None,
    )
    meter = open_meter(device=device, seams=alone)
    is_taken = meter.name.partition(":")[0] == machine.kind
    assert is_taken == (device.type in entry.serves)
    meter.close()


def test_every_kind_refuses_a_machine_without_it_and_says_what_helps(tmp_path: Path) -> None:
    bare = Seams(binding=NoLibrary(), amd=NoLibrary(), powercap=tmp_path, root=tmp_path, cpu=CPU)
    for kind, entry in METERS.items():
        if not entry.is_estimate:
            with pytest.raises(MeterUnavailableError) as caught:
                open_meter(kind, seams=bare)  # type: ignore[arg-type]
            assert "\n" not in str(caught.value)
    assert [status.name for status in discover(bare) if status.available] == ["cpu-time"]


class NoLibrary:
    """A vendor's package on a machine without its boards."""

    class NVMLError(Exception): ...

    AmdSmiException = NVMLError
