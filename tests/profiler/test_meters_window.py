"""Windows over any meter: time and energy as one pair, names, threads, exceptions, what is not measured."""

import asyncio
import gc
import json
import math
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import asdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gearshift.errors import InputError, WindowError
from gearshift.profiler.meters import (
    BaseMeter,
    Measurement,
    Meter,
    NullMeter,
    Precision,
    Reading,
    total_energy,
)
from gearshift.profiler.meters.integral import PowerIntegral
from gearshift.profiler.meters.poller import Poller
from gearshift.profiler.meters.protocol import status_of


class Clock:
    """Time that moves only when told to."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s

    def pass_s(self, seconds: float) -> None:
        self.now_s += seconds


class ConstantPower(BaseMeter):
    """A meter of constant, or given, power."""

    def __init__(
        self,
        clock: Clock,
        power_w: float = 10.0,
        resolution_s: float = 0.0,
        period_s: float | None = None,
        name: str = "constant",
    ) -> None:
        super().__init__(
            name=name,
            source="measured:constant",
            boundary="a constant",
            precision=Precision(resolution_s=resolution_s, relative=0.05, what="sensor averaging"),
            clock=clock,
            period_s=period_s,
        )
        self.power_w, self.fake = power_w, clock
        self.changes: dict[str, object] = {}
        self.reads = 0
        self.was_read = threading.Event()

    def _read(self) -> Reading:
        self.reads += 1
        self.was_read.set()
        now_s = self.fake()
        values: dict[str, object] = {"energy_j": self.power_w * now_s, "fresh": self.reads, **self.changes}
        return Reading(time_s=now_s, **values)  # type: ignore[arg-type]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def meter(clock: Clock) -> ConstantPower:
    return ConstantPower(clock)


class TestPairing:
    def test_a_meter_satisfies_the_protocol(self, meter: ConstantPower) -> None:
        assert isinstance(meter, Meter)
        assert isinstance(NullMeter(), Meter)
        assert status_of(meter).measures == "a constant"

    @pytest.mark.parametrize("delay_s", [0.0, 0.1, 3.0])
    def test_delays_around_the_window_do_not_enter_the_mean_power(self, clock: Clock, delay_s: float) -> None:
        meter = ConstantPower(clock, power_w=50.0)
        clock.pass_s(delay_s)
        with meter.window() as w:
            clock.pass_s(0.25)
        clock.pass_s(delay_s)
        assert w.power_w == pytest.approx(50.0, abs=0.5)
        assert w.energy_j == pytest.approx(50.0 * 0.25)
        assert w.seconds == pytest.approx(0.25)

    def test_the_wall_clock_may_jump(self, meter: ConstantPower, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(time, "time", lambda: pytest.fail("the wall clock was read"))
        monkeypatch.setattr(time, "time_ns", lambda: pytest.fail("the wall clock was read"))
        with meter.window() as w:
            clock.pass_s(2.0)
        assert (w.seconds, w.energy_j, w.power_w) == pytest.approx((2.0, 20.0, 10.0))

    @settings(deadline=None)
    @given(energy_j=st.floats(0.1, 1e9), seconds=st.floats(1e-3, 1e6))
    def test_mean_power_is_energy_over_seconds(self, energy_j: float, seconds: float) -> None:
        clock = Clock()
        clock.now_s = 0.0
        meter = ConstantPower(clock, power_w=energy_j / seconds)
        with meter.window() as w:
            clock.pass_s(seconds)
        assert w.power_w == pytest.approx(energy_j / seconds)

    def test_the_whole_window_counts_not_its_last_moment(self, clock: Clock) -> None:
        # 9 s at 50 W and a last idle second at 5 W: 455 J, not 50 J
        meter = ConstantPower(clock)
        meter.changes["energy_j"] = 0.0
        with meter.window() as w:
            clock.pass_s(10.0)
            meter.changes["energy_j"] = 9 * 50.0 + 1 * 5.0
        assert w.energy_j == 455.0


class TestNotMeasured:
    def test_a_window_without_length_has_no_power(self, meter: ConstantPower) -> None:
        with meter.window() as w:
            pass
        assert w.seconds == 0.0
        assert w.energy_j in (None, 0.0)
        assert w.power_w is None

    @pytest.mark.parametrize("failing", ["opening", "closing"])
    def test_a_failed_reading_is_none_with_its_reason(self, meter: ConstantPower, clock: Clock, failing: str) -> None:
        failure: dict[str, object] = {"energy_j": None, "reason": "Not Ready"}
        meter.changes = failure if failing == "opening" else {}
        with meter.window() as w:
            clock.pass_s(1.0)
            meter.changes = failure if failing == "closing" else {}
        assert (w.energy_j, w.power_w, w.uncertainty_j) == (None, None, None)
        assert w.reason == "Not Ready"
        assert w.seconds == 1.0

    def test_a_counter_that_did_not_move_is_not_zero_energy(self, meter: ConstantPower, clock: Clock) -> None:
        meter.changes = {"energy_j": 5.0, "fresh": 1}
        with meter.window() as w:
            clock.pass_s(0.01)
        assert w.energy_j is None
        assert w.reason is not None
        assert w.reason.startswith("stale:")

    def test_a_break_inside_spoils_the_window_and_not_the_next(self, meter: ConstantPower, clock: Clock) -> None:
        with meter.window() as spoilt:
            clock.pass_s(1.0)
            meter.changes = {"epoch": 1, "break_reason": "counter_reset: went back"}
        with meter.window() as good:
            clock.pass_s(1.0)
        assert (spoilt.energy_j, spoilt.reason) == (None, "counter_reset: went back")
        assert good.energy_j == pytest.approx(10.0)

    @pytest.mark.parametrize(("gap_s", "is_measured"), [(0.0, True), (4.0, True), (6.0, False)])
    def test_a_window_mostly_bridged_is_not_measured(
        self, meter: ConstantPower, clock: Clock, gap_s: float, is_measured: bool
    ) -> None:
        with meter.window() as w:
            clock.pass_s(10.0)
            meter.changes = {"gap_s": gap_s}
        assert (w.energy_j is not None) == is_measured
        assert any(text.startswith("bridged") for text in w.warnings) == (gap_s > 0)

    def test_the_null_meter_knows_the_time_and_the_reason(self, clock: Clock) -> None:
        with NullMeter("no sensor on this board", clock=clock).window() as w:
            clock.pass_s(3.0)
        assert (w.energy_j, w.power_w, w.seconds) == (None, None, 3.0)
        assert w.reason == "no sensor on this board"
        assert w.source == "none"

    @pytest.mark.parametrize(("energy_j", "reason"), [(None, None), (1.0, "why")])
    def test_a_reading_has_energy_or_a_reason(self, energy_j: float | None, reason: str | None) -> None:
        with pytest.raises(InputError, match="either energy_j or a reason"):
            Reading(time_s=0.0, energy_j=energy_j, reason=reason)

    def test_an_open_window_has_no_figures_yet(self, meter: ConstantPower) -> None:
        w = meter.window("early")
        assert w.reason == "window 'early' is not open: figures exist once it has closed"
        with w:
            assert (w.energy_j, w.seconds, w.power_w, w.uncertainty_j, w.samples) == (None,) * 5
            assert w.reason == "window 'early' is still open: figures exist once it has closed"

    def test_a_closed_meter_says_so(self, meter: ConstantPower, clock: Clock) -> None:
        with meter.window() as w:
            clock.pass_s(1.0)
            meter.close()
            meter.close()
        assert w.energy_j is None
        assert w.reason == "meter constant was closed"

    def test_a_measurement_is_strict_json(self, meter: ConstantPower) -> None:
        with meter.window() as w:
            pass
        text = json.dumps(asdict(w.measurement), allow_nan=False)  # type: ignore[arg-type]
        assert json.loads(text)["power_w"] is None


class TestDoubts:
    @pytest.mark.parametrize(("seconds", "is_flagged"), [(0.2, True), (0.999, True), (1.0, False), (2.0, False)])
    def test_windows_shorter_than_the_sensor_are_flagged(self, clock: Clock, seconds: float, is_flagged: bool) -> None:
        clock.now_s = 0.0
        meter = ConstantPower(clock, resolution_s=1.0)
        with meter.window() as w:
            clock.pass_s(seconds)
        assert any(text.startswith("shorter than sensor averaging") for text in w.warnings) == is_flagged

    def test_uncertainty_joins_sensor_edge_and_gap(self, clock: Clock) -> None:
        meter = ConstantPower(clock, power_w=10.0, resolution_s=0.5)
        with meter.window() as w:
            clock.pass_s(10.0)
            meter.changes = {"gap_s": 2.0}
        assert w.uncertainty_j == pytest.approx(math.sqrt((0.05 * 100) ** 2 + (10 * 0.5) ** 2 + (10 * 2) ** 2))

    def test_missing_readings_are_counted(self, meter: ConstantPower, clock: Clock) -> None:
        with meter.window() as w:
            clock.pass_s(1.0)
            meter.changes = {"missing": 3}
        assert w.missing == 3
        assert w.warnings == ("missing readings: 3 failed or were rejected",)

    @pytest.mark.parametrize(
        ("counter_j", "check_w", "seconds", "share"),
        [
            (187.4, 65.3, 5.0, "74%"),
            (300.0, 65.3, 5.0, None),
            (10.0, 65.3, 1.0, None),
            (400.0, 20.0, 10.0, "50%"),
        ],
    )
    def test_two_sensors_that_disagree_are_reported(
        self,
        meter: ConstantPower,
        clock: Clock,
        counter_j: float,
        check_w: float,
        seconds: float,
        share: str | None,
    ) -> None:
        meter.changes = {"energy_j": 0.0, "check_j": 0.0}
        with meter.window() as w:
            clock.pass_s(seconds)
            meter.changes = {"energy_j": counter_j, "check_j": check_w * seconds, "check_s": seconds}
        assert w.energy_j == counter_j
        assert [text.split(":")[0] for text in w.warnings] == ([] if share is None else [f"discrepancy {share}"])

    def test_domains_are_given_apart(self, meter: ConstantPower, clock: Clock) -> None:
        meter.changes = {"parts": {"package-0": 1.0, "psys": 5.0}}
        with meter.window() as w:
            clock.pass_s(1.0)
            meter.changes = {"parts": {"package-0": 4.0, "psys": None}}
        assert dict(w.parts) == {"package-0": 3.0, "psys": None}
        assert "partial: psys could not be read" in w.warnings


class TestNames:
    def test_windows_overlap_in_any_order(self, meter: ConstantPower, clock: Clock) -> None:
        # 10 W, one second between the steps: open a, open b, close a, close b: 2 s and 20 J each
        a, b = meter.window("a"), meter.window("b")
        for step in (a.open, b.open, a.close, b.close):
            step()
            clock.pass_s(1.0)
        assert (a.seconds, b.seconds) == (2.0, 2.0)
        assert (a.energy_j, b.energy_j) == pytest.approx((20.0, 20.0))

    def test_windows_nest(self, meter: ConstantPower, clock: Clock) -> None:
        with meter.window("outer") as outer:
            clock.pass_s(1.0)
            with meter.window("inner") as inner:
                clock.pass_s(1.0)
            clock.pass_s(1.0)
        assert (outer.energy_j, inner.energy_j) == pytest.approx((30.0, 10.0))

    def test_one_name_opens_once_and_the_error_names_the_remedy(self, meter: ConstantPower) -> None:
        with meter.window("cell"), pytest.raises(WindowError, match=r"'cell' is already open.*restart=True"):
            meter.window("cell").open()
        meter.window("cell").open()  # free again once closed

    def test_restart_drops_the_open_window(self, meter: ConstantPower, clock: Clock) -> None:
        lost = meter.window("cell").open()
        clock.pass_s(5.0)
        with meter.window("cell", restart=True) as again:
            clock.pass_s(1.0)
        assert again.energy_j == pytest.approx(10.0)
        assert lost.energy_j is None
        with pytest.raises(WindowError, match="not open"):
            lost.close()

    def test_cancel_frees_the_name(self, meter: ConstantPower) -> None:
        with meter.window("cell") as dropped:
            dropped.cancel()
            dropped.cancel()
            meter.window("cell").open().close()
        assert dropped.measurement is None

    def test_windows_without_a_name_never_collide(self, meter: ConstantPower) -> None:
        with meter.window() as a, meter.window() as b:
            assert a.name != b.name

    @pytest.mark.parametrize("state", ["never opened", "closed"])
    def test_closing_what_is_not_open_is_an_error(self, meter: ConstantPower, state: str) -> None:
        w = meter.window("w")
        if state == "closed":
            w.open().close()
        with pytest.raises(WindowError, match=r"window 'w' (was never opened|is not open)"):
            w.close()

    def test_a_window_is_used_once(self, meter: ConstantPower) -> None:
        w = meter.window("w")
        w.open().close()
        with pytest.raises(WindowError, match="make a new one"):
            w.open()

    def test_names_are_free_across_meters(self, clock: Clock) -> None:
        with ConstantPower(clock).window("w"), ConstantPower(clock).window("w"):
            pass


class TestThreads:
    def test_an_exception_passes_and_the_result_stays(self, clock: Clock) -> None:
        meter = ConstantPower(clock, period_s=0.001)
        threads = threading.active_count()
        w = meter.window()

        def body() -> None:
            with w:
                clock.pass_s(2.0)
                raise ValueError("the body's own")

        with pytest.raises(ValueError, match="the body's own"):
            body()
        assert w.energy_j == pytest.approx(20.0)
        assert _settles(lambda: threading.active_count() <= threads)

    def test_the_thread_samples_while_a_window_is_open_and_ends_after(self, clock: Clock) -> None:
        meter = ConstantPower(clock, period_s=0.001)
        with meter.window():
            meter.was_read.clear()
            assert meter.was_read.wait(30.0)  # nobody but the thread reads here
        poller = meter._poller
        assert poller is not None
        assert _settles(lambda: not poller.is_running)
        with meter.window():
            assert poller.is_running

    def test_a_dropped_meter_takes_its_thread_along(self, clock: Clock) -> None:
        meter = ConstantPower(clock, period_s=0.001)
        meter.window().open()
        poller, ghost = meter._poller, weakref.ref(meter)
        del meter
        assert _settles(lambda: gc.collect() is not None and ghost() is None)
        assert poller is not None
        assert _settles(lambda: not poller.is_running)

    def test_closing_a_meter_ends_its_thread(self, clock: Clock) -> None:
        meter = ConstantPower(clock, period_s=60.0)
        meter.window().open()
        meter.close()
        assert meter._poller is not None
        assert not meter._poller.is_running

    def test_a_closed_poller_starts_no_thread(self, meter: ConstantPower) -> None:
        poller = Poller(meter.sample, 0.001, "closed")
        poller.close()
        poller.hold()
        assert not poller.is_running

    def test_many_threads_share_a_meter(self, meter: ConstantPower, clock: Clock) -> None:
        inside = threading.Barrier(9)
        found = []

        def work(number: int) -> None:
            with meter.window(f"thread-{number}") as w:
                inside.wait()
                inside.wait()
            found.append(w.energy_j)

        workers = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for worker in workers:
            worker.start()
        inside.wait()
        clock.pass_s(1.0)
        inside.wait()
        for worker in workers:
            worker.join()
        assert found == pytest.approx([10.0] * 8)

    def test_one_name_from_many_threads_is_won_once(self, meter: ConstantPower) -> None:
        start = threading.Barrier(8)
        outcomes = []

        def work() -> None:
            start.wait()
            try:
                meter.window("contested").open()
            except WindowError:
                outcomes.append("refused")
            else:
                outcomes.append("opened")

        workers = [threading.Thread(target=work) for _ in range(8)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert sorted(outcomes) == ["opened"] + ["refused"] * 7

    def test_a_meter_works_inside_an_event_loop(self, clock: Clock) -> None:
        async def serve() -> float | None:
            meter = ConstantPower(clock, period_s=0.001)
            with meter.window() as w:
                await asyncio.sleep(0)
                clock.pass_s(1.0)
            meter.close()
            return w.energy_j

        assert asyncio.run(serve()) == pytest.approx(10.0)


def _settles(condition: Callable[[], bool], within_s: float = 30.0) -> bool:
    """Wait for what another thread is about to do; the limit only bounds a failing test."""
    end_s = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > end_s:
            return False
        time.sleep(0.01)
    return True


class TestPowerIntegral:
    @settings(deadline=None)
    @given(powers_w=st.lists(st.floats(0.0, 1000.0), min_size=2, max_size=20), step_s=st.floats(0.01, 0.9))
    def test_it_is_the_trapezoid_rule(self, powers_w: list[float], step_s: float) -> None:
        integral = PowerIntegral(max_gap_s=1.0)
        for number, power_w in enumerate(powers_w):
            integral.add(number * step_s, power_w)
        expected_j = step_s * (sum(powers_w) - (powers_w[0] + powers_w[-1]) / 2)
        assert integral.energy_j == pytest.approx(expected_j, rel=1e-6, abs=1e-6)
        assert integral.gap_s == 0.0

    def test_samples_too_far_apart_leave_a_gap(self) -> None:
        integral = PowerIntegral(max_gap_s=1.0)
        for time_s in (0.0, 0.5, 3.0, 3.5):
            integral.add(time_s, 20.0)
        assert (integral.energy_j, integral.seconds) == (20.0, 1.0)
        assert (integral.gap_j, integral.gap_s) == (50.0, 2.5)

    def test_a_sample_out_of_order_has_no_area(self) -> None:
        integral = PowerIntegral(max_gap_s=1.0)
        for time_s in (1.0, 0.5):
            integral.add(time_s, 20.0)
        assert (integral.energy_j, integral.samples) == (0.0, 2)


class TestTotal:
    def _window(
        self, clock: Clock, start_s: float, seconds: float, name: str, energy_j: float | None = 100.0
    ) -> Measurement:
        clock.now_s = start_s
        meter = ConstantPower(clock, name=name)
        meter.changes = {"energy_j": 0.0}
        with meter.window() as w:
            clock.pass_s(seconds)
            meter.changes = {"energy_j": energy_j, "reason": None if energy_j is not None else "no sensor"}
        assert w.measurement is not None
        return w.measurement

    def test_one_device_and_interval_counts_once(self, clock: Clock) -> None:
        same = [self._window(clock, 0.0, 10.0, "nvml:0") for _ in range(2)]
        assert total_energy(same).energy_j == 100.0

    def test_different_devices_add_up(self, clock: Clock) -> None:
        both = [self._window(clock, 0.0, 10.0, name) for name in ("nvml:0", "nvml:1")]
        assert total_energy(both).energy_j == 200.0
        assert not total_energy(both).is_partial

    def test_windows_one_after_the_other_add_up(self, clock: Clock) -> None:
        assert total_energy([self._window(clock, s, 10.0, "nvml:0") for s in (10.0, 0.0)]).energy_j == 200.0

    def test_a_window_within_another_is_part_of_it(self, clock: Clock) -> None:
        outer, inner = self._window(clock, 0.0, 10.0, "rapl"), self._window(clock, 2.0, 3.0, "rapl", 30.0)
        assert total_energy([inner, outer]).energy_j == 100.0

    def test_windows_that_overlap_in_part_are_not_added(self, clock: Clock) -> None:
        total = total_energy([self._window(clock, s, 10.0, "rapl") for s in (0.0, 5.0)])
        assert total.energy_j == 100.0
        assert total.is_partial

    @pytest.mark.parametrize(
        ("wider", "inner"),
        [
            ("battery", "ina3221"),
            ("battery", "nvml:0"),
            ("ina3221", "jtop"),
            ("ina3221", "nvml:0"),
            ("jtop", "rapl"),
            ("rapl", "cpu-time"),
        ],
    )
    def test_what_a_wider_meter_holds_is_not_added(self, clock: Clock, wider: str, inner: str) -> None:
        # opened and closed one after the other, as a `with` statement of both does
        both = [self._window(clock, 0.1, 10.0, wider, 500.0), self._window(clock, 0.0, 10.2, inner)]
        total = total_energy(both)
        assert (total.energy_j, total.is_partial) == (500.0, False)

    def test_what_lies_beside_a_wider_meter_s_time_is_added(self, clock: Clock) -> None:
        apart = [self._window(clock, 0.0, 10.0, "battery", 500.0), self._window(clock, 10.0, 10.0, "nvml:0")]
        assert total_energy(apart).energy_j == 600.0

    def test_what_a_wider_meter_saw_in_part_is_named_as_missing(self, clock: Clock) -> None:
        total = total_energy(
            [self._window(clock, 0.0, 10.0, "battery", 500.0), self._window(clock, 5.0, 10.0, "nvml:0")]
        )
        assert (total.energy_j, total.is_partial) == (500.0, True)
        assert "of battery in part" in total.missing[0]

    def test_a_wider_meter_that_failed_holds_nothing(self, clock: Clock) -> None:
        total = total_energy(
            [self._window(clock, 0.0, 10.0, "battery", None), self._window(clock, 0.0, 10.0, "nvml:0")]
        )
        assert (total.energy_j, total.is_partial) == (100.0, True)

    def test_meters_side_by_side_are_added(self, clock: Clock) -> None:
        assert (
            total_energy([self._window(clock, 0.0, 10.0, name) for name in ("rapl", "nvml:0", "amd:0")]).energy_j
            == 300.0
        )

    def test_one_failing_device_makes_the_total_partial(self, clock: Clock) -> None:
        total = total_energy([self._window(clock, 0.0, 1.0, "nvml:0"), self._window(clock, 0.0, 1.0, "nvml:1", None)])
        assert (total.energy_j, total.is_partial, total.missing) == (100.0, True, ("nvml:1: no sensor",))

    def test_nothing_measured_is_none(self, clock: Clock) -> None:
        assert total_energy([self._window(clock, 0.0, 1.0, "nvml:0", None)]).energy_j is None
        assert total_energy([]).energy_j is None
