"""Scripts of runs: what holds when, what YAML may say, and how they are played faster."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gearshift.errors import ConfigError
from gearshift.runtime.bench.scenario import BudgetStep, Load, Scenario
from gearshift.runtime.budget import Budget

SHIPPED = ("budget-steps", "co-runner")


def read(tmp_path: Path, text: str) -> Scenario:
    file = tmp_path / "scenario.yaml"
    file.write_text(text)
    return Scenario.read(file)


def refusal(tmp_path: Path, text: str) -> str:
    """The one line with which a file is refused."""
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    message = str(caught.value)
    assert "\n" not in message
    assert str(tmp_path / "scenario.yaml") in message
    return message


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_scenarios_are_read_by_name(name: str) -> None:
    script = Scenario.read(Path(name))
    assert script.seconds == 20
    assert script.budget_at(0) != Budget()


def test_a_file_beats_a_shipped_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("co-runner").write_text("{seconds: 3, budgets: [{at_s: 0, budget: [30ms]}]}")
    assert Scenario.read(Path("co-runner")).seconds == 3


def test_an_unknown_name_lists_those_that_ship() -> None:
    with pytest.raises(ConfigError, match="no scenario file nope; give a YAML file or one of: budget-steps, co"):
        Scenario.read(Path("nope"))


def test_budgets_follow_each_other(tmp_path: Path) -> None:
    script = read(
        tmp_path,
        """
        seconds: 10
        budgets:
          - {at_s: 6, budget: [20 W]}
          - {at_s: 2, budget: [60 W, 33 ms]}
        loads:
          - {from_s: 1, to_s: 4}
          - {from_s: 3, to_s: 5, processes: 3}
        """,
    )
    assert script.budget_at(1.99) == Budget()
    assert script.budget_at(2) == Budget.parse("60W", "33ms")
    assert script.budget_at(5.99) == Budget.parse("60W", "33ms")
    assert script.budget_at(6) == script.budget_at(99) == Budget.parse("20W")
    assert [script.processes_at(s) for s in (0.9, 1, 2.9, 3, 3.9, 4, 4.9, 5)] == [0, 1, 1, 4, 4, 3, 3, 0]


def test_no_budget_at_all_is_a_budget(tmp_path: Path) -> None:
    assert read(tmp_path, "{seconds: 1, budgets: [{at_s: 0, budget: []}]}").budget_at(0) == Budget()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{second: 1, budgets: []}", 'unknown key "second"; did you mean "seconds"?'),
        (
            "{seconds: 9, budgets: [{at_s: 0, bugdet: [60W]}]}",
            'unknown key "budgets.0.bugdet"; did you mean "budget"?',
        ),
        ("{seconds: 9, budgets: [{at_s: 0, budget: [60]}]}", "should be a valid string"),
        ("{seconds: 9, budgets: [{at_s: 0, budget: 60W}]}", "should be a valid list"),
        ("{seconds: 9, budgets: [{at_s: 0, budget: ['60']}]}", '"budgets.0.budget" is'),
        ("{seconds: 9, budgets: [{at_s: 0, budget: [-5W]}]}", "must be a positive, finite number"),
        ("{seconds: 9, budgets: []}", "at least 1 item"),
        ("{seconds: 0, budgets: [{at_s: 0, budget: [6W]}]}", "greater than 0"),
        ("{seconds: .inf, budgets: [{at_s: 0, budget: [6W]}]}", "less than 1000000"),
        ("{seconds: .nan, budgets: [{at_s: 0, budget: [6W]}]}", '"seconds" is nan'),
        ("{seconds: 9, budgets: [{at_s: .nan, budget: [6W]}]}", '"budgets.0.at_s" is nan'),
        ("{seconds: 9, budgets: [{at_s: -1, budget: [6W]}]}", "greater than or equal to 0"),
        (
            "{seconds: 9, budgets: [{at_s: 9, budget: [6W]}]}",
            "nothing can begin at 9 s in a run of 9 s",
        ),
        (
            "{seconds: 9, budgets: [{at_s: 0, budget: [6W]}, {at_s: 0, budget: [5ms]}]}",
            "two budgets begin at the same moment; write both as one list",
        ),
        (
            "{seconds: 9, budgets: [{at_s: 0, budget: [6W]}], loads: [{from_s: 3, to_s: 2}]}",
            "a load must end after it begins",
        ),
        (
            "{seconds: 9, budgets: [{at_s: 0, budget: [6W]}], loads: [{from_s: 9, to_s: 12}]}",
            "nothing can begin at 9 s",
        ),
        (
            "{seconds: 9, budgets: [{at_s: 0, budget: [6W]}], loads: [{from_s: 1, to_s: 2, processes: 0}]}",
            "greater than or equal to 1",
        ),
        ("[1, 2", "is not YAML"),
        ("3", "should hold keys and their values"),
    ],
)
def test_what_cannot_be_played_is_refused_in_one_line(text: str, said: str, tmp_path: Path) -> None:
    assert said in refusal(tmp_path, text)


def test_steady_is_one_budget_throughout() -> None:
    script = Scenario.steady(["60W", "33ms"], 7.0)
    assert script.seconds == 7
    assert script.budget_at(0) == script.budget_at(6.9) == Budget.parse("60W", "33ms")
    assert script.processes_at(3) == 0


@given(seconds=st.floats(0.1, 1000.0))
def test_a_script_played_at_another_pace_has_the_same_parts(seconds: float) -> None:
    script = Scenario(
        seconds=20,
        budgets=[BudgetStep(at_s=at, budget=[f"{watts}W"]) for at, watts in ((0, 90), (5, 60), (10, 40))],
        loads=[Load(from_s=7, to_s=14, processes=2)],
    )
    other = script.lasting(seconds)
    assert other.seconds == seconds
    for share in (0.0, 0.2, 0.3, 0.4, 0.6, 0.8, 0.99):
        assert other.budget_at(share * seconds) == script.budget_at(share * 20)
        assert other.processes_at(share * seconds) == script.processes_at(share * 20)
