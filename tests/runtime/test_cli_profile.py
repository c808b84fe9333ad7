"""`runtime profile`: the findings come first, and say what the tables and the JSON hold."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from gearshift.paths.models import load_model
from gearshift.profiler import count
from gearshift.profiler.meters import NullMeter, Precision, Reading
from gearshift.profiler.meters.base import BaseMeter
from gearshift.runtime.cli import main
from gearshift.runtime.cli import profile as command

STREET = ("profile", "config:segformer-street", "--size", "64x96", "--repeats", "1")
Profiled = Callable[..., Any]


@pytest.fixture
def printed(capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run the command and return its stdout; it must succeed."""

    def run(*arguments: str) -> str:
        capfd.readouterr()
        code = main([*arguments])
        out, err = capfd.readouterr()
        assert code == 0, err
        return out

    return run


@pytest.fixture
def profiled(printed: Callable[..., str]) -> Profiled:
    """The command's JSON."""
    return lambda *arguments: json.loads(printed(*arguments, "--json", "-"))


def test_the_first_lines_say_what_dominates_and_which_rewrite_applies(printed: Callable[..., str]) -> None:
    out = printed(*STREET)
    title, operations, time, lossless, correlation = [
        line for line in out.splitlines() if not line.startswith("WARNING: ")
    ][:5]
    counted = count(load_model("config:segformer-street").module, (torch.zeros(1, 3, 64, 96),), on_meta=True)
    first = counted.table()[0]
    assert title.startswith("config:segformer-street, path stock, 1x3x64x96, float32, cpu")
    assert operations.startswith(f"operations: {counted.macs / 1e9:.3f} GMAC: {first.name} {first.macs_share:.1%}")
    assert "largest single module: decode_head.linear_fuse, " in operations
    assert re.match(r"time: [\d.]+ ms \(one pass\): ", time)
    assert "lossless rewrite: applies" in lossless
    assert "--path lossless" in lossless
    assert "Kendall's tau" in correlation
    assert out.index("By operator type") < out.index("By module")


def test_passes_that_the_time_did_not_allow_are_said(printed: Callable[..., str]) -> None:
    out = printed("profile", "config:segformer-street", "--size", "64x96", "--repeats", "5", "--seconds", "0.000001")
    assert "ms (one pass; more with --seconds 30): " in out


def test_the_rewrite_that_is_announced_is_the_one_that_the_path_has(profiled: Profiled) -> None:
    stock, exact = (profiled(*STREET, "--counts-only", "--path", path) for path in ("stock", "lossless"))
    assert stock["lossless"] == {"applies": True, "macs": exact["macs"], "path": "lossless", "reason": None}
    assert exact["lossless"]["path"] is None
    assert exact["macs"] < stock["macs"]


def test_types_and_the_whole_are_held_against_this_devices_peaks(profiled: Profiled) -> None:
    found = profiled(*STREET)
    roofline = found["roofline"]
    assert {row["name"] for row in roofline["by_type"]} == {row["name"] for row in found["by_type"]}
    assert roofline["peaks"]["gflops"] > 0
    assert sum(row["time_ms"] for row in roofline["by_type"]) == pytest.approx(found["wall_ms"])
    for row in roofline["by_type"]:
        assert row["achieved"] == pytest.approx(row["bound_ms"] / row["time_ms"])
        assert row["limit"] in ("arithmetic", "memory", None)
    correlations = {item["of"]: item for item in roofline["rank_correlation_with_time"]}
    assert set(correlations) == {"macs", "bytes", "roofline_ms"}
    assert all(-1 <= item["kendall_tau"] <= 1 and item["modules"] > 20 for item in correlations.values())


@pytest.mark.parametrize(
    ("model", "macs"),
    [("timm:vit_tiny_patch16_224", 1_253_683_200), ("config:vit-base", 17_563_828_224)],
)
def test_any_model_is_counted_at_its_own_size(model: str, macs: int, profiled: Profiled) -> None:
    found = profiled("profile", model, "--counts-only")
    assert found["macs"] == macs
    assert found["inputs"][0]["shape"] == [1, 3, 224, 224]
    assert found["lossless"]["applies"]
    assert found["lossless"]["macs"] < macs  # the last block for the class token alone


def test_a_model_whose_course_depends_on_values_is_counted_by_running_it(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """DETR asks whether its mask is all ones, which the meta device cannot tell."""
    code = main(["profile", "config:detr-resnet-50", "--size", "64", "--counts-only", "--json", "-"])
    out, err = capfd.readouterr()
    assert code == 0
    assert "counting while it runs once for real" in err
    found = json.loads(out)
    assert {row["name"]: row["macs"] for row in found["by_type"]}["attention"] > 0
    assert not found["is_lower_bound"]


def test_lower_precision_runs_in_it(profiled: Profiled) -> None:
    found = profiled(*STREET, "--dtype", "bfloat16")
    assert (found["dtype"], found["inputs"][0]["dtype"]) == ("bfloat16", "bfloat16")
    assert found["roofline"]["peaks"]["dtype"] == "bfloat16"


class Steady(BaseMeter):
    """A sensor of 50 ms that shows 7 W whatever is done; its idle power is that too."""

    def __init__(self) -> None:
        super().__init__(
            name="steady",
            source="measured:steady",
            boundary="a test",
            precision=Precision(resolution_s=0.001, relative=0.0),
        )

    def _read(self) -> Reading:
        now_s = self._clock()
        return Reading(time_s=now_s, energy_j=7.0 * now_s, fresh=int(now_s * 1000))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short windows."""
    measure = command.measure_operator_energy
    monkeypatch.setattr(
        command,
        "measure_operator_energy",
        lambda *args, **given: measure(*args, **given, rounds=1, least_window_s=0.02),
    )


@pytest.mark.usefixtures("quick")
def test_energy_by_type_is_shown_where_a_meter_reads_it(
    profiled: Profiled, printed: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "choose_meter", lambda *asked, **settings: Steady())
    found = profiled(*STREET, "--energy")
    energy = found["energy"]
    assert found["energy_reason"] is None
    assert energy["source"] == "measured:steady"
    assert {row["name"] for row in energy["by_type"]} == {row["name"] for row in found["by_type"]}
    assert energy["whole"]["gross_j"] == pytest.approx(7.0 * energy["whole"]["ms"] / 1e3, rel=0.01)
    assert energy["idle_power_w"] == pytest.approx(7.0)
    assert "mJ net" in printed(*STREET, "--energy")


@pytest.mark.usefixtures("quick")
def test_energy_is_null_with_the_reason_where_no_meter_reads_it(
    profiled: Profiled, printed: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "choose_meter", lambda *asked, **settings: NullMeter("no sensor here"))
    found = profiled(*STREET, "--energy")
    assert found["energy"]["whole"] is None
    assert found["energy"]["by_type"] == []
    assert found["energy_reason"] == "no sensor here"
    out = printed(*STREET, "--energy")
    assert "energy: not measured (no sensor here)" in out
    assert "mJ net" not in out
    assert profiled(*STREET)["energy_reason"].startswith("not asked for")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--dtype", "int8"), '--dtype "int8" is not known; write one of float32'),
        (("--seconds", "0"), "--seconds 0 must be above 0"),
        (("--seconds", "nan"), "must be above 0"),
        (("--energy", "--counts-only"), "leave out --energy"),
    ],
)
def test_what_makes_no_sense_is_refused(
    arguments: tuple[str, ...], said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([*STREET, *arguments]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    [line] = err.splitlines()
    assert said in line
