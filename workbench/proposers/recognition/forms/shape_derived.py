"""Takes tensors that forward makes of sizes alone, as `torch.arange(n)`, for inputs: torch makes them, kernels read.

Positions along an axis of a tensor that is read anyway are part of an expression, and need no tensor: see `positions`.
"""

from __future__ import annotations

import dataclasses
import re

from workbench.proposers.recognition.graph import aten_name, names
from workbench.proposers.recognition.patterns.attention import FUSED
from workbench.records import Case, Facts, Operation, ShapeDerivedTensor, TensorSpec, scale_name

EXTENT = re.compile(r"(\w+)\.shape\[(\d+)\]")
SOURCES = ("ones",)  # calls that nothing reads any more


def name_shape_derived(facts: Facts) -> Facts:
    """The same facts with such tensors as arguments of forward; those of which it is not known where they are, stay."""
    known = {op.name for op in facts.graph} | {scale_name(op.name) for op in facts.graph if aten_name(op) in FUSED}
    made = [one for one in facts.made if one.name in known and _is_bound(one, facts)]
    if not made:
        return facts
    own = {one.name for one in made}
    return dataclasses.replace(
        facts,
        forward_arguments=(*facts.forward_arguments, *(one.name for one in made)),
        graph=_leave_out(facts.graph, own),
        full_graph=_leave_out(facts.full_graph, own),
        full=(*facts.full, *(_spec(one, facts.cases[-1]) for one in made if facts.full and not one.extents)),
        cases=tuple(
            dataclasses.replace(case, inputs=(*case.inputs, *(_spec(one, case) for one in made)))
            for case in facts.cases
        ),
    )


def _is_bound(made: ShapeDerivedTensor, facts: Facts) -> bool:
    """Whether forward has the names of an expression as arguments of their own."""
    return {name for name, _ in EXTENT.findall(made.expression)} <= {*facts.forward_arguments}


def _spec(made: ShapeDerivedTensor, case: Case) -> TensorSpec:
    """The tensor at the sizes of a case."""
    shapes = {spec.name: spec.shape for spec in case.inputs}
    shape = tuple(_add(EXTENT.sub(lambda match: str(shapes[match[1]][int(match[2])]), text)) for text in made.extents)
    strides = [1]
    for extent in reversed(shape[1:]):
        strides.insert(0, strides[0] * extent)
    return TensorSpec(name=made.name, shape=shape, dtype=made.dtype, strides=tuple(strides[: len(shape)]))


def _add(text: str) -> int:
    """The value of a number, or of a sum or a difference of two."""
    return sum(int(number) for number in text.replace(" - ", " + -").split(" + "))


def _leave_out(graph: tuple[Operation, ...], made: set[str]) -> tuple[Operation, ...]:
    """The graph without the calls that make them, and without those that served these alone."""
    kept = [op for op in graph if op.name not in made]
    read = {name for op in kept for text in (*op.operands, *(text for _, text in op.keywords)) for name in names(text)}
    return tuple(op for op in kept if op.name in read or aten_name(op) not in SOURCES)
