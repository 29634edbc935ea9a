"""Traced reference (ATen calls) -> what the planner can write: an operation, its operands, its epilogues.

A matcher takes the facts, the operations by the name of their result, and the name of the output; it gives a
`Computation` or None.
"""

from __future__ import annotations

import ast
import dataclasses

from workbench.proposers.recognition import expressions, pipelines
from workbench.proposers.recognition.graph import YOURSELF, Computation, Unrecognised, short
from workbench.proposers.recognition.mutations import why_not
from workbench.proposers.recognition.patterns import (
    attention,
    channels,
    convolutions,
    gathers,
    pools,
    products,
    rows,
    scans,
)
from workbench.proposers.recognition.patterns.einsums import fold_views
from workbench.records import Facts

__all__ = ["Computation", "Unrecognised", "recognise"]

MATCHERS = (
    attention.attention,
    scans.scan,
    pools.pool,
    gathers.gather,
    rows.crossentropy,
    rows.softmax,
    rows.layernorm,
    rows.rmsnorm,
    rows.reduce,
    products.gemm,
    products.grouped,
    convolutions.convolution,
    channels.batchnorm,
    channels.groupnorm,
    channels.instancenorm,
    expressions.expressions,
)


def recognise(facts: Facts) -> Computation:
    """The computation of a graph: what one matcher knows, else a pipeline of such.

    Raises `Unrecognised` with the operations.
    """
    if len(facts.graph[-1].operands) != 1:
        raise Unrecognised(
            f"the planner has no kernel for a module that gives {len(facts.graph[-1].operands)} results; {YOURSELF}"
        )
    if (reason := why_not(facts)) is not None:
        raise Unrecognised(reason)
    if numbers_of_file := sorted(_read_in_init(facts) & {name for case in facts.cases for name, _ in case.settings}):
        raise Unrecognised(
            f"Model.__init__ reads {', '.join(numbers_of_file)} of the problem's file, which other sizes change; "
            "give it to __init__ through get_init_inputs, so that one kernel serves all sizes"
        )
    found = _found(facts)
    if facts.full_graph and _said(found) != _said(_at_full(facts)):
        raise Unrecognised(
            "the planner has no kernel for a module whose forward does something else at full size than at the sizes "
            f"that are emulated (numbers made of sizes, parts of tensors, branches); {YOURSELF}"
        )
    return found


def _found(facts: Facts) -> Computation:
    facts = fold_views(facts)
    try:
        return _single(facts)
    except Unrecognised:
        found = pipelines.pipeline(facts, {op.name: op for op in facts.graph}, facts.graph[-1].operands[0], _single)
        if found is None:
            raise
        return found


def _read_in_init(facts: Facts) -> set[str]:
    """Names of the file that `__init__` reads."""
    nodes = list(ast.walk(ast.parse(facts.init_source)))
    own = {node.arg for node in nodes if isinstance(node, ast.arg)} | {
        node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    return {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)} - own


def _at_full(facts: Facts) -> Computation | None:
    """What the graph is at full size."""
    try:
        return _found(dataclasses.replace(facts, graph=facts.full_graph, cases=(facts.cases[-1],), full_graph=()))
    except Unrecognised:
        return None


def _said(found: Computation | None) -> object:
    """What of a computation is written into kernels."""
    if found is None or not found.pieces:
        return found
    return [
        (piece.named.operation, piece.named.epilogues, piece.named.operands, piece.named.layout)
        for piece in found.pieces
    ]


def _single(facts: Facts) -> Computation:
    by_name = {op.name: op for op in facts.graph}
    output = facts.graph[-1].operands[0]
    for attempt in MATCHERS:
        found = attempt(facts, by_name, output)
        if found is not None:
            return found
    calls = [short(op) for op in facts.graph if op.target.startswith("aten.")]
    raise Unrecognised(f"the planner has no kernel for {' -> '.join(calls) or 'this module'}; {YOURSELF}")
