"""The ladder of pipelines: every piece uses the first rung of its own ladder; then one piece changes at a time.

The changes of the piece with the most work come first.
"""

from __future__ import annotations

from workbench.language import Program, Stage, check
from workbench.language.ir import Rejection
from workbench.proposers.ladders.base import Context, Rung, put
from workbench.proposers.recognition import Computation, renaming

MOST = 4  # further rungs of a piece
WHAT_TO_DO = (
    "write that kernel yourself: %%cutegen edit in a notebook, or a file and cutegen test; or give the rest of the "
    "problem alone"
)


def pipeline_rungs(context: Context, ladders: tuple[tuple[Rung, ...], ...]) -> tuple[Rung, ...]:
    """The rungs of a pipeline, from the ladders of its pieces; () if a piece has no legal rung."""
    pieces = context.found.pieces
    legal = [[rung for rung in rungs if _fits(context, place, rung)][: MOST + 1] for place, rungs in enumerate(ladders)]
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
    for place in sorted(range(len(pieces)), key=lambda place: -pieces[place].work):
        for rung in legal[place][1:]:
            parts = (*now[:place], rung, *now[place + 1 :])
            made.append(
                Rung(
                    settings=(),
                    parts=parts,
                    title=describe_piece(context.found, place, rung),
                    reason=rung.reason,
                    need=rung.need,
                    risks=rung.risks,
                )
            )
        # ladders without a model climb from the simplest kernel; those for Hopper start with the fastest
        if legal[place][0].seconds is None and context.arch != "sm_90a":
            now[place] = legal[place][-1]
    return tuple(made)


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


def _fits(context: Context, place: int, rung: Rung) -> bool:
    """Whether the language's checks accept a piece with a rung."""
    return not _list_rejections(context, place, rung)


def _list_rejections(context: Context, place: int, rung: Rung) -> tuple[Rejection, ...]:
    return check(Program(stages=_stages(context.found.pieces[place].alone, rung, context.arch)))


def _stages(found: Computation, rung: Rung, arch: str) -> tuple[Stage, ...]:
    found = found.unfused if rung.unfused and found.unfused is not None else found
    return renaming.list_stages(found, rung.settings, (put("arch", arch),))
