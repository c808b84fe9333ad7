"""From arguments to a command: the subcommands, and tyro's complaints as one line."""

import contextlib
import functools
import importlib
import io
import operator
from collections.abc import Sequence
from typing import Annotated, Any, Protocol

import tyro

from gearshift.errors import InputError

DESCRIPTION = "Hold a power, energy or latency budget by shifting between paths through a vision model's weights."
COMMANDS: dict[str, tuple[str, str]] = {
    "bench": ("Bench", "run a stream under budgets and report how they were held"),
    "build": ("Build", "make, cost and judge the paths of a model, and keep the frontier as a bundle"),
    "devices": ("Devices", "meters and accelerators found here, and why the others are unavailable"),
    "paths": ("Paths", "the table of a bundle's paths"),
    "profile": ("ProfileCommand", "cost of a model by operator type and module"),
    "report": ("Report", "the HTML report of a run that `bench --json` recorded, or of two side by side"),
    "survey": ("SurveyCommand", "operator statistics over every architecture of timm or transformers"),
}
"""By name, which is also the name of its module here: the class, and what it does."""


class Command(Protocol):
    """Options that were read."""

    def run(self) -> int:
        """Do it; returns the exit code."""


def parse(arguments: Sequence[str]) -> Command:
    """Read the arguments.

    Raises:
        InputError: They make no command; one line.
        SystemExit: Help was asked for and printed.
    """
    complaint = io.StringIO()
    name, rest = (arguments[0], arguments[1:]) if arguments and arguments[0] in COMMANDS else (None, arguments)
    try:
        with contextlib.redirect_stderr(complaint):
            command: Command = tyro.cli(
                _subcommands() if name is None else _load(name),
                prog="runtime" if name is None else f"runtime {name}",
                description=DESCRIPTION if name is None else COMMANDS[name][1],
                args=_join_budgets(rest),
                config=(tyro.conf.OmitSubcommandPrefixes,),
            )
            return command
    except SystemExit as stop:
        if not stop.code:
            raise
        help_of = "runtime" if name is None else f"runtime {name}"
        raise InputError(f"{_in_one_line(complaint.getvalue())}; see `{help_of} --help`") from None


def _load(name: str) -> Any:
    """Import one command, and only it: the others' libraries take seconds."""
    return getattr(importlib.import_module(f"gearshift.runtime.cli.{name}"), COMMANDS[name][0])


def _subcommands() -> Any:
    """The union of all commands, as tyro reads it."""
    choices: list[Any] = [
        # `Annotated[...]`, spelt so that type checkers do not take it for an annotation.
        operator.getitem(Annotated, (_load(name), tyro.conf.subcommand(name=name, description=description)))
        for name, (_, description) in COMMANDS.items()
    ]
    return functools.reduce(operator.or_, choices)


def _join_budgets(arguments: Sequence[str]) -> list[str]:
    """Write `--budget -5W` as `--budget=-5W`, so that a negative budget reaches our own message."""
    joined: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        value = next(rest, None) if argument == "--budget" else None
        joined.append(argument if value is None else f"--budget={value}")
    return joined


def _in_one_line(box: str) -> str:
    """The first paragraph of tyro's box, and the option that it takes to be meant."""
    paragraphs: list[list[str]] = [[]]
    for line in box.splitlines():
        text = line.strip("│| ")
        if not text or text[0] in "╭╰─+":  # a frame, or the rule between two paragraphs
            paragraphs.append([])
        else:
            paragraphs[-1].append(text)
    told = [paragraph for paragraph in paragraphs if paragraph] or [["the arguments make no command"]]
    nearest = [words[1].split()[0] for words in told[1:] if words[0] == "Perhaps you meant:" and words[1:]]
    return " ".join(told[0]).rstrip(".") + "".join(f"; did you mean {option}?" for option in nearest)
