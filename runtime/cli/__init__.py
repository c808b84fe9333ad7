"""The `runtime` command: one module per subcommand, each a dataclass of options with a `run`.

Data goes to stdout, messages to stderr. Exit codes: 0 done, 1 done but no path can meet the budget, 2 bad
input (one line says what is wrong), 3 a fault of ours, 130 stopped by Ctrl-C.

`parsing` turns arguments into a command, `output` holds what the commands share.
"""

import os
import sys
from collections.abc import Sequence

from gearshift import __version__
from gearshift.errors import GearshiftError

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given == ["--version"]:
        print(f"gearshift {__version__}")
        return 0
    try:
        return _run(given)
    except SystemExit as stop:  # after --help
        return int(stop.code or 0)
    except GearshiftError as error:
        return _say(f"error: {error}", 2)
    except KeyboardInterrupt:
        return _say("stopped", 130)
    except BrokenPipeError:  # the reader of our output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if os.environ.get("GEARSHIFT_DEBUG"):
            raise
        advice = "(this is a fault of Gearshift; set GEARSHIFT_DEBUG=1 for the traceback)"
        return _say(f"error: {type(error).__name__}: {error} {advice}", 3)


def _run(given: Sequence[str]) -> int:
    """Import late, so that `--version` and `import gearshift.runtime.cli` stay light."""
    from gearshift.runtime.cli.output import warnings_told
    from gearshift.runtime.cli.parsing import parse

    command = parse(given)
    with warnings_told():
        code = command.run()
    sys.stdout.flush()  # here, where a reader that has gone is no fault
    return code


def _say(message: str, code: int) -> int:
    """Print a message as one line, whatever is in it."""
    print(" ".join(message.split()), file=sys.stderr)
    return code
