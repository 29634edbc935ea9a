"""The ladder of pipelines: every piece uses the first rung of its own ladder; then one piece changes at a time.

The changes of the piece with the most work come first. Pieces that are interchangeable (the same operators on the same
shapes, as the repeated layers of a module) change together: what is tuned for one serves all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from workbench.language import Program, Stage, check
from workbench.language.ir import Rejection
from workbench.proposers.ladders.base import Context, Rung, put
from workbench.proposers.recognition import Computation, renaming
from workbench.proposers.recognition.graph import Piece
from workbench.structure.kernels.operator_graphs import graph_key

MOST = 4  # further rungs of a piece
WHAT_TO_DO = (
    "write that kernel yourself: %%cutegen edit in a notebook, or a file and cutegen test; or give the rest of the "
    "problem alone"
)


def pipeline_rungs(context: Context, ladders: tuple[tuple[Rung, ...], ...]) -> tuple[Rung, ...]:
    """The rungs of a pipeline, from the ladders of its pieces; () if a piece has no legal rung."""
    pieces = context.found.pieces
    legal = keep_legal(context, ladders)
    if not all(legal):
        return ()
    now = [rungs[0] for rungs in legal]
    made = [
        Rung(
            settings=(),
            parts=tuple(now),
            title=_summary(context, now),
            reason="each part by the first rung of its own ladder",
        )
    ]
    for places in sorted(group_pieces(pieces, legal), key=lambda places: -pieces[places[0]].work * len(places)):
        for rung in legal[places[0]][1:]:
            made.append(
                Rung(
                    settings=(),
                    parts=tuple(rung if place in places else one for place, one in enumerate(now)),
                    title=describe_pieces(context.found, places, rung),
                    reason=rung.reason,
                    need=rung.need,
                    risks=rung.risks,
                )
            )
        # ladders without a model climb from the simplest kernel; those for Hopper start with the fastest
        if legal[places[0]][0].seconds is None and context.arch != "sm_90a":
            for place in places:
                now[place] = legal[place][-1]
    return tuple(made)


def keep_legal(context: Context, ladders: Sequence[Sequence[Rung]]) -> list[list[Rung]]:
    """The first legal rungs of each piece's ladder."""
    return [[rung for rung in rungs if _fits(context, place, rung)][: MOST + 1] for place, rungs in enumerate(ladders)]


def group_pieces(pieces: Sequence[Piece], ladders: Sequence[Sequence[Rung]]) -> tuple[tuple[int, ...], ...]:
    """The places of pieces in groups that are interchangeable, in the order of their first ones.

    Their graphs of operators are isomorphic, the shapes at full size are the same, and so are their ladders.
    """
    groups: dict[object, list[int]] = {}
    for place, (piece, rungs) in enumerate(zip(pieces, ladders, strict=True)):
        full = {spec.name: spec for spec in piece.facts.full}
        graph = [
            dataclasses.replace(op, result=(full[op.name],)) if op.name in full else op for op in piece.facts.graph
        ]
        shapes = sorted((spec.shape, spec.dtype) for spec in full.values() or piece.facts.parameters)
        key = (graph_key(graph), tuple(shapes), piece.work, tuple(rungs))
        groups.setdefault(key, []).append(place)
    return tuple(map(tuple, groups.values()))


def explain_no_rung(context: Context, ladders: tuple[tuple[Rung, ...], ...]) -> str:
    """Which piece of a pipeline has no legal rung, what was tried for it and why that is not legal, and what to do."""
    pieces, reasons = context.found.pieces, list[str]()
    for place, rungs in enumerate(ladders):
        if any(_fits(context, place, rung) for rung in rungs):
            continue
        tried = [f"{rung.title}: {_list_rejections(context, place, rung)[0]}" for rung in rungs[: MOST + 1]]
        named = pieces[place].named
        title = f"{named.operation.name}{f' ({named.result})' if named.result else ''}"
        reasons.append(
            f"stage {place + 1} of {len(pieces)}, {title}, "
            f"has no legal settings; tried {'; '.join(tried) or f'none: there are none for {context.arch}'}"
        )
    return f"{'; '.join(reasons)}; {WHAT_TO_DO}"


def _summary(context: Context, rungs: list[Rung]) -> str:
    """All stages with their number in the program: a piece may be several stages."""
    counts = [
        len(_stages(piece.named, rung, context.arch)) for piece, rung in zip(context.found.pieces, rungs, strict=True)
    ]
    parts = [
        describe_piece(context.found, place, rung, f", {count} stages" if count > 1 else "")
        for place, (rung, count) in enumerate(zip(rungs, counts, strict=True))
    ]
    return f"{sum(counts)} stages: {'; '.join(parts)}"


def describe_piece(found: Computation, place: int, rung: Rung, more: str = "") -> str:
    """A piece with the title of its rung."""
    named = found.pieces[place].named
    return f"{named.operation.name}{f' ({named.result})' if named.result else ''}{more}: {rung.title}"


def describe_pieces(found: Computation, places: Sequence[int], rung: Rung) -> str:
    """Pieces that change together with the title of their rung: the first one, and how many are like it."""
    more = f" and {len(places) - 1} like it" if len(places) > 1 else ""
    return describe_piece(found, places[0], rung, more)


def _fits(context: Context, place: int, rung: Rung) -> bool:
    """Whether the language's checks accept a piece with a rung."""
    return not _list_rejections(context, place, rung)


def _list_rejections(context: Context, place: int, rung: Rung) -> tuple[Rejection, ...]:
    return check(Program(stages=_stages(context.found.pieces[place].alone, rung, context.arch)))


def _stages(found: Computation, rung: Rung, arch: str) -> tuple[Stage, ...]:
    found = found.unfused if rung.unfused and found.unfused is not None else found
    return renaming.list_stages(found, rung.settings, (put("arch", arch),))
