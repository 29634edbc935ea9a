"""Turns in-place writes of whole buffers and inputs into values, and stores of these after everything else.

`mean.mul_(d).add_(x.mean(0), alpha=1 - d)` is two element-wise calls whose last value is stored. A counter of integers
goes on by a number.
"""

from __future__ import annotations

import dataclasses

from workbench.proposers.recognition.graph import aten_name, names, parse_number
from workbench.proposers.recognition.mutations import find_written
from workbench.records import Facts, Operation, TensorSpec

STORE = "store"
BUFFER = "buffer:"
COUNTER = "num_batches_tracked"  # batch norm's kernels go on with it
OUT = "_.out"  # ends the target of a call with `out=` that is written as one in place
INTEGERS = ("int64", "int32")


def write_stores(facts: Facts) -> Facts:
    """The same facts without such writes; `store` operations, which are further results, have their last values.

    What is written in another way stays as it is: parts of tensors, tensors of which a view is read.
    """
    specs = {f"{BUFFER}{spec.name}": spec for spec in facts.parameters}
    specs |= {spec.name: spec for spec in facts.cases[0].inputs}
    graph = _rewrite(facts.graph, specs)
    full_graph = _rewrite(facts.full_graph, specs) if graph is not None and facts.full_graph else ()
    if graph is None or full_graph is None:
        return facts
    written = find_written(graph)
    left = any(spec.name in written for spec in facts.cases[0].inputs)
    known = tuple(item for item in facts.degeneracies if left or item.kind != "input_modified")
    return dataclasses.replace(facts, graph=graph, full_graph=full_graph, degeneracies=known)


def _rewrite(graph: tuple[Operation, ...], specs: dict[str, TensorSpec]) -> tuple[Operation, ...] | None:
    """The graph with stores at its end; None if it writes no tensor of `specs`, or some in a way that is not
    understood.
    """
    holds: dict[str, str] = {}  # value -> the buffer or input whose memory it is
    stores: dict[str, tuple[str, ...]] = {}  # buffer or input -> operands of its store
    made: list[Operation] = []
    for given in graph:
        op = _with_target(given)
        target = op.operands[0] if op.operands else ""
        buffer = holds.get(target, target)
        name = aten_name(op)
        is_own = buffer.startswith(BUFFER) or buffer in specs
        if not (name.endswith("_") and op.target.startswith("aten.") and is_own) or buffer.endswith(COUNTER):
            made.append(op)
            continue
        if not op.result or buffer not in specs or op.result[0].dtype != specs[buffer].dtype:
            return None
        holds[op.name] = buffer
        if op.result[0].dtype in INTEGERS:
            count = _count(op)
            if count is None or buffer in stores or _is_read(graph, op.name) or _is_read_beside(graph, buffer, op):
                return None
            stores[buffer] = (buffer, "add", count)
            continue
        value = _as_value(op)
        if value is None:
            return None
        made.append(value)
        stores[buffer] = (buffer, op.name)
    if not stores:
        return None
    *body, output = made
    ends = [
        Operation(name=f"store_{n}", target=STORE, operands=operands, result=())
        for n, operands in enumerate(stores.values(), 1)
    ]
    results = (*output.operands, *(op.name for op in ends))
    return (*body, *ends, dataclasses.replace(output, operands=results))


def _with_target(op: Operation) -> Operation:
    """A call that writes to `out=` as one in place, of which the tensor that it writes is the first operand."""
    out = dict(op.keywords).get("out")
    if out is None or not op.target.endswith((".out", "_out")):
        return op
    more = tuple(pair for pair in op.keywords if pair[0] != "out")
    return dataclasses.replace(op, target=f"aten.{aten_name(op)}{OUT}", operands=(out, *op.operands), keywords=more)


def _as_value(op: Operation) -> Operation | None:
    """The call that gives what an in-place call writes; None for a copy of another shape."""
    if op.target.endswith(OUT):
        target = f"{op.target.removesuffix(OUT)}.default"
        return dataclasses.replace(op, target=target, operands=op.operands[1:])
    if aten_name(op) != "copy_":
        name = aten_name(op)
        return dataclasses.replace(op, target=op.target.replace(name, name.removesuffix("_"), 1))
    target, more = "aten._to_copy.default", (("dtype", f"torch.{op.result[0].dtype}"),)
    return dataclasses.replace(op, target=target, operands=op.operands[1:2], keywords=more)


def _count(op: Operation) -> str | None:
    """The whole number that a counter goes on by."""
    is_step = aten_name(op) in ("add_", "sub_") and not op.keywords and len(op.operands) == 2
    number = parse_number(op.operands[1]) if is_step else None
    if number is None or not number.is_integer():
        return None
    return str(int(number if aten_name(op) == "add_" else -number))


def _is_read(graph: tuple[Operation, ...], value: str) -> bool:
    return any(value in names(text) for op in graph for text in (*op.operands, *(text for _, text in op.keywords)))


def _is_read_beside(graph: tuple[Operation, ...], value: str, writer: Operation) -> bool:
    """Whether anything but one call reads a value."""
    return _is_read(tuple(op for op in graph if op is not writer), value)
