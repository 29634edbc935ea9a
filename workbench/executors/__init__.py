"""Executors: emulator, gpu, replay. `choose("auto")` takes the GPU where there is one, else the emulator."""

from __future__ import annotations

from typing import Any

from workbench import plugins
from workbench.records import Facts

__all__ = ["admit", "choose", "protections", "shutdown"]


def choose(name: str = "auto") -> Any:
    """The executor called `name`; raises `Unavailable` with the reason when it cannot run here."""
    if name != "auto":
        return plugins.load("executor", name)
    gpu = plugins.load("executor", "gpu", check=False)
    return gpu if gpu.why_not() is None else plugins.load("executor", "emulator")


def admit(executor: Any, facts: Facts) -> None:
    """Raise `ProblemError` for a problem that this executor has no room for; most have room for whatever was inspected."""
    if (check := getattr(executor, "admit", None)) is not None:
        check(facts)


def protections() -> tuple[tuple[str, bool, str], ...]:
    """(layer, active here, why not) of the sandbox."""
    from workbench.executors.sandbox import probe

    return probe()


def shutdown() -> None:
    """Stop the warm worker server."""
    from workbench.executors.client import shutdown as stop

    stop()
