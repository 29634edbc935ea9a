"""The ladder of pipelines: every piece uses the first rung of its own ladder; then one operation changes at a time.

The operation that takes longest by the time model, or else has the most work, changes first. Pieces that are
interchangeable (the same operators on the same shapes, as the repeated layers of a module) change together: what is
tuned for one serves all. Groups of the same operation at other sizes follow the one that takes longest: they have the
same settings in the same step, and steps of their own only where the time model says that these may save more.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence

from workbench.language import Program, Stage, check
from workbench.language.ir import Rejection
from workbench.proposers.ladders.base import Context, Rung, put
from workbench.proposers.recognition import Computation, renaming
from workbench.proposers.recognition.graph import Piece
from workbench.records import record
from workbench.structure.kernels.operator_graphs import graph_key

MOST = 4  # further rungs of a piece
WORTH = 0.02  # share of the modelled time that steps of a group's own must save
Group = tuple[int, ...]  # places of pieces
Family = list[Group]


@record
class Step:
    """What changes: the places of interchangeable pieces, and the new rung of each place that changes."""

    alike: Group
    parts: dict[int, Rung]


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
    groups = group_pieces(pieces, legal)
    now = [rungs[0] for rungs in legal]
    made = [
        Rung(
            settings=(),
            parts=tuple(now),
            title=_summary(context, groups, now),
            reason="each part by the first rung of its own ladder",
        )
    ]
    for family in group_families(pieces, groups, legal):
        steps = list_steps(family, ladders, legal, lambda place, rung: _fits(context, place, rung))
        made += [_make_step(context, now, step) for step in steps]
        # ladders without a model climb from the simplest kernel; those for Hopper start with the fastest
        if legal[family[0][0]][0].seconds is None and context.arch != "sm_90a":
            for place in itertools.chain(*family):
                now[place] = legal[place][-1]
    return tuple(made)


def list_steps(
    family: Family,
    ladders: Sequence[Sequence[Rung]],
    legal: Sequence[Sequence[Rung]],
    fits: Callable[[int, Rung], bool],
) -> list[Step]:
    """The steps of a family: the rungs of the first group's ladder, with which the other groups change where they can
    have the same settings, then further rungs of these. `fits` says whether a piece can have a rung of its ladder.
    """
    leaders, *others = family
    steps = []
    for rung in legal[leaders[0]][1:]:
        parts = dict.fromkeys(leaders, rung)
        for places in others:
            known = next((one for one in ladders[places[0]] if _are_alike(one, rung)), None)
            if known is not None and fits(places[0], known):
                parts |= dict.fromkeys(places, known)
        steps.append(Step(alike=leaders, parts=parts))
    modelled_s = sum(rungs[0].seconds or 0.0 for rungs in legal)
    for places in others:
        steps += _list_further_steps(places, steps, legal, modelled_s)
    return steps


def _list_further_steps(
    places: Group, steps: Sequence[Step], legal: Sequence[Sequence[Rung]], modelled_s: float
) -> list[Step]:
    """The rungs that a group has not had in the steps of its family, if the time model says that they may save more
    than WORTH of the time of all stages that it knows, or says nothing of the group.
    """
    rungs = legal[places[0]]
    had = {rungs[0], *(step.parts[places[0]] for step in steps if places[0] in step.parts)}
    rest = [rung for rung in rungs if rung not in had]
    times = [rung.seconds for rung in (*had, *rest) if rung.seconds is not None]
    if len(times) == len(had) + len(rest):
        best = min(times[: len(had)])
        rest = [rung for rung in rest if len(places) * (best - (rung.seconds or best)) > WORTH * modelled_s]
    return [Step(alike=places, parts=dict.fromkeys(places, rung)) for rung in rest]


def _are_alike(one: Rung, other: Rung) -> bool:
    """Whether two rungs have the same settings, but for when a launch begins, which hangs on the piece before it."""
    return {call for call in one.settings if call.name != "launch"} == {
        call for call in other.settings if call.name != "launch"
    }


def _make_step(context: Context, now: Sequence[Rung], step: Step) -> Rung:
    """The rung that changes the pieces of a step."""
    rung = step.parts[step.alike[0]]
    return Rung(
        settings=(),
        parts=tuple(step.parts.get(place, one) for place, one in enumerate(now)),
        changes=tuple(step.parts),
        title=_describe_step(context.found, step, rung),
        reason=rung.reason,
        need=rung.need,
        risks=rung.risks,
    )


def keep_legal(context: Context, ladders: Sequence[Sequence[Rung]]) -> list[list[Rung]]:
    """The first legal rungs of each piece's ladder."""
    return [[rung for rung in rungs if _fits(context, place, rung)][: MOST + 1] for place, rungs in enumerate(ladders)]


def group_pieces(pieces: Sequence[Piece], ladders: Sequence[Sequence[Rung]]) -> tuple[Group, ...]:
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


def group_families(pieces: Sequence[Piece], groups: Sequence[Group], legal: Sequence[Sequence[Rung]]) -> list[Family]:
    """Groups whose operation is the same, at other sizes or with other epilogues. Those that take longest by the time
    model come first, where it knows all of them; else those with the most work.
    """
    weights = [rungs[0].seconds or math.nan for rungs in legal]
    if math.isnan(sum(weights)):
        weights = [piece.work for piece in pieces]
    families: dict[str, list[Group]] = {}
    for places in sorted(groups, key=lambda places: -weights[places[0]] * len(places)):
        families.setdefault(pieces[places[0]].alone.operation.name, []).append(places)
    return list(families.values())


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


def _summary(context: Context, groups: Sequence[Group], rungs: list[Rung]) -> str:
    """All stages with their number in the program: a piece may be several stages. Interchangeable pieces stand once."""
    counts = [
        len(_stages(piece.named, rung, context.arch)) for piece, rung in zip(context.found.pieces, rungs, strict=True)
    ]
    parts = [
        describe_piece(
            context.found,
            places[0],
            rungs[places[0]],
            (f", {counts[places[0]]} stages" if counts[places[0]] > 1 else "")
            + (f" and {len(places) - 1} like it" if len(places) > 1 else ""),
        )
        for places in groups
    ]
    return f"{sum(counts)} stages: {'; '.join(parts)}" if sum(counts) > 1 else parts[0]


def describe_piece(found: Computation, place: int, rung: Rung, more: str = "") -> str:
    """A piece with the title of its rung."""
    named = found.pieces[place].named
    return f"{named.operation.name}{f' ({named.result})' if named.result else ''}{more}: {rung.title}"


def _describe_step(found: Computation, step: Step, rung: Rung) -> str:
    """The first piece of a step with the title of its rung, how many are like it, and how many more are of its kind."""
    like, more = len(step.alike) - 1, len(step.parts) - len(step.alike)
    others = [*([f"{like} like it"] if like else []), *([f"{more} of its kind"] if more else [])]
    return describe_piece(found, step.alike[0], rung, f" and {' and '.join(others)}" if others else "")


def _fits(context: Context, place: int, rung: Rung) -> bool:
    """Whether the language's checks accept a piece with a rung."""
    return not _list_rejections(context, place, rung)


def _list_rejections(context: Context, place: int, rung: Rung) -> tuple[Rejection, ...]:
    return check(Program(stages=_stages(context.found.pieces[place].alone, rung, context.arch)))


def _stages(found: Computation, rung: Rung, arch: str) -> tuple[Stage, ...]:
    found = found.unfused if rung.unfused and found.unfused is not None else found
    return renaming.list_stages(found, rung.settings, (put("arch", arch),))
