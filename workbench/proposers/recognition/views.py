"""Handles views in a graph: they become stages without a kernel, or move behind element-wise operations.

After a move, the product before the view can take these operations as its epilogue.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection

from workbench.language import Call
from workbench.language.expressions.scalars import ATEN
from workbench.proposers.recognition.graph import aten_name, parse_number, plain_name
from workbench.proposers.recognition.operands import list_varied
from workbench.proposers.recognition.rewrites.rewriting import make_operation, reshape_spec
from workbench.records import Facts, Operation, TensorSpec

RESHAPES = ("view", "reshape", "_unsafe_view")
MOVES = ("permute", "transpose", "t", "numpy_T")
NAMES = (*RESHAPES, *MOVES, "unsqueeze", "squeeze", "part", "repeat_to")
ELEMENT = {*ATEN} - {"where", "fill", "zeros_like", "ones_like"}
BESIDE = "_beside_"  # part of the name of an inserted view
Shape = tuple[int, ...]
Shapes = dict[str, tuple[Shape, ...]]  # value -> its shape at each case that is known


def find_view_call(
    op: Operation, shapes: Shapes, available: tuple[str, ...], facts: Facts
) -> tuple[Call, str | None] | None:
    """What `view_call` finds with the shapes at the cases between too, else with those that are given."""
    found = None
    if between := facts.between:
        more = [{spec.name: spec.shape for spec in one.values} for one in between]
        wider = {
            name: (*known, *(one[name] for one in more))
            for name, known in shapes.items()
            if all(name in one for one in more)
        }
        found = view_call(op, wider, available, list_varied(facts, [one.case for one in between]))
    return view_call(op, shapes, available, list_varied(facts)) if found is None else found


def view_call(
    op: Operation, shapes: Shapes, available: tuple[str, ...], varied: set[int]
) -> tuple[Call, str | None] | None:
    """(the view as a call of the language, the value whose extents it takes) of an operation.

    None if its sizes do not follow from those of other values. `varied` sizes are others at cases that `shapes` lacks.
    """
    name, of, own = aten_name(op), op.operands[0], shapes.get(op.name, ())
    before = shapes.get(of, ())
    if name not in NAMES or op.keywords or not before or len(before) != len(own):
        return None
    if name == "repeat_to":
        like, axis = op.operands[2], int(op.operands[3])
        return _make_call(("repeat", int(op.operands[1])), ("like", "like"), ("axes", (axis, axis))), like
    if name in ("part", "unsqueeze", "squeeze", *MOVES):
        call = _view_without_sizes(op, len(before[0]))
        return None if call is None else (call, None)
    found = set.intersection(*(_reshape_changes(first, second) for first, second in zip(before, own, strict=True)))
    if len(found) > 1 and 1 not in varied:
        call = _add_axis_of_one(before, own)
        return None if call is None else (call, None)
    if len(found) != 1:
        return None
    how, first, last = found.pop()
    if how == "flatten":
        return _make_call(("flatten", (first, last))), None
    wanted = tuple(shape[first : last + 1] for shape in own)
    for value in available:
        place = _find_extents(shapes.get(value, ()), wanted)
        if place is not None:
            axes = (place, place + last - first)
            return _make_call(("unflatten", first), ("like", "like"), ("axes", axes)), value
    extents = _fixed_extents(wanted, varied)
    return None if extents is None else (_make_call(("unflatten", (first, *extents))), None)


def _add_axis_of_one(before: tuple[Shape, ...], after: tuple[Shape, ...]) -> Call | None:
    """The call of a reshape that, at every case, adds or takes away one axis of extent 1; None if it is another."""
    name, more, less = ("unsqueeze", after, before) if len(after[0]) > len(before[0]) else ("squeeze", before, after)
    for axis in range(len(more[0])):
        if all(
            long[axis] == 1 and (*long[:axis], *long[axis + 1 :]) == short
            for long, short in zip(more, less, strict=True)
        ):
            return _make_call((name, axis))
    return None


def _fixed_extents(wanted: tuple[Shape, ...], varied: set[int]) -> Shape | None:
    """Extents that are the same at every case, with -1 for one that is not; None if several differ, or none is known
    at two sizes.
    """
    extents = tuple(
        column[0] if len({*column}) == 1 and column[0] not in varied else -1 for column in zip(*wanted, strict=True)
    )
    return extents if len(wanted) > 1 and extents.count(-1) < 2 and all(extents) else None


def _view_without_sizes(op: Operation, rank: int) -> Call | None:
    """A part, an axis of extent 1 more or less, or another order of the axes."""
    name = aten_name(op)
    if name == "part":
        how, *numbers = op.operands[1:]
        return _make_call((how, int(numbers[0]) if how == "item" else tuple(map(int, numbers))))
    if name in MOVES:
        order = axis_order(op, rank)
        return None if order is None else _make_call(("order", order))
    if len(op.operands) != 2 or parse_number(op.operands[1]) is None:
        return None
    return _make_call((name, int(op.operands[1]) % (rank + (name == "unsqueeze"))))


def _find_extents(given: tuple[Shape, ...], wanted: tuple[Shape, ...]) -> int | None:
    """The first axis from which on a value has these neighbouring extents at every case."""
    count = len(wanted[0])
    places = range(len(given[0]) - count + 1) if len(given) == len(wanted) else range(0)
    return next((place for place in places if tuple(shape[place : place + count] for shape in given) == wanted), None)


def _make_call(*named: tuple[str, object]) -> Call:
    return Call(name="view", positional=("x",), named=named)


def axis_order(op: Operation, rank: int) -> Shape | None:
    """The axes of the operand in the order in which a transposition or a permutation has them; None if unknown."""
    axes = [*range(rank)]
    if aten_name(op) == "permute":
        return tuple(int(part) % rank for part in op.operands[1].strip("[]").split(","))
    if aten_name(op) == "transpose":
        i, j = (int(text) % rank for text in op.operands[1:3])
        axes[i], axes[j] = axes[j], axes[i]
        return tuple(axes)
    return tuple(axes[::-1]) if rank == 2 else None


def _reshape_changes(before: Shape, after: Shape) -> set[tuple[str, int, int]]:
    """How a reshape may change the extents; none if in another way, several where an extent is 1.

    (flatten, first axis, last axis): neighbouring extents become one. (unflatten, first new axis, last new axis): one
    extent becomes several.
    """
    if len(before) == len(after):
        return {("flatten", 0, 0)} if before == after else set()
    if len(before) < len(after):
        return {("unflatten", first, last) for _, first, last in _reshape_changes(after, before)}
    more = len(before) - len(after)
    return {
        ("flatten", first, first + more)
        for first in range(len(after))
        if before[:first] == after[:first]
        and before[first + more + 1 :] == after[first + 1 :]
        and math.prod(before[first : first + more + 1]) == after[first]
    }


def sink_views(facts: Facts) -> Facts:
    """The same graph with views of a product's result moved behind the element-wise operations that follow.

    Only views that split the rows of the result are moved. Views that join the rows again are dropped.
    """
    specs = (
        {spec.name: spec for spec in facts.cases[0].inputs}
        | {f"{kind}:{spec.name}": spec for kind in ("param", "buffer") for spec in facts.parameters}
        | {op.name: op.result[0] for op in facts.graph if op.result}
    )
    full = {spec.name: spec for spec in facts.full}
    rows: dict[str, str] = {}  # a value that is a view of rows -> those
    same: dict[str, str] = {}  # a value -> another that it equals
    graph: list[Operation] = []
    made_here = {op.name for op in facts.graph}
    for given in facts.graph:
        op = dataclasses.replace(given, operands=tuple(same.get(text, text) for text in given.operands))
        of = op.operands[0] if op.operands else ""
        if aten_name(op) in RESHAPES and of in rows and specs[op.name].shape == specs[rows[of]].shape:
            same[op.name] = rows[of]
            continue
        if of in made_here and _splits_rows(op, specs):
            rows[op.name] = of
        made = _move_view(op, rows, specs)
        if made is not None:
            _note_specs(made[:-1], full.get(next(rows[name] for name in op.operands if name in rows)), specs, full)
            rows[op.name] = made[-1].operands[0]
        graph += [op] if made is None else made
    return dataclasses.replace(facts, graph=tuple(graph), full=tuple(full.values()))


def find_beside(graph: list[Operation], made: Collection[str]) -> Operation | None:
    """A view that `sink_views` inserted of a value that is made: the product beside whose rows it is read takes it as
    an epilogue once the view is made.
    """
    return next((op for op in graph if BESIDE in op.name and op.operands[0] in made), None)


def _splits_rows(op: Operation, specs: dict[str, TensorSpec]) -> bool:
    """Whether an operation is a view of (rows, columns) with more axes for the rows."""
    return (
        aten_name(op) in RESHAPES
        and op.operands[0] in specs
        and _join_rows(specs[op.name].shape) == specs[op.operands[0]].shape
        and len(specs[op.name].shape) > 2
    )


def _note_specs(
    made: list[Operation], like: TensorSpec | None, specs: dict[str, TensorSpec], full: dict[str, TensorSpec]
) -> None:
    """Note the specs of new operations, also at full size if that of the rows is known."""
    for item in made:
        specs[item.name] = item.result[0]
        if like is not None:
            full[item.name] = dataclasses.replace(like, name=item.name)


def _join_rows(shape: Shape) -> Shape:
    return (math.prod(shape[:-1]), shape[-1]) if shape else ()


def _move_view(op: Operation, rows: dict[str, str], specs: dict[str, TensorSpec]) -> list[Operation] | None:
    """An element-wise call on such a view, moved to the rows; None if it cannot be moved.

    Returns views of the other operands, the same call on the rows, and the view of its result.
    """
    seen = [name for name in op.operands if name in rows]
    if (
        plain_name(op) not in ELEMENT
        or plain_name(op) != aten_name(op)
        or not seen
        or not op.result
        or op.result[0].shape != specs[seen[0]].shape
    ):
        return None
    shape = specs[seen[0]].shape
    flat = reshape_spec(op.result[0], _join_rows(shape))
    before: list[Operation] = []
    operands: list[str] = []
    for name in op.operands:
        spec = specs.get(name)
        if name in rows:
            operands.append(rows[name])
        elif spec is None or spec.shape == shape[-1:]:
            operands.append(name)
        elif spec.shape == shape:
            before.append(_view_op(f"{op.name}{BESIDE}{len(before) + 1}", name, flat))
            operands.append(before[-1].name)
        else:
            return None
    inner = dataclasses.replace(op, name=f"{op.name}_rows", operands=tuple(operands), result=(flat,))
    return [*before, inner, _view_op(op.name, inner.name, op.result[0])]


def _view_op(name: str, value: str, result: TensorSpec) -> Operation:
    """A view of a value with the shape of `result`."""
    return make_operation(name, "view", (value, str(list(result.shape))), result)
