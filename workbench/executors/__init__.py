"""Executors run jobs. `choose()` takes the GPU if there is one, else the emulator."""

from __future__ import annotations

from workbench import plugins
from workbench.errors import Unavailable
from workbench.protocols import Executor

__all__ = ["choose", "protections", "shutdown"]


def choose(name: str = plugins.DEFAULTS.executor) -> Executor:
    """The executor called `name`; "auto" is the one with the highest `auto_rank` that can run here.

    Raises `Unavailable` with the reason if it cannot run here, `UserError` if there is none of that name.
    """
    if name != "auto":
        return plugins.load("executor", name)
    found = [one for one in plugins.load_usable("executor") if isinstance(one, Executor)]
    reason: str | None = "no executor is installed"
    for executor in sorted((one for one in found if one.auto_rank > 0), key=lambda one: -one.auto_rank):
        reason = executor.why_not()
        if reason is None:
            return executor
    raise Unavailable(f"no executor can run here: {reason}")


def protections() -> tuple[tuple[str, bool, str], ...]:
    """(layer, active here, why not) of the sandbox."""
    from workbench.executors.jobs.sandbox import probe

    return probe()


def shutdown() -> None:
    """Stop the warm worker server."""
    from workbench.executors.jobs.client import shutdown as stop

    stop()
