"""Writes gated linear units (`F.glu`) as the halves of their tensor and a sigmoid."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from workbench.proposers.recognition.graph import aten_name
from workbench.records import Facts, Operation, TensorSpec

GETITEM = "<built-in function getitem>"


def split_gates(facts: Facts) -> Facts:
    """The same facts, with a split, a sigmoid and a product for each call of glu."""
    if not any(aten_name(op) == "glu" for op in facts.graph):
        return facts
    graphs = [tuple(new for op in graph for new in _split(op)) for graph in (facts.graph, facts.full_graph)]
    known = {spec.name for spec in facts.full}
    made = [op for op in graphs[1] if op.name not in known and op.result and known]
    more = [dataclasses.replace(op.result[0], name=op.name) for op in made]
    return dataclasses.replace(facts, graph=graphs[0], full_graph=graphs[1], full=(*facts.full, *more))


def _split(op: Operation) -> Iterator[Operation]:
    if aten_name(op) != "glu" or not op.result:
        yield op
        return
    half, name, axis = op.result[0], op.name, op.operands[1] if len(op.operands) > 1 else "-1"
    parts = dict(op.keywords).get("dim", axis), str(half.shape[int(dict(op.keywords).get("dim", axis))])
    yield _call(f"{name}_halves", "aten.split.Tensor", (op.operands[0], parts[1], parts[0]), (half, half))
    for number, label in enumerate(("value", "gate")):
        yield _call(f"{name}_{label}", GETITEM, (f"{name}_halves", str(number)), (half,))
    yield _call(f"{name}_share", "aten.sigmoid.default", (f"{name}_gate",), (half,))
    yield dataclasses.replace(op, target="aten.mul.Tensor", operands=(f"{name}_value", f"{name}_share"), keywords=())


def _call(name: str, target: str, operands: tuple[str, ...], result: tuple[TensorSpec, ...]) -> Operation:
    return Operation(name=name, target=target, operands=operands, result=result)
