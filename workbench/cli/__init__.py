"""The command line `cutegen`. Its commands are listed in workbench.views.commands.all_commands.

Exit status: 0 success, 1 not correct, 2 usage or unavailable, 130 stopped.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from workbench.cli.output import INTERRUPTED, OK, USAGE, ask, check_writable, print_error, print_failure, set_json
from workbench.cli.parser import make_parser
from workbench.errors import Stopped, WorkbenchError
from workbench.interrupts import defer_during_imports
from workbench.trust import ask_by

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of `cutegen`. Returns the exit status."""
    try:
        given = list(sys.argv[1:] if argv is None else argv)
        if given[:1] == ["help"]:  # as git and pip have it
            given = [*given[1:2], "--help"]
        arguments = make_parser().parse_args(given)
        set_json(arguments.json)
        for option in ("svg", "export"):
            if given_path := getattr(arguments, option, None):
                check_writable(f"--{option}", Path(given_path))
        if getattr(arguments, "gpu", None) is not None:
            from workbench.views.commands.problems import choose_gpu

            choose_gpu(arguments)
        ask_by(ask if sys.stdin.isatty() and sys.stderr.isatty() else None)
        with defer_during_imports():
            return int(arguments.function(arguments))
    except (KeyboardInterrupt, Stopped) as error:
        print_error(str(error) or "stopped; everything finished is kept")
        return INTERRUPTED
    except WorkbenchError as error:
        print_failure(str(error))
        return USAGE
    except BrokenPipeError:
        # without this the interpreter prints an error when it flushes standard output at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        print_failure(f"{error.strerror or error}{where}")
        return USAGE
    finally:
        set_json(False)
        if "workbench.executors.jobs.client" in sys.modules:  # else no process was started
            from workbench import executors

            executors.shutdown()
