"""Which axis is reduced, and how a tensor is seen for it: rows, columns, or rows in segments. Texts are Python of forward over `shape`."""

from __future__ import annotations

import dataclasses
import math

from workbench.dsl.ir import Call
from workbench.records import record


@record
class View:
    """How the reduced axis lies. `sizes` set rows and columns (for rows: columns is the reduced length; strided: rows is), and batches or segment."""

    sizes: tuple[str, ...]
    left: str  # the result's shape without the axis
    kept: str  # with it, as 1
    run: str  # contiguous elements that vectors must not straddle
    least: int = 0  # axes that the tensor has at least
    strided: bool = False
    segments: bool = False


def known(axis: object) -> bool:
    """Whether the axis can be said."""
    if isinstance(axis, Call):
        numbers = [item for item in axis.positional if isinstance(item, int) and item >= 0]
        right = {"last": 1, "but": 1, "over": 2}.get(axis.name) == len(axis.positional) == len(numbers)
        return right and not (axis.name == "over" and numbers[0] > numbers[1]) and not (axis.name == "last" and numbers[0] < 1)
    return axis in ("last", "first", "middle", "all") or (isinstance(axis, int) and axis >= 0)


def view(axis: object) -> View:
    """The view of a known axis."""
    if axis == "last":
        return _last(1)
    if axis == "all":
        return View(sizes=("rows, columns = 1, shape.numel()",), left="()", kept="(1,) * len(shape)", run="columns")
    if isinstance(axis, Call) and axis.name == "last":
        return _last(int(str(axis.positional[0])))
    if isinstance(axis, Call) and axis.name == "but":
        i = int(str(axis.positional[0]))
        sizes = (f"rows, segment = shape[{i}], math.prod(shape[{i + 1}:])", f"columns = math.prod(shape[:{i}]) * segment")
        return View(sizes=sizes, left=f"(shape[{i}],)", kept=f"tuple(size if n == {i} else 1 for n, size in enumerate(shape))", run="segment", least=i + 1, segments=True)
    seen = _strided(*ends(axis))
    return dataclasses.replace(seen, least=3) if axis == "middle" else seen  # the second of three


def sizes(axis: object, shape: tuple[int, ...]) -> tuple[int, int]:
    """(rows, columns) of a shape that has the axis, as the view's text works them out."""
    if axis == "all":
        return 1, math.prod(shape)
    if axis == "last" or (isinstance(axis, Call) and axis.name == "last"):
        count = int(str(axis.positional[0])) if isinstance(axis, Call) else 1
        return math.prod(shape[:-count]), math.prod(shape[-count:])
    if isinstance(axis, Call) and axis.name == "but":
        (i,) = map(int, map(str, axis.positional))
        return shape[i], math.prod(shape[:i]) * math.prod(shape[i + 1 :])
    first, last = ends(axis)
    return math.prod(shape[first : last + 1]), math.prod(shape[last + 1 :])


def ends(axis: object) -> tuple[int, int]:
    """The first and the last axis of over(i, j), i, first or middle."""
    if isinstance(axis, Call):
        first, last = axis.positional
        return int(str(first)), int(str(last))
    number = int(str({"first": 0, "middle": 1}.get(str(axis), axis)))
    return number, number


def _last(count: int) -> View:
    sizes = ("columns = shape[-1]", "rows = math.prod(shape[:-1])") if count == 1 else (f"columns = math.prod(shape[-{count}:])", f"rows = math.prod(shape[:-{count}])")
    return View(sizes=sizes, left=f"shape[:-{count}]", kept=f"(*shape[:-{count}], {', '.join(['1'] * count)})", run="columns", least=count)


def _strided(first: int, last: int) -> View:
    ones = ", ".join(["1"] * (last - first + 1))
    length = f"shape[{first}]" if first == last else f"math.prod(shape[{first}:{last + 1}])"
    sizes = (f"batches, rows, columns = math.prod(shape[:{first}]), {length}, math.prod(shape[{last + 1}:])",)
    return View(sizes=sizes, left=f"(*shape[:{first}], *shape[{last + 1}:])", kept=f"(*shape[:{first}], {ones}, *shape[{last + 1}:])", run="columns", least=last + 1, strided=True)
