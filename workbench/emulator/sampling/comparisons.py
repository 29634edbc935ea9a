"""The comparisons that decide control flow, and for how many further periods of a loop none changes its outcome."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from workbench.emulator.arrays import Array, Lanes
from workbench.emulator.execution.batch import Batch
from workbench.emulator.execution.operands import Get, getter
from workbench.emulator.ptx.instruction import Instruction
from workbench.emulator.ptx.syntax import Vec
from workbench.emulator.sampling.loop_registers import LoopRegisters

# types of comparisons, and how their operands are read: bits may be those of negative integers
COMPARED = {f"{sign}{size}": f"{'u' if sign == 'u' else 's'}{size}" for sign in "bus" for size in (16, 32, 64)}
COMPARED |= {kind: kind for kind in ("f16", "bf16", "f32", "f64")}
Key: TypeAlias = tuple[int, int]  # of a comparison: the instruction, a hash of the lanes


class Comparisons:
    """A log of the comparisons of one batch. `compared` holds the instructions that are noted. `free` are those of what
    jumps: they are not noted, unless they end a loop.
    """

    def __init__(self, b: Batch, instructions: list[Instruction], registers: LoopRegisters) -> None:
        self.b = b
        ends = _find_loop_ends(instructions)
        decide = {
            n
            for n, ins in enumerate(instructions)
            if ins.opcode in ("setp", "min", "max")
            and ins.mods[-1] in COMPARED
            and not registers.control.isdisjoint(ins.writes)
        }
        self.free = {
            n
            for n in decide
            if not registers.jumping.isdisjoint(instructions[n].values) and ends.isdisjoint(instructions[n].writes)
        }
        self.compared = {n: _operands(instructions[n]) for n in sorted(decide - self.free)}
        self.turning = {n for n in self.compared if registers.turning.issuperset(instructions[n].writes)}
        self.log: list[tuple[Key, Array]] = []  # left operand minus right one

    def note(self, n: int, active: Lanes) -> None:
        """Note that instruction `n` compares two numbers of these lanes."""
        left, right = (np.asarray(get(self.b, active)) for get in self.compared[n])
        wide = np.float64 if left.dtype.kind == "f" else np.int64
        key = (n, 0 if active is None else hash(active.tobytes()))
        self.log.append((key, left.astype(wide) - right.astype(wide)))

    def count_unchanged(self, first: int, middle: int, last: int, *, turning: bool) -> int:
        """The number of periods in which no comparison changes its outcome, less one; 0 if none is known to end.

        The two periods noted entries [first, middle) and [middle, last). Without `turning`, comparisons of what turns
        do not count. A comparison that is made several times in a period is that of as many passes, each with its own
        one of the period before.
        """
        one, two = (self._group(*ends, turning=turning) for ends in ((first, middle), (middle, last)))
        if {key: len(found) for key, found in one.items()} != {key: len(found) for key, found in two.items()}:
            return 0
        most: int | None = None
        for key, found in two.items():
            left = _periods_left(np.array(one[key]), np.array(found))
            if left == 0:
                return 0
            most = left if most is None or (left is not None and left < most) else most
        return max((most or 0) - 1, 0)

    def _group(self, begin: int, end: int, *, turning: bool) -> dict[Key, list[Array]]:
        """The differences of each comparison, in order."""
        found: dict[Key, list[Array]] = {}
        for key, difference in self.log[begin:end]:
            if turning or key[0] not in self.turning:
                found.setdefault(key, []).append(difference)
        return found


def _find_loop_ends(instructions: list[Instruction]) -> set[str]:
    """The guards of branches that repeat a loop or leave it, and the predicates that they are combined from."""
    found = set[str]()
    for last, back in enumerate(instructions):
        if 0 <= back.target <= last:
            found.update(back.guards)
            for ins in instructions[back.target : last]:
                leaves = ins.form.role == "exit" or (ins.form.ends_block and ins.target > last)
                found.update(ins.guards if leaves else ())
    for ins in reversed(instructions):
        if ins.opcode != "setp" and not found.isdisjoint(ins.writes):
            found.update(ins.values)
    return found


def _periods_left(before: Array, now: Array) -> int | None:
    """In how many periods the sign of a difference changes; None for never."""
    if before.shape != now.shape:
        return 0
    change = now - before
    if (now.dtype.kind == "f" and change.any()) or ((now == 0) & (change != 0)).any():
        return 0
    nears = (now != 0) & (np.sign(change) == -np.sign(now))
    if not nears.any():
        return None
    return int(((np.abs(now) - 1) // np.maximum(np.abs(change), 1))[nears].min())


def _operands(ins: Instruction) -> tuple[Get, Get]:
    """The two operands of a comparison, or of min and max."""
    assert not isinstance(ins.operands[1], Vec)
    left, right = (getter(operand, COMPARED[ins.mods[-1]]) for operand in ins.operands[1:3])
    return left, right


__all__ = ["Comparisons"]
