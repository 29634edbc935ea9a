"""The parser of `cutegen`, made from the table of commands; imports no session, so that --help is quick."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping

from workbench.cli import loop, profiling, sessions, tools
from workbench.views.commands.all_commands import COMMANDS
from workbench.views.commands.table import add_arguments

Carry = Callable[[argparse.Namespace], int]


def tuning_command(arguments: argparse.Namespace) -> int:
    """`cutegen tune`, loaded when it runs: --help stays quick."""
    from workbench.cli import tuning

    return tuning.carry_out(arguments)


FUNCTIONS: Mapping[str, Carry] = {
    "calibrate": profiling.calibrate,
    "demo": loop.demo,
    "diff": sessions.diff,
    "docs": tools.show_docs,
    "doctor": tools.doctor,
    "emulate": tools.emulate,
    "explain": tools.explain,
    "export": sessions.export,
    "format": tools.format_text,
    "history": sessions.history,
    "lab": tools.lab,
    "landscape": tools.landscape,
    "profile": profiling.profile,
    "run": loop.run,
    "test": sessions.test,
    "tune": lambda arguments: tuning_command(arguments),
}  # what carries a command out; returns the exit status


def make_parser() -> argparse.ArgumentParser:
    """All commands of the shell, each with the function that carries it out."""
    made = argparse.ArgumentParser(
        prog="cutegen",
        description="Step a generate-test-refine loop for CuTe DSL kernels, with or without a GPU.",
        epilog="exit status: 0 fine, 1 not correct, 2 usage or unavailable, 130 stopped",
    )
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND")
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
    return made
