"""Rungs of a pipeline after a version that exceeded the emulator's limits (instructions of a thread, time).

The stage that did not end climbs its own ladder, in all rungs; the other stages stay as they are.
"""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Callable

from workbench.errors import ProgramError
from workbench.proposers.ladders import Rung
from workbench.proposers.ladders.pipelines import describe_piece
from workbench.proposers.pipeline_baseline import read_parts
from workbench.proposers.recognition import Computation
from workbench.records import Ask, Version, record


@record
class StageSources:
    """How the rungs of a pipeline become text: the program of a rung, and the source of one piece of it alone."""

    program: Callable[[Rung], str]
    alone: Callable[[int, Rung], str]


def climb_exceeded(ask: Ask, found: Computation, rungs: tuple[Rung, ...], texts: StageSources) -> tuple[Rung, ...]:
    """The rungs, with the next rung of its own ladder for each stage that exceeded the limits in a version."""
    for version in ask.history if found.pieces else ():
        line = _exceeded_line(version)
        failed = None if line is None else _find_rung(ask, found, version, rungs, texts)
        place = None if line is None or failed is None else _find_place(version, line, failed, texts)
        if failed is None or place is None:
            continue
        ladder = tuple(dict.fromkeys(rung.parts[place] for rung in rungs))
        higher = ladder[ladder.index(failed.parts[place]) + 1 :]
        if higher:
            rungs = tuple(_climb(found, rung, failed, place, higher[0]) for rung in rungs)
    return rungs


def _exceeded_line(version: Version) -> int | None:
    """The line of the candidate at which it exceeded a limit."""
    verdict = version.trials[-1].verdict if version.trials else None
    failure = verdict.failure if verdict is not None else None
    return failure.line if failure is not None and failure.stage == "limits" else None


def _find_rung(
    ask: Ask, found: Computation, version: Version, rungs: tuple[Rung, ...], texts: StageSources
) -> Rung | None:
    """The rung that a version has; where it was a step from another baseline, a rung of its parts."""
    program = version.proposal.candidate.program
    whole = next((rung for rung in rungs if texts.program(rung) == program), None)
    parts = () if whole is not None or not program else read_parts(found, rungs, program, ask.arch)
    known = tuple(part for part in parts if part is not None)
    if not known or len(known) < len(parts):
        return whole
    return Rung(settings=(), title="", reason="", parts=known)


def _find_place(version: Version, line: int, rung: Rung, texts: StageSources) -> int | None:
    """The number of the piece whose source alone has the function with this line; None if several pieces have it."""
    functions = [
        node for node in ast.parse(version.proposal.candidate.source).body if isinstance(node, ast.FunctionDef)
    ]
    name = next((node.name for node in functions if node.lineno <= line <= (node.end_lineno or 0)), None)
    if name is None:
        return None
    wanted = re.compile(rf"^def {re.escape(re.sub(r'_[0-9]+$', '', name))}\(", re.MULTILINE)
    places = []
    for place, part in enumerate(rung.parts):
        try:
            if wanted.search(texts.alone(place, part)):
                places.append(place)
        except ProgramError:
            return None
    return places[0] if len(places) == 1 else None


def _climb(found: Computation, rung: Rung, failed: Rung, place: int, higher: Rung) -> Rung:
    """A rung with `higher` for the piece that failed, if it has the part that failed."""
    if rung.parts[place] != failed.parts[place]:
        return rung
    parts = (*rung.parts[:place], higher, *rung.parts[place + 1 :])
    if rung != failed and place not in rung.changes:
        return dataclasses.replace(rung, parts=parts)
    title = describe_piece(found, place, higher)
    reason = f"{higher.reason}; with {failed.parts[place].title} the stage exceeded the emulator's limits"
    return Rung(
        settings=(),
        parts=parts,
        changes=rung.changes or (place,),
        title=title,
        reason=reason,
        need=higher.need,
        risks=higher.risks,
    )
