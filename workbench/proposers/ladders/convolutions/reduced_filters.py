"""Convolutions whose filters are reduced next: the reduction becomes an epilogue, and the result with all filters is
never stored. Only Hopper's kernels have such epilogues, and one tile holds all filters.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

from workbench.analysis import devices
from workbench.language import Call
from workbench.language.expressions.expressions import VALUE, leaves
from workbench.language.expressions.reduction_passes import is_reduction
from workbench.language.operation import MAP
from workbench.language.operations.conv.epilogue import REDUCTIONS
from workbench.proposers.ladders.base import Context, Rung
from workbench.proposers.ladders.convolutions.size import Size, size_of
from workbench.proposers.recognition import Computation
from workbench.proposers.recognition.graph import Piece

FILTERS = (("axis", 1), ("keepdim", 1))  # the arguments of a reduction that leaves one channel
BYTES = 4  # of an element of the result; the largest


def reduces_filters(found: Computation) -> bool:
    """Whether the epilogues of a convolution reduce its filters."""
    return any(call.name in REDUCTIONS for call in found.epilogues)


def keep_whole_tiles(rungs: tuple[Rung, ...], size: Size) -> tuple[Rung, ...]:
    """The rungs whose tile holds all filters."""
    tiles = {rung: next((call.positional[1] for call in rung.settings if call.name == "tile"), 0) for rung in rungs}
    return tuple(rung for rung in rungs if int(str(tiles[rung])) >= size.filters)


def fuse_reductions(found: Computation, is_faster: Callable[[Piece, Piece], bool]) -> Computation:
    """The pipeline with reductions of a convolution's filters as its epilogues, where `is_faster` says so of the
    convolution as it is and with its epilogue.
    """
    pieces = list(found.pieces)
    for place in reversed(range(len(pieces) - 1)):
        fused = _fuse(pieces[place], pieces[place + 1])
        beside = [*pieces[:place], *pieces[place + 2 :]]
        if fused is None or any(pieces[place].named.result in _names(piece) for piece in beside):
            continue
        if is_faster(pieces[place], fused):
            pieces[place : place + 2] = [fused]
    return dataclasses.replace(found, pieces=tuple(pieces))


def saved_seconds(context: Context) -> float:
    """What storing the filters of a convolution and reading them again takes at the full size; 0 if it is not known."""
    size, device = size_of(context), devices.find(context.device)
    if size is None:
        return 0.0
    elements = size.images * size.filters * math.prod(size.out)
    return 2 * BYTES * elements / (device.copy_bandwidth or device.bandwidth)


def _fuse(convolution: Piece, reduction: Piece) -> Piece | None:
    """One piece of both, if the second does nothing but reduce the filters and what follows for each position."""
    main, next_ = convolution.named, reduction.named
    if main.kind != "convolution" or main.after or main.result is None or reduces_filters(main):
        return None
    calls = _closing_calls(next_, main.result)
    if calls is None or next_.after or next_.before or next_.epilogues or next_.operands:
        return None
    alone = dataclasses.replace(convolution.alone, epilogues=(*convolution.alone.epilogues, *calls))
    named = dataclasses.replace(main, epilogues=(*main.epilogues, *calls), result=next_.result)
    return dataclasses.replace(convolution, alone=alone, named=named)


def _closing_calls(found: Computation, name: str) -> tuple[Call, ...] | None:
    """The epilogues that a stage is which reduces the filters of a tensor; None for any other stage."""
    operation, named = found.operation, dict(found.operation.named)
    if operation.name == "reduce" and operation.positional == (name,):
        how = named.pop("op", "sum")
        calls: tuple[Call, ...] = (_closing(str(how)),)
    elif operation.name == "rowwise":
        reductions = _list_reductions(operation.positional[0])
        if len(reductions) != 1 or reductions[0].positional != (name,) or reductions[0].named:
            return None
        after = _replace(operation.positional[0], reductions[0])
        if any(leaves(after)):
            return None
        calls = (_closing(reductions[0].name), *(() if after == VALUE else (Call(name=MAP, positional=(after,)),)))
    else:
        return None
    return calls if tuple(sorted(named.items(), key=str)) == FILTERS and calls[0].name in REDUCTIONS else None


def _closing(how: str) -> Call:
    return Call(name=f"row{how}", named=(("keepdim", 1),))


def _list_reductions(expression: object) -> list[Call]:
    """All reductions of an expression; one whose operand is an expression is no plain one and stays whole."""
    if not isinstance(expression, Call):
        return []
    if is_reduction(expression):
        return [expression]
    return [found for part in expression.positional for found in _list_reductions(part)]


def _replace(expression: object, reduction: Call) -> object:
    """The expression of the value that is reduced."""
    if expression == reduction:
        return VALUE
    if not isinstance(expression, Call):
        return expression
    return dataclasses.replace(
        expression, positional=tuple(_replace(part, reduction) for part in expression.positional)
    )


def _names(piece: Piece) -> set[str]:
    """The tensors that a piece reads."""
    named = piece.named
    values = [*named.operation.positional, *(value for _, value in named.operation.named)]
    values += [value for call in named.epilogues for value in call.positional]
    values += [value for stage in (*named.before, *named.after) for value in stage.operation.positional]
    values += [
        value for stage in (*named.before, *named.after) for call in stage.epilogues for value in call.positional
    ]
    return {name for value in values for kind in leaves(value) for name in kind}
