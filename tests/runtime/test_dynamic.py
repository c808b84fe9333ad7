"""`DynamicModel`: what comes out is what the path returns, whatever threads, budgets, faults and sensors do."""

import asyncio
import dataclasses
import gc
import itertools
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gearshift.errors import BudgetError, InputError, MeterUnavailableError, ModelError, PathRefusedError
from gearshift.paths import PathSpec
from gearshift.paths.search import Effort
from gearshift.profiler.meters import BaseMeter, NullMeter, NvmlMeter, Precision, Reading
from gearshift.runtime import Budget, Choice, Choices, DynamicModel, Frame, Settings
from gearshift.runtime.quarantine import QUARANTINE_FRAMES
from tests.conftest import tiny_segformer

FRAME = torch.ones(1, 3, 8, 8)
IDLE_W = 10.0


class ToyPath(nn.Module):
    """Says which path ran, and with what; may be told to raise."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(float(number)))
        self.error: Exception | None = None
        self.calls = itertools.count()
        self.called = 0
        self.grad_modes: set[bool] = set()

    def forward(self, pixel_values: Tensor, **arguments: Any) -> tuple[Tensor, dict[str, Any]]:
        self.called = next(self.calls) + 1
        self.grad_modes.add(torch.is_grad_enabled())
        if self.error is not None:
            raise self.error
        return pixel_values.mean() * self.weight, arguments


class Clock:
    """Time that passes only when told."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class ToyMeter(BaseMeter):
    """A constant power over real time; may fail from some reading on."""

    def __init__(self, power_w: float = 25.0, resolution_s: float = 0.0) -> None:
        super().__init__(
            name="toy",
            source="measured:toy",
            boundary="nothing real",
            precision=Precision(resolution_s=resolution_s, relative=0.0),
        )
        self.power_w, self.idle_w, self.reason = power_w, IDLE_W, ""

    def _read(self) -> Reading:
        now = time.perf_counter()
        if self.reason:
            return Reading(time_s=now, energy_j=None, reason=self.reason)
        return Reading(time_s=now, energy_j=self.power_w * now)


def choices(count: int = 3, *, energy: bool = True) -> Choices:
    """Paths of 1, 2, 3 ... ms; the dearer the better."""
    return Choices(
        paths=tuple(
            Choice(
                id=f"p{number}",
                quality=0.5 + 0.1 * number,
                latency_s=number / 1e3,
                spread=0.05,
                net_j=0.1 * number if energy else None,
            )
            for number in range(1, count + 1)
        ),
        idle_power_w=IDLE_W if energy else None,
    )


@pytest.fixture
def make() -> Iterator[Callable[..., DynamicModel]]:
    """A model of toy paths p1, p2, p3, closed afterwards."""
    made: list[DynamicModel] = []

    def build(*, references: tuple[str, ...] = (), energy: bool = True, **options: Any) -> DynamicModel:
        known = choices(energy=energy)
        paths: dict[str, nn.Module] = {path.id: ToyPath(number + 1) for number, path in enumerate(known.paths)}
        paths |= {name: ToyPath(10 + number) for number, name in enumerate(references)}
        model = DynamicModel(paths, known, **{"meter": ToyMeter(), **options})
        made.append(model)
        return model

    yield build
    for model in made:
        model.close()


def toy(model: DynamicModel, name: str) -> ToyPath:
    path = model.paths[name]
    assert isinstance(path, ToyPath)
    return path


def ran(model: DynamicModel) -> str:
    """Run a frame and return which path answered."""
    return f"p{int(model(FRAME)[0])}"


# What comes out -----------------------------------------------------------------------------------------------


def test_a_call_returns_what_the_path_returns(make: Callable[..., DynamicModel]) -> None:
    model = make()
    output, arguments = model(FRAME * 2, return_dict=False, anything="else")
    assert float(output) == 6.0
    assert arguments == {"return_dict": False, "anything": "else"}
    assert model.active is model.paths["p3"]


def test_there_and_back_the_output_is_the_same_bit_for_bit(small_bundle: Path) -> None:
    frame = torch.randn(1, 3, 64, 96, generator=torch.Generator().manual_seed(0))
    with DynamicModel.load(small_bundle, meter=NullMeter()) as model:
        outputs = {}
        for name in (*model.paths, *reversed(model.paths)):
            model.pin(name)
            logits = model(frame).logits
            assert torch.equal(logits, model.paths[name](frame).logits)
            assert torch.equal(logits, outputs.setdefault(name, logits))
        stock = outputs["stock"]
        assert torch.allclose(outputs["lossless"], stock, atol=1e-4 * float(stock.abs().max()))
        assert not torch.equal(outputs["lossless+size=50%"], outputs["lossless"])


def test_no_gradient_is_recorded_in_any_thread(make: Callable[..., DynamicModel]) -> None:
    model = make()
    outputs: list[Tensor] = []

    def work() -> None:
        assert torch.is_grad_enabled()  # a fresh thread begins with gradients on
        outputs.extend(model(FRAME)[0] for _ in range(50))
        assert torch.is_grad_enabled()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outputs) == 200
    assert not any(output.requires_grad for output in outputs)
    assert toy(model, "p3").grad_modes == {False}


def test_after_serving_every_path_can_be_trained(small_bundle: Path) -> None:
    with DynamicModel.load(small_bundle, meter=NullMeter()) as model:
        for name, path in model.paths.items():
            model.pin(name)
            for size in ((64, 96), (64, 64), (96, 128)):
                model(torch.zeros(1, 3, *size))
            path(torch.zeros(2, 3, 64, 96)).logits.square().mean().backward()
            assert any(parameter.grad is not None for parameter in path.parameters())
            path.zero_grad()


# Budgets ------------------------------------------------------------------------------------------------------


def test_the_budget_decides_which_path_runs(make: Callable[..., DynamicModel]) -> None:
    for text, name in [("4ms", "p2"), ("2ms", "p1"), ("12W", "p2"), ("1kW", "p3"), ("11W", "p1")]:
        model = make(frame_period_s=0.1)  # paths of 11, 12 and 13 W
        assert model.budget == Budget()
        model.budget = Budget.parse(text)
        assert model.active is model.paths[name]
        assert ran(model) == name
        assert model.stats().met


def test_a_budget_that_nothing_meets_is_said_so(
    make: Callable[..., DynamicModel], caplog: pytest.LogCaptureFixture
) -> None:
    model = make(frame_period_s=0.1)
    model.budget = Budget.parse("5W")
    stats = model.stats()
    assert not stats.met
    assert stats.shortfall == model.shortfall
    assert stats.shortfall.startswith("no path meets 5 W; the cheapest needs 11 W")
    assert ran(model) == "p1"
    model.budget = Budget()
    assert model.shortfall == ""


def test_a_shortfall_is_logged_once_when_it_begins(
    make: Callable[..., DynamicModel], caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    model = make(clock=clock, meter=NullMeter())
    model.budget = Budget.parse("1.5ms")
    with caplog.at_level(logging.WARNING, "gearshift"):
        for number in range(60):
            slow = 0.002 if number >= 30 else 0.001
            toy(model, "p1").register_forward_hook(lambda *_, by=slow: setattr(clock, "now_s", clock.now_s + by))
            model(FRAME)
            toy(model, "p1")._forward_hooks.clear()
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("no path meets 1.5 ms; the fastest needs")


def test_a_power_budget_without_a_meter_is_refused_and_says_which_sensor_is_missing(
    make: Callable[..., DynamicModel],
) -> None:
    for model in (make(energy=False, meter=NullMeter("RAPL: permission denied")), make(meter=NullMeter("no NVML"))):
        before = model.budget
        for text in ("60W", "60%", "250mJ", "40Wh/3h"):
            with pytest.raises(BudgetError) as refusal:
                model.budget = Budget.parse(text)
            message = str(refusal.value)
            assert "needs an energy meter, and there is none: " in message
            assert ("RAPL: permission denied" in message) or ("no NVML" in message)
            assert "\n" not in message
        assert model.budget == before
        model.budget = Budget.parse("4ms")
        assert ran(model) == "p2"
        assert model.stats().power_w is None


def test_a_board_that_answers_nothing_counts_as_no_meter() -> None:
    class Silent:
        """A binding in which everything raises, as on boards without sensors."""

        class NVMLError(Exception):
            value = 3

        NVMLLibraryMismatchError = NVMLError

        def __getattr__(self, name: str) -> Any:
            def unsupported(*_: object) -> None:
                raise self.NVMLError("Not Supported")

            return unsupported

    with pytest.raises(MeterUnavailableError) as refusal:
        NvmlMeter(binding=Silent())
    model = DynamicModel({"p1": ToyPath(1)}, choices(1, energy=False), meter=NullMeter(str(refusal.value)))
    with pytest.raises(BudgetError, match="needs an energy meter"):
        model.budget = Budget.parse("60W")


def test_paths_that_were_costed_without_energy_take_no_power_budget(make: Callable[..., DynamicModel]) -> None:
    model = make(energy=False)
    with pytest.raises(BudgetError, match="the paths were costed without one"):
        model.budget = Budget.parse("60W")


def test_a_share_is_of_the_stock_models_power_on_the_same_stream(make: Callable[..., DynamicModel]) -> None:
    clock = Clock()

    def stock_power_w(period_s: float | None) -> float:
        return IDLE_W + 0.04 / max(period_s or 0.0, 0.004)

    model = make(clock=clock, stock_power_w=stock_power_w)
    model.budget = Budget.parse("60%")
    assert model.resolved_budget.power_w == pytest.approx(0.6 * 20)  # frames without a pause, as far as is known
    for _ in range(40):
        clock.now_s += 0.1
        model(FRAME)
    assert model.resolved_budget.power_w == pytest.approx(0.6 * 10.4, rel=0.01)  # a camera of 10 frames/s
    assert model.budget == Budget.parse("60%")
    paced = make(stock_power_w=stock_power_w, frame_period_s=0.1)
    paced.budget = Budget.parse("60%")
    assert paced.resolved_budget.power_w == pytest.approx(0.6 * 10.4)
    late = make(clock=(slow := Clock()), stock_power_w=stock_power_w, frame_period_s=0.1)
    late.budget = Budget.parse("60%")
    for _ in range(40):  # frames that come late at a declared rate do not lower the budget
        slow.now_s += 0.3
        late(FRAME)
    assert late.resolved_budget.power_w == pytest.approx(0.6 * 10.4)
    blind = make()
    with pytest.raises(BudgetError, match="needs the stock model's power"):
        blind.budget = Budget.parse("60%")
    assert blind.budget == Budget()


# Threads ------------------------------------------------------------------------------------------------------


def test_many_threads_call_while_others_change_everything(make: Callable[..., DynamicModel]) -> None:
    model = make(references=("stock",), meter=ToyMeter())
    wanted = [Budget.parse(*texts) for texts in (["12W"], ["1.5ms"], [], ["15W", "4ms"], ["20mJ"], ["1mW"])]
    told: list[Frame] = []
    model.listener = told.append
    answered: list[int] = []
    problems: list[BaseException] = []
    done = threading.Event()

    def guarded(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as problem:
            problems.append(problem)

    def call() -> None:
        answered.extend(int(model(FRAME)[0]) for _ in range(150))

    def change() -> None:
        for budget, pin in zip(itertools.cycle(wanted), itertools.cycle([None, "p1", "stock"]), strict=False):
            model.budget = budget
            model.pin(pin)
            assert model.active in model.paths.values()
            assert model.stats().frames >= 0
            if done.is_set():
                return

    callers = [threading.Thread(target=guarded, args=(call,)) for _ in range(6)]
    changers = [threading.Thread(target=guarded, args=(change,)) for _ in range(2)]
    for thread in (*callers, *changers):
        thread.start()
    for thread in callers:
        thread.join()
    done.set()
    for thread in changers:
        thread.join()
    assert problems == []
    stats = model.stats()
    assert stats.frames == len(answered) == len(told) == 900
    assert sum(stats.frames_by_path.values()) == 900
    assert stats.failures == 0
    names = {1: "p1", 2: "p2", 3: "p3", 10: "stock"}
    for number, name in names.items():
        assert answered.count(number) == stats.frames_by_path.get(name, 0) == toy(model, name).called
    assert sorted(names[int(frame.output[0])] for frame in told) == sorted(frame.path for frame in told)


def test_it_works_in_a_worker_thread_and_in_asyncio_without_signal_handlers() -> None:
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    results: list[str] = []

    def work() -> None:
        paths: dict[str, nn.Module] = {f"p{number}": ToyPath(number) for number in (1, 2, 3)}
        with DynamicModel(paths, choices(), meter=ToyMeter()) as model:
            model.budget = Budget.parse("1kW")
            results.append(ran(model))

    async def task() -> None:
        work()
        await asyncio.to_thread(work)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    asyncio.run(task())
    assert results == ["p3"] * 3
    assert {number: signal.getsignal(number) for number in handlers} == handlers


def sampler_threads() -> int:
    return sum(thread.name == "gearshift-sampler" for thread in threading.enumerate())


def test_close_ends_the_thread_and_the_model_still_answers(make: Callable[..., DynamicModel]) -> None:
    model = make()
    assert sampler_threads() == 0  # none before it is needed
    model.budget = Budget.parse("1kW")
    assert sampler_threads() == 1
    model.close()
    model.close()
    assert sampler_threads() == 0
    assert ran(model) == "p3"
    with pytest.raises(BudgetError, match="meter toy was closed"):
        model.budget = Budget.parse("60W")
    assert sampler_threads() == 0


def test_a_model_that_is_dropped_takes_its_thread_with_it() -> None:
    model = DynamicModel({"p1": ToyPath(1)}, choices(1), meter=ToyMeter())
    model.budget = Budget.parse("1kW")
    assert sampler_threads() == 1
    del model
    gc.collect()
    deadline = time.monotonic() + 20
    while sampler_threads() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert sampler_threads() == 0


# Faults -------------------------------------------------------------------------------------------------------


def test_a_path_that_raises_is_answered_by_another_and_put_aside(
    make: Callable[..., DynamicModel], caplog: pytest.LogCaptureFixture
) -> None:
    model = make()
    toy(model, "p3").error = RuntimeError("out of memory")
    with caplog.at_level(logging.WARNING, "gearshift"):
        assert ran(model) == "p2"  # the same frame
    assert "path p3 failed (RuntimeError: out of memory); it is put aside" in caplog.messages
    toy(model, "p3").error = None
    for _ in range(QUARANTINE_FRAMES - 1):
        assert ran(model) == "p2"
    assert toy(model, "p3").called == 1
    assert ran(model) == "p3"  # and back
    stats = model.stats()
    assert (stats.failures, stats.frames) == (1, QUARANTINE_FRAMES + 1)
    assert stats.frames_by_path == {"p2": QUARANTINE_FRAMES, "p3": 1}


@pytest.mark.parametrize("works", ["p1", "p2", "p3", "stock"])
def test_a_frame_is_answered_while_any_path_works(works: str, make: Callable[..., DynamicModel]) -> None:
    model = make(references=("stock",))
    for name in model.paths:
        if name != works:
            toy(model, name).error = ValueError("broken")
    for _ in range(5):
        assert float(model(FRAME)[0]) == float(toy(model, works).weight.detach())
    assert model.stats().frames_by_path == {works: 5}


def test_where_all_fail_the_last_exception_comes_out(make: Callable[..., DynamicModel]) -> None:
    model = make()
    for name in model.paths:
        toy(model, name).error = ValueError(name)
    for _ in range(3):
        with pytest.raises(ValueError, match=r"^p1$|^p3$"):
            model(FRAME)
    assert model.stats().frames == 0
    assert model.stats().failures == 9
    toy(model, "p2").error = None
    assert ran(model) == "p2"


def test_frames_that_are_wrong_are_no_fault_of_the_path(make: Callable[..., DynamicModel]) -> None:
    model = make()
    toy(model, "p3").error = InputError("expected frames (B, 3, H, W)")
    with pytest.raises(InputError, match="expected frames"):
        model(FRAME)
    toy(model, "p3").error = None
    assert ran(model) == "p3"
    assert model.stats().failures == 0


def test_an_interrupt_is_no_fault_of_the_path(make: Callable[..., DynamicModel]) -> None:
    model = make()
    toy(model, "p3").forward = lambda *_: (_ for _ in ()).throw(KeyboardInterrupt)  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        model(FRAME)
    assert model.stats().failures == 0


def test_the_time_of_a_failed_attempt_is_no_slowdown_of_the_path_that_stepped_in(
    make: Callable[..., DynamicModel],
) -> None:
    clock = Clock()
    model = make(clock=clock)
    told: list[Frame] = []
    model.listener = told.append

    def slow_failure(*_: object) -> None:
        clock.now_s += 5.0
        raise RuntimeError("timed out")

    toy(model, "p3").register_forward_pre_hook(slow_failure)
    toy(model, "p2").register_forward_hook(lambda *_: setattr(clock, "now_s", clock.now_s + 0.002))
    for _ in range(5):
        model(FRAME)
    assert model.stats().slowdown == pytest.approx(1.0, rel=0.01)
    assert [round(frame.latency_s, 3) for frame in told] == [5.002, 0.002, 0.002, 0.002, 0.002]


def test_a_meter_that_fails_midway_stops_nothing(make: Callable[..., DynamicModel]) -> None:
    meter = ToyMeter(power_w=25.0)
    model = make(meter=meter, frame_period_s=0.01)
    model.budget = Budget.parse("32W")  # 20, 30 and 40 W
    sampler = model._sampler
    sampler.stop()
    for number in range(40):
        if number == 20:
            meter.reason = "the driver went away"
        sampler.sample()
        assert ran(model) in model.paths
    stats = model.stats()
    assert stats.frames == 40
    assert stats.power_w == pytest.approx(25.0)  # the newest that there was
    assert stats.power_source == "measured:toy"
    assert sampler.missing >= 19
    with pytest.raises(BudgetError, match="the driver went away"):
        model.budget = Budget.parse("31W")
    assert model.budget == Budget.parse("32W")
    model.budget = Budget.parse("2.5ms")


# Pinning, listening, telling ----------------------------------------------------------------------------------


def test_a_pinned_path_runs_whatever_the_budget(make: Callable[..., DynamicModel]) -> None:
    model = make(references=("stock",))
    model.budget = Budget.parse("1.2ms")
    model.pin("p3")
    assert ran(model) == "p3"
    model.pin("stock")
    assert float(model(FRAME)[0]) == 10.0
    assert model.active is model.paths["stock"]
    model.pin(None)
    assert model.stats().frames_by_path == {"p3": 1, "stock": 1}
    with pytest.raises(InputError, match='no path "p9"; there are: p1, p2, p3, stock'):
        model.pin("p9")
    assert model.active in model.paths.values()


def test_statistics_add_up(make: Callable[..., DynamicModel]) -> None:
    model = make()
    for name in ["p1", "p1", "p2", "p1", "p3", "p3"]:
        model.pin(name)
        model(FRAME)
    stats = model.stats()
    assert stats.frames == 6
    assert stats.frames_by_path == {"p1": 3, "p2": 1, "p3": 2}
    assert stats.switches == 3
    assert (stats.met, stats.shortfall, stats.failures) == (True, "", 0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        stats.frames = 7  # type: ignore[misc]


def test_a_listener_is_told_of_every_frame(make: Callable[..., DynamicModel]) -> None:
    clock = Clock()
    model = make(clock=clock)
    toy(model, "p3").register_forward_hook(lambda *_: setattr(clock, "now_s", clock.now_s + 0.003))
    told: list[Frame] = []
    model.listener = told.append
    for _ in range(3):
        output = model(FRAME)
        clock.now_s += 0.01
        assert told[-1].output is output
    assert [frame.path for frame in told] == ["p3"] * 3
    assert [frame.start_s for frame in told] == pytest.approx([0.0, 0.013, 0.026])
    assert [frame.latency_s for frame in told] == pytest.approx([0.003] * 3)
    model.listener = None
    model(FRAME)
    assert len(told) == 3


def test_by_default_the_controller_allows_for_the_sensors_lag(make: Callable[..., DynamicModel]) -> None:
    assert make(meter=ToyMeter(resolution_s=0.5))._settings.sensor_s == 0.5
    assert make(settings=Settings(dwell_frames=7))._settings == Settings(dwell_frames=7)


def test_every_choice_needs_its_module() -> None:
    with pytest.raises(InputError, match="no module for path p2; give one for every choice"):
        DynamicModel({"p1": ToyPath(1)}, choices(2), meter=NullMeter())


def test_power_samples_can_be_taken_for_records(make: Callable[..., DynamicModel]) -> None:
    model = make()
    model.start_sampling()
    deadline = time.monotonic() + 20
    samples = model.take_power_samples()
    while not samples and time.monotonic() < deadline:
        time.sleep(0.01)
        samples = model.take_power_samples()
    assert samples[0].power_w == pytest.approx(25.0)


# From a bundle, and from a module -----------------------------------------------------------------------------


def test_a_bundle_is_loaded_with_all_its_paths(
    small_bundle: Path, make_bundle_at: Callable[..., Any], tmp_path: Path
) -> None:
    with DynamicModel.load(small_bundle, meter=ToyMeter(), frame_period_s=0.1) as model:
        assert list(model.paths) == ["stock", "lossless", "lossless+size=75%", "lossless+size=50%"]
        assert [choice.id for choice in model.choices.paths] == list(reversed(list(model.paths)[1:]))
        model.budget = Budget.parse("60%")  # stock: 1 W idle and 0.1 J in 0.1 s
        assert model.resolved_budget.power_w == pytest.approx(0.6 * 2.0)
        assert model.active is model.paths["lossless+size=50%"]
        storages = {tensor.untyped_storage().data_ptr() for tensor in model.paths["stock"].parameters()}
        for path in model.paths.values():
            own = [p for p in path.parameters() if p.untyped_storage().data_ptr() not in storages]
            assert sum(tensor.numel() for tensor in own) < 0.1 * sum(p.numel() for p in path.parameters())
    blind = make_bundle_at(tmp_path / "blind", energy=False).folder
    with DynamicModel.load(blind, meter=NullMeter("no sensor")) as model:
        model.budget = Budget.parse("25ms")
        with pytest.raises(BudgetError, match="no sensor"):
            model.budget = Budget.parse("60W")


def test_a_bundle_from_elsewhere_is_served_with_a_warning(
    small_bundle: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gearshift.profiler.device import identify
    from gearshift.runtime import dynamic

    monkeypatch.setattr(dynamic, "identify", lambda place: dataclasses.replace(identify(place), name="Another CPU"))
    with caplog.at_level(logging.WARNING, "gearshift"):
        DynamicModel.load(small_bundle, meter=NullMeter()).close()
    assert "was measured on another device" in caplog.text
    assert "runtime paths" in caplog.text
    assert "--remeasure" in caplog.text


SPECS = [PathSpec.parse(text) for text in ("lossless", "lossless+size=50%", "stock")]


def test_a_model_is_built_from_a_module_and_given_paths() -> None:
    module = tiny_segformer()
    module.train()
    module.decode_head.eval()
    example = torch.randn(2, 3, 64, 96, generator=torch.Generator().manual_seed(0))
    said: list[str] = []
    with DynamicModel.build(
        module, example, specs=SPECS, meter=ToyMeter(), rounds=1, window_s=0.01, progress=said.append
    ) as model:
        assert set(model.paths) == {"stock", "lossless", "lossless+size=50%"}
        exact = {choice.id: choice.quality for choice in model.choices.paths}
        assert exact["lossless"] == pytest.approx(1.0, abs=1e-3)
        assert exact.get("lossless+size=50%", 0.0) < 1
        assert model.choices.idle_power_w == IDLE_W
        assert model.choices.know_energy
        model.pin("stock")
        with torch.no_grad():
            assert torch.equal(model(example[:1]).logits, module.eval()(example[:1]).logits)
        model.pin(None)
        model.budget = Budget.parse("60%")
        assert model.resolved_budget.power_w is not None
    assert any("measuring 3 paths" in line for line in said)
    assert (module.training, module.segformer.training, module.decode_head.training) == (False, False, False)


def test_building_leaves_the_module_in_its_mode() -> None:
    module = tiny_segformer().train()
    module.decode_head.eval()
    example = torch.zeros(1, 3, 64, 96)
    DynamicModel.build(module, example, specs=SPECS[:1], meter=NullMeter(), rounds=1, window_s=0.0).close()
    assert (module.training, module.segformer.training, module.decode_head.training) == (True, True, False)
    with pytest.raises(PathRefusedError):
        DynamicModel.build(module, example, specs=[PathSpec.parse("skip=9.9")], meter=NullMeter(), rounds=1)
    assert (module.training, module.segformer.training, module.decode_head.training) == (True, True, False)


def test_a_model_is_built_by_search() -> None:
    module = tiny_segformer()
    example = torch.randn(1, 3, 64, 96, generator=torch.Generator().manual_seed(0))
    effort = Effort(timing_rounds=1, recombined=2, keep=4, floor=0.9)
    with DynamicModel.build(module, example, effort=effort, meter=ToyMeter(), rounds=1, window_s=0.005) as model:
        assert "stock" in model.paths
        assert any(path.id in ("lossless", "lossless+qkv") for path in model.choices.paths)
        for path in model.choices.paths:
            assert path.quality >= 0.9 * 0.999
        assert model(example).logits.shape == module(example).logits.shape
        assert not list(Path.cwd().glob("*.search.jsonl"))


def test_what_cannot_be_built_is_refused() -> None:
    with pytest.raises(ModelError, match="no family of paths knows Linear"):
        DynamicModel.build(nn.Linear(1, 1), FRAME, meter=NullMeter())
    for shape in ((3, 64, 96), (0, 3, 64, 96)):
        with pytest.raises(InputError, match="expected example frames"):
            DynamicModel.build(tiny_segformer(), torch.zeros(shape), meter=NullMeter())
    with pytest.raises(InputError, match="example frames are on meta and the model on cpu"):
        DynamicModel.build(tiny_segformer(), torch.zeros(1, 3, 64, 96, device="meta"), meter=NullMeter())


def test_all_paths_are_resident_and_a_switch_is_a_pointer(small_bundle: Path) -> None:
    with DynamicModel.load(small_bundle, meter=NullMeter()) as model:
        before = {name: id(path) for name, path in model.paths.items()}
        tensors = {name: [p.data_ptr() for p in path.parameters()] for name, path in model.paths.items()}
        for name in model.paths:
            model.pin(name)
            model(torch.zeros(1, 3, 64, 96))
        assert {name: id(path) for name, path in model.paths.items()} == before
        assert {name: [p.data_ptr() for p in path.parameters()] for name, path in model.paths.items()} == tensors
