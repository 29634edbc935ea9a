"""Pads and interpolations as their matchers want them: circular pads as one call, extents of interpolations as factors,
and pads of a convolution's or a pool's input as part of its own padding.

ATen writes a circular pad as an empty tensor into which x is copied, then for each axis the ends of the copy.
"""

from __future__ import annotations

import dataclasses
import itertools

from workbench.proposers.recognition.graph import aten_name, names, parse_number
from workbench.proposers.recognition.operands import find_argument
from workbench.records import Facts, Operation

CIRCULAR = "aten._pad_circular.default"
RESIZES = {  # ATen's interpolations -> the language's mode
    **{f"upsample_nearest{rank}d": "nearest" for rank in (1, 2, 3)},
    **{f"_upsample_nearest_exact{rank}d": "nearest_exact" for rank in (1, 2, 3)},
    **dict.fromkeys(("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d"), "linear"),
}
Shape = tuple[int, ...]
Graph = tuple[Operation, ...]


def write_remaps(facts: Facts) -> Facts:
    """The same computation with circular pads as one call, and factors in place of extents that follow x's."""
    graph, full = (
        join_circular_pads(one, _shapes(facts, case, one)) for one, case in ((facts.graph, 0), (facts.full_graph, -1))
    )
    shrunk, known = _shapes(facts, 0, graph), {spec.name: spec.shape for spec in facts.full}
    at_full = {spec.name: spec.shape for spec in facts.cases[-1].inputs} | known
    scales = {op.name: scale for op in graph if (scale := _find_scale(op, shrunk, at_full)) is not None}
    return dataclasses.replace(facts, graph=_write_scales(graph, scales), full_graph=_write_scales(full, scales))


def _shapes(facts: Facts, case: int, graph: Graph) -> dict[str, Shape]:
    """Shapes of values, and of parameters at the shrunk sizes."""
    state = {f"{kind}:{spec.name}": spec.shape for kind in ("param", "buffer") for spec in facts.parameters}
    given = {spec.name: spec.shape for spec in facts.cases[case].inputs}
    return (state if case == 0 else {}) | given | {op.name: op.result[0].shape for op in graph if op.result}


def _find_scale(op: Operation, shrunk: dict[str, Shape], full: dict[str, Shape]) -> Shape | None:
    """The whole factors of an interpolation to extents that follow those of x; None for any other call."""
    mode = RESIZES.get(aten_name(op))
    if mode is None or len(op.operands) != (3 if mode == "linear" else 2):
        return None
    pairs = [
        list(zip(shapes[op.operands[0]][2:], shapes[op.name][2:], strict=True))
        for shapes in (shrunk, full)
        if op.operands[0] in shapes and op.name in shapes
    ]
    if len(pairs) < 2:
        return None
    before, after = pairs
    is_fixed = before != after and [extent for _, extent in before] == [extent for _, extent in after]
    factors = tuple(extent // size for size, extent in before)
    follows = all(
        extent == size * factor for pair in pairs for (size, extent), factor in zip(pair, factors, strict=True)
    )
    return factors if follows and not is_fixed else None


def _write_scales(graph: Graph, scales: dict[str, Shape]) -> Graph:
    return tuple(
        dataclasses.replace(op, operands=(*op.operands, *(str(float(factor)) for factor in scales[op.name])))
        if op.name in scales
        else op
        for op in graph
    )


def join_circular_pads(graph: Graph, shapes: dict[str, Shape]) -> Graph:
    """The graph with one call for each circular pad."""
    by_name = {op.name: op for op in graph}
    made: dict[str, Operation] = {}
    dropped: set[str] = set()
    for op in graph:
        if aten_name(op) == "new_empty" and op.result:
            copies = [other for other in graph if aten_name(other) == "copy_" and _root(other, by_name) == op.name]
            found = _find_circular(op, copies, by_name, shapes)
            if found is not None:
                made[op.name] = dataclasses.replace(op, target=CIRCULAR, operands=found, keywords=())
                dropped |= {copy.name for copy in copies}
    kept = [made.get(op.name, op) for op in graph if op.name not in dropped]
    slices = {op.name for op in graph if aten_name(op) == "slice"}
    while made:
        read = {name for op in kept for text in op.operands for name in names(text)}
        unread = slices - read
        if not any(op.name in unread for op in kept):
            break
        kept = [op for op in kept if op.name not in unread]
    return tuple(kept)


def _root(copy: Operation, by_name: dict[str, Operation]) -> str:
    """The tensor into a part of which a copy goes."""
    return _follow_slices(copy.operands[0], by_name)[0]


def _follow_slices(value: str, by_name: dict[str, Operation]) -> tuple[str, dict[int, tuple[int, int]]]:
    """(the tensor of which a value is a part, axis -> (start, end) of that part)."""
    part: dict[int, tuple[int, int]] = {}
    while value in by_name and aten_name(by_name[value]) == "slice" and len(by_name[value].operands) == 4:
        value, *numbers = by_name[value].operands
        axis, start, end = map(int, numbers)
        part[axis] = (start, end)
    return value, part


def _find_circular(
    op: Operation, copies: list[Operation], by_name: dict[str, Operation], shapes: dict[str, Shape]
) -> tuple[str, str] | None:
    """(x, pads) where copies into an empty tensor fill it with a circular pad of x; None where they do not."""
    if not copies:
        return None
    _, target = _follow_slices(copies[0].operands[0], by_name)
    x, source = _follow_slices(copies[0].operands[1], by_name)
    shape, given = op.result[0].shape, shapes.get(x, ())
    if x == op.name or target.keys() != source.keys() or len(given) != len(shape):
        return None
    if sorted(target) != [*range(len(shape) - len(target), len(shape))]:
        return None
    reads = {axis: [-1] * shape[axis] for axis in target}
    for axis, (start, end) in target.items():
        reads[axis][start:end] = range(*source[axis])
    axes: list[int] = []
    for copy in copies[1:]:
        (into, target_part), (of, source_part) = (_follow_slices(copy.operands[place], by_name) for place in (0, 1))
        if {into, of} != {op.name} or len(target_part) != 1 or target_part.keys() != source_part.keys():
            return None
        ((axis, (start, end)),) = target_part.items()
        if axis not in reads:
            return None
        reads[axis][start:end] = reads[axis][slice(*source_part[axis])]
        axes.append(axis)
    if len([axis for axis, _ in itertools.groupby(axes)]) != len({*axes}):
        return None
    pads: list[int] = []
    for axis in sorted(reads, reverse=True):
        before = target[axis][0] - source[axis][0]
        if reads[axis] != [(at - before) % given[axis] for at in range(shape[axis])]:
            return None
        pads += (before, shape[axis] - given[axis] - before)
    return x, f"[{', '.join(map(str, pads))}]"


FOLDED = {"convolution": 4, "avg_pool": 3}  # calls with a padding of their own -> its place


def fold_pads(graph: Graph) -> Graph:
    """The graph without constant pads of nothing, and those that a convolution or a pool behind them can do itself."""
    graph = tuple(
        dataclasses.replace(op, target="aten.alias.default", operands=op.operands[:1], keywords=())
        if aten_name(op) == "constant_pad_nd" and {*names(op.operands[1], numbers=True)} <= {"0"}
        else op
        for op in graph
    )
    by_name = {op.name: op for op in graph}
    made = [_fold(op, pad) if (pad := by_name.get(op.operands[0] if op.operands else "")) else op for op in graph]
    pads = {op.name for op in graph if aten_name(op) == "constant_pad_nd"}
    read = {name for op in made for text in op.operands for name in names(text)}
    return tuple(op for op in made if op.name not in pads - read)


def _fold(op: Operation, pad: Operation) -> Operation:
    """A convolution or a pool with the padding of a pad before it, or as it is."""
    name = aten_name(op)
    kind = next((kind for kind in FOLDED if name.startswith(kind)), "")
    if not kind or aten_name(pad) != "constant_pad_nd" or not op.result:
        return op
    space = len(op.result[0].shape) - 2 if kind == "convolution" else int(name[len(kind)])
    own = find_argument(op, FOLDED[kind], "padding", "[0]")
    given = [int(part) for part in names(own, numbers=True)]
    pads = [int(part) for part in names(pad.operands[1], numbers=True)]
    ends = [(*pads, *(0,) * (2 * space - len(pads)))[2 * axis : 2 * axis + 2] for axis in reversed(range(space))]
    if any(pads[2 * space :]) or any(first != last or first < 0 for first, last in ends):
        return op
    padding = [more + ends[axis][0] for axis, more in enumerate(given * space if len(given) == 1 else given)]
    if not _may_fold(op, kind, find_argument(pad, 2, "value", "0"), padding):
        return op
    operands = [*op.operands]
    operands[0] = pad.operands[0]
    operands[FOLDED[kind] :] = [f"[{', '.join(map(str, padding))}]", *operands[FOLDED[kind] + 1 :]]
    return dataclasses.replace(op, operands=tuple(operands))


def _may_fold(op: Operation, kind: str, value: str, padding: list[int]) -> bool:
    """Whether a call's own padding holds the value of the pad, and counts as the pad's elements do."""
    number = parse_number(value)
    if kind == "convolution":
        return number == 0 and op.operands[6] == "False"
    window = [int(part) for part in names(op.operands[1], numbers=True)]
    window = window * len(padding) if len(window) == 1 else window
    if len(op.operands) < 3 or any(2 * more > size for more, size in zip(padding, window, strict=True)):
        return False
    ceil, counts = find_argument(op, 4, "ceil_mode", "False"), find_argument(op, 5, "count_include_pad", "True")
    return number == 0 and ceil == "False" and counts == "True"
