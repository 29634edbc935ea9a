"""Races in shared memory: two warps touch the same bytes between two barriers of the CTA, and one of them writes.

For kernels whose threads meet only at the barrier of the whole CTA (and within a warp): each barrier starts an epoch, and every unit of shared memory
remembers who wrote and who read it last, and when. A copy by cp.async counts as a store of its thread at the wait that covers it. Threads of one
warp are taken as ordered. Two stores of the same value are no race. Found is what happens on the inputs at hand, whatever order the warps run in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.emulator.ptx import Imm, Instruction

if TYPE_CHECKING:
    from workbench.emulator.state import Batch

SEVERAL = -2
ACCESSES = ("ld", "ldu", "st", "ldmatrix", "stmatrix", "cp")
HINT = "a barrier between the accesses: cute.arch.sync_threads() after writing before others read, and after reading before it is overwritten"


def unit_of(instructions: list[Instruction]) -> int:
    """Bytes of the smallest access that a kernel makes, at most a word: neighbours in one word are told apart where they must be; 0 where threads meet
    in other ways than at the barrier of the whole CTA."""
    unit = 4
    for ins in instructions:
        if ins.opcode in ("mbarrier", "wgmma") or (ins.opcode in ("atom", "red") and "global" not in ins.mods):
            return 0
        if ins.opcode in ("bar", "barrier") and "warp" not in ins.mods:
            whole = len(ins.operands) == 1 and isinstance(ins.operands[0], Imm) and not int(ins.operands[0].value)
            if not whole or "cluster" in ins.mods or "arrive" in ins.mods or "red" in ins.mods:
                return 0
        if ins.opcode in ("ld", "st") and "global" not in ins.mods and "param" not in ins.mods and ins.mods[-1][1:].isdigit():
            unit = min(unit, max(int(ins.mods[-1][1:]) // 8, 1))
        if ins.opcode in ("ld", "st") and ins.mods[-1] == "bf16":
            unit = min(unit, 2)
    return unit


class Races:
    """Who touched which unit of a batch's shared memory, and in which epoch."""

    def __init__(self, b: Batch, unit: int) -> None:
        count = len(b.shared) // unit
        self.unit = unit
        self.epoch = np.ones(b.count, dtype=np.int32)
        self.writer, self.written = np.zeros(count, dtype=np.int32), np.zeros(count, dtype=np.int32)
        self.reader, self.read_at = np.zeros(count, dtype=np.int32), np.zeros(count, dtype=np.int32)

    def _units(self, at: Any, size: int) -> Any:
        first = at // self.unit
        return first[:, None] + np.arange(max(size // self.unit, 1)) if size > self.unit else first[:, None]

    def load(self, b: Batch, lanes: Any, at: Any, size: int, ins: Instruction) -> None:
        """These lanes read `size` bytes each at byte offsets `at` of the batch's shared memory."""
        units, warp, epoch = self._units(at, size), (lanes >> 5).astype(np.int32)[:, None], self.epoch[b.cta[lanes]][:, None]
        fresh = self.written[units] == epoch
        if fresh.any():
            bad = fresh & (self.writer[units] >> 5 != warp)
            if bad.any():
                self._report(b, ins, lanes, at, bad, self.writer[units], "reads", "wrote")
        seen = np.where((self.read_at[units] == epoch) & (self.reader[units] != warp), SEVERAL, warp)
        self.reader[units] = seen
        self.read_at[units] = epoch
        others = self.reader[units] != seen  # another warp reads it in the same access
        if others.any():
            self.reader[units[others]] = SEVERAL

    def store(self, b: Batch, lanes: Any, at: Any, size: int, ins: Instruction, values: Any) -> None:
        """These lanes write `values`, (lanes, bytes), to `size` bytes each."""
        units, warp, epoch = self._units(at, size), (lanes >> 5).astype(np.int32)[:, None], self.epoch[b.cta[lanes]][:, None]
        bad = (self.read_at[units] == epoch) & (self.reader[units] != warp)
        if bad.any():
            self._report(b, ins, lanes, at, bad, np.where(self.reader[units] < 0, -1, self.reader[units] << 5), "overwrites", "reads")
        again = (self.written[units] == epoch) & (self.writer[units] >> 5 != warp)
        if again.any():
            self._overwritten(b, ins, lanes, at, size, again, self.writer[units], values)
        mine = np.broadcast_to(lanes.astype(np.int32)[:, None], units.shape)
        self.writer[units] = mine
        self.written[units] = epoch
        twice = self.writer[units] >> 5 != warp  # another warp writes it in the same access
        if twice.any():
            self._same_access(b, ins, lanes, at, units, twice, values)

    def _overwritten(self, b: Batch, ins: Instruction, lanes: Any, at: Any, size: int, again: Any, before: Any, values: Any) -> None:
        there = b.shared[at[:, None] + np.arange(size)]
        differ = (there != values).reshape(len(lanes), again.shape[1], -1).any(axis=2) & again
        if differ.any():
            self._report(b, ins, lanes, at, differ, before, "overwrites", "wrote")

    def _same_access(self, b: Batch, ins: Instruction, lanes: Any, at: Any, units: Any, twice: Any, values: Any) -> None:
        parts = values.reshape(*units.shape, -1)
        last = {int(unit): part.tobytes() for unit, part in zip(units.reshape(-1), parts.reshape(-1, parts.shape[-1]), strict=True)}
        differ = np.array([[twice[n, k] and last[int(units[n, k])] != parts[n, k].tobytes() for k in range(units.shape[1])] for n in range(len(lanes))])
        if differ.any():
            self._report(b, ins, lanes, at, differ, self.writer[units], "writes", "writes")

    def _report(self, b: Batch, ins: Instruction, lanes: Any, at: Any, bad: Any, other: Any, does: str, did: str) -> None:
        n, k = np.unravel_index(int(np.argmax(bad)), bad.shape)
        lane, them = int(lanes[n]), int(other[n, k])
        who = f"a thread of the warp of thread {b.where(them)[1]}" if did == "reads" and them >= 0 else f"thread {b.where(them)[1]}" if them >= 0 else "threads of several other warps"
        offset = int(at[n]) % b.shared_bytes + int(k) * self.unit
        verb = {"wrote": "wrote", "reads": "read", "writes": "writes at the same time"}[did]
        raise b.fault("shared_race", f"a race in shared memory: {does} offset {offset}, which {who} {verb}, with no barrier between", ins.line, lane, offset, hint=HINT)
