"""The command line `cutegen`; its commands are those of workbench.views.commands.all_commands.

Exit status: 0 fine, 1 not correct, 2 usage or unavailable, 130 stopped.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from workbench.cli.output import INTERRUPTED, OK, USAGE, choose_json
from workbench.cli.parser import make_parser
from workbench.errors import Stopped, WorkbenchError
from workbench.interrupts import defer_during_imports

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of `cutegen`."""
    try:
        arguments = make_parser().parse_args(argv)
        choose_json(arguments.json)
        with defer_during_imports():
            return int(arguments.function(arguments))
    except (KeyboardInterrupt, Stopped) as error:
        print(str(error) or "stopped; everything finished is kept", file=sys.stderr)
        return INTERRUPTED
    except WorkbenchError as error:
        print(f"cutegen: {error}", file=sys.stderr)
        return USAGE
    except BrokenPipeError:
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
        )  # or the interpreter complains when it flushes at exit
        return OK
    except OSError as error:
        print(
            f"cutegen: {error.strerror or error}" + (f": {error.filename}" if error.filename else ""), file=sys.stderr
        )
        return USAGE
    finally:
        from workbench import executors

        executors.shutdown()
