"""Finds races in shared memory: two warps access the same bytes, one of them writes, and nothing orders the two.

A barrier, an mbarrier, the cluster barrier, or an atomic of a kernel that has fences orders accesses
(vector_clocks.py). Every unit of shared memory stores its last writer and each warp's last read. A cp.async counts as a
store of its thread at the wait that covers it, a TMA load as a store at its issue that the mbarrier publishes, wgmma
and TMA stores as reads that last until their wait. Two stores of the same value are no race. A race is found for the
given inputs, whatever order the warps run in.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from workbench.emulator.arrays import Array
from workbench.emulator.execution.batch import Batch
from workbench.emulator.execution.launch import Allocation
from workbench.emulator.ptx.instruction import Instruction
from workbench.emulator.sanitizer.access_history import HINT, AccessHistory
from workbench.emulator.sanitizer.vector_clocks import LARGEST

Given: TypeAlias = tuple[Array, int, Array]  # offsets, size and values of a store


class Races(AccessHistory):
    """Checks accesses to a batch's shared memory; `record` does the same for the launch's global memory."""

    @property
    def now(self) -> int:
        """The newest tick."""
        return self.ticks.now

    def next_tick(self, ins: Instruction) -> int:
        """A new tick for an access."""
        return self.ticks.add(ins)

    def load(self, b: Batch, lanes: Array, at: Array, size: int, ins: Instruction) -> None:
        """Check a read of `size` bytes per lane at byte offsets `at` of the batch's shared memory."""
        if not self.enabled or ins.form.atomic:
            return
        units = self.units(at, size)
        if ins.form.strong:
            self.clocks.synchronize(units[:, 0], lanes, acquire=True, release=False)
            return
        tick, warp = self.ticks.add(ins), lanes >> 5
        self._check_writer(b, ins, lanes, units, "read")
        column = warp % self.clocks.cta_warps
        if self.clocks.ranks > 1:
            away = units[:, 0] // self.per_cta != b.cta[lanes]
            if away.any():
                column = np.where(away, self.remote_column, column)
                self.remote[units[away]] = warp[away, None]
                self.lasting[units[away]] = tick
        self.reads[units, column[:, None]] = tick
        self.read[units] = tick

    def store(self, b: Batch, lanes: Array, at: Array, size: int, ins: Instruction, values: Array) -> None:
        """Check a write of `values`, (lanes, bytes), of `size` bytes per lane."""
        if not self.enabled or ins.form.atomic:
            return
        units, tick = self.units(at, size), self.ticks.add(ins)
        if ins.form.strong:
            self.clocks.synchronize(units[:, 0], lanes, acquire=False, release=True)
            return
        mine = self._write(b, lanes, units, tick, ins, (at, size, values))
        twice = self.writer[units] >> 5 != mine >> 5  # another warp writes it in the same access
        if twice.any():
            self._check_same_access(b, ins, lanes, units, twice, values)

    def atomic(self, b: Batch, lanes: Array, at: Array, size: int, ins: Instruction) -> None:
        """Check an atomic of these lanes, which take turns where addresses collide."""
        if self.enabled:
            units, tick = self.units(at, size), self.ticks.add(ins)
            if self.plan.fences or ins.form.strong:
                self.clocks.synchronize(units[:, 0], lanes, acquire=ins.form.role == "atomic", release=True)
            self._write(b, lanes, units, tick, ins, None)

    def _write(self, b: Batch, lanes: Array, units: Array, tick: int, ins: Instruction, given: Given | None) -> Array:
        self._check_readers(b, ins, lanes, units, "overwritten")
        self._check_writer(b, ins, lanes, units, "overwritten", given)
        mine = np.broadcast_to(lanes.astype(np.int32)[:, None], units.shape)
        self.writer[units] = mine
        self.written[units] = tick
        self.read[units] = self.lasting[units] = 0
        return mine

    def issue_copy(self, b: Batch, lanes: Array, at: Array, size: int, ins: Instruction) -> None:
        """Check the issue of copies that will write there: no read may still be going on."""
        if self.enabled:
            self._check_readers(b, ins, lanes, self.units(at, size), "overwritten")

    def bulk_write(self, b: Batch, lane: int, places: list[Array], ins: Instruction) -> Array:
        """Check a bulk copy into these bytes (of several CTAs, if multicast); returns the clock for its mbarrier."""
        tick, lanes = self.ticks.add(ins), np.array([lane])
        self.ticks.lanes[tick] = lane
        if self.enabled:
            for at in places:
                units = (at[:: self.unit] // self.unit)[None, :]
                self._check_readers(b, ins, lanes, units, "overwritten")
                self._check_writer(b, ins, lanes, units, "overwritten")
                self.writer[units], self.written[units] = lane, tick
                self.read[units] = self.lasting[units] = 0
        return self.clocks.clock_rows(lanes >> 5)

    def bulk_read(self, b: Batch, lane: int, at: Array, ins: Instruction) -> int:
        """Check a bulk copy out of these bytes, which reads until its wait; returns its tick."""
        tick = self.ticks.add(ins)
        self.ticks.lanes[tick] = lane
        if self.enabled:
            units = at[..., :: self.unit].reshape(1, -1) // self.unit
            self._check_writer(b, ins, np.array([lane]), units, "read")
            self.reads[units, self.bulk_column] = tick
            self.lasting[units] = tick
        return tick

    def finish_bulk_read(self, lane: int, tick: int) -> None:
        """The thread waited for the bulk copy of this tick."""
        warp = np.array([lane >> 5])
        self.clocks.finish_async(self.clocks.bulk + self.clocks.own[warp], warp, tick)

    def read_wgmma_operand(
        self, b: Batch, lanes: Array, at: Array, ins: Instruction, tick: int, *, own_rows: bool
    ) -> None:
        """Check wgmma by the warpgroups whose first lanes are `lanes`: it reads byte offsets `at` (warpgroups, ...).

        With `own_rows`, each warp reads rows that it may have written itself.
        """
        units = at.reshape(len(lanes), -1) // self.unit
        warp, clocks = lanes >> 5, self.clocks
        stamp = self.written[units]
        if (stamp.max(axis=1) > np.min([clocks.floor[warp + k] for k in range(4)], axis=0)).any():
            each = warp[:, None] + np.arange(4)
            known = clocks.seen[each, : clocks.warps]  # (warpgroups, 4, warps of the cluster)
            np.put_along_axis(known, clocks.own[each][:, :, None], LARGEST if own_rows else 0, axis=2)
            bad = known.max(axis=1)[np.arange(len(lanes))[:, None], (self.writer[units] >> 5) % clocks.warps] < stamp
            if bad.any():
                n, k = (int(part) for part in np.unravel_index(int(np.argmax(bad)), bad.shape))
                self.report(
                    b, ins, int(lanes[n]), int(units[n, k]), "read", self.describe_writer(b, int(units[n, k])), HINT
                )
        self.reads[units, (clocks.cta_warps + warp % clocks.cta_warps // 4)[:, None]] = tick
        self.lasting[units] = tick

    def finish_wgmma(self, warps: Array, tick: Array) -> None:
        """These warps waited for the wgmma that their warpgroups issued until `tick`."""
        rank, group = warps // self.clocks.cta_warps % self.clocks.ranks, warps % self.clocks.cta_warps // 4
        self.clocks.finish_async(self.clocks.wgmma + rank * self.clocks.groups + group, warps, tick)

    def use_barrier(self, b: Batch, lanes: Array, words: Array, ins: Instruction) -> None:
        """Check a use of mbarriers: their initialisation must be ordered before."""
        if self.enabled:
            self._check_writer(b, ins, lanes, (words * 8 // self.unit)[:, None], "used as an mbarrier")

    def init_barrier(self, lanes: Array, words: Array, ins: Instruction) -> None:
        """These lanes initialise mbarriers."""
        if self.enabled:
            units = (words * 8 // self.unit)[:, None] + np.arange(8 // self.unit)
            self.writer[units], self.written[units] = lanes[:, None], self.ticks.add(ins)

    def checks_reads(self, found: Allocation) -> bool:
        """Whether reads of an allocation matter (see `Record`)."""
        return self.record.checks_reads(found)

    def wait_for_launches(self, b: Batch, lanes: Array, ins: Instruction) -> None:
        """Lanes wait for the launches before this one."""
        self.record.wait_for_launches(self.known, lanes, np.unique(b.blocks[b.cta[lanes]]), ins)

    def launch_dependents(self, lanes: Array, ins: Instruction) -> None:
        """Lanes let dependent launches start."""
        self.record.launch_dependents(self.known, lanes, ins)

    def load_global(
        self, b: Batch, lanes: Array, found: Allocation, offset: Array, size: int, ins: Instruction
    ) -> None:
        """Check a read of `size` bytes per lane at `offset` of an allocation."""
        if found.writable and not ins.form.atomic:
            access = self.record.make_access(b, self.known, ins, lanes=lanes, found=found, offset=offset, size=size)
            self.record.load(access)

    def store_global(
        self,
        b: Batch,
        lanes: Array,
        found: Allocation,
        offset: Array,
        size: int,
        ins: Instruction,
        values: Array | None,
    ) -> None:
        """Check a write of `values`, (lanes, bytes), None if they are not known yet. Atomics go to `atomic_global`."""
        if ins.form.role not in ("atomic", "reduction"):
            access = self.record.make_access(b, self.known, ins, lanes=lanes, found=found, offset=offset, size=size)
            self.record.store(access, offset, size, values)

    def atomic_global(
        self, b: Batch, lanes: Array, found: Allocation, offset: Array, size: int, rank: Array, ins: Instruction
    ) -> None:
        """Check an atomic of these lanes, each in its turn (`rank`) at its address."""
        access = self.record.make_access(b, self.known, ins, lanes=lanes, found=found, offset=offset, size=size)
        self.record.atomic(access, rank)

    def _check_writer(
        self, b: Batch, ins: Instruction, lanes: Array, units: Array, does: str, given: Given | None = None
    ) -> None:
        """Fault if another warp wrote one of the units (lanes, n) and nothing orders that write before this access.

        `given` is (offsets, size, values) of a store that may write the same values.
        """
        warp = lanes >> 5
        late = self.written[units] > self.clocks.floor[warp][:, None]
        if not late.any():
            return
        n, k = np.nonzero(late)
        unit = units[n, k]
        stamp, writer = self.written[unit], self.writer[unit] >> 5
        bad = (writer != warp[n]) & (self.clocks.seen[warp[n], self.clocks.own[writer]] < stamp)
        if bad.any() and ins.form.atomic:
            bad &= ~np.array([self.ticks.is_atomic(tick) for tick in stamp.tolist()])
        if bad.any() and given is not None:
            at, size, values = given
            differ = (
                (b.shared[at[:, None] + np.arange(size)] != values).reshape(len(lanes), units.shape[1], -1).any(axis=2)
            )
            bad &= differ[n, k]
        if bad.any():
            first = int(np.argmax(bad))
            self.report(
                b, ins, int(lanes[n[first]]), int(unit[first]), does, self.describe_writer(b, int(unit[first])), HINT
            )

    def _check_readers(self, b: Batch, ins: Instruction, lanes: Array, units: Array, does: str) -> None:
        """Fault if a read of one of the units (lanes, n) may still be going on."""
        warp = lanes >> 5
        late = (self.read[units] > self.clocks.floor[warp][:, None]) | (self.lasting[units] > 0)
        if not late.any():
            return
        n, k = np.nonzero(late)
        unit, warp = units[n, k], warp[n]
        width, rows, cta = self.known_at.shape[1], self.reads[unit], unit // self.per_cta
        if len(lanes) == 1:  # a bulk copy, into one CTA
            known = self.clocks.seen[warp[0], self.known_at[cta[0] % self.clocks.ranks]]
            if cta[0] == warp[0] // self.clocks.cta_warps:
                known[warp[0] % self.clocks.cta_warps] = LARGEST
            bad = rows[:, :width] > known
        else:
            bad = rows[:, :width] > self.clocks.seen[warp[:, None], self.known_at[cta % self.clocks.ranks]]
            mine = cta == warp // self.clocks.cta_warps
            bad[np.arange(len(unit))[mine], (warp % self.clocks.cta_warps)[mine]] = False
        if bad.any():
            first, column = (int(part) for part in np.unravel_index(int(np.argmax(bad)), bad.shape))
            self.report_reader(b, ins, int(lanes[n[first]]), int(unit[first]), column, int(rows[first, column]), does)
        for column in (self.bulk_column, self.remote_column) if self.clocks.ranks > 1 else (self.bulk_column,):
            self._check_column(b, ins, lanes[n], unit, rows[:, column], column, does)

    def _check_column(
        self, b: Batch, ins: Instruction, lanes: Array, unit: Array, ticks: Array, column: int, does: str
    ) -> None:
        """The same check for reads by bulk copies and by threads of other CTAs, whose columns any warp may use."""
        clocks, warp = self.clocks, lanes >> 5
        if not ticks.any():
            return
        if column == self.bulk_column:
            reader = np.array([self.ticks.lanes.get(tick, 0) >> 5 for tick in ticks.tolist()])
            bad = ticks > clocks.seen[warp, clocks.bulk + clocks.own[reader]]
        else:
            reader = self.remote[unit]
            bad = (ticks > clocks.seen[warp, clocks.own[reader]]) & (reader != warp)
        if bad.any():
            first = int(np.argmax(bad))
            self.report_reader(b, ins, int(lanes[first]), int(unit[first]), column, int(ticks[first]), does)

    def _check_same_access(
        self, b: Batch, ins: Instruction, lanes: Array, units: Array, twice: Array, values: Array
    ) -> None:
        """Fault if lanes write different values to a unit in one access."""
        parts = values.reshape(*units.shape, -1)
        last = {
            int(unit): part.tobytes()
            for unit, part in zip(units.reshape(-1), parts.reshape(-1, parts.shape[-1]), strict=True)
        }
        for n, k in zip(*np.nonzero(twice), strict=True):
            if last[int(units[n, k])] != parts[n, k].tobytes():
                thread = b.coordinates(int(self.writer[units[n, k]]))[1]
                self.report(
                    b,
                    ins,
                    int(lanes[n]),
                    int(units[n, k]),
                    "written",
                    f"which thread {thread} writes at the same time, with no barrier between,",
                    HINT,
                )
