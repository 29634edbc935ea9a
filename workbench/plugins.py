"""Loads plug-ins by name from entry points, and holds the names of the default ones."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Literal, overload

from workbench.errors import Unavailable, UserError, WorkbenchError
from workbench.protocols import Executor, Probe, Profiler, Proposer
from workbench.records import record

Kind = Literal["executor", "proposer", "profiler", "probe"]
Plugin = Executor | Proposer | Profiler | Probe
GROUPS: dict[Kind, tuple[str, type[Plugin]]] = {
    "executor": ("workbench.executors", Executor),
    "proposer": ("workbench.proposers", Proposer),
    "profiler": ("workbench.profilers", Profiler),
    "probe": ("workbench.probes", Probe),
}


@record
class DefaultPlugins:
    """The plug-ins of a call that names none. They are the only plug-ins that the core mentions by name."""

    executor: str = "auto"  # the available one with the highest `auto_rank`
    proposer: str = "planner"
    model_proposer: str = "llm"  # for questions, repairs and choices, which need a language model
    profiler: str = "counters"


DEFAULTS = DefaultPlugins()


def names(kind: Kind) -> tuple[str, ...]:
    """The names of all installed plug-ins of a kind, sorted."""
    return tuple(sorted({point.name for point in entry_points(group=GROUPS[kind][0])}))


@overload
def load(kind: Literal["executor"], name: str, *, check: bool = True) -> Executor: ...
@overload
def load(kind: Literal["proposer"], name: str, *, check: bool = True) -> Proposer: ...
@overload
def load(kind: Literal["profiler"], name: str, *, check: bool = True) -> Profiler: ...
@overload
def load(kind: Literal["probe"], name: str, *, check: bool = True) -> Probe: ...
@overload
def load(kind: Kind, name: str, *, check: bool = True) -> Plugin: ...
def load(kind: Kind, name: str, *, check: bool = True) -> Plugin:
    """Load a plug-in by name and create it without arguments.

    Raises `UserError` for an unknown name, `Unavailable` if its module cannot be imported or it cannot be created,
    `WorkbenchError` if it does not follow the protocol, and, with `check`, `Unavailable` if it cannot run here.
    """
    group, protocol = GROUPS[kind]
    for point in entry_points(group=group, name=name):
        plugin = _create(kind, point)
        if not isinstance(plugin, protocol):
            missing = sorted(member for member in _members(protocol) if not hasattr(plugin, member))
            raise WorkbenchError(
                f"{point.value} is no {kind}: it has no {', '.join(missing)} (see workbench.protocols)"
            )
        reason = plugin.why_not() if check else None
        if reason:
            raise Unavailable(f"{kind} {name!r} cannot run here: {reason}")
        return plugin
    recorded = (
        "; a recorded session is played by %cutegen replay NAME" if (kind, name) == ("proposer", "replay") else ""
    )
    raise UserError(f"no {kind} is called {name!r}; there are: {', '.join(names(kind)) or 'none'}{recorded}")


def load_usable(kind: Kind) -> tuple[Plugin, ...]:
    """All installed plug-ins of a kind that can be loaded; `cutegen doctor` says why the others cannot."""
    found: list[Plugin] = []
    for name in names(kind):
        with contextlib.suppress(WorkbenchError):
            found.append(load(kind, name, check=False))
    return tuple(found)


def _create(kind: Kind, point: EntryPoint) -> object:
    """What an entry point makes; a plug-in of another package may raise anything."""
    try:
        return point.load()()
    except Exception as error:
        why = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise Unavailable(f"{kind} {point.name!r} ({point.value}) cannot be loaded: {why}") from error


def _members(protocol: type[Plugin]) -> set[str]:
    return {*protocol.__annotations__, *(name for name in vars(protocol) if not name.startswith("_"))}


def check_options(plugin: Proposer | Profiler, given: Iterable[str]) -> None:
    """Raise `UserError` if the plug-in has no option of a given name."""
    unknown = next((name for name in given if name not in plugin.option_names), None)
    if unknown is not None:
        known = ", ".join(plugin.option_names) or "none"
        raise UserError(f"{plugin.name} has no option {unknown!r}; it has: {known}")
