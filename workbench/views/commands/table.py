"""What a command of the magics or of the command line is: its arguments, help and completion come from one record."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, Literal, NoReturn

from workbench.errors import Refused
from workbench.records import record

Place = Literal["notebook", "shell"]
BOTH: tuple[Place, ...] = ("notebook", "shell")
Kind = Literal[
    "", "version", "problem", "session", "proposer", "profiler", "executor", "device", "operation", "landscape", "page"
]


@record
class Argument:
    """One argument: flags begin with dashes, a positional one has a bare name."""

    flags: tuple[str, ...]
    about: str = ""
    default: object = None
    choices: tuple[str, ...] = ()
    parse: Callable[[str], object] | None = None
    metavar: str | None = None
    nargs: str | None = None  # as argparse takes it: ?, *, ... (the rest as it stands)
    action: Literal["store", "append", "store_true"] = "store"
    name: str | None = None  # of the parsed value, where it is not the flag's
    kind: Kind = ""  # what its values are, for completion
    places: tuple[Place, ...] = BOTH
    group: str = ""  # heading in the help of the command line

    @property
    def is_positional(self) -> bool:
        """Whether it has no flag."""
        return not self.flags[0].startswith("-")

    def only(self, place: Place) -> Argument:
        """The same argument in one place alone."""
        return dataclasses.replace(self, places=(place,))

    def options(self) -> dict[str, Any]:
        """Keyword arguments of `add_argument`."""
        found: dict[str, Any] = {"help": self.about.replace("%", "%%") or None}
        if self.action != "store":
            found["action"] = self.action
        if self.action != "store_true":
            found |= {"default": list(self.default) if isinstance(self.default, tuple) else self.default}
            optional = {"choices": self.choices or None, "type": self.parse, "metavar": self.metavar}
            found |= {name: value for name, value in {**optional, "nargs": self.nargs}.items() if value is not None}
        if self.name is not None:
            found["dest"] = self.name
        return found


@record
class Command:
    """A sub-command of `%cutegen`, of `cutegen`, or of both."""

    name: str
    about: str
    arguments: tuple[Argument, ...] = ()
    places: tuple[Place, ...] = ("notebook",)
    example: str = ""  # on the command line
    takes_cell: bool = False
    takes_words: bool = False  # a person's words: quotes and apostrophes may be unbalanced
    group: str = ""

    def arguments_in(self, place: Place) -> tuple[Argument, ...]:
        """Its arguments in the notebook or in the shell."""
        return tuple(argument for argument in self.arguments if place in argument.places)


class NotebookParser(argparse.ArgumentParser):
    """An argument parser that raises instead of leaving the process."""

    def error(self, message: str) -> NoReturn:
        """One line with the command's name and where help is."""
        raise Refused(f"{self.prog}: {message}; see %cutegen help {self.prog.rsplit(' ', 1)[-1]}")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """Help was printed: nothing more to do."""
        raise Refused(message or "")


def notebook_parser(command: Command) -> NotebookParser:
    """The parser of a magic."""
    parser = NotebookParser(prog=f"%cutegen {command.name}", description=command.about, add_help=False)
    add_arguments(parser, command.arguments_in("notebook"))
    return parser


def add_arguments(parser: argparse.ArgumentParser, arguments: Iterable[Argument]) -> None:
    """Give a parser these arguments, under their headings."""
    groups: dict[str, Any] = {"": parser}
    for argument in arguments:
        if argument.group not in groups:
            groups[argument.group] = parser.add_argument_group(argument.group)
        groups[argument.group].add_argument(*argument.flags, **argument.options())
