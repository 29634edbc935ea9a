"""Positions along an axis, `torch.arange`, in expressions: the numbers of an axis of a tensor that is read anyway."""

from __future__ import annotations

import math
from collections.abc import Callable

from workbench.language.expressions.lowering import call
from workbench.proposers.recognition.graph import Unrecognised, aten_name, parse_number, plain_name
from workbench.records import Operation

Shape = tuple[int, ...]
VIEWS = ("unsqueeze", "view", "reshape", "_unsafe_view", "expand")
INTEGERS = ("int32", "int64")
MOST = 1 << 23  # the sum of two positions below it is exact in float32
EXACT_IN_FLOAT32 = ("add", "sub", "neg", "abs", "minimum", "maximum")  # of such positions


def find_positions(op: Operation, by_name: dict[str, Operation]) -> Operation | None:
    """The `arange` whose numbers, seen with further axes of 1, an operation gives; None for any other operation."""
    shape = op.result[0].shape if len(op.result) == 1 else ()
    found: Operation | None = op
    while found is not None and aten_name(found) in VIEWS:
        found = by_name.get(found.operands[0])
    is_vector = found is not None and aten_name(found) == "arange" and math.prod(shape) == max(shape, default=0)
    return found if is_vector and found is not None and found.result[0].shape == (max(shape, default=0),) else None


def write_positions(
    op: Operation, arange: Operation, frame_rank: int, count: int, index: Callable[[int], object]
) -> object:
    """The numbers of an `arange` as an expression. `index` gives those of an axis of the frame, from 0.

    `count` is how many there are at full size.
    """
    shape = op.result[0].shape
    axis = frame_rank - len(shape) + shape.index(max(shape))
    numbers = [parse_number(text) for text in arange.operands]
    first, step = (0, 1) if len(numbers) == 1 else (numbers[0], numbers[2] if len(numbers) > 2 else 1)
    if first is None or step is None or max(shape) < 2:
        raise Unrecognised("arange")
    if arange.result[0].dtype in INTEGERS:
        check_positions(arange, max(abs(first), abs(first + step * (count - 1))))
    made = index(axis)
    made = made if step == 1 else call("mul", made, step)
    return made if first == 0 else call("add", made, first)


def check_positions(op: Operation, largest: float) -> None:
    """Raise `Unrecognised` if positions are so large that float32 does not hold their sums and differences."""
    if largest >= MOST:
        raise Unrecognised(
            f"{aten_name(op)} of positions up to {largest:.0f}; float32 holds sums of those below {MOST}"
        )


def check_integers(op: Operation) -> None:
    """Raise `Unrecognised` for arithmetic of integers made here that float32 may not hold."""
    if op.result and op.result[0].dtype in INTEGERS and plain_name(op) not in EXACT_IN_FLOAT32:
        raise Unrecognised(f"{aten_name(op)} of integers")
