"""Records of commands and arguments, from which parsers, help and completion are made."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
from collections.abc import Callable, Iterable
from typing import Any, Literal, NoReturn

from workbench.errors import Refused
from workbench.records import record

Place = Literal["notebook", "shell"]
BOTH: tuple[Place, ...] = ("notebook", "shell")
Kind = Literal[
    "",
    "version",
    "problem",
    "session",
    "proposer",
    "profiler",
    "probe",
    "executor",
    "device",
    "operation",
    "landscape",
    "page",
    "stop",
]


class StoreGiven(argparse.Action):
    """Stores an option's value, and that the option was given: a value may be the default."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option_string: Any = None
    ) -> None:
        """Store the value."""
        setattr(namespace, self.dest, values)
        namespace.given = {*getattr(namespace, "given", ()), self.dest}


@record
class Argument:
    """One argument. Flags start with dashes; a positional argument has a bare name."""

    flags: tuple[str, ...]
    about: str = ""
    default: object = None
    choices: tuple[str, ...] = ()
    parse: Callable[[str], object] | None = None
    metavar: str | None = None
    nargs: str | None = None  # as for argparse: ?, * or ... (all remaining words)
    action: Literal["store", "append", "store_true"] = "store"
    name: str | None = None  # of the parsed value, if it differs from the flag
    kind: Kind = ""  # of its values, for completion
    places: tuple[Place, ...] = BOTH
    group: str = ""  # heading in the help of the command line

    @property
    def is_positional(self) -> bool:
        """Whether it has no flag."""
        return not self.flags[0].startswith("-")

    @property
    def destination(self) -> str:
        """The name of the parsed value."""
        return self.name or self.flags[0].lstrip("-").replace("-", "_")

    def is_given(self, arguments: argparse.Namespace) -> bool:
        """Whether the option was given, also with its default as value."""
        if self.destination in getattr(arguments, "given", ()):
            return True
        value = getattr(arguments, self.destination)
        if self.action == "store_true":
            return bool(value)
        return bool(value != (list(self.default) if isinstance(self.default, tuple) else self.default))

    def write(self, arguments: argparse.Namespace) -> tuple[str, ...]:
        """The words of a command that give an option the same value again; none if it was not given."""
        if not self.is_given(arguments):
            return ()
        value = getattr(arguments, self.destination)
        if self.action == "store_true":
            return (self.flags[0],)
        values = value if self.action == "append" else [value]
        words = ("=".join(map(str, one)) if isinstance(one, tuple) else str(one) for one in values)
        return tuple(itertools.chain.from_iterable((self.flags[0], word) for word in words))

    def only_in(self, place: Place) -> Argument:
        """A copy of the argument that exists only in one place."""
        return dataclasses.replace(self, places=(place,))

    def options(self) -> dict[str, Any]:
        """Keyword arguments for `argparse.ArgumentParser.add_argument`."""
        found: dict[str, Any] = {"help": self.about.replace("%", "%%") or None}
        if self.action != "store" or not self.is_positional:
            found["action"] = StoreGiven if self.action == "store" else self.action
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
    takes_words: bool = False  # takes free text, in which quotes may be unbalanced
    group: str = ""

    def arguments_in(self, place: Place) -> tuple[Argument, ...]:
        """The arguments that it has in one place."""
        return tuple(argument for argument in self.arguments if place in argument.places)


class NotebookParser(argparse.ArgumentParser):
    """An argument parser that raises `Refused` instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        """Raise `Refused` with the name of the command and a hint to its help."""
        raise Refused(f"{self.prog}: {message}; see %cutegen help {self.prog.rsplit(' ', 1)[-1]}")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """Raise `Refused` instead of ending the process."""
        raise Refused(message or "")


def notebook_parser(command: Command) -> NotebookParser:
    """The argument parser of a magic."""
    parser = NotebookParser(prog=f"%cutegen {command.name}", description=command.about, add_help=False)
    add_arguments(parser, command.arguments_in("notebook"))
    return parser


def add_arguments(parser: argparse.ArgumentParser, arguments: Iterable[Argument]) -> None:
    """Add arguments to a parser, under their headings."""
    groups: dict[str, Any] = {"": parser}
    for argument in arguments:
        if argument.group not in groups:
            groups[argument.group] = parser.add_argument_group(argument.group)
        groups[argument.group].add_argument(*argument.flags, **argument.options())
