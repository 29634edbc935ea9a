"""The graph of instructions, of PTX or of SASS: edges for definitions and uses, flow, memory and barriers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy

from workbench.records import record
from workbench.structure.graph import Graph

Edge = tuple[int, int, str]


@record
class CodeNode:
    """An instruction as the graph shows it.

    `access` is load, store or copy for what goes to memory, in `spaces`. `target` is the place of the instruction that
    it may jump to, or -1. With `ends` the next instruction follows only where a guard may leave this one out.
    """

    kind: str
    text: str
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    target: int = -1
    ends: bool = False
    guarded: bool = False
    access: str = ""
    spaces: tuple[str, ...] = ()
    barrier: bool = False


def instruction_graph(code: Sequence[CodeNode]) -> Graph:
    """Nodes are instructions: `kind` is what one does, `block` its basic block.

    Edges have a `kind`: "use" from the last definition of a register to its use, "flow" from the end of a basic block
    to the beginning of the next, "memory" from a store or copy to the next access of the same space in its block, and
    "barrier" from a barrier to the next one.
    """
    blocks = _find_blocks(code)
    edges = [*_uses(code), *_flow(code, blocks), *_memory(code, blocks), *_barriers(code)]
    return Graph.of(
        [(one, other) for one, other, _ in edges],
        size=len(code),
        directed=True,
        node_columns={"kind": [one.kind for one in code], "block": blocks.astype(numpy.float64)},
        edge_columns={"kind": [kind for _, _, kind in edges]},
        names=[one.text for one in code],
    )


def _find_blocks(code: Sequence[CodeNode]) -> numpy.ndarray:
    """[instructions]: the number of the basic block of each."""
    starts = numpy.zeros(len(code) + 1, dtype=numpy.int64)
    for place, one in enumerate(code):
        if one.ends:
            starts[place + 1] = 1
        if one.target >= 0:
            starts[min(one.target, len(code))] = 1
    starts[0] = 0
    found: numpy.ndarray = numpy.cumsum(starts[:-1])
    return found


def _uses(code: Sequence[CodeNode]) -> list[Edge]:
    """Definitions and uses in the order of the text: a loop's back edge is not followed."""
    last: dict[str, int] = {}
    found: list[Edge] = []
    for place, one in enumerate(code):
        makers = dict.fromkeys(last[name] for name in one.reads if name in last)
        found += [(maker, place, "use") for maker in makers]
        last.update(dict.fromkeys(one.writes, place))
    return found


def _flow(code: Sequence[CodeNode], blocks: numpy.ndarray) -> list[Edge]:
    """From the last instruction of each block to the first of those that may follow."""
    found: list[Edge] = []
    for place, one in enumerate(code):
        if 0 <= one.target < len(code):
            found.append((place, one.target, "flow"))
        falls = place + 1 < len(code) and blocks[place + 1] != blocks[place]
        if falls and (not one.ends or one.guarded):
            found.append((place, place + 1, "flow"))
    return found


def _memory(code: Sequence[CodeNode], blocks: numpy.ndarray) -> list[Edge]:
    """From each write to the next access of the same space in the same block."""
    waiting: dict[tuple[int, str], list[int]] = {}
    found: list[Edge] = []
    for place, one in enumerate(code):
        for space in one.spaces if one.access else ():
            before = waiting.setdefault((int(blocks[place]), space), [])
            found += [(write, place, "memory") for write in before]
            waiting[int(blocks[place]), space] = [] if one.access == "load" else [place]
    return found


def _barriers(code: Sequence[CodeNode]) -> list[Edge]:
    places = [place for place, one in enumerate(code) if one.barrier]
    return [(one, other, "barrier") for one, other in itertools.pairwise(places)]
