"""Pipelines: every piece by the first rung of its own ladder, then one change at a time, those of the piece with the most work first."""

from __future__ import annotations

from workbench.dsl import Program, check
from workbench.proposers.ladders.base import Context, Rung, put
from workbench.proposers.recognition import joints

MOST = 4  # further rungs of a piece


def pipeline(context: Context, ladders: tuple[tuple[Rung, ...], ...]) -> tuple[Rung, ...]:
    """The rungs of a pipeline from those of its pieces; none where a piece has none."""
    pieces = context.found.pieces
    legal = [[rung for rung in rungs if _fits(context, place, rung)][: MOST + 1] for place, rungs in enumerate(ladders)]
    if not all(legal):
        return ()
    now = [rungs[0] for rungs in legal]
    made = [Rung(settings=(), parts=tuple(now), title=f"{len(pieces)} pieces: " + "; ".join(_said(context, place, rung) for place, rung in enumerate(now)), reason="each piece by the first rung of its own ladder")]
    for place in sorted(range(len(pieces)), key=lambda place: -pieces[place].work):
        for rung in legal[place][1:]:
            parts = (*now[:place], rung, *now[place + 1 :])
            made.append(Rung(settings=(), parts=parts, title=_said(context, place, rung), reason=rung.reason, need=rung.need, risks=rung.risks))
        if legal[place][0].seconds is None and context.arch != "sm_90a":  # those ladders climb from the simplest kernel; Hopper's start with the fastest
            now[place] = legal[place][-1]
    return tuple(made)


def _said(context: Context, place: int, rung: Rung) -> str:
    named = context.found.pieces[place].named
    return f"{named.operation.name}{f' ({named.result})' if named.result else ''}: {rung.title}"


def _fits(context: Context, place: int, rung: Rung) -> bool:
    """Whether a piece can be compiled with a rung, as far as checks tell."""
    found = context.found.pieces[place].alone
    found = found.unfused if rung.unfused and found.unfused is not None else found
    return not check(Program(stages=joints.stages(found, rung.settings, (put("arch", context.arch),))))
