"""The command line: one module per verb, which parses, calls and prints. Nothing is computed here.

Results go to stdout (`--json`: one JSON document), progress and complaints to stderr. Exit codes are those of
`errors`; SIGINT is 130 and SIGTERM 143. Heavy modules are imported in the verb that needs them.

    measure, simulate, regret, fit, serve, replay, demo     the verbs, each a function of its module's name
    flags                                                   values of flags that several verbs read alike
    terminal                                                progress, and the answer as tables or as JSON
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

from cyclopts import App, CycloptsError, Parameter

import turnout
from turnout.cli import demo, fit, measure, regret, replay, serve, simulate
from turnout.errors import TurnoutError

app = App(
    name="turnout",
    help="Measure AI work on CPU and GPU, plan the cheapest fleet that meets the deadline, and route requests to it.",
    version=turnout.__version__,
    suppress_keyboard_interrupt=False,
    default_parameter=Parameter(show_default=lambda value: str(value) if value else None),
)

for verb in (
    fit.fit, regret.regret, simulate.simulate, measure.measure, serve.serve, replay.replay, demo.demo,
):  # fmt: skip
    app.command(verb)

USAGE = 2
INTERRUPTED = 130
TERMINATED = 143
UNEXPECTED = 1


class _TerminatedError(BaseException):
    """SIGTERM arrived; not an Exception, so that nothing on the way catches it."""


def _terminate(_number: int, _frame: FrameType | None) -> NoReturn:
    """Turn SIGTERM into an exception, so that files in the making are cleaned up."""
    raise _TerminatedError


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and exit with its code; every error is one message on stderr."""
    signal.signal(signal.SIGTERM, _terminate)
    sys.exit(_run(sys.argv[1:] if arguments is None else list(arguments)))


def _run(arguments: list[str]) -> int:
    """Run the command and return its exit code."""
    try:
        result = app(arguments, exit_on_error=False, print_error=True, result_action="return_value")
    except CycloptsError:
        return USAGE
    except TurnoutError as error:
        print(f"turnout: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("turnout: interrupted", file=sys.stderr)
        return INTERRUPTED
    except _TerminatedError:
        print("turnout: terminated", file=sys.stderr)
        return TERMINATED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNEXPECTED
    except Exception as error:  # what nobody foresaw is still one message, with the traceback on request
        if os.environ.get("TURNOUT_TRACEBACK"):
            raise
        print(
            f"turnout: unexpected {type(error).__name__}: {error} (a bug; TURNOUT_TRACEBACK=1 shows where)",
            file=sys.stderr,
        )
        return UNEXPECTED
    return result if isinstance(result, int) else 0
