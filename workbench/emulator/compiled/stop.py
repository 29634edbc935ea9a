"""How compiled code says that a launch went too long."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stop:
    """The place that went past the limit of instructions: number of the instruction, of the CTA in the grid, and of the
    thread in it.
    """

    instruction: int
    cta: int
    thread: int
