"""A sampled launch whose CTAs wait for one that is not in the sample: found when a batch that spins is in the very state in which it was before.

CTAs that wait for one another through flags in global memory (stream-K, a look-back, a barrier over the grid) would spin for ever where whoever sets the flag is not executed. The machine has no clock and
no chance in it, so a state that comes back comes back again: registers, places in the program, shared and local memory, barriers, copies in flight, with no value of global memory changed in between. States
are compared only when everybody who can run has looped for long (turns.py); the one that is kept is renewed at growing distances (Brent, 1980), so that a cycle of any length is found.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from workbench.emulator.access import address
from workbench.emulator.global_races import is_strong
from workbench.emulator.launch import EmulationFault
from workbench.emulator.ptx import Instruction, Mem
from workbench.emulator.state import Batch

KIND = "sample_waits"  # of the failure, by which those who sample know it
HINT = "execute the whole grid, or model a kernel whose CTAs do not wait for one another: a sample cannot say how long such a wait takes"


class Standstill:
    """Whether a batch that loops has stopped making progress."""

    def __init__(self) -> None:
        self.kept: tuple[Any, ...] | None = None
        self.age, self.span = 0, 1

    def reached(self, b: Batch) -> bool:
        """Whether the batch is as it was at an earlier call, with nothing new in global memory since."""
        if self.kept is not None and self.kept[0] == b.changes:
            if _same(self.kept, _state(b)):
                return True
            self.age += 1
            if self.age < self.span:
                return False
            self.span *= 2
        else:
            self.span = 1
        self.age, self.kept = 0, _state(b, copy=True)
        return False


def _state(b: Batch, *, copy: bool = False) -> tuple[Any, ...]:
    """All that decides what the batch does next, numbers first; registers are never written in place, so they need no copy."""
    flying = tuple(len(one.lanes) for queue in (b.copies.copies, b.stores.copies, b.arrivals) for one in queue)
    passed = b.cluster_phase[b.cta // b.cluster_size] > b.cluster_phase_of
    arrays = (b.pc, b.alive, b.waiting, b.waiting_for, b.timed_out, b.arrived, b.barrier_count, b.cluster_arrived, passed, b.shared, b.local)
    return b.changes, b.stalls, flying, dict(b.registers) if copy else b.registers, *(array.copy() if copy else array for array in arrays)


def _same(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    return a[:3] == b[:3] and all(np.array_equal(x, y) for x, y in zip(a[4:], b[4:], strict=True)) and _same_registers(a[3], b[3])


def _same_registers(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return len(a) == len(b) and all(value is b.get(name) or (name in b and np.array_equal(value, b[name])) for name, value in a.items())


def waits_outside(b: Batch, instructions: list[Instruction], low: int, chosen: Any) -> EmulationFault:
    """The fault of the lanes `chosen`, which poll in the loop that begins at instruction `low`."""
    lanes = np.nonzero(chosen)[0]
    poll = _poll(instructions, low)
    where, line, place = "the memory", instructions[low].line, None
    if poll is not None:
        line = poll.line
        at = address(next(operand for operand in poll.operands if isinstance(operand, Mem)), "global")(b, lanes)
        place = int(at[0] if isinstance(at, np.ndarray) and at.ndim else at)
        where = b.memory.nearest(place) if b.memory.find(place) else where
    total = b.request.grid[0] * b.request.grid[1] * b.request.grid[2]
    said = f"a sampled launch waits for a CTA that is not in the sample: none of the {b.count} CTAs of {total} that are executed writes {where}, polled"
    return b.fault(KIND, said, line, int(lanes[0]), place, stage="limits", hint=HINT)


def _poll(instructions: list[Instruction], low: int) -> Instruction | None:
    """The load, or atomic, of global memory that the loop at `low` polls: the first one from there on that is made to see other threads' stores, or else the first."""
    loads = [ins for ins in instructions[low:] if ins.opcode in ("ld", "atom") and not {"shared", "local", "param", "const"} & set(ins.mods)]
    return next((ins for ins in loads if is_strong(ins)), loads[0] if loads else None)
