"""Completion of an unfinished magic: commands, their options and values, versions, settings, programs of muCUTLASS."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from workbench import docs, plugins, problems
from workbench.analysis import devices
from workbench.errors import ProblemError
from workbench.language import OPERATIONS, completion
from workbench.session import Session
from workbench.views.commands.dispatch import MAGICS
from workbench.views.commands.table import Argument

PROGRAM = re.compile(r"%{1,2}cutegen\s+(?:program\s|explain\s(?=[^-]*\())[\s\"']*")
PAIR = re.compile(
    r"(--where|--set)[ =]\s*(\w*)(=('?[^'=]*))?$"
)  # NAME, NAME= or NAME=VALUE, of which a value with a space is in quotes


def complete(session: Session | None, text: str) -> tuple[str | None, list[str]]:
    """(what the options replace, the options) for a magic line, or for a cell up to the cursor.

    None: they replace IPython's own token at the cursor.
    """
    if (head := PROGRAM.match(text)) is not None:
        return completion.completions(text[head.end() :])
    if "\n" in text:
        return None, []
    if (pair := PAIR.search(text)) is not None:
        return _pair(session, text, *pair.group(1, 2, 4))
    return None, _words(session, text)


def _words(session: Session | None, line: str) -> list[str]:
    """Whole words that may stand at the end of a magic line."""
    words = line.split()
    current = "" if line.endswith(" ") or not words else words.pop()
    words = [word for word in words if word not in ("%cutegen", "%%cutegen")]
    options = _of_command(session, words[0], words[-1]) if words else [*MAGICS, "help"]
    return sorted({option for option in options if option.startswith(current)})


def _of_command(session: Session | None, name: str, before: str) -> list[str]:
    """What a sub-command takes behind the word `before`."""
    if name == "help":
        return list(MAGICS)
    if name not in MAGICS:
        return []
    arguments = MAGICS[name].arguments_in("notebook")
    flagged = next((argument for argument in arguments if before in argument.flags), None)
    if flagged is not None and flagged.action != "store_true":
        return _values(session, flagged) or _flags(arguments)
    positional = [value for argument in arguments if argument.is_positional for value in _values(session, argument)]
    return [*_flags(arguments), *positional]


def _flags(arguments: Sequence[Argument]) -> list[str]:
    return [flag for argument in arguments if not argument.is_positional for flag in argument.flags]


def _values(session: Session | None, argument: Argument) -> list[str]:
    """What may stand for an argument."""
    if argument.choices and argument.kind != "executor":
        return list(argument.choices)
    known: dict[str, Callable[[], Iterable[str]]] = {
        "version": lambda: _versions(session),
        "problem": problems.shipped,
        "session": Session.names,
        "proposer": lambda: plugins.names("proposer"),
        "profiler": lambda: plugins.names("profiler"),
        "executor": lambda: argument.choices or plugins.names("executor"),
        "device": devices.names,
        "operation": lambda: OPERATIONS,
        "landscape": lambda: _recorded(session),
        "page": docs.pages,
    }
    return list(known[argument.kind]()) if argument.kind else []


def _versions(session: Session | None) -> list[str]:
    own = [f"v{version.number}" for version in session.versions] if session else []
    return ["latest", "best", "baseline", "pending", *own]


def _pair(session: Session | None, text: str, option: str, name: str, value: str | None) -> tuple[str, list[str]]:
    """Names with their sign of equality, or values of one: of the landscape for --where, of the problem for --set."""
    known = _recorded(session) if option == "--where" else _sizes(session, text.split())
    if value is None:
        return name, [f"{one}=" for one in known if one.startswith(name)]
    values = [shlex.quote(one or "not set") for one in known.get(name, ())]
    return value, [one for one in values if one.startswith(value)]


def _recorded(session: Session | None) -> dict[str, tuple[str, ...]]:
    """Settings that vary in the landscape of the session's problem, with their values.

    Settings of later stages are left out: their names have a space.
    """
    from workbench import landscapes
    from workbench.views.plots.heat_map import settings

    place = landscapes.find(session.problem) if session is not None else None
    return {name: values for name, values in settings(place).items() if " " not in name} if place is not None else {}


def _sizes(session: Session | None, words: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The sizes of the problem that the line names, else of the session's, with their values."""
    named = next((word for word in words[2:] if word in problems.shipped() or Path(word).is_file()), None)
    try:
        source = problems.load(named).source if named else session.problem.source if session is not None else ""
    except (ProblemError, OSError, UnicodeDecodeError):  # what is no problem is said when the line runs
        return {}
    return {name: (str(value),) for name, value in problems.module_scalars(source).items() if name.isidentifier()}
