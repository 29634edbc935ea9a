"""Finds that a sample of CTAs waits for one outside the sample: a spinning batch returns to an earlier state.

CTAs that wait for one another through flags in global memory (stream-K, a look-back, a barrier over the grid) would
spin for ever if the CTA that sets the flag is not executed. The machine has no clock and no random choice, so a state
that recurs will recur for ever: registers, program counters, shared and local memory, barriers, copies in flight, with
no change of global memory in between. States are compared only when all runnable warps have looped for long
(warp_scheduler.py). The stored state is renewed at growing distances (Brent, 1980), so that a cycle of any length is
found.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workbench.emulator.arrays import Array, Value
from workbench.emulator.execution.batch import Batch
from workbench.emulator.execution.launch import EmulationFault
from workbench.emulator.isa.access import address
from workbench.emulator.ptx.instruction import Instruction
from workbench.emulator.ptx.syntax import Mem

KIND = "sample_waits"  # kind of the failure, by which callers recognise it
HINT = (
    "execute the whole grid, or model a kernel whose CTAs do not wait for one another: a sample cannot say how long"
    " such a"
    " wait takes"
)


class LivelockDetector:
    """Detects that a looping batch makes no progress."""

    def __init__(self) -> None:
        self.kept: _State | None = None
        self.age, self.span = 0, 1

    def has_stalled(self, b: Batch) -> bool:
        """Whether the batch is in the state of an earlier call, with no change of global memory since."""
        if self.kept is not None and self.kept.numbers[0] == b.changes:
            if self.kept.equals(_capture_state(b)):
                return True
            self.age += 1
            if self.age < self.span:
                return False
            self.span *= 2
        else:
            self.span = 1
        self.age, self.kept = 0, _capture_state(b, copy=True)
        return False


@dataclass(frozen=True, slots=True)
class _State:
    """All values that determine the next steps of a batch."""

    numbers: tuple[int, ...]
    registers: dict[str, Value]
    arrays: tuple[Array, ...]

    def equals(self, other: _State) -> bool:
        """Whether two states are equal; numbers are compared first."""
        mine, theirs = self.registers, other.registers
        return (
            self.numbers == other.numbers
            and all(np.array_equal(x, y) for x, y in zip(self.arrays, other.arrays, strict=True))
            and len(mine) == len(theirs)
            and all(
                value is theirs.get(name) or (name in theirs and np.array_equal(value, theirs[name]))
                for name, value in mine.items()
            )
        )


def _capture_state(b: Batch, *, copy: bool = False) -> _State:
    """The batch's state; registers are never written in place, so a copy shares their values."""
    lengths = tuple(len(one.lanes) for queue in (b.copies.copies, b.stores.copies, b.arrivals) for one in queue)
    passed = b.cluster_phase[b.cta // b.cluster_size] > b.cluster_phase_of
    arrays = (
        b.pc,
        b.alive,
        b.waiting,
        b.waiting_for,
        b.timed_out,
        b.arrived,
        b.barrier_count,
        b.cluster_arrived,
        passed,
        b.shared,
        b.local,
    )
    return _State(
        (b.changes, b.stalls, *lengths),
        dict(b.registers) if copy else b.registers,
        tuple(array.copy() for array in arrays) if copy else arrays,
    )


def sample_waits_fault(b: Batch, instructions: list[Instruction], low: int, chosen: Array) -> EmulationFault:
    """The fault of the lanes `chosen`, which poll in the loop that begins at instruction `low`."""
    lanes = np.nonzero(chosen)[0]
    poll = _find_poll(instructions, low)
    where, line, place = "the memory", instructions[low].line, None
    if poll is not None:
        line = poll.line
        at = address(next(operand for operand in poll.operands if isinstance(operand, Mem)), "global")(b, lanes)
        place = int(at[0] if isinstance(at, np.ndarray) and at.ndim else at)
        where = b.memory.describe_nearest(place) if b.memory.find(place) else where
    total = b.request.grid[0] * b.request.grid[1] * b.request.grid[2]
    said = (
        f"a sampled launch waits for a CTA that is not in the sample: none of the {b.count} CTAs of {total} that are"
        f" executed writes {where}, polled"
    )
    return b.fault(KIND, said, line, int(lanes[0]), place, stage="limits", hint=HINT)


def _find_poll(instructions: list[Instruction], low: int) -> Instruction | None:
    """The load or atomic of global memory that the loop at `low` polls: the first one with strong semantics, else the
    first.
    """
    loads = [
        ins
        for ins in instructions[low:]
        if ins.form.role in ("load", "atomic") and ins.form.space in ("global", "generic")
    ]
    return next((ins for ins in loads if ins.form.strong), loads[0] if loads else None)
