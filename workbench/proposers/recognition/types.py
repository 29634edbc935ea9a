"""Element types of a computation: those of its operands, and the cast that gives its result the type of the graph's."""

from __future__ import annotations

import dataclasses

from workbench.language import Call
from workbench.proposers.recognition.graph import Computation, python_expression
from workbench.records import Facts, Operation

ROUNDED = "_rounded"  # behind the name of a value: the same as it is stored
CASTS = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}  # torch's name of a type -> the language's
PRECISIONS = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
# kinds whose kernels store the type of their first tensor, or that of a cast
CASTABLE = ("gemm", "convolution", "softmax", "layernorm", "rmsnorm", "reduce", "crossentropy", "remap")


def settle_types(facts: Facts, found: Computation) -> Computation | None:
    """The computation with a cast of its result where the graph has another type; None if it cannot be cast."""
    own, wanted = _dtype_of(facts, found.operands[0][1]), facts.cases[0].outputs[0].dtype
    found = dataclasses.replace(found, dtype=own)
    if own == wanted or not {own, wanted} <= set(CASTS):
        return found
    if found.kind not in CASTABLE or found.after or found.unfused is not None:
        return None
    cast = Call(name="cast", positional=(CASTS[wanted],))
    return dataclasses.replace(found, epilogues=(*found.epilogues, cast))


def mark_roundings(facts: Facts) -> Facts:
    """The same graph with a cast where a value of a narrow type, computed here, becomes part of a wider one.

    Kernels compute in float32. Where torch goes on in the narrow type, more digits are no error. Where it widens a
    value, the result shows the digits that the value had lost.
    """
    specs = {op.name: op.result[0] for op in facts.graph if op.result and "_to_copy" not in op.target}
    full = {spec.name: spec for spec in facts.full}
    graph: list[Operation] = []
    marked: dict[str, str] = {}
    for op in facts.graph:
        is_wider = bool(op.result) and op.result[0].dtype == "float32"
        for name in op.operands if is_wider else ():
            spec = specs.get(name)
            if spec is None or spec.dtype not in ("float16", "bfloat16") or name in marked:
                continue
            marked[name] = f"{name}{ROUNDED}"
            cast = (("dtype", f"torch.{spec.dtype}"),)
            graph.append(
                Operation(
                    name=marked[name],
                    target="aten._to_copy.default",
                    operands=(name,),
                    keywords=cast,
                    result=(spec,),
                )
            )
            if name in full:
                full[marked[name]] = dataclasses.replace(full[name], name=marked[name])
        operands = tuple(marked.get(name, name) for name in op.operands) if is_wider else op.operands
        graph.append(dataclasses.replace(op, operands=operands))
    return dataclasses.replace(facts, graph=tuple(graph), full=tuple(full.values())) if marked else facts


def _dtype_of(facts: Facts, expression: str) -> str:
    """The type of an operand, whose expression may end in views; empty if it is not known."""
    own = {python_expression(spec.name): spec.dtype for spec in facts.cases[0].inputs}
    own |= {python_expression(f"param:{spec.name}"): spec.dtype for spec in facts.parameters}
    fits = [name for name in own if expression == name or expression.startswith((f"{name}.", f"{name}["))]
    return own[max(fits, key=len)] if fits else ""
