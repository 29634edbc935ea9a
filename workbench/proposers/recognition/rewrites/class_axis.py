"""Writes cross entropies over an axis that is not the last (`nll_loss2d`) as those of rows of classes."""

from __future__ import annotations

import dataclasses
import math

from workbench.proposers.recognition.graph import aten_name
from workbench.proposers.recognition.rewrites.rewriting import Graph, make_operation, reshape_spec, rewrite
from workbench.proposers.recognition.views import axis_order
from workbench.records import Facts, Operation

Shape = tuple[int, ...]
LOSS, RESHAPES = "nll_loss2d_forward", ("view", "reshape", "_unsafe_view")


def move_classes_last(facts: Facts) -> Facts:
    """The same facts with logits (batch, classes, ...) as rows (elements, classes) in both graphs."""
    losses: set[str] = set()  # with a result for each element
    flat: dict[str, str] = {}  # results of those -> the same as one row

    def write(op: Operation, graph: Graph) -> list[Operation] | None:
        shares = _find_shares(op, graph.by_name)
        if shares is not None:
            losses.update({op.name} if op.operands[3] == "0" else ())
            return _write_loss(op, shares, graph)
        if op.operands and op.operands[0] in losses and op.operands[1:] == ("0",):
            rows = flat[op.name] = f"{op.name}_rows"
            count = (math.prod(op.result[0].shape),)
            shape = str(list(op.result[0].shape))
            return [
                dataclasses.replace(op, name=rows, result=(reshape_spec(op.result[0], count, rows),)),
                make_operation(op.name, "view", (rows, shape), op.result[0]),
            ]
        if aten_name(op) in RESHAPES and op.operands[0] in flat:
            return [dataclasses.replace(op, operands=(flat[op.operands[0]], *op.operands[1:]))]
        return None

    return rewrite(facts, write)


def _find_shares(op: Operation, by_name: dict[str, Operation]) -> Operation | None:
    """The logarithms of shares along axis 1 that a loss without weights of classes reads; None for anything else."""
    if aten_name(op) != LOSS or op.operands[2] != "None":
        return None
    found = by_name.get(op.operands[0])
    if found is not None and aten_name(found) in RESHAPES:
        found = by_name.get(found.operands[0])
    is_shares = found is not None and aten_name(found) == "_log_softmax" and found.operands[1] == "1"
    return found if is_shares else None


def _write_loss(op: Operation, shares: Operation, graph: Graph) -> list[Operation]:
    """A loss of rows, and what makes its operands."""
    by_name = graph.by_name
    logits, target = shares.operands[0], op.operands[1]
    if target in by_name and aten_name(by_name[target]) in RESHAPES:
        target = by_name[target].operands[0]
    shape = graph.specs[logits].shape
    last = (0, *range(2, len(shape)), 1)
    moved = tuple(shape[axis] for axis in last)
    matrix = (math.prod(moved[:-1]), moved[-1])
    made: list[Operation] = []

    def add(part: str, kind: str, of: str, texts: tuple[str, ...], like: str, extents: Shape) -> str:
        spec = reshape_spec(graph.specs[like], extents)
        texts = (str(list(extents)),) if kind == "view" else texts
        made.append(make_operation(f"{op.name}_{part}", kind, (of, *texts), spec))
        return made[-1].name

    before = by_name.get(logits)
    if before is not None and axis_order(before, len(shape)) == _inverse(last) and aten_name(before) != "t":
        rows = before.operands[0]  # the classes were last before
    else:
        rows = add("moved", "permute", logits, (str(list(last)),), logits, moved)
    rows = add("logits", "view", rows, (), logits, matrix)
    rows = add("shares", "_log_softmax", rows, ("1", "False"), logits, matrix)
    targets = add("target", "view", target, (), target, (math.prod(graph.specs[target].shape),))
    result = op.result
    if op.operands[3] == "0":
        result = (reshape_spec(result[0], (math.prod(result[0].shape),)), *result[1:])
    made.append(
        dataclasses.replace(
            op, target="aten.nll_loss_forward.default", operands=(rows, targets, *op.operands[2:]), result=result
        )
    )
    return made


def _inverse(order: Shape) -> Shape:
    return tuple(order.index(axis) for axis in range(len(order)))
