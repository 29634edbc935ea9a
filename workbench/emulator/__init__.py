"""Runs CuTe DSL programs without a GPU: `with emulated() as emulation: model(*inputs)`; see hook.py and machine.py."""

from __future__ import annotations

from typing import Any

from workbench.emulator.execution.launch import EmulationFault

__all__ = ["EmulationFault", "emulated"]


def __getattr__(name: str) -> Any:
    """`emulated` imports CuTe DSL and torch, so it is loaded on first use."""
    if name == "emulated":
        from workbench.emulator.hook import emulated

        return emulated
    raise AttributeError(name)
