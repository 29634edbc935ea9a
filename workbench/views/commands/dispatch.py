"""Runs a line of %cutegen: finds the command, parses its arguments and calls its handler."""

from __future__ import annotations

import difflib
import shlex

from workbench.errors import Refused
from workbench.views.commands.all_commands import COMMANDS
from workbench.views.commands.handlers import HANDLERS
from workbench.views.commands.problems import choose_gpu
from workbench.views.commands.table import Command, NotebookParser, notebook_parser
from workbench.views.notebook.protocol import Notebook
from workbench.views.text.mime_bundle import MimeBundle

MAGICS = {name: command for name, command in COMMANDS.items() if "notebook" in command.places}


def make_parser(name: str) -> NotebookParser:
    """The argument parser of a command."""
    return notebook_parser(MAGICS[name])


def split_line(line: str) -> tuple[str, list[str]]:
    """(command, words) of a magic line. For a command with free text, quotes may be unbalanced."""
    name, _, rest = line.strip().partition(" ")
    try:
        return name, shlex.split(rest)
    except ValueError as error:
        if name in MAGICS and MAGICS[name].takes_words:
            return name, rest.split()
        raise Refused(
            f"%cutegen {name}: {str(error).lower()} in {rest!r}; put text with an apostrophe in double quotes"
        ) from None


def overview() -> str:
    """Help text with one line per command."""
    width = max(map(len, MAGICS))
    cells = " / ".join(f"%%cutegen {command.name}" for command in MAGICS.values() if command.takes_cell)
    lines = [f"%cutegen COMMAND ... (or {cells} with a cell); %cutegen help COMMAND explains one"]
    for group in dict.fromkeys(command.group for command in MAGICS.values()):
        own = [command for command in MAGICS.values() if command.group == group]
        lines += [f"{group}:", *(f"  {command.name.ljust(width)}  {command.about}" for command in own)]
    return "\n".join(lines)


def run(line: str, cell: str | None, state: Notebook) -> object:
    """Run one magic line and return the result to show. Raises `UserError` for wrong input."""
    name, words = split_line(line)
    if name in ("", "help", "--help", "-h"):
        return MimeBundle(make_parser(_find_command(words[0])).format_help().strip() if words else overview())
    _find_command(name)
    if "-h" in words or "--help" in words:
        return MimeBundle(make_parser(name).format_help().strip())
    if cell is not None and not MAGICS[name].takes_cell:
        raise Refused(f"%cutegen {name} takes no cell: use one % and put nothing below it")
    arguments = make_parser(name).parse_args(words)
    choose_gpu(arguments)
    return HANDLERS[name](arguments, cell, state)


def _find_command(name: str) -> str:
    """The name, if there is such a command."""
    if name not in MAGICS:
        raise Refused(f"no command {name!r}; %cutegen help lists them" + _suggestion(name))
    return name


def _suggestion(name: str) -> str:
    close = difflib.get_close_matches(name, MAGICS, n=1)
    return f" (did you mean {close[0]}?)" if close else ""


__all__ = ["MAGICS", "Command", "make_parser", "overview", "run", "split_line"]
