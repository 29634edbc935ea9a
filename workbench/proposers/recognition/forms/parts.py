"""Names the parts of tensors that a graph takes: chunks, halves, slices with constant bounds, single layers.

A part must be the same at full size and at the emulated one: `x.chunk(2)[1]` is the second half at both, while the
graphs hold its bounds. A part that no reading explains at both sizes stays as it is, and no matcher takes it.
The other way round, stacks and repetitions become concatenations.
"""

from __future__ import annotations

import dataclasses

from workbench.proposers.recognition.graph import aten_name, names, parse_number
from workbench.records import Case, Facts, Operation, TensorSpec, record

SPLITS = ("split", "split_with_sizes", "chunk", "unbind")
OPEN = 1 << 62  # ATen's end of a slice without an end is beyond it
SLICE_DEFAULTS = (0, 0, OPEN, 1)  # axis, start, end and step of aten.slice
MOST_COPIES = 8
LARGEST_SHARE = 8  # x[..., :d // n] is looked for up to this n
Bounds = tuple[int, int, int]  # extent of the axis, start, end


@record
class Part:
    """A part of a value along an axis, at each known size; `number` of `count` where a split makes several.

    Without bounds it is the tensor `axis` of a pair.
    """

    of: str
    axis: int
    bounds: tuple[Bounds, ...]
    number: int = 0
    count: int = 0
    layer: bool = False  # whether the axis goes
    step: int = 1


def name_parts(facts: Facts) -> Facts:
    """The same facts, with `part` in both graphs for the parts that are understood."""
    graphs = [(facts.graph, facts.cases[0])]
    if facts.full_graph:
        graphs.append((facts.full_graph, facts.cases[-1]))
    if any([op.target for op in graph] != [op.target for op in facts.graph] for graph, _ in graphs):
        return facts
    specs = [_specs(graph, case, facts, number) for number, (graph, case) in enumerate(graphs)]
    written: list[list[Operation]] = [[] for _ in graphs]
    for place in range(len(facts.graph)):
        same = [graph[place] for graph, _ in graphs]
        found = _part_at(same, [{item.name: item for item in graph} for graph, _ in graphs], specs)
        call = _call_of(found) if found is not None else None
        for out, own in zip(written, same, strict=True):
            out.append(own if call is None or found is None else _written(own, found.of, call))
    done = [_without_splits(tuple(graph)) for graph in written]
    return dataclasses.replace(facts, graph=done[0], full_graph=done[1] if len(done) > 1 else ())


def _specs(graph: tuple[Operation, ...], case: Case, facts: Facts, number: int) -> dict[str, TensorSpec]:
    """Specs of the values of a graph; those of the state only where its sizes are known."""
    state = {f"{kind}:{spec.name}": spec for kind in ("param", "buffer") for spec in facts.parameters}
    if number:
        state = {spec.name: spec for spec in facts.full if ":" in spec.name}
    return (
        {spec.name: spec for spec in case.inputs}
        | state
        | {op.name: op.result[0] for op in graph if len(op.result) == 1}
    )


def _part_at(
    same: list[Operation], by_name: list[dict[str, Operation]], specs: list[dict[str, TensorSpec]]
) -> Part | None:
    """The part that an operation takes, with its bounds at each size."""
    if "getitem" in same[0].target:
        return _part_of_item(same, by_name)
    if aten_name(same[0]) not in ("slice", "select") or any(op.keywords for op in same):
        return None
    given = [spec for op, table in zip(same, specs, strict=True) if (spec := table.get(op.operands[0])) is not None]
    return _part_of_slice(same, given) if len(given) == len(same) and given[0].shape else None


def _part_of_item(same: list[Operation], by_name: list[dict[str, Operation]]) -> Part | None:
    """One of the values that an operation returns."""
    of = by_name[0].get(same[0].operands[0])
    if of is not None and aten_name(of) == "topk":
        return Part(of=of.name, axis=int(same[0].operands[1]), bounds=())
    found = [table.get(op.operands[0]) for op, table in zip(same, by_name, strict=True)]
    splits = [split for split in found if split is not None and aten_name(split) in SPLITS]
    return _part_of_split(splits, same) if len(splits) == len(found) else None


def _part_of_slice(same: list[Operation], given: list[TensorSpec]) -> Part | None:
    """A slice, or one layer."""
    numbers = [[parse_number(text) for text in op.operands[1:]] for op in same]
    if any(None in row or not row for row in numbers):
        return None
    rows = [[int(number or 0) for number in row] for row in numbers]
    axis = rows[0][0] % len(given[0].shape)
    extents = [spec.shape[axis] for spec in given]
    of = same[0].operands[0]
    if aten_name(same[0]) == "select":
        layers = tuple((size, row[1], 0) for size, row in zip(extents, rows, strict=True))
        return Part(of=of, axis=axis, bounds=layers, layer=True)
    whole = [[*row, *SLICE_DEFAULTS[len(row) :]] for row in rows]
    if len(steps := {step for _, _, _, step in whole}) != 1:
        return None
    bounds = tuple((size, start, end) for size, (_, start, end, _) in zip(extents, whole, strict=True))
    return Part(of=of, axis=axis, bounds=bounds, step=steps.pop())


def _part_of_split(splits: list[Operation], items: list[Operation]) -> Part | None:
    """One of the parts into which a split cuts a value."""
    number, first = int(items[0].operands[1]), splits[0]
    if aten_name(first) == "unbind":
        axis = int(first.operands[1]) if len(first.operands) > 1 else 0
        rank = len(first.result[0].shape) + 1 if first.result else 0
        bounds = tuple((len(split.result), number, 0) for split in splits)
        return Part(of=first.operands[0], axis=axis % rank, bounds=bounds, layer=True) if rank else None
    if not all(split.result for split in splits):
        return None
    axis = (int(first.operands[2]) if len(first.operands) > 2 else 0) % len(first.result[0].shape)
    sizes = [[spec.shape[axis] for spec in split.result] for split in splits]
    bounds = tuple((sum(row), sum(row[:number]), sum(row[: number + 1])) for row in sizes)
    is_one_count = len({len(row) for row in sizes}) == 1
    return Part(of=first.operands[0], axis=axis, bounds=bounds, number=number, count=len(sizes[0]) * is_one_count)


def _call_of(part: Part) -> tuple[str, ...] | None:
    """The words of `view` for a part; None if none fits at every size."""
    if not part.bounds:
        return ("item", str(part.axis))
    if part.layer:
        places = {start for _, start, _ in part.bounds}
        return ("layer", str(part.axis), str(places.pop())) if len(places) == 1 else None
    if part.step != 1:
        return _call_with_step(part)
    spans = [(size, *_clamp(start, end, size)) for size, start, end in part.bounds]
    if all((start, end) == (0, size) for size, start, end in spans) and not part.count:
        return ("whole",)
    if part.count and all(_chunk(size, part.number, part.count) == (start, end) for size, start, end in spans):
        return ("chunk", str(part.axis), str(part.number), str(part.count))
    starts, ends = {start for _, start, _ in part.bounds}, {end for _, _, end in part.bounds}
    if len(starts) == len(ends) == 1:
        start, end = starts.pop(), ends.pop()
        return ("slice", str(part.axis), str(start), *((str(end),) if end < OPEN else ()))
    shares = (
        ("share", str(part.axis), str(number), str(count))
        for count in range(2, LARGEST_SHARE + 1)
        for number in range(count)
        if all((size * number // count, size * (number + 1) // count) == (start, end) for size, start, end in spans)
    )
    return next(shares, None)


def _call_with_step(part: Part) -> tuple[str, ...] | None:
    """The words of `view` for a slice with a step that goes on to the end of the axis."""
    starts = {start for _, start, _ in part.bounds}
    is_open = all(end >= size for size, _, end in part.bounds) and len(starts) == 1 and min(starts) >= 0
    return ("every", str(part.axis), str(starts.pop()), str(part.step)) if is_open else None


def _clamp(start: int, end: int, size: int) -> tuple[int, int]:
    """Bounds as they are counted from 0."""
    return max(start + size, 0) if start < 0 else min(start, size), end + size if end < 0 else min(end, size)


def _chunk(size: int, number: int, count: int) -> tuple[int, int]:
    """The bounds of a chunk as torch cuts them."""
    step = -(-size // count)
    return min(number * step, size), min((number + 1) * step, size)


def _written(op: Operation, of: str, call: tuple[str, ...]) -> Operation:
    if call == ("whole",):
        return dataclasses.replace(op, target="aten.alias.default", operands=(of,), keywords=())
    return dataclasses.replace(op, target="part", operands=(of, *call), keywords=())


def _without_splits(graph: tuple[Operation, ...]) -> tuple[Operation, ...]:
    """The graph without splits of which nothing reads the list any more."""
    read = {text for op in graph for text in op.operands}
    return tuple(op for op in graph if aten_name(op) not in SPLITS or op.name in read)


def decompose_to_cat(facts: Facts) -> Facts:
    """The same facts with concatenations in place of stacks, and of repetitions of an axis of 1 that are copied."""
    known = {spec.name: spec for spec in facts.full}
    graph = _joined(facts.graph, facts.cases[0], facts, known)
    full_graph = _joined(facts.full_graph, facts.cases[-1], facts, known)
    return dataclasses.replace(facts, graph=graph, full_graph=full_graph, full=tuple(known.values()))


def _joined(
    graph: tuple[Operation, ...], case: Case, facts: Facts, known: dict[str, TensorSpec]
) -> tuple[Operation, ...]:
    """The graph with concatenations; specs of new values at full size are added to `known`."""
    specs, made = _specs(graph, case, facts, 0), list[Operation]()
    for op in graph:
        if aten_name(op) == "stack" and not op.keywords:
            made += _stacked(op, specs, known)
        elif (copies := _count_copies(op, graph, specs)) is not None:
            axis, count = copies
            given = f"[{', '.join(count * op.operands[:1])}]"
            made.append(dataclasses.replace(op, target="aten.cat.default", operands=(given, str(axis)), keywords=()))
        else:
            made.append(op)
    return tuple(made)


def _stacked(op: Operation, specs: dict[str, TensorSpec], known: dict[str, TensorSpec]) -> list[Operation]:
    """A stack as a concatenation of its tensors, each with a further axis of 1."""
    given, axis = names(op.operands[0]), int(op.operands[1]) if len(op.operands) > 1 else 0
    axis %= len(op.result[0].shape)
    made = []
    for number, name in enumerate(given):
        if name not in specs:
            return [op]
        new = f"{op.name}_{number}_of_{len(given)}"
        if name in known:
            known[new] = dataclasses.replace(_with_axis(known[name], axis), name=new)
        result = (_with_axis(specs[name], axis),)
        made.append(
            dataclasses.replace(
                op, name=new, target="aten.unsqueeze.default", operands=(name, str(axis)), result=result
            )
        )
    joined = f"[{', '.join(item.name for item in made)}]"
    return [*made, dataclasses.replace(op, target="aten.cat.default", operands=(joined, str(axis)))]


def _with_axis(spec: TensorSpec, axis: int) -> TensorSpec:
    shape, strides = list(spec.shape), list(spec.strides)
    shape.insert(axis, 1)
    strides.insert(axis, 1)
    return dataclasses.replace(spec, shape=tuple(shape), strides=tuple(strides))


def _count_copies(op: Operation, graph: tuple[Operation, ...], specs: dict[str, TensorSpec]) -> tuple[int, int] | None:
    """(the axis, how often) of an expansion of one axis of 1 that only a copy reads, as repeat_interleave makes it."""
    before = specs.get(op.operands[0]) if aten_name(op) == "expand" and op.result else None
    if before is None or len(before.shape) != len(op.result[0].shape):
        return None
    changed = [axis for axis, (a, b) in enumerate(zip(before.shape, op.result[0].shape, strict=True)) if a != b]
    readers = [other for other in graph if any(op.name in names(text) for text in other.operands)]
    if len(changed) != 1 or not all(aten_name(other) == "clone" for other in readers):
        return None
    count = op.result[0].shape[changed[0]]
    return (changed[0], count) if 2 <= count <= MOST_COPIES else None
