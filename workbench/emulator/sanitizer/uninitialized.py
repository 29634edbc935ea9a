"""Finds uses of registers that nothing wrote, by data flow over the PTX, and follows their bits while a kernel runs.

As in MemorySanitizer, copying and computing with undefined values is allowed, since kernels do it in elements that they
drop. It is an error if an undefined value decides an address, a branch or a predicate, or reaches global memory; the
fault is on the line that first computed with it. Kernels that write every register before they read it have no cost.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import numpy as np

from workbench.emulator.arrays import Array, Lanes
from workbench.emulator.execution.batch import Batch
from workbench.emulator.execution.operands import Unknown
from workbench.emulator.ptx.instruction import Instruction, Kernel
from workbench.emulator.ptx.instruction_table import SPACES
from workbench.emulator.sanitizer.undef_rules import RULES, generic
from workbench.emulator.sanitizer.undef_state import Follow, State

WIDE = 8  # an instruction with more registers (wgmma above all) remembers that they were defined
WHAT = {"store": "what is stored to global memory", "call": "what is printed"}
COPIES = ("copy", "copy_group", "bulk_copy", "bulk_group")
TRACKED = frozenset(("shared", "local"))  # state spaces whose undefined bytes are followed


def _rule(ins: Instruction) -> Follow:
    """The rule by which undefined values pass through an instruction.

    They do not pass if the operands do not fit the form: executing that instruction is a fault.
    """
    try:
        return RULES.get(ins.opcode, generic)(ins)
    except (Unknown, ValueError, TypeError, IndexError, KeyError, AttributeError, AssertionError):
        return lambda b, i, refuse: []


class Step:
    """One instruction that undefined values may reach: it faults where they matter, else marks the registers that it
    writes.
    """

    def __init__(self, ins: Instruction) -> None:
        self.ins = ins
        self.late = ins.form.role == "store"  # follow after the store, which clears the marks of overwritten bytes
        self.rule = _rule(ins)
        # a store to global memory stores part of a register, so its rule looks at the bytes
        self.sink = ins.form.sink and not (self.late and ins.form.space == "global" and not ins.form.asynchronous)
        self.wide = len(ins.values) > WIDE
        # when, and for which lanes, all its registers were defined
        self.clean: tuple[int, Lanes] | None = None

    def check_guard(self, b: Batch, i: Lanes) -> None:
        """Fault if an undefined value decides whether this instruction is executed."""
        if self.ins.guard is not None:
            what = "a branch" if self.ins.form.role == "branch" else "whether an instruction is executed"
            self._refuse(b, i, self.ins.guards, what)

    def follow(self, b: Batch, i: Lanes) -> None:
        """Carry undefined values through the instruction."""
        ins = self.ins
        if self.clean is not None and self.clean[0] == b.undefined_made and _same_lanes(self.clean[1], i):
            return
        self._refuse(b, i, ins.addresses, "an address")
        if self.sink:
            self._refuse(b, i, ins.values, _describe_use(ins))
        for name, state in zip(ins.writes, self.rule(b, i, self.refuse), strict=False):
            put_state(b, name, i, state)
        if self.wide:
            known = [b.undefined[name] for name in (*ins.values, *ins.writes) if name in b.undefined]
            some = any((found if i is None else found[i]).any() for found in known)
            self.clean = None if some else (b.undefined_made, i)

    def _refuse(self, b: Batch, i: Lanes, names: Iterable[str], what: str) -> None:
        for name in names:
            found = b.undefined.get(name)
            if found is not None:
                self.refuse(b, i, found if i is None else found[i], what)

    def refuse(self, b: Batch, i: Lanes, state: Array, what: str) -> None:
        """Fault if any of these lanes has undefined bytes."""
        bad = (state & 0xFF) != 0
        if not bad.any():
            return
        at = int(np.argmax(bad))
        first, here = int(state[at]) >> 8 or self.ins.line, self.ins.line
        where = "" if first == here else f" at line {here}"
        raise b.fault(
            "uninitialised_register",
            f"a register that nothing wrote is read; {what}{where} depends on it",
            first,
            int(b.all_lanes(i)[at]),
            hint="fill a fragment before it is read or added to: acc.fill(0.0), or a copy without a predicate",
        )


def _describe_use(ins: Instruction) -> str:
    """How an instruction uses values that must be defined."""
    role = ins.form.role
    return "an asynchronous copy" if role in COPIES else WHAT.get(role, f"`{ins.opcode}`")


def _same_lanes(one: Lanes, other: Lanes) -> bool:
    if one is None or other is None:
        return one is other
    return one is other or np.array_equal(one, other)


def put_state(b: Batch, name: str, i: Lanes, state: State) -> None:
    """Set the undefined state of a register: an array over the active lanes, or None for fully defined."""
    known = b.undefined.get(name)
    if i is None:
        if state is not None and state.any():
            b.undefined_made += 1
            b.undefined[name] = state.copy()
        elif known is not None:
            del b.undefined[name]
        return
    if known is None:
        if state is None or not state.any():
            return
        known = b.undefined[name] = np.zeros(b.lanes, dtype=np.int64)
    b.undefined_made += int(state is not None and bool(state.any()))
    known[i] = 0 if state is None else state
    if not known.any():
        del b.undefined[name]


class UninitializedRegisters:
    """Facts about a kernel: registers that may be read before they are written, and a `Step` for each instruction that
    undefined values may reach.

    `starts` are the first instructions of its basic blocks, and its end.
    """

    def __init__(self, kernel: Kernel, starts: list[int]) -> None:
        instructions = kernel.instructions
        self.registers = _find_read_first(instructions, starts)
        self.steps: list[Step | None] = [None] * len(instructions)
        reached, spaces = _propagate(instructions, self.registers)
        self.matters = False
        for n, ins in enumerate(instructions):
            seen = not reached.isdisjoint((*ins.values, *ins.addresses, *ins.guards))
            if seen or not reached.isdisjoint(ins.writes) or _touches_undefined_memory(ins, spaces):
                self.steps[n] = Step(ins)
                self.matters |= (seen and _can_fault(ins, reached)) or ins.form.role == "matrix_load"
        if not self.matters:
            self.registers, self.steps = frozenset(), [None] * len(instructions)
        self.wide = [step for step in self.steps if step is not None and step.wide]

    def begin(self, b: Batch) -> None:
        """Mark the registers that may be read first as undefined in every lane."""
        for step in self.wide:
            step.clean = None
        b.undefined = {name: np.full(b.lanes, 0xFF, dtype=np.int64) for name in self.registers}


def _touches_undefined_memory(ins: Instruction, spaces: set[str]) -> bool:
    """Whether an instruction overwrites or reads memory that may hold undefined values."""
    role, space = ins.form.role, ins.form.space
    stores = "local" in spaces and role == "store" and space in ("local", "generic")
    return stores or ("shared" in spaces and role == "matrix_load")


def _can_fault(ins: Instruction, reached: set[str]) -> bool:
    """Whether undefined values that reach an instruction can be an error there."""
    return (
        ins.form.sink
        or ins.guard in reached
        or not reached.isdisjoint(ins.addresses)
        or not any(mod in SPACES for mod in ins.mods)  # a generic address, or a result that carries undefined values on
    )


class _Flow:
    """The basic blocks of a kernel, with registers as bits of integers: what each block always writes, and its
    successors.
    """

    def __init__(self, instructions: list[Instruction], starts: list[int]) -> None:
        self.instructions = instructions
        names = sorted({name for ins in instructions for name in (*ins.reads, *ins.writes, *ins.guards)})
        self.bit = {name: 1 << n for n, name in enumerate(names)}
        self.everything = (1 << len(names)) - 1
        self.blocks = list(itertools.pairwise(starts))
        number = {start: n for n, start in enumerate(starts)}
        self.writes = [self._block_writes(first, last) for first, last in self.blocks]
        self.follows = [self._successors(instructions[last - 1], number, last) for _, last in self.blocks]

    def _block_writes(self, first: int, last: int) -> int:
        made = 0
        for ins in self.instructions[first:last]:
            if ins.guard is None:
                made |= self.to_bits(ins.writes)
        return made

    @staticmethod
    def _successors(end: Instruction, number: dict[int, int], last: int) -> list[int]:
        role = end.form.role
        after = [] if end.guard is None and role in ("exit", "trap", "branch") else [number[last]]
        return [*after, number[end.target]] if role == "branch" else after

    def to_bits(self, names: Iterable[str]) -> int:
        """The registers as bits."""
        found = 0
        for name in names:
            found |= self.bit[name]
        return found

    def written_at_start(self) -> list[int]:
        """The registers that every path has written at the start of each block; all of them if no path leads there."""
        known = [self.everything] * len(self.blocks)
        if self.blocks:
            known[0] = 0
        left = list(range(len(self.blocks)))[::-1]
        while left:
            at = left.pop()
            out = known[at] | self.writes[at]
            for to in self.follows[at]:
                if to < len(self.blocks) and known[to] & out != known[to]:
                    known[to] &= out
                    left.append(to)
        return known


def _find_read_first(instructions: list[Instruction], starts: list[int]) -> frozenset[str]:
    """Registers that some path reads before it writes them (definite assignment over basic blocks)."""
    flow = _Flow(instructions, starts)
    found = 0
    for (first, last), have in zip(flow.blocks, flow.written_at_start(), strict=True):
        if have == flow.everything and first:
            continue  # unreachable, or all registers are written
        for ins in instructions[first:last]:
            found |= flow.to_bits((*ins.reads, *ins.guards)) & ~have
            if ins.guard is None:
                have |= flow.to_bits(ins.writes)
    return frozenset(name for name, bit in flow.bit.items() if bit & found)


def _propagate(instructions: list[Instruction], begin: frozenset[str]) -> tuple[set[str], set[str]]:
    """The registers, and the state spaces of memory, that may hold undefined values."""
    reached: set[str] = set(begin)
    spaces: set[str] = set()
    before = -1
    while before != len(reached) + len(spaces):
        before = len(reached) + len(spaces)
        for ins in instructions:
            role, space = ins.form.role, ins.form.space
            seen = not reached.isdisjoint(ins.values)
            if role == "store" and seen:
                spaces |= TRACKED if space == "generic" else TRACKED & {space}
            loaded = role == "load" and (space in spaces or (space == "generic" and bool(spaces)))
            if loaded or (seen and role not in ("load", "matrix_load")):
                reached.update(ins.writes)
    return reached, spaces
