"""Builds the parser of `cutegen` from the table of commands. It imports no session, so --help is fast."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import NoReturn

from workbench.cli import loop, profiling, sessions, tools
from workbench.views.commands.all_commands import COMMANDS
from workbench.views.commands.table import add_arguments

CommandFunction = Callable[[argparse.Namespace], int]  # returns the exit status


def run_test(arguments: argparse.Namespace) -> int:
    """Import sessions and run `cutegen test`. The late import keeps --help fast."""
    sessions.start_workers(arguments, "inspect", "candidate")
    from workbench.cli import testing

    return testing.test(arguments)


def run_tuning(arguments: argparse.Namespace) -> int:
    """Import the tuner and run `cutegen tune`. The late import keeps --help fast."""
    from workbench.cli import tuning

    return tuning.run_tuning(arguments)


FUNCTIONS: Mapping[str, CommandFunction] = {
    "alike": sessions.find_alike,
    "calibrate": profiling.calibrate,
    "demo": loop.demo,
    "diagnose": profiling.diagnose,
    "diff": sessions.diff,
    "docs": tools.show_docs,
    "doctor": tools.doctor,
    "emulate": tools.emulate,
    "explain": tools.explain,
    "energy": sessions.energy,
    "export": sessions.export,
    "format": tools.format_text,
    "history": sessions.history,
    "lab": tools.lab,
    "landscape": tools.landscape,
    "minibatch": tools.minibatch,
    "lessons": sessions.show_lessons,
    "problem": sessions.problem,
    "profile": profiling.profile,
    "run": loop.run,
    "test": run_test,
    "trust": sessions.trust,
    "tune": run_tuning,
    "verify": sessions.verify,
}


class ShellParser(argparse.ArgumentParser):
    """A parser whose errors are one line, which names the command's help."""

    def error(self, message: str) -> NoReturn:
        """End the process with status 2."""
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def make_parser() -> argparse.ArgumentParser:
    """The parser of all shell commands. Each sets its function as `arguments.function`."""
    parser = ShellParser(
        prog="cutegen",
        description="Step a generate-test-refine loop for CuTe DSL kernels, with or without a GPU.",
        epilog="exit status: 0 success, 1 not correct, 2 usage or unavailable, 3 correct with a doubt, 130 stopped",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS.values():
        if "shell" not in command.places:
            continue
        about = command.about.replace("%", "%%")
        one = commands.add_parser(command.name, help=about, description=about, epilog=f"example: {command.example}")
        one.add_argument(
            "--json",
            action="store_true",
            help="one JSON document on standard output, everything else on standard error",
        )
        one.set_defaults(function=FUNCTIONS[command.name])
        add_arguments(one, command.arguments_in("shell"))
    return parser
