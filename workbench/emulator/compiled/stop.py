"""The report of compiled code that a launch exceeded the limit of instructions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stop:
    """Where the limit of instructions was exceeded: number of the instruction, of the CTA in the grid, and of the
    thread in it.
    """

    instruction: int
    cta: int
    thread: int
