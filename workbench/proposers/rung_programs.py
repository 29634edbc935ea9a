"""The programs of rungs."""

from __future__ import annotations

from workbench.language import Program, Stage, format_program
from workbench.proposers.ladders import Rung, put
from workbench.proposers.recognition import Computation, renaming


def write_program(found: Computation, rung: Rung, arch: str) -> str:
    """The program of a rung of the ladder."""
    if found.pieces:
        return format_program(
            Program(
                stages=tuple(
                    stage
                    for piece, part in zip(found.pieces, rung.parts, strict=True)
                    for stage in list_program_stages(piece.named, part, arch)
                )
            )
        )
    return format_program(Program(stages=list_program_stages(found, rung, arch)))


def list_program_stages(found: Computation, rung: Rung, arch: str) -> tuple[Stage, ...]:
    """The stages of a computation at a rung of its ladder."""
    found = found.unfused if rung.unfused and found.unfused is not None else found
    return renaming.list_stages(found, rung.settings, (put("arch", arch if arch in ("sm_80", "sm_90a") else "sm_80"),))
