"""Steps of a pipeline from its baseline's parts: what was accepted for one stage stays when another changes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from workbench.errors import ProgramError
from workbench.language import Program, Stage, format_program, parse
from workbench.proposers.ladders import Rung
from workbench.proposers.recognition import Computation
from workbench.proposers.rung_programs import list_program_stages
from workbench.records import Ask

Parts = tuple[Rung | None, ...]


def continue_from_baseline(ask: Ask, found: Computation, rungs: tuple[Rung, ...]) -> tuple[Rung, ...]:
    """The rungs of a pipeline with each step's change made to the baseline, without the changes that some version has.

    Those of another computation, or without a baseline, stay as they are.
    """
    if not found.pieces or ask.baseline is None or not ask.baseline.proposal.candidate.program:
        return rungs
    own = read_parts(found, rungs, ask.baseline.proposal.candidate.program, ask.arch)
    tried = [
        read_parts(found, rungs, version.proposal.candidate.program, ask.arch)
        for version in ask.history
        if version.proposal.candidate.program
    ]
    return tuple(_start_from(own, rung) for rung in rungs if not any(_has_change(parts, rung) for parts in tried))


def read_parts(found: Computation, rungs: Sequence[Rung], program: str, arch: str) -> Parts:
    """The rung of each piece that a program has; None where it has none of those in the ladder."""
    try:
        lines = _list_lines(parse(program).stages)
    except ProgramError:
        return (None,) * len(found.pieces)
    return tuple(
        next(
            (
                part
                for part in dict.fromkeys(rung.parts[place] for rung in rungs)
                if lines >= _list_lines(list_program_stages(piece.named, part, arch))
            ),
            None,
        )
        for place, piece in enumerate(found.pieces)
    )


def _has_change(parts: Parts, rung: Rung) -> bool:
    return bool(rung.changes) and all(parts[place] == rung.parts[place] for place in rung.changes)


def _start_from(parts: Parts, rung: Rung) -> Rung:
    """A rung with its change made to these parts, where they are known; one that changes nothing stays as it is."""
    if not rung.changes:
        return rung
    made = tuple(
        own if place in rung.changes or known is None else known
        for place, (own, known) in enumerate(zip(rung.parts, parts, strict=True))
    )
    return dataclasses.replace(rung, parts=made)


def _list_lines(stages: Sequence[Stage]) -> set[str]:
    """Each stage as text, without the architecture, which only the first stage of a program names."""
    return {
        format_program(
            Program(
                stages=(
                    dataclasses.replace(stage, settings=tuple(call for call in stage.settings if call.name != "arch")),
                )
            )
        )
        for stage in stages
    }
