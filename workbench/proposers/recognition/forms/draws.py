"""Finds modules whose random numbers a kernel cannot draw in the order in which the reference draws them."""

from __future__ import annotations

from workbench.proposers.recognition.graph import YOURSELF, names, plain_name
from workbench.records import Operation

DRAWS = ("bernoulli",)


def why_not(graph: tuple[Operation, ...]) -> str | None:
    """A line on draws that do not follow one another; None if there is only one order in which they can be made.

    Torch's generator gives each draw the next numbers. Stages run in the order in which they need each other.
    """
    needs: dict[str, set[str]] = {}  # value -> the draws that it depends on
    drawn: list[str] = []
    for op in graph:
        read = {name for text in (*op.operands, *(text for _, text in op.keywords)) for name in names(text)}
        needs[op.name] = set().union(*(needs.get(name, set()) for name in read))
        if op.target.startswith("aten.") and plain_name(op) in DRAWS:
            if not needs[op.name].issuperset(drawn):
                return (
                    "the planner has no kernel for a module that draws random numbers at places that do not follow "
                    f"one another; {YOURSELF}"
                )
            needs[op.name].add(op.name)
            drawn.append(op.name)
    return None
