"""Writes batch norms in training mode as their statistics and element-wise calls, where what follows can take these in.

`(x - mean) * scale * weight + bias` then becomes part of the next kernel. That kernel reads x instead of the norm's
result, which is neither written nor read: two or three passes over x in place of four or five.
"""

from __future__ import annotations

import dataclasses

from workbench.language.expressions.scalars import ATEN
from workbench.language.operations.channel_norms import STATS
from workbench.proposers.recognition.composed import MORE
from workbench.proposers.recognition.graph import Unrecognised, aten_name, find_producer, names, plain_name
from workbench.proposers.recognition.patterns.channels import is_batchnorm
from workbench.proposers.recognition.patterns.reductions import find_reduction
from workbench.proposers.recognition.rewrites.rewriting import drop_unread
from workbench.records import Facts, Operation, TensorSpec

ROWS = ("_softmax", "_log_softmax", "softmax", "log_softmax", "native_layer_norm")  # written by kernels of expressions
SPECIAL = ("relu6", "clamp", "hardtanh", "pow", "rsub", "elu", "celu", "softplus", "gelu", "threshold", "hardshrink")
ELEMENT = {*ATEN, *MORE, *SPECIAL}
Shape = tuple[int, ...]


def split_norms(facts: Facts) -> Facts:
    """The same facts without batch norms whose result only element-wise calls, reductions and softmax read."""
    by_name = {op.name: op for op in facts.graph}
    known = {spec.name: spec for spec in facts.full}
    graph: list[Operation] = []
    for op in facts.graph:
        norm = find_producer(by_name, op.name)
        if norm is None or not is_batchnorm(norm, by_name) or not _is_taken_in(op.name, norm, facts.graph):
            graph.append(op)
            continue
        made = _split(op, norm)
        graph += made
        if op.name in known:
            known |= {new.name: _spec_at_full(new, known[op.name], op.result[0]) for new in made[:-1]}
    if len(graph) == len(facts.graph):
        return facts
    norms = {op.name for op in graph if is_batchnorm(op, by_name)}
    return dataclasses.replace(facts, graph=drop_unread(graph, norms), full=tuple(known.values()))


def _is_taken_in(value: str, norm: Operation, graph: tuple[Operation, ...]) -> bool:
    """Whether everything that reads the result of a norm in training mode is written by kernels of expressions."""
    items = {op.name for op in graph if "getitem" in op.target and op.operands[0] == norm.name}
    readers = [op for op in graph if any(items & {*names(text)} for text in op.operands)]
    return norm.operands[5] == "True" and value in items and bool(readers) and all(map(_is_fusible, readers))


def _is_fusible(op: Operation) -> bool:
    """Whether an operation is an element-wise call, a reduction, or works along rows."""
    if plain_name(op) in ELEMENT or aten_name(op) in ROWS:
        return True
    try:
        return find_reduction(op) is not None
    except (Unrecognised, ValueError, IndexError):
        return False


def _split(item: Operation, norm: Operation) -> list[Operation]:
    """The statistics, and the calls that apply them, the last of which has the name of the norm's result."""
    x, weight, bias = norm.operands[:3]
    whole = item.result[0]
    shape = (whole.shape[1], *(1 for _ in whole.shape[2:]))
    by_channel = dataclasses.replace(whole, shape=shape, strides=(1,) * len(shape), dtype="float32")
    like = {"by_channel": by_channel, "whole": dataclasses.replace(whole, dtype="float32")}
    made = [dataclasses.replace(norm, name=f"{item.name}_{STATS}", target=STATS, result=(by_channel, by_channel))]

    def add(name: str, target: str, operands: tuple[str, ...], result: str) -> str:
        made.append(Operation(name=f"{item.name}_{name}", target=target, operands=operands, result=(like[result],)))
        return made[-1].name

    def align(values: str) -> str:
        sizes = str([-1, *shape[1:]])
        return (
            values
            if len(shape) == 1
            else add(values.split(".")[-1], "aten.view.default", (values, sizes), "by_channel")
        )

    mean = add("mean", "part", (made[0].name, "item", "0"), "by_channel")
    scale = add("scale", "part", (made[0].name, "item", "1"), "by_channel")
    value = add("centred", "aten.sub.Tensor", (x, mean), "whole")
    value = add("normal", "aten.mul.Tensor", (value, scale), "whole")
    if weight != "None":
        value = add("weighted", "aten.mul.Tensor", (value, align(weight)), "whole")
        value = add("biased", "aten.add.Tensor", (value, align(bias)), "whole")
    made[-1] = dataclasses.replace(made[-1], name=item.name, result=item.result)
    return made


def _spec_at_full(op: Operation, whole: TensorSpec, traced: TensorSpec) -> TensorSpec:
    """The spec at full size of an operation that a norm was split into; `whole` is that of the norm's result."""
    own = op.result[0]
    if own.shape == traced.shape and own.strides == traced.strides:
        return dataclasses.replace(whole, name=op.name, dtype=own.dtype)
    return dataclasses.replace(own, name=op.name, shape=(whole.shape[1], *own.shape[1:]))
