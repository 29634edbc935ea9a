"""Traced reference (ATen calls) -> what the planner can write: an operation, its operands, its epilogues.

A matcher takes the facts, the operations by the name of their result, and the name of the output; it gives a `Computation` or None.
"""

from __future__ import annotations

from workbench.proposers.recognition import attention, channels, convolutions, expressions, gathers, pools, products, rows, scans
from workbench.proposers.recognition.graph import Computation, Unrecognised, short
from workbench.records import Facts

__all__ = ["Computation", "Unrecognised", "recognise"]

MATCHERS = (
    attention.attention, scans.scan, pools.pool, gathers.gather, rows.crossentropy, rows.softmax, rows.layernorm, rows.rmsnorm, rows.reduce, products.gemm, products.grouped, convolutions.convolution,
    channels.batchnorm, channels.groupnorm, channels.instancenorm, expressions.expressions,
)  # fmt: skip


def recognise(facts: Facts) -> Computation:
    """The computation of a graph; raises `Unrecognised` with the operation that is in the way."""
    by_name = {op.name: op for op in facts.graph}
    output = facts.graph[-1].operands[0]
    for attempt in MATCHERS:
        found = attempt(facts, by_name, output)
        if found is not None:
            return found
    calls = [short(op) for op in facts.graph if op.target.startswith("aten.")]
    raise Unrecognised(f"the planner has no kernel for {' -> '.join(calls) or 'this module'}; write one yourself below %%cutegen edit")
