"""Which axis is reduced, and how a tensor is seen for it: rows, columns, or rows in segments."""

from __future__ import annotations

import math

from workbench.language.ir import Call
from workbench.records import record


@record
class View:
    """How the reduced axis lies: contiguous where it is neither strided nor in segments."""

    least: int = 0  # axes that the tensor has at least
    strided: bool = False
    segments: bool = False


def is_axis(axis: object) -> bool:
    """Whether the value names an axis."""
    if isinstance(axis, Call):
        numbers = [item for item in axis.positional if isinstance(item, int) and item >= 0]
        right = {"last": 1, "but": 1, "over": 2}.get(axis.name) == len(axis.positional) == len(numbers)
        return (
            right
            and not (axis.name == "over" and numbers[0] > numbers[1])
            and not (axis.name == "last" and numbers[0] < 1)
        )
    return axis in ("last", "first", "middle", "all") or (isinstance(axis, int) and axis >= 0)


def view(axis: object) -> View:
    """The view of a known axis."""
    if axis == "last":
        return View(least=1)
    if axis == "all":
        return View()
    if isinstance(axis, Call) and axis.name in ("last", "but"):
        count = int(str(axis.positional[0]))
        return View(least=count) if axis.name == "last" else View(least=count + 1, segments=True)
    return View(least=3 if axis == "middle" else axis_range(axis)[1] + 1, strided=True)  # middle: the second of three


def sizes(axis: object, shape: tuple[int, ...]) -> tuple[int, int]:
    """(rows, columns) of a shape that has the axis, as the kernels count them."""
    if axis == "all":
        return 1, math.prod(shape)
    if axis == "last" or (isinstance(axis, Call) and axis.name == "last"):
        count = int(str(axis.positional[0])) if isinstance(axis, Call) else 1
        return math.prod(shape[:-count]), math.prod(shape[-count:])
    if isinstance(axis, Call) and axis.name == "but":
        (i,) = map(int, map(str, axis.positional))
        return shape[i], math.prod(shape[:i]) * math.prod(shape[i + 1 :])
    first, last = axis_range(axis)
    return math.prod(shape[first : last + 1]), math.prod(shape[last + 1 :])


def axis_range(axis: object) -> tuple[int, int]:
    """The first and the last axis of over(i, j), i, first or middle."""
    if isinstance(axis, Call):
        first, last = axis.positional
        return int(str(first)), int(str(last))
    number = int(str({"first": 0, "middle": 1}.get(str(axis), axis)))
    return number, number
