"""Writes cross entropies over an axis that is not the last (`nll_loss2d`) as those of rows of classes."""

from __future__ import annotations

import dataclasses
import math

from workbench.proposers.recognition.graph import aten_name
from workbench.proposers.recognition.views import axis_order
from workbench.records import Facts, Operation, TensorSpec

Shape = tuple[int, ...]
LOSS, RESHAPES = "nll_loss2d_forward", ("view", "reshape", "_unsafe_view")


def move_classes_last(facts: Facts) -> Facts:
    """The same facts with logits (batch, classes, ...) as rows (elements, classes) in both graphs."""
    if not any(aten_name(op) == LOSS for op in facts.graph):
        return facts
    full = {spec.name: spec for spec in facts.full}
    given = {spec.name: spec for spec in facts.cases[0].inputs}
    at_full = {spec.name: spec for spec in facts.cases[-1].inputs}
    graph, made = _rewrite(facts.graph, given | _results(facts.graph), full)
    full_graph, _ = _rewrite(facts.full_graph, at_full | _results(facts.full_graph), {})
    return dataclasses.replace(facts, graph=graph, full_graph=full_graph, full=(*facts.full, *made))


def _results(graph: tuple[Operation, ...]) -> dict[str, TensorSpec]:
    return {op.name: op.result[0] for op in graph if op.result}


def _rewrite(
    graph: tuple[Operation, ...], specs: dict[str, TensorSpec], full: dict[str, TensorSpec]
) -> tuple[tuple[Operation, ...], list[TensorSpec]]:
    """(the graph, specs of its new operations at full size)."""
    by_name = {op.name: op for op in graph}
    made: list[Operation] = []
    sizes: list[TensorSpec] = []
    losses: set[str] = set()  # with a result for each element
    flat: dict[str, str] = {}  # results of those -> the same as one row
    for op in graph:
        shares = _find_shares(op, by_name)
        if shares is not None:
            new, more = _write_loss(op, shares, by_name, specs, full)
            made, sizes = made + new, sizes + more
            losses |= {op.name} if op.operands[3] == "0" else set()
        elif op.operands and op.operands[0] in losses and op.operands[1:] == ("0",):
            rows = flat[op.name] = f"{op.name}_rows"
            count = (math.prod(op.result[0].shape),)
            made.append(dataclasses.replace(op, name=rows, result=(_spec_of(op.result[0], rows, count),)))
            made.append(_view(op.name, rows, op.result[0]))
            if op.name in full:
                sizes.append(_spec_of(full[op.name], rows, (math.prod(full[op.name].shape),)))
        elif aten_name(op) in RESHAPES and op.operands[0] in flat:
            made.append(dataclasses.replace(op, operands=(flat[op.operands[0]], *op.operands[1:])))
        else:
            made.append(op)
    return tuple(made), sizes


def _find_shares(op: Operation, by_name: dict[str, Operation]) -> Operation | None:
    """The logarithms of shares along axis 1 that a loss without weights of classes reads; None for anything else."""
    if aten_name(op) != LOSS or op.operands[2] != "None":
        return None
    found = by_name.get(op.operands[0])
    if found is not None and aten_name(found) in RESHAPES:
        found = by_name.get(found.operands[0])
    is_shares = found is not None and aten_name(found) == "_log_softmax" and found.operands[1] == "1"
    return found if is_shares else None


def _write_loss(
    op: Operation,
    shares: Operation,
    by_name: dict[str, Operation],
    specs: dict[str, TensorSpec],
    full: dict[str, TensorSpec],
) -> tuple[list[Operation], list[TensorSpec]]:
    """(a loss of rows and what makes its operands, their specs at full size)."""
    logits, target = shares.operands[0], op.operands[1]
    if target in by_name and aten_name(by_name[target]) in RESHAPES:
        target = by_name[target].operands[0]
    shape = specs[logits].shape
    last = (0, *range(2, len(shape)), 1)
    made: list[Operation] = []
    sizes: list[TensorSpec] = []

    def add(part: str, kind: str, of: str, texts: tuple[str, ...], like: str, reshape: bool) -> str:
        name = f"{op.name}_{part}"

        def arrange(spec: TensorSpec) -> TensorSpec:
            moved = tuple(spec.shape[axis] for axis in last) if like == logits else spec.shape
            rows = (math.prod(moved[:-1]), moved[-1]) if like == logits else (math.prod(moved),)
            return _spec_of(spec, name, rows if reshape else moved)

        spec = arrange(specs[like])
        texts = (str(list(spec.shape)),) if kind == "view" else texts
        made.append(Operation(name=name, target=f"aten.{kind}.default", operands=(of, *texts), result=(spec,)))
        if like in full:
            sizes.append(arrange(full[like]))
        return name

    before = by_name.get(logits)
    if before is not None and axis_order(before, len(shape)) == _inverse(last) and aten_name(before) != "t":
        rows = before.operands[0]  # the classes were last before
    else:
        rows = add("moved", "permute", logits, (str(list(last)),), logits, False)
    rows = add("logits", "view", rows, (), logits, True)
    rows = add("shares", "_log_softmax", rows, ("1", "False"), logits, True)
    targets = add("target", "view", target, (), target, True)
    result = op.result
    if op.operands[3] == "0":
        result = (_spec_of(result[0], result[0].name, (math.prod(result[0].shape),)), *result[1:])
    made.append(
        dataclasses.replace(
            op, target="aten.nll_loss_forward.default", operands=(rows, targets, *op.operands[2:]), result=result
        )
    )
    return made, sizes


def _inverse(order: Shape) -> Shape:
    return tuple(order.index(axis) for axis in range(len(order)))


def _view(name: str, of: str, like: TensorSpec) -> Operation:
    return Operation(name=name, target="aten.view.default", operands=(of, str(list(like.shape))), result=(like,))


def _spec_of(like: TensorSpec, name: str, shape: Shape) -> TensorSpec:
    """A contiguous tensor's spec."""
    strides = tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
    return dataclasses.replace(like, name=name, shape=shape, strides=strides)
