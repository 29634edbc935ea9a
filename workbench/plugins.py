"""Name -> plug-in object by entry point; a plug-in that cannot run says why (`why_not`)."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

from workbench.errors import Unavailable, UserError

GROUPS = {
    "executor": "workbench.executors",
    "proposer": "workbench.proposers",
    "profiler": "workbench.profilers",
}


def names(kind: str) -> tuple[str, ...]:
    """The names of all installed plug-ins of a kind ("executor", "proposer", "profiler"), sorted."""
    return tuple(sorted({point.name for point in entry_points(group=GROUPS[kind])}))


def load(kind: str, name: str, *, check: bool = True) -> Any:
    """The plug-in object; raises `UserError` for an unknown name, `Unavailable` when it cannot run here."""
    for point in entry_points(group=GROUPS[kind], name=name):
        plugin = point.load()()
        reason = plugin.why_not() if check else None
        if reason:
            raise Unavailable(f"{kind} {name!r} cannot run here: {reason}")
        return plugin
    raise UserError(f"no {kind} is called {name!r}; there are: {', '.join(names(kind)) or 'none'}")
