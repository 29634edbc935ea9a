"""The graph of a PTX kernel's instructions."""

from __future__ import annotations

from workbench.emulator.ptx.instruction import Instruction, Kernel
from workbench.emulator.ptx.parser import parse
from workbench.structure.graph import Graph
from workbench.structure.kernels.instruction_graphs import CodeNode, instruction_graph

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
    """The graph of a kernel (see `instruction_graph`). Kinds are such as ld.global.v4, mma, bar."""
    return instruction_graph([_read(one) for one in kernel.instructions])


def _read(one: Instruction) -> CodeNode:
    return CodeNode(
        kind=describe(one),
        text=one.text,
        reads=tuple(dict.fromkeys((*one.reads, *one.guards))),
        writes=tuple(one.writes),
        target=one.target,
        ends=one.opcode in ENDS,
        guarded=one.guard is not None,
        access=DATA.get(one.opcode, ""),
        spaces=tuple(dict.fromkeys(mod for mod in one.mods if mod in SPACES)),
        barrier=one.opcode in BARRIERS,
    )


def describe(instruction: Instruction) -> str:
    """What an instruction does: opcode, the space that it accesses, and how many elements at once."""
    told = [mod for mod in instruction.mods if mod in SPACES or mod in ("v2", "v4", "async", "bulk", "tensor")]
    return ".".join([instruction.opcode, *told])
