"""What happens during a run: budgets that change, another program that takes its share. Read from YAML."""

from importlib.resources import files
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from gearshift.config import read_config
from gearshift.errors import BudgetError, ConfigError
from gearshift.runtime.budget import Budget

LONGEST_S = 1e6


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class BudgetStep(_Section):
    """From `at_s` on, these budgets hold, all of them."""

    at_s: float = Field(ge=0, allow_inf_nan=False)
    budget: list[str]

    @field_validator("budget")
    @classmethod
    def _readable(cls, texts: list[str]) -> list[str]:
        try:
            Budget.parse(*texts)
        except BudgetError as error:  # as a value error, so that file and key are named
            raise ValueError(str(error)) from error
        return texts


class Load(_Section):
    """Between two moments, `processes` other programs compute without a pause."""

    from_s: float = Field(ge=0, allow_inf_nan=False)
    to_s: float = Field(gt=0, allow_inf_nan=False)
    processes: int = Field(default=1, ge=1, le=256)


class Scenario(_Section):
    """A run's script; times are seconds from its start."""

    seconds: float = Field(gt=0, lt=LONGEST_S)
    budgets: list[BudgetStep] = Field(min_length=1)
    loads: list[Load] = []

    @model_validator(mode="after")
    def _possible(self) -> "Scenario":
        starts = [step.at_s for step in self.budgets]
        if len(set(starts)) < len(starts):
            raise ValueError("two budgets begin at the same moment; write both as one list")
        late = max([*starts, *(load.from_s for load in self.loads)])
        if late >= self.seconds:
            raise ValueError(f"nothing can begin at {late:g} s in a run of {self.seconds:g} s")
        if any(load.to_s <= load.from_s for load in self.loads):
            raise ValueError("a load must end after it begins")
        return self

    @staticmethod
    def read(file: Path) -> "Scenario":
        """Read a scenario from a file, or one that ships with Gearshift by its bare name.

        Raises:
            ConfigError: No such file or name, or a key that is unknown or ill-typed.
        """
        shipped = Path(str(files("gearshift.configs"))) / "scenarios"
        known = sorted(path.stem for path in shipped.glob("*.yaml"))
        if not file.exists() and str(file) in known:
            file = shipped / f"{file}.yaml"
        if not file.exists():
            raise ConfigError(f"no scenario file {file}; give a YAML file or one of: {', '.join(known)}")
        return read_config(file, Scenario)

    @staticmethod
    def steady(texts: list[str], seconds: float) -> "Scenario":
        """The same budgets throughout."""
        return Scenario(seconds=seconds, budgets=[BudgetStep(at_s=0, budget=texts)])

    def lasting(self, seconds: float) -> "Scenario":
        """The same script, played faster or slower so that it takes `seconds`."""
        pace = seconds / self.seconds
        return Scenario(
            seconds=seconds,
            budgets=[BudgetStep(at_s=step.at_s * pace, budget=step.budget) for step in self.budgets],
            loads=[
                Load(from_s=load.from_s * pace, to_s=load.to_s * pace, processes=load.processes) for load in self.loads
            ],
        )

    def budget_at(self, seconds: float) -> Budget:
        """The budget in force; none before the first step."""
        current = Budget()
        for step in sorted(self.budgets, key=lambda step: step.at_s):
            if step.at_s <= seconds:
                current = Budget.parse(*step.budget)
        return current

    def processes_at(self, seconds: float) -> int:
        """How many other programs run."""
        return sum(load.processes for load in self.loads if load.from_s <= seconds < load.to_s)
