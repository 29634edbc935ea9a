"""Counts the least work of a reference at a case: FLOPs, and bytes with each element that is read counted once.

Used in workers only: it imports torch.
"""

from __future__ import annotations

import torch

from workbench.problems.cases import Measured
from workbench.problems.inputs.integers import make_integer_inputs
from workbench.problems.work.named_rows import NAMING, Named, find_named_rows
from workbench.records import Operation, Problem, TensorSpec, Work, aten_name

__all__ = ["count_work", "note_partial_reads"]

DTYPES = {"fp32": "float32", "tf32": "tfloat32", "fp16": "float16", "bf16": "bfloat16"}
# calls that may read a part of a tensor, of which the bytes are counted whole
PARTIAL_READS = (*NAMING, "gather", "slice", "select", "tril", "triu", "narrow")


def count_work(
    problem: Problem, measured: Measured, graph: tuple[Operation, ...] = ()
) -> tuple[Work, tuple[Named, ...]]:
    """(FLOPs as `counting` defines them, and bytes; the tensors of which rows are counted that indices name).

    Inputs, parameters, buffers and outputs count once, as they are stored. Of a tensor that `graph` only takes rows of,
    by integer inputs, those rows count that the inputs of one draw name, each once.
    """
    named = _find_named(problem, measured, graph)
    rows = {item.tensor: item for item in named}
    state = zip(_state_labels(measured), measured.state, strict=True)
    specs = [*((spec.name, spec) for spec in (*measured.case.inputs, *measured.case.outputs)), *state]
    size = sum(_read_elements(spec, rows.get(name)) * _itemsize(spec) for name, spec in specs)
    work = Work(
        case=measured.case.name,
        flops=measured.total,
        least_bytes=size,
        dtype=DTYPES.get(problem.precision, measured.dtype),
        tensor_cores=measured.products > 0,
        parts=measured.flops,
    )
    return work, named


def _find_named(problem: Problem, measured: Measured, graph: tuple[Operation, ...]) -> tuple[Named, ...]:
    if not any(aten_name(op) in NAMING for op in graph):
        return ()
    values = make_integer_inputs(problem, measured.case)
    shapes = {spec.name: spec.shape for spec in measured.case.inputs}
    shapes |= {name: spec.shape for name, spec in zip(_state_labels(measured), measured.state, strict=True)}
    return find_named_rows(graph, shapes, values)


def _state_labels(measured: Measured) -> list[str]:
    """The names of parameters and buffers without their kind: how a graph names them after `param:` or `buffer:`."""
    return [f"state:{spec.name}" for spec in measured.state]


def _read_elements(spec: TensorSpec, named: Named | None) -> int:
    if named is None:
        return spec.stored_elements
    return spec.stored_elements // max(spec.shape[0], 1) * named.rows


def _itemsize(spec: TensorSpec) -> int:
    return int(getattr(torch, spec.dtype).itemsize)


def note_partial_reads(graph: tuple[Operation, ...], named: tuple[Named, ...], case: str) -> tuple[str, ...]:
    """What the least bytes count of tensors that are read in part."""
    said = tuple(
        f"the least bytes count {item.rows:,} of {item.of:,} rows of {item.tensor.removeprefix('state:')}: "
        f"those that the indices of one draw name (case {case})"
        for item in named
        if item.rows < item.of
    )
    exact = {name for item in named for name in item.calls}
    partial = sorted({aten_name(op) for op in graph if op.name not in exact} & {*PARTIAL_READS})
    if not partial:
        return said
    return (
        *said,
        f"forward reads parts of its inputs ({', '.join(partial)}), "
        "so the least bytes, which count every input whole, may be too many",
    )
