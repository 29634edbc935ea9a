"""Epilogues of convolutions: those of products, element by element, where n are the filters.

A tensor has one element per filter, or the output's shape, or one that repeats to it. rowsum, rowmean, rowmax and
rowmin reduce the filters of each position; one tile then holds all filters.
"""

from __future__ import annotations

import dataclasses

from workbench.language.expressions.expressions import leaves
from workbench.language.ir import Call, Rejection, Stage, setting
from workbench.language.operation import COMBINERS, MAP
from workbench.language.operations import epilogue

SCHEDULES = ("cooperative", "pingpong", "halo")  # whose epilogue can reduce
REDUCTIONS = tuple(name for name in epilogue.REDUCTIONS if name.startswith("row"))
NAMES = tuple(name for name in epilogue.NAMES if name not in epilogue.REDUCTIONS or name in REDUCTIONS)


def check(stage: Stage) -> list[Rejection]:
    """Rejections of arguments, of the order, and of vectors along the output positions."""
    legal = "along=n, the filters, or a tensor of the output's shape without along"
    reason = "the output positions of a convolution have several extents"
    along = [
        Rejection(field=call.name, value="along=m", reason=reason, legal=legal)
        for call in stage.epilogues
        if dict(call.named).get("along") == "m"
    ]
    # names that no epilogue has are rejected by the operation's list of epilogues
    known = tuple(call for call in stage.epilogues if call.name in NAMES)
    return along or epilogue.check(dataclasses.replace(stage, epilogues=known)) or _check_reduction(stage)


def _check_reduction(stage: Stage) -> list[Rejection]:
    """Rejections of a reduction of the filters."""
    call = next((call for call in stage.epilogues if call.name in REDUCTIONS), None)
    if call is None:
        return []
    schedule, chain = setting(stage, "schedule"), epilogue.chain_of(stage)
    apart = f"or write h = {stage.operation.name}(...) |> rowwise({call.name[3:]}(h), axis=1, keepdim=1)"
    reasons = {
        "only tiles that go through shared memory reduce their filters": schedule not in SCHEDULES,
        "each image is a product of its own": setting(stage, "product") is not None,
        "filters of several groups lie in several tiles": "groups" in dict(stage.operation.named),
        "a tensor of the result's shape is not read there": any(read.along == "both" for read in chain.reads),
        "the channels stay, as 1": not chain.keepdim,
    }
    legal = f".schedule({', '.join(SCHEDULES)}), {call.name}(keepdim=1), vectors along n and no groups; {apart}"
    return [
        Rejection(field=call.name, value=str(schedule or ""), reason=reason, legal=legal)
        for reason, applies in reasons.items()
        if applies
    ][:1]


def transpose_epilogues(calls: tuple[Call, ...]) -> tuple[Call, ...]:
    """The same epilogues in a gemm of the filters and an image, whose rows are the filters."""
    return tuple(
        Call(name=call.name, positional=call.positional, named=(("along", "m"),))
        if call.name == "bias"
        or (call.name in COMBINERS and dict(call.named).get("along") == "n")
        or (call.name == MAP and leaves(call)[1])
        else call
        for call in calls
    )
