"""The graph of a PTX kernel: its instructions, with edges for definitions and uses, flow, memory and barriers."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy

from workbench.emulator.ptx.instruction import Instruction, Kernel
from workbench.emulator.ptx.parser import parse
from workbench.structure.graph import Graph

ENDS = ("bra", "ret", "exit", "trap")
BARRIERS = ("bar", "barrier", "mbarrier", "fence", "membar")
SPACES = ("global", "shared", "local", "const", "param")
DATA = {"ld": "load", "ldu": "load", "ldmatrix": "load", "st": "store", "cp": "copy", "red": "store", "atom": "store"}


def ptx_graph(text: str, name: str = "") -> Graph:
    """The graph of a kernel of a PTX text, by default of its longest. Raises `UserError` for a text that is no PTX."""
    kernels = parse(text).kernels
    chosen = kernels[name] if name else max(kernels.values(), key=lambda kernel: len(kernel.instructions))
    return kernel_graph(chosen)


def kernel_graph(kernel: Kernel) -> Graph:
    """Nodes are instructions. `kind` is what an instruction does (ld.global.v4, mma, bar), `block` its basic block.

    Edges have a `kind`: "use" from the last definition of a register to its use, "flow" from the end of a basic block
    to the beginning of the next, "memory" from a store or copy to the next access of the same space in its block, and
    "barrier" from a barrier to the next one.
    """
    code = kernel.instructions
    blocks = find_blocks(code)
    edges = [*_uses(code), *_flow(code, blocks), *_memory(code, blocks), *_barriers(code)]
    return Graph.of(
        [(one, other) for one, other, _ in edges],
        size=len(code),
        directed=True,
        node_columns={"kind": [describe(one) for one in code], "block": blocks.astype(numpy.float64)},
        edge_columns={"kind": [kind for _, _, kind in edges]},
        names=[one.text for one in code],
    )


def describe(instruction: Instruction) -> str:
    """What an instruction does: opcode, the space that it accesses, and how many elements at once."""
    told = [mod for mod in instruction.mods if mod in SPACES or mod in ("v2", "v4", "async", "bulk", "tensor")]
    return ".".join([instruction.opcode, *told])


def find_blocks(code: Sequence[Instruction]) -> numpy.ndarray:
    """[instructions]: the number of the basic block of each."""
    starts = numpy.zeros(len(code) + 1, dtype=numpy.int64)
    for place, one in enumerate(code):
        if one.opcode in ENDS:
            starts[place + 1] = 1
        if one.target >= 0:
            starts[min(one.target, len(code))] = 1
    starts[0] = 0
    found: numpy.ndarray = numpy.cumsum(starts[:-1])
    return found


Edge = tuple[int, int, str]


def _uses(code: Sequence[Instruction]) -> list[Edge]:
    """Definitions and uses in the order of the text: a loop's back edge is not followed."""
    last: dict[str, int] = {}
    found: list[Edge] = []
    for place, one in enumerate(code):
        found += [(last[name], place, "use") for name in dict.fromkeys((*one.reads, *one.guards)) if name in last]
        last.update(dict.fromkeys(one.writes, place))
    return found


def _flow(code: Sequence[Instruction], blocks: numpy.ndarray) -> list[Edge]:
    """From the last instruction of each block to the first of those that may follow."""
    found: list[Edge] = []
    for place, one in enumerate(code):
        if one.target >= 0 and one.target < len(code):
            found.append((place, one.target, "flow"))
        falls = place + 1 < len(code) and blocks[place + 1] != blocks[place]
        if falls and (one.opcode not in ENDS or one.guard is not None):
            found.append((place, place + 1, "flow"))
    return found


def _memory(code: Sequence[Instruction], blocks: numpy.ndarray) -> list[Edge]:
    """From each write to the next access of the same space in the same block."""
    waiting: dict[tuple[int, str], list[int]] = {}
    found: list[Edge] = []
    for place, one in enumerate(code):
        what = DATA.get(one.opcode)
        for space in {mod for mod in one.mods if mod in SPACES} if what else set():
            before = waiting.setdefault((int(blocks[place]), space), [])
            found += [(write, place, "memory") for write in before]
            waiting[int(blocks[place]), space] = [] if what == "load" else [place]
    return found


def _barriers(code: Sequence[Instruction]) -> list[Edge]:
    places = [place for place, one in enumerate(code) if one.opcode in BARRIERS]
    return [(one, other, "barrier") for one, other in itertools.pairwise(places)]
