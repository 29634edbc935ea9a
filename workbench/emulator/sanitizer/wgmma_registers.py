"""The state of the registers that wgmma uses, by warp: those in flight, and those changed after the last fence.

Input: the wgmma instructions of a batch, and the copies and changes that sanitizer/wgmma_hazards.py reports. Output:
faults.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from workbench.emulator.arrays import Array, Lanes
from workbench.emulator.execution.batch import Batch
from workbench.emulator.ptx.instruction import Instruction
from workbench.emulator.sanitizer.vector_clocks import line_phrase, unique_warps

RING = 16  # committed groups whose tick is stored: more than wait_group can leave (7)
WAIT = (
    "cute.nvgpu.warpgroup.wait_group({n}) after the commit_group of that multiplication, before its accumulator or"
    " its A registers are touched"
)
FENCE = "cute.nvgpu.warpgroup.fence() after the registers were written, before the first cute.gemm that uses them"


class WgmmaRegisters:
    """The multiplications in flight of a batch, by warp; `count` is the number of warps.

    Groups are numbered from 1; `done` is the newest group that was waited for.
    """

    def __init__(self, count: int) -> None:
        self.busy = False
        self.open, self.done = np.ones(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
        self.commits = np.zeros((count, RING), dtype=np.int64)  # tick of the commit, by group
        self.waits = np.zeros((count, RING), dtype=np.int64)  # step of the wait, by group
        self.fenced = np.zeros(count, dtype=np.int64)  # step of the last fence
        self.step = 1  # counts fences, waits and loads
        self.sums: dict[str, Array] = {}  # accumulator register -> group of each warp
        self.inputs: dict[str, Array] = {}  # A register -> the same
        self.shapes: dict[str, str] = {}
        self.by: dict[str, Instruction] = {}
        # register -> step after which a fence must come before wgmma uses it, 0 for none
        self.changed: dict[str, Array] = {}
        self.count = count

    def _warps(self, i: Lanes) -> Array:
        return np.arange(self.count) if i is None else unique_warps(i)

    def fence(self, b: Batch, i: Lanes) -> None:
        """wgmma.fence."""
        self.step += 1
        self.fenced[self._warps(i)] = self.step

    def commit(self, b: Batch, i: Lanes) -> None:
        """wgmma.commit_group."""
        warps = self._warps(i)
        if b.races is not None:
            self.commits[warps, self.open[warps] % RING] = b.races.now
        self.open[warps] += 1

    def wait(self, b: Batch, i: Lanes, newest: int) -> None:
        """wgmma.wait_group: all but the `newest` committed groups are complete."""
        warps = self._warps(i)
        due = np.maximum(self.open[warps] - 1 - newest, self.done[warps])
        self.step += 1
        for back in range(min(int((due - self.done[warps]).max()), RING) if len(warps) else 0):
            new = due - back > self.done[warps]
            self.waits[warps[new], (due[new] - back) % RING] = self.step
        self.done[warps] = due
        if b.races is not None:
            b.races.finish_wgmma(warps, np.where(due > 0, self.commits[warps, due % RING], 0))
        groups = {id(group): group for table in (self.sums, self.inputs) for group in table.values()}
        self.busy = any((group > self.done).any() for group in groups.values())

    def issue(
        self, b: Batch, i: Lanes, ins: Instruction, sums: tuple[str, ...], inputs: tuple[str, ...], shape: str
    ) -> None:
        """Issue a wgmma that uses these registers; faults if they are not ready."""
        warps = self._warps(i)
        never = self.fenced[warps] == 0
        if never.any():
            raise b.fault(
                "wgmma_fence_missing",
                "a wgmma that no wgmma.fence precedes is issued",
                ins.line,
                int(warps[int(np.argmax(never))]) * 32,
                hint=FENCE,
            )
        for name in self.changed.keys() & {*sums, *inputs} if self.changed else ():
            late = self.changed[name][warps] > self.fenced[warps]
            if late.any():
                what = "accumulator" if name in sums else "A"
                raise b.fault(
                    "wgmma_fence_missing",
                    f"a wgmma whose {what} registers were written after the last wgmma.fence is issued",
                    ins.line,
                    int(warps[int(np.argmax(late))]) * 32,
                    hint=FENCE,
                )
        if self.busy:
            self._check_pending(b, warps, inputs, self.sums, ins, "read as A by a wgmma, issued")
            self._check_pending(b, warps, sums, self.inputs, ins, "overwritten", "A register")
            self._check_pending(
                b,
                warps,
                [name for name in sums if self.shapes.get(name, shape) != shape],
                self.sums,
                ins,
                "used by a wgmma of another shape, issued",
            )
        for table, names in ((self.sums, sums), (self.inputs, inputs)):
            new: dict[int, Array] = {}  # registers of one accumulator share an array
            for name in names:
                old = table.get(name)
                if id(old) not in new:
                    new[id(old)] = np.zeros(self.count, dtype=np.int64) if old is None else old.copy()
                    new[id(old)][warps] = self.open[warps]
                table[name] = new[id(old)]
                self.by[name], self.shapes[name] = ins, shape
        for name in self.changed.keys() & set(sums) if self.changed else ():
            self.changed[name][warps] = 0
        self.busy = True

    def check(self, b: Batch, i: Lanes, sources: list[str], targets: list[str], ins: Instruction) -> None:
        """Check an ordinary instruction that reads and writes these registers; faults if a multiplication is
        in flight.
        """
        warps = self._warps(i)
        self._check_pending(b, warps, sources, self.sums, ins, "read")
        self._check_pending(b, warps, targets, self.sums, ins, "overwritten")
        self._check_pending(b, warps, targets, self.inputs, ins, "overwritten", "A register")

    def _check_pending(
        self,
        b: Batch,
        warps: Array,
        names: Sequence[str],
        table: dict[str, Array],
        ins: Instruction,
        does: str,
        what: str = "accumulator",
    ) -> None:
        """Fault if a multiplication in flight uses one of these registers."""
        for name in names:
            if name not in table:
                continue
            group = table[name][warps]
            early = group > self.done[warps]
            if early.any():
                first = int(np.argmax(early))
                warp, number, by = int(warps[first]), int(group[first]), self.by[name]
                closed = number < int(self.open[warp])
                left = int(self.open[warp]) - 1 - number if closed else 0
                why = "has not been waited for" if closed else "was never committed, so that no wait covers it"
                raise b.fault(
                    "wgmma_in_flight",
                    f"an {what} of the wgmma{line_phrase(by, 'of')}, which {why}, is {does}",
                    ins.line,
                    warp * 32,
                    hint=WAIT.format(n=left),
                )

    def note_change(self, b: Batch, i: Lanes, names: list[str], sources: list[str] | None) -> None:
        """An ordinary instruction wrote these registers: a load, or arithmetic on `sources`."""
        warps = self._warps(i)
        if sources is None:
            self.step += 1
        known = (
            self.step
            if sources is None
            else np.max([self._ready_step(name, warps) for name in sources], axis=0)
            if sources
            else 0
        )
        for name in names:
            if name not in self.changed:
                self.changed[name] = np.zeros(self.count, dtype=np.int64)
            self.changed[name][warps] = known
            if name in self.sums:
                self.sums[name] = self.sums[name].copy()
                self.sums[name][warps] = 0

    def _ready_step(self, name: str, warps: Array) -> Array:
        """The step at which a register got its value: the wait for its multiplication, else the load that it comes
        from.
        """
        before = self.changed[name][warps] if name in self.changed else np.zeros(len(warps), dtype=np.int64)
        if name not in self.sums:
            return before
        group = self.sums[name][warps]
        return np.where((group > 0) & (group > self.done[warps] - RING), self.waits[warps, group % RING], before)

    def note_copy(self, b: Batch, i: Lanes, sources: tuple[str, ...], targets: list[str], changes: list[str]) -> None:
        """A copy between registers: the targets are in flight and changed as their sources are."""
        warps = self._warps(i)
        values = (
            [self.sums[name][warps] for name in sources if name in self.sums],
            [self.changed[name][warps] for name in sources if name in self.changed],
        )
        for table, names, known in zip((self.sums, self.changed), (targets, changes), values, strict=True):
            if not known and not any(name in table for name in names):
                continue
            for name in names:
                group = table[name] = table[name].copy() if name in table else np.zeros(self.count, dtype=np.int64)
                group[warps] = np.max(known, axis=0) if known else 0
        by = next((self.by[name] for name in sources if name in self.by), None)
        for name in targets:
            if by is not None:
                self.by[name] = by

    def notice_leaks(self, b: Batch) -> None:
        """Note the multiplications that nothing waited for when the kernel ends."""
        for name, group in self.sums.items():
            late = group > self.done
            if late.any():
                b.notice(
                    "leaked_wgmma",
                    "a wgmma that nothing waits for before the kernel ends",
                    self.by[name].line,
                    int(np.argmax(late)) * 32,
                )
