"""What may stand at the end of an unfinished magic: sub-commands, their options and values, versions, settings of landscapes and problems, programs of muCUTLASS."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from workbench import plugins, problems
from workbench.analysis import devices
from workbench.dsl import OPERATIONS, completing
from workbench.errors import ProblemError
from workbench.session import Session
from workbench.views import commands

PROGRAM = re.compile(r"%{1,2}cutegen\s+(?:program\s|explain\s(?=[^-]*\())[\s\"']*")
PAIR = re.compile(r"(--where|--set)[ =]\s*(\w*)(=('?[^'=]*))?$")  # NAME, NAME= or NAME=VALUE, of which a value with a space is in quotes


def completed(session: Session | None, text: str) -> tuple[str | None, list[str]]:
    """(the end of the text that is taken out, None: IPython's own token; what may stand there), of a magic line or of a cell up to the cursor."""
    if (head := PROGRAM.match(text)) is not None:
        return completing.completions(text[head.end() :])
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
    options = _of_command(session, words[0], words[-1]) if words else [*commands.COMMANDS, "help"]
    return sorted({option for option in options if option.startswith(current)})


def _of_command(session: Session | None, name: str, before: str) -> list[str]:
    """What a sub-command takes behind the word `before`."""
    if before == "--device":
        return list(devices.names())
    if before == "--executor":
        return list(plugins.names("executor"))
    if before == "--by":
        return list(plugins.names("profiler" if name == "profile" else "proposer"))
    options = list(commands.COMMANDS) if name == "help" else []
    if name in commands.COMMANDS:
        actions = commands.parser_of(name)._actions
        values = next((action.choices for action in actions if before in action.option_strings and action.choices), None)
        if values is not None:
            return [str(value) for value in values]
        options = [option for action in actions for option in (*action.option_strings, *(() if action.option_strings else map(str, action.choices or ())))]
    if name == "problem":
        options += problems.shipped()
    if name == "explain":
        options += OPERATIONS
    if name in ("accept", "reject", "diff", "test", "profile", "show", "export"):
        options += ["latest", "best", "baseline", "pending"] + ([f"v{v.number}" for v in session.versions] if session else [])
    if name == "open":
        options += Session.names()
    if name == "landscape":
        options += _recorded(session)
    return options


def _pair(session: Session | None, text: str, option: str, name: str, value: str | None) -> tuple[str, list[str]]:
    """Names with their sign of equality, or values of one: of the landscape for --where, of the problem for --set."""
    known = _recorded(session) if option == "--where" else _sizes(session, text.split())
    if value is None:
        return name, [f"{one}=" for one in known if one.startswith(name)]
    values = [shlex.quote(one or "not set") for one in known.get(name, ())]
    return value, [one for one in values if one.startswith(value)]


def _recorded(session: Session | None) -> dict[str, tuple[str, ...]]:
    """Settings that vary in what was recorded of the session's problem, with their values; those of later stages, whose names have a space, are left out."""
    from workbench import landscapes
    from workbench.views.heat import settings

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
