"""Which way now? Budgets, the controller, `DynamicModel`, and what is built on them.

    Budget          what may be spent                                           budget.py
    DynamicModel    a model that holds a budget                                 dynamic.py
    decide          the decision, as a pure function                            controller.py
                    what it learns: latency.py, energy.py, rhythm.py (estimate.py); two paths in turn: turns.py
    Choices         the frontier as the controller sees it                      choices.py
    Quarantine      where calls go while a path fails                           quarantine.py
    PowerSampler    reads the meter beside the frames                           sampler.py

`bench` drives a camera-like stream through a `DynamicModel`, `report` draws what came of it, and `cli` is the
`runtime` command.
"""

from gearshift.runtime.budget import Budget, LatencyLimit, Mission
from gearshift.runtime.choices import Choice, Choices
from gearshift.runtime.controller import Decision, FrameReading, Settings, State, decide
from gearshift.runtime.dynamic import DynamicModel, Frame, Stats

__all__ = [
    "Budget",
    "Choice",
    "Choices",
    "Decision",
    "DynamicModel",
    "Frame",
    "FrameReading",
    "LatencyLimit",
    "Mission",
    "Settings",
    "State",
    "Stats",
    "decide",
]
