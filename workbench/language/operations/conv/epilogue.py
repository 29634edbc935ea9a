"""Epilogues of convolutions: those of products, element by element, where n are the filters.

A tensor has one element per filter, or the output's shape, or one that repeats to it.
"""

from __future__ import annotations

import dataclasses

from workbench.language.expressions.expressions import leaves
from workbench.language.ir import Call, Rejection, Stage
from workbench.language.operation import COMBINERS, MAP
from workbench.language.operations import epilogue

NAMES = tuple(name for name in epilogue.NAMES if name not in epilogue.REDUCTIONS)


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
    return along or epilogue.check(dataclasses.replace(stage, epilogues=known))


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
