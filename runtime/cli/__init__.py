"""The `runtime` command: one module per subcommand, each a dataclass of options with a `run`.

Data goes to stdout, messages to stderr. Exit codes: 0 done, 1 done but no path can meet the budget, 2 bad input,
130 stopped by Ctrl-C.
"""

import logging
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import tyro

from gearshift import __version__
from gearshift.errors import GearshiftError

_HELP = {
    "bench": "run a stream under budgets and report how they were held",
    "build": "make, cost and judge the paths of a model, and keep the frontier as a bundle",
    "devices": "meters and accelerators found here, and why the others are unavailable",
    "paths": "the table of a bundle's paths",
    "profile": "cost of a model by operator type and module",
    "report": "the HTML report of a run that `bench --json` recorded",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given == ["--version"]:
        print(f"gearshift {__version__}")
        return 0
    try:
        command: Any = tyro.cli(_commands(), prog="runtime", description=_DESCRIPTION, args=_join_budgets(given))
        return int(command.run())
    except GearshiftError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; long work goes on from where it was when the command is given again", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if logging.getLogger("gearshift").isEnabledFor(logging.DEBUG):
            raise
        print(
            f"error: {type(error).__name__}: {error} (this is a fault of Gearshift; "
            "set GEARSHIFT_DEBUG=1 for the traceback)",
            file=sys.stderr,
        )
        return 3


_DESCRIPTION = "Hold a power, energy or latency budget by shifting between paths through a vision model's weights."


def _commands() -> Any:
    """All subcommands; imported here so that `import gearshift.runtime` stays light."""
    from gearshift.runtime.cli.bench import Bench
    from gearshift.runtime.cli.build import Build
    from gearshift.runtime.cli.devices import Devices
    from gearshift.runtime.cli.paths import Paths
    from gearshift.runtime.cli.profile import ProfileCommand
    from gearshift.runtime.cli.report import Report

    if os.environ.get("GEARSHIFT_DEBUG"):
        logging.getLogger("gearshift").setLevel(logging.DEBUG)
    union: Any = None
    for name, command in (
        ("bench", Bench),
        ("build", Build),
        ("devices", Devices),
        ("paths", Paths),
        ("profile", ProfileCommand),
        ("report", Report),
    ):
        part = Annotated[command, tyro.conf.subcommand(name=name, description=_HELP[name])]
        union = part if union is None else union | part
    return tyro.conf.OmitSubcommandPrefixes[union]


def _join_budgets(arguments: Sequence[str]) -> list[str]:
    """Write `--budget -5W` as `--budget=-5W`, so that a negative budget reaches our own message."""
    joined: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        if argument == "--budget":
            value = next(rest, None)
            joined.append(argument if value is None else f"--budget={value}")
        else:
            joined.append(argument)
    return joined
