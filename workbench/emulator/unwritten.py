"""Registers that nothing wrote: which instructions may see one (by data flow over the PTX, once), and what becomes of their bits while a kernel runs.

As MemorySanitizer does for memory: copying and computing with garbage is allowed, since kernels do it in elements that they drop; where garbage decides an address,
a branch or a predicate, or reaches global memory, that is an error, on the line that first computed with it. State is one integer a lane and register:
bits 0-7 the bytes that are garbage, above them the line that used them first. Kernels in which no register can be read before it is written cost nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from workbench.emulator.garbage import RULES, Follow, generic
from workbench.emulator.operands import Unknown
from workbench.emulator.ptx import Instruction, Kernel, Mem, Reg, Vec
from workbench.emulator.state import Batch, Lanes

NO_TARGET = ("st", "red", "stmatrix", "bra", "ret", "exit", "bar", "barrier", "trap", "fence", "membar", "prefetch", "prefetchu", "nanosleep", "setmaxnreg", "call", "griddepcontrol", "discard", "pragma", "brx", "cp")
SINKS = ("red", "atom", "stmatrix", "cp", "call", "bar", "barrier", "mbarrier", "mapa", "multimem")
WIDE = 8  # registers from which on an instruction, wgmma above all, remembers that they were defined
WHAT = {"st": "what is stored to global memory", "call": "what is printed", "cp": "an asynchronous copy"}


def _registers(operand: object) -> list[str]:
    if isinstance(operand, Reg):
        return [operand.name]
    if isinstance(operand, Vec):
        return [name for item in operand.items for name in _registers(item)]
    return _registers(operand[1]) if isinstance(operand, tuple) and len(operand) == 2 else []


def _bases(operand: object) -> list[str]:
    """Registers that an address is made of."""
    if not isinstance(operand, Mem):
        return []
    return ([operand.base.name] if isinstance(operand.base, Reg) else []) + [name for item in operand.coordinates or () for name in _registers(item)]


def _space(ins: Instruction) -> str:
    return next((mod for mod in ins.mods if mod in ("global", "shared", "local", "param", "const")), "generic")


@dataclass(frozen=True, slots=True)
class Uses:
    """The registers that one instruction reads as values, as addresses, and writes."""

    values: tuple[str, ...]
    addresses: tuple[str, ...]
    targets: tuple[str, ...]

    @staticmethod
    def of(ins: Instruction) -> Uses:
        """Those of an instruction; a target that is a memory operand is an address."""
        none = ins.opcode in NO_TARGET or (ins.opcode in ("mbarrier", "wgmma") and (not ins.operands or isinstance(ins.operands[0], Mem))) or (ins.opcode == "wgmma" and ins.mods[0] != "mma_async")
        first = 0 if none else 1
        values = [name for operand in ins.operands[first:] for name in _registers(operand)]
        if ins.opcode == "wgmma" and first:
            values += _registers(ins.operands[0])
        return Uses(tuple(values), tuple(name for operand in ins.operands for name in _bases(operand)), tuple(_registers(ins.operands[0])) if first and ins.operands else ())


def _rule(ins: Instruction) -> Follow:
    """How garbage goes through an instruction; through one whose operands are not what its form takes, not at all: executing it is a fault."""
    try:
        return RULES.get(ins.opcode, generic)(ins)
    except (Unknown, ValueError, TypeError, IndexError, KeyError, AttributeError, AssertionError):
        return lambda b, i, step: []


class Step:
    """One instruction that may see garbage: faults where that matters, else says which of what it writes is garbage."""

    def __init__(self, ins: Instruction, uses: Uses) -> None:
        self.ins, self.uses = ins, uses
        self.space = _space(ins)
        self.late = ins.opcode == "st"  # after the store, which clears what it overwrites
        self.sink = ins.opcode in SINKS or (ins.opcode == "st" and (self.space in ("global", "param") or "async" in ins.mods))
        self.rule = _rule(ins)
        self.wide = len(uses.values) > WIDE
        self.clean: tuple[int, Lanes] | None = None  # when and for which lanes all its registers were seen to be defined

    def guard(self, b: Batch, i: Lanes) -> None:
        """Fault if whether this instruction is executed hangs on garbage."""
        if self.ins.guard is not None:
            self._refuse(b, i, (self.ins.guard,), "a branch" if self.ins.opcode == "bra" else "whether an instruction is executed")

    def follow(self, b: Batch, i: Lanes) -> None:
        """Carry garbage through the instruction."""
        ins, uses = self.ins, self.uses
        if self.clean is not None and self.clean[0] == b.garbage_made and (self.clean[1] is i or np.array_equal(self.clean[1], i)):
            return
        self._refuse(b, i, uses.addresses, "an address")
        if self.sink:
            self._refuse(b, i, uses.values, WHAT.get(ins.opcode, f"`{ins.opcode}`"))
        for name, garbage in zip(uses.targets, self.rule(b, i, self), strict=False):
            put(b, name, i, garbage)
        if self.wide:
            known = [b.garbage[name] for name in (*uses.values, *uses.targets) if name in b.garbage]
            self.clean = None if any((found if i is None else found[i]).any() for found in known) else (b.garbage_made, i)

    def _refuse(self, b: Batch, i: Lanes, names: Iterable[str], what: str) -> None:
        for name in names:
            found = b.garbage.get(name)
            if found is not None:
                self.refuse(b, i, found if i is None else found[i], what)

    def refuse(self, b: Batch, i: Lanes, garbage: Any, what: str) -> None:
        """Fault if any of these lanes has garbage."""
        bad = (garbage & 0xFF) != 0
        if not bad.any():
            return
        at = int(np.argmax(bad))
        first, here = int(garbage[at]) >> 8 or self.ins.line, self.ins.line
        where = "" if first == here else f" at line {here}"
        raise b.fault("uninitialised_register", f"a register that nothing wrote is read; {what}{where} depends on it", first, int(b.all_lanes(i)[at]),
                      hint="fill a fragment before it is read or added to: acc.fill(0.0), or a copy without a predicate")  # fmt: skip


def put(b: Batch, name: str, i: Lanes, garbage: Any) -> None:
    """What of a register is garbage from here on: an array over the active lanes, or None for nothing."""
    known = b.garbage.get(name)
    if i is None:
        if garbage is not None and garbage.any():
            b.garbage_made += 1
            b.garbage[name] = garbage.copy()
        elif known is not None:
            del b.garbage[name]
        return
    if known is None:
        if garbage is None or not garbage.any():
            return
        known = b.garbage[name] = np.zeros(b.lanes, dtype=np.int64)
    b.garbage_made += int(garbage is not None and bool(garbage.any()))
    known[i] = 0 if garbage is None else garbage
    if not known.any():
        del b.garbage[name]


class Unwritten:
    """What is known of a kernel before it runs: registers that may be read first, and a `Step` for each instruction that garbage may reach."""

    def __init__(self, kernel: Kernel, starts: list[int]) -> None:
        instructions = kernel.instructions
        uses = [Uses.of(ins) for ins in instructions]
        self.registers = _read_first(instructions, uses, starts)
        self.steps: list[Step | None] = [None] * len(instructions)
        reached, spaces = _reach(instructions, uses, self.registers)
        matters = False
        for n, (ins, use) in enumerate(zip(instructions, uses, strict=True)):
            seen = {*use.values, *use.addresses, *((ins.guard,) if ins.guard else ())} & reached
            if seen or reached.intersection(use.targets) or ("local" in spaces and ins.opcode == "st" and _space(ins) in ("local", "generic")) or ("shared" in spaces and ins.opcode == "ldmatrix"):
                self.steps[n] = step = Step(ins, use)
                matters |= bool((seen and (step.sink or ins.guard in reached or reached.intersection(use.addresses) or step.space == "generic")) or ins.opcode == "ldmatrix")
        self.matters = matters
        if not matters:
            self.registers, self.steps = frozenset(), [None] * len(instructions)

        self.wide = [step for step in self.steps if step is not None and step.wide]

    def begin(self, b: Batch) -> None:
        """Every lane begins with garbage in the registers that may be read first."""
        for step in self.wide:
            step.clean = None
        b.garbage = {name: np.full(b.lanes, 0xFF, dtype=np.int64) for name in self.registers}


def _read_first(instructions: list[Instruction], uses: list[Uses], starts: list[int]) -> frozenset[str]:
    """Registers that some path reads before it writes them: definite assignment over basic blocks, registers as bits of integers."""
    names = sorted({name for use in uses for part in (use.values, use.addresses, use.targets) for name in part} | {ins.guard for ins in instructions if ins.guard})
    bit = {name: 1 << n for n, name in enumerate(names)}
    number = {start: n for n, start in enumerate(starts)}
    blocks = list(itertools.pairwise(starts))
    everything = (1 << len(names)) - 1
    writes, follows = [], []
    for first, last in blocks:
        made = 0
        for n in range(first, last):
            if instructions[n].guard is None:
                for name in uses[n].targets:
                    made |= bit[name]
        end = instructions[last - 1]
        after = [] if end.opcode in ("ret", "exit", "trap") and end.guard is None else [] if end.opcode == "bra" and end.guard is None else [number[last]]
        writes.append(made)
        follows.append([*after, number[end.target]] if end.opcode == "bra" else after)
    known = [everything] * len(blocks)
    if blocks:
        known[0] = 0
    left = list(range(len(blocks)))[::-1]
    while left:
        at = left.pop()
        out = known[at] | writes[at]
        for to in follows[at]:
            if to < len(blocks) and known[to] & out != known[to]:
                known[to] &= out
                left.append(to)
    found = 0
    for (first, last), have in zip(blocks, known, strict=True):
        if have == everything and first:
            continue  # never reached, or all known
        for n in range(first, last):
            guard = instructions[n].guard
            for name in (*uses[n].values, *uses[n].addresses, *((guard,) if guard else ())):
                found |= bit[name] & ~have
            if guard is None:
                for name in uses[n].targets:
                    have |= bit[name]
    return frozenset(name for name in names if bit[name] & found)


def _reach(instructions: list[Instruction], uses: list[Uses], begin: frozenset[str]) -> tuple[set[str], set[str]]:
    """The registers, and the state spaces of memory, that may hold garbage."""
    reached: set[str] = set(begin)
    spaces: set[str] = set()
    before = -1
    while before != len(reached) + len(spaces):
        before = len(reached) + len(spaces)
        for ins, use in zip(instructions, uses, strict=True):
            if ins.opcode == "st" and not reached.isdisjoint(use.values):
                spaces |= {"shared", "local"} if _space(ins) == "generic" else {_space(ins)}
            loaded = ins.opcode in ("ld", "ldu") and (_space(ins) in spaces or (_space(ins) == "generic" and bool(spaces & {"shared", "local"})))
            if loaded or (ins.opcode not in ("ld", "ldu", "ldmatrix") and not reached.isdisjoint(use.values)):
                reached.update(use.targets)
        spaces &= {"shared", "local"}
    return reached, spaces
