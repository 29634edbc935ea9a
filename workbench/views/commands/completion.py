"""Completes an unfinished magic: commands, options and their values, versions, settings, muCUTLASS programs."""

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
# NAME, NAME= or NAME=VALUE after --where or --set; a value with a space is in quotes
PAIR = re.compile(r"(--where|--set)[ =]\s*(\w*)(=('[^'=]*|[^\s'=]*))?$")


def complete(session: Session | None, text: str) -> tuple[str | None, list[str]]:
    """Completions for the text of a magic up to the cursor: (the fragment that they replace, the completions).

    If the fragment is None, they replace IPython's token at the cursor.
    """
    if (head := PROGRAM.match(text)) is not None:
        return completion.completions(text[head.end() :])
    if "\n" in text:
        return None, []
    if (pair := PAIR.search(text)) is not None:
        return _complete_pair(session, text, *pair.group(1, 2, 4))
    return None, _complete_word(session, text)


def _complete_word(session: Session | None, line: str) -> list[str]:
    """Completions of the last word of a magic line."""
    words = line.split()
    current = "" if line.endswith(" ") or not words else words.pop()
    words = [word for word in words if word not in ("%cutegen", "%%cutegen")]
    options = _next_words(session, words[0], words[-1]) if words else [*MAGICS, "help"]
    return sorted({option for option in options if option.startswith(current)})


def _next_words(session: Session | None, name: str, before: str) -> list[str]:
    """Words that the command `name` accepts after the word `before`: values of that option, else any argument."""
    if name == "help":
        return list(MAGICS)
    if name not in MAGICS:
        return []
    arguments = MAGICS[name].arguments_in("notebook")
    flagged = next((argument for argument in arguments if before in argument.flags), None)
    if flagged is not None and flagged.action != "store_true":
        return _argument_values(session, flagged)
    positional = [
        value for argument in arguments if argument.is_positional for value in _argument_values(session, argument)
    ]
    return [*_flags(arguments), *positional]


def _flags(arguments: Sequence[Argument]) -> list[str]:
    return [flag for argument in arguments if not argument.is_positional for flag in argument.flags]


def _argument_values(session: Session | None, argument: Argument) -> list[str]:
    """Values of an argument; empty if they are free text."""
    if argument.choices:
        return list(argument.choices)
    known: dict[str, Callable[[], Iterable[str]]] = {
        "version": lambda: _version_names(session),
        "problem": problems.shipped,
        "session": Session.names,
        "proposer": lambda: plugins.names("proposer"),
        "profiler": lambda: plugins.names("profiler"),
        "probe": lambda: plugins.names("probe"),
        "executor": lambda: (plugins.DEFAULTS.executor, *plugins.names("executor")),
        "device": devices.names,
        "operation": lambda: OPERATIONS,
        "landscape": lambda: _recorded_settings(session),
        "page": docs.pages,
        "stop": lambda: ("sol",),
    }
    return list(known[argument.kind]()) if argument.kind else []


def _version_names(session: Session | None) -> list[str]:
    own = [f"v{version.number}" for version in session.versions] if session else []
    return ["latest", "best", "baseline", "pending", *own]


def _complete_pair(
    session: Session | None, text: str, option: str, name: str, value: str | None
) -> tuple[str, list[str]]:
    """Names with "=", or values of a name: settings of the landscape for --where, sizes of the problem for --set."""
    known = _recorded_settings(session) if option == "--where" else _problem_sizes(session, text.split())
    if value is None:
        return name, [f"{one}=" for one in known if one.startswith(name)]
    values = [shlex.quote(one or "not set") for one in known.get(name, ())]
    return value, [one for one in values if one.startswith(value)]


def _recorded_settings(session: Session | None) -> dict[str, tuple[str, ...]]:
    """Name -> values of the settings that vary in the landscape of the session's problem.

    Settings of later stages are omitted, because their names contain a space.
    """
    from workbench import landscapes
    from workbench.views.plots.heat_map import varying_settings

    place = landscapes.find_near(session.problem, session.device) if session is not None else None
    return (
        {name: values for name, values in varying_settings(place).items() if " " not in name}
        if place is not None
        else {}
    )


def _problem_sizes(session: Session | None, words: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Name -> default of the sizes of the problem on the line, else of the session's problem."""
    named = next((word for word in words[2:] if word in problems.shipped() or Path(word).is_file()), None)
    try:
        source = problems.load(named).source if named else session.problem.source if session is not None else ""
    except (ProblemError, OSError, UnicodeDecodeError):  # the error is shown when the line runs
        return {}
    return {name: (str(value),) for name, value in problems.module_scalars(source).items() if name.isidentifier()}
