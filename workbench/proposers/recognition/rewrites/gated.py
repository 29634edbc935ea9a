"""Writes gated linear units (`F.glu`) as the halves of their tensor and a sigmoid."""

from __future__ import annotations

import dataclasses

from workbench.proposers.recognition.graph import aten_name
from workbench.proposers.recognition.rewrites.rewriting import GETITEM, Graph, make_operation, rewrite
from workbench.records import Facts, Operation


def split_gates(facts: Facts) -> Facts:
    """The same facts, with a split, a sigmoid and a product for each call of glu."""
    return rewrite(facts, _write)


def _write(op: Operation, graph: Graph) -> list[Operation] | None:
    if aten_name(op) != "glu" or not op.result:
        return None
    half, name = op.result[0], op.name
    axis = dict(op.keywords).get("dim", op.operands[1] if len(op.operands) > 1 else "-1")
    halves = make_operation(
        f"{name}_halves", "aten.split.Tensor", (op.operands[0], str(half.shape[int(axis)]), axis), half
    )
    return [
        dataclasses.replace(halves, result=(half, half)),
        make_operation(f"{name}_value", GETITEM, (halves.name, "0"), half),
        make_operation(f"{name}_gate", GETITEM, (halves.name, "1"), half),
        make_operation(f"{name}_share", "sigmoid", (f"{name}_gate",), half),
        make_operation(name, "aten.mul.Tensor", (f"{name}_value", f"{name}_share"), half),
    ]
