"""A kernel as basic blocks: their bounds, the registers that are live between them, and their places in a warp's
record.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from workbench.emulator.compiled.codegen.layout import REGISTERS
from workbench.emulator.ptx.instruction import Instruction, Kernel
from workbench.emulator.ptx.syntax import SIZES


class Unsupported(Exception):
    """Compiled code does not support something; the kernel runs in the interpreter."""


@dataclass(slots=True)
class Block:
    """Instructions [first, last) and the successors."""

    number: int
    first: int
    last: int
    following: tuple[int, ...] = ()
    uses: set[str] = field(default_factory=set)  # registers that may be read before they are written
    writes: set[str] = field(default_factory=set)
    live_in: set[str] = field(default_factory=set)
    live_out: set[str] = field(default_factory=set)


def is_atomic(ins: Instruction) -> bool:
    """Whether the order of threads matters to an instruction: an atomic, or a strong load or store."""
    form = ins.form
    return form.role in ("atomic", "reduction") or (form.role in ("load", "store") and form.strong)


def lockstep_scope(kernel: Kernel) -> str:
    """The scope in which warps must run in lockstep: "warp" (none), "cta" (atomics on shared memory only) or
    "batch".
    """
    atomics = [ins for ins in kernel.instructions if is_atomic(ins)]
    if not atomics:
        return "warp"
    return "cta" if all(ins.form.space == "shared" for ins in atomics) else "batch"


def width(kernel: Kernel, name: str) -> int:
    """Bits of a register, 1 for a predicate."""
    kind = kernel.registers.get(name) or kernel.registers.get(re.sub(r"\d+$", "", name))
    if kind is None or SIZES.get(kind, 16) > 8:
        raise Unsupported(f"register {name} of type {kind}")
    return 1 if kind == "pred" else 8 * SIZES[kind]


def split_blocks(kernel: Kernel) -> list[Block]:
    """The kernel's basic blocks in order; an atomic is a block of its own."""
    count = len(kernel.instructions)
    leaders = {0, count, *kernel.labels.values()}
    for n, ins in enumerate(kernel.instructions):
        if ins.form.ends_block:
            leaders.add(n + 1)
        elif is_atomic(ins):
            leaders |= {n, n + 1}
    starts = sorted(leader for leader in leaders if leader <= count)
    number = {start: n for n, start in enumerate(starts)}
    blocks = [Block(n, start, starts[n + 1]) for n, start in enumerate(starts[:-1])]
    for block in blocks:
        last = kernel.instructions[block.last - 1]
        following = {number[block.last]}
        if last.form.role == "branch":
            following = {number[last.target]} | (following if last.guard else set())
        elif last.form.role in ("exit", "trap") and not last.guard:
            following = set()
        block.following = tuple(n for n in following if n < len(blocks))
        _local_sets(kernel, block)
    _liveness(blocks)
    return blocks


def _local_sets(kernel: Kernel, block: Block) -> None:
    for ins in kernel.instructions[block.first : block.last]:
        reads, writes = (*ins.reads, *ins.guards), ins.writes
        if ins.form.other_lanes:  # inactive lanes must keep their value
            block.uses |= set(reads)
        block.uses |= set(reads) - block.writes
        if ins.guard:
            block.uses |= set(writes) - block.writes
        block.writes |= set(writes)


def _liveness(blocks: list[Block]) -> None:
    changed = True
    while changed:
        changed = False
        for block in reversed(blocks):
            out = set().union(*(blocks[n].live_in for n in block.following))
            into = block.uses | (out - block.writes)
            if out != block.live_out or into != block.live_in:
                block.live_out, block.live_in, changed = out, into, True


def assign_slots(kernel: Kernel, blocks: list[Block]) -> tuple[dict[str, int], int]:
    """Offsets in the warp's record of all registers that are live at a block's start, and the record's size."""
    kept = sorted(set().union(*(block.live_in for block in blocks)))
    slots, at = {}, REGISTERS
    for name in kept:
        slots[name] = at
        at += max(64, 4 * width(kernel, name))
    return slots, -(-at // 64) * 64
