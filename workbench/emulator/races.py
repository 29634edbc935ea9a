"""Races in shared memory: two warps touch the same bytes, one of them writes, and nothing orders the two.

What orders them is a barrier, an mbarrier, the cluster barrier, or an atomic of a kernel that has fences (clocks.py). Every unit of shared memory remembers
who wrote it last and when each warp read it last. A cp.async counts as a store of its thread at the wait that covers it, a TMA load as a store at its issue that the
mbarrier hands on, wgmma and TMA stores as reads that last until their wait. Two stores of the same value are no race. Found is what happens on the
inputs at hand, whatever order the warps run in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.emulator.clocks import LARGEST, Clocks
from workbench.emulator.global_races import Record, is_atomic, is_strong
from workbench.emulator.ptx import SIZES, Instruction

if TYPE_CHECKING:
    from workbench.emulator.launch import Allocation
    from workbench.emulator.state import Batch

WORD = 4
MOST_BYTES = 128 << 20  # of what a batch remembers about its shared memory; batches are made smaller for it
HINT = "a barrier between the accesses: cute.arch.sync_threads() after writing before others read, and after reading before it is overwritten; or the mbarrier or named barrier that both sides share"
WAIT_FIRST = "cute.nvgpu.warpgroup.wait_group(n) until that multiplication is done, before the stage is released (consumer_release) or overwritten"
READ_FIRST = "cute.arch.cp_async_bulk_wait_group(0, read=True) by the thread that issued the store, then a barrier, before the buffer is overwritten"


@dataclass(frozen=True, slots=True)
class Plan:
    """What a kernel's instructions say of how to look for races: the smallest access in shared and in global memory (bytes, a word at most), whether TMA or
    wgmma read shared memory, and whether atomics on shared memory order anything (there is a fence or an acquire)."""

    shared: int
    everywhere: int
    asynchronous: bool
    fences: bool


def plan_of(instructions: list[Instruction]) -> Plan:
    """The plan of a kernel."""
    unit = {"shared": WORD, "global": WORD}
    asynchronous = fences = False
    for ins in instructions:
        if ins.opcode in ("ld", "ldu", "st", "atom", "red") and not {"param", "local", "const"} & set(ins.mods):
            size = SIZES.get(next((m for m in reversed(ins.mods) if m in SIZES), "b32"), WORD)
            for space in ("shared", "global") if not {"shared", "global"} & set(ins.mods) else {"shared", "global"} & set(ins.mods):
                unit[space] = min(unit[space], size)
        asynchronous |= ins.opcode == "wgmma" or (ins.opcode == "cp" and "bulk" in ins.mods)
        fences |= ins.opcode == "membar" or (ins.opcode == "fence" and ins.mods[0] not in ("proxy", "mbarrier_init")) or (ins.opcode in ("atom", "red", "ld", "st") and bool({"acquire", "release", "acq_rel"} & set(ins.mods)))
    return Plan(unit["shared"], unit["global"], asynchronous, fences)


class Races:
    """Who touched which unit of a batch's shared memory, and when; `record` does the same for the launch's global memory."""

    def __init__(self, b: Batch, plan: Plan, record: Record) -> None:
        self.plan, self.record, self.ticks = plan, record, record.ticks
        self.clocks = clocks = Clocks(b, record.ticks)
        self.global_lane = b.blocks[b.cta] * b.padded + b.thread
        self.cluster = record.cluster_of(b.blocks)[0][:: b.cluster_size]  # number of each of the batch's clusters
        self.on = clocks.warps > 1 or plan.asynchronous
        self.unit, self.per_cta = plan.shared, b.shared_bytes // plan.shared
        count = b.count * self.per_cta if self.on else 0
        self.bulk_column, self.remote_column = clocks.per + clocks.groups, clocks.per + clocks.groups + 1
        self.writer, self.written = np.zeros(count, dtype=np.int32), np.zeros(count, dtype=np.int32)
        self.read, self.lasting = np.zeros(count, dtype=np.int32), np.zeros(count, dtype=np.int32)  # newest by a warp of the CTA; newest by any other column
        self.reads = np.zeros((count, columns_of(clocks.per)), dtype=np.int32)
        self.remote = np.zeros(count if clocks.ranks > 1 else 0, dtype=np.int32)
        rank = np.arange(clocks.ranks)[:, None]
        self.known_at = np.concatenate([rank * clocks.per + np.arange(clocks.per), clocks.wgmma + rank * clocks.groups + np.arange(clocks.groups)], axis=1)  # (rank, column of `reads`) -> column of the clocks

    def _units(self, at: Any, size: int) -> Any:
        first = at // self.unit
        return first[:, None] + np.arange(max(size // self.unit, 1)) if size > self.unit else first[:, None]

    def load(self, b: Batch, lanes: Any, at: Any, size: int, ins: Instruction) -> None:
        """These lanes read `size` bytes each at byte offsets `at` of the batch's shared memory."""
        if not self.on or is_atomic(ins):
            return
        units = self._units(at, size)
        if is_strong(ins):
            self.clocks.meet(units[:, 0], lanes, acquire=True, release=False)
            return
        tick, warp = self.ticks.next(ins), lanes >> 5
        self._check_writer(b, ins, lanes, units, "read")
        column = warp % self.clocks.per
        if self.clocks.ranks > 1:
            away = units[:, 0] // self.per_cta != b.cta[lanes]
            if away.any():
                column = np.where(away, self.remote_column, column)
                self.remote[units[away]] = warp[away, None]
                self.lasting[units[away]] = tick
        self.reads[units, column[:, None]] = tick
        self.read[units] = tick

    def store(self, b: Batch, lanes: Any, at: Any, size: int, ins: Instruction, values: Any) -> None:
        """These lanes write `values`, (lanes, bytes), to `size` bytes each."""
        if not self.on or is_atomic(ins):
            return
        units, tick = self._units(at, size), self.ticks.next(ins)
        if is_strong(ins):
            self.clocks.meet(units[:, 0], lanes, acquire=False, release=True)
            return
        mine = self._write(b, lanes, units, tick, ins, (at, size, values))
        twice = self.writer[units] >> 5 != mine >> 5  # another warp writes it in the same access
        if twice.any():
            self._same_access(b, ins, lanes, units, twice, values)

    def atomic(self, b: Batch, lanes: Any, at: Any, size: int, ins: Instruction) -> None:
        """These lanes read and write at once, in turns where addresses collide."""
        if self.on:
            units, tick = self._units(at, size), self.ticks.next(ins)
            if self.plan.fences or is_strong(ins):
                self.clocks.meet(units[:, 0], lanes, acquire=ins.opcode == "atom", release=True)
            self._write(b, lanes, units, tick, ins, None)

    def _write(self, b: Batch, lanes: Any, units: Any, tick: int, ins: Instruction, given: Any) -> Any:
        self._check_readers(b, ins, lanes, units, "overwritten")
        self._check_writer(b, ins, lanes, units, "overwritten", given)
        mine = np.broadcast_to(lanes.astype(np.int32)[:, None], units.shape)
        self.writer[units] = mine
        self.written[units] = tick
        self.read[units] = self.lasting[units] = 0
        return mine

    def issue(self, b: Batch, lanes: Any, at: Any, size: int, ins: Instruction) -> None:
        """These lanes issue copies that will write there: whoever still reads is overwritten."""
        if self.on:
            self._check_readers(b, ins, lanes, self._units(at, size), "overwritten")

    def bulk_write(self, b: Batch, lane: int, places: list[Any], ins: Instruction) -> Any:
        """A bulk copy into these bytes (of several CTAs, if multicast); returns the clock that its mbarrier gets."""
        tick, lanes = self.ticks.next(ins), np.array([lane])
        self.ticks.lanes[tick] = lane
        if self.on:
            for at in places:
                units = (at[:: self.unit] // self.unit)[None, :]
                self._check_readers(b, ins, lanes, units, "overwritten")
                self._check_writer(b, ins, lanes, units, "overwritten")
                self.writer[units], self.written[units] = lane, tick
                self.read[units] = self.lasting[units] = 0
        return self.clocks.rows(lanes >> 5)

    def bulk_read(self, b: Batch, lane: int, at: Any, ins: Instruction) -> int:
        """A bulk copy out of these bytes, which it reads until its wait; returns its tick."""
        tick = self.ticks.next(ins)
        self.ticks.lanes[tick] = lane
        if self.on:
            units = at[..., :: self.unit].reshape(1, -1) // self.unit
            self._check_writer(b, ins, np.array([lane]), units, "read")
            self.reads[units, self.bulk_column] = tick
            self.lasting[units] = tick
        return tick

    def bulk_done(self, lane: int, tick: int) -> None:
        """The thread waited for that copy."""
        warp = np.array([lane >> 5])
        self.clocks.finished(self.clocks.bulk + self.clocks.own[warp], warp, tick)

    def matrix(self, b: Batch, lanes: Any, at: Any, ins: Instruction, tick: int, *, own_rows: bool) -> None:
        """wgmma by the warpgroups whose first lanes are `lanes` reads byte offsets `at` (warpgroups, ...); with `own_rows` each warp reads what may be its own."""
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
                self._report(b, ins, int(lanes[n]), int(units[n, k]), "read", self._wrote(b, int(units[n, k])), HINT)
        self.reads[units, (clocks.per + warp % clocks.per // 4)[:, None]] = tick
        self.lasting[units] = tick

    def multiplied(self, warps: Any, tick: Any) -> None:
        """These warps waited for the wgmma that their warpgroups issued until `tick`."""
        rank, group = warps // self.clocks.per % self.clocks.ranks, warps % self.clocks.per // 4
        self.clocks.finished(self.clocks.wgmma + rank * self.clocks.groups + group, warps, tick)

    def barrier_used(self, b: Batch, lanes: Any, words: Any, ins: Instruction) -> None:
        """These lanes use mbarriers: their initialisation must be seen."""
        if self.on:
            self._check_writer(b, ins, lanes, (words * 8 // self.unit)[:, None], "used as an mbarrier")

    def barrier_made(self, lanes: Any, words: Any, ins: Instruction) -> None:
        """These lanes initialise mbarriers."""
        if self.on:
            units = (words * 8 // self.unit)[:, None] + np.arange(8 // self.unit)
            self.writer[units], self.written[units] = lanes[:, None], self.ticks.next(ins)

    def load_global(self, b: Batch, lanes: Any, found: Allocation, offset: Any, size: int, ins: Instruction) -> None:
        """These lanes read `size` bytes each at `offset` of an allocation."""
        self.record.load(b, self, lanes, found, offset, size, ins)

    def store_global(self, b: Batch, lanes: Any, found: Allocation, offset: Any, size: int, ins: Instruction, values: Any) -> None:
        """These lanes write `values`, (lanes, bytes) or None where they are not known yet."""
        self.record.store(b, self, lanes, found, offset, size, ins, values)

    def _check_writer(self, b: Batch, ins: Instruction, lanes: Any, units: Any, does: str, given: Any = None) -> None:
        """Fault if another warp wrote one of the units (lanes, n) and this one cannot know; `given` is (offsets, size, values) of a store that may write the same."""
        warp = lanes >> 5
        late = self.written[units] > self.clocks.floor[warp][:, None]
        if not late.any():
            return
        n, k = np.nonzero(late)
        unit = units[n, k]
        stamp, writer = self.written[unit], self.writer[unit] >> 5
        bad = (writer != warp[n]) & (self.clocks.seen[warp[n], self.clocks.own[writer]] < stamp)
        if bad.any() and is_atomic(ins):
            bad &= ~np.array([is_atomic(self.ticks.instructions[tick]) for tick in stamp.tolist()])
        if bad.any() and given is not None:
            at, size, values = given
            differ = (b.shared[at[:, None] + np.arange(size)] != values).reshape(len(lanes), units.shape[1], -1).any(axis=2)
            bad &= differ[n, k]
        if bad.any():
            first = int(np.argmax(bad))
            self._report(b, ins, int(lanes[n[first]]), int(unit[first]), does, self._wrote(b, int(unit[first])), HINT)

    def _check_readers(self, b: Batch, ins: Instruction, lanes: Any, units: Any, does: str) -> None:
        """Fault if a read of one of the units (lanes, n) may not be over."""
        warp = lanes >> 5
        late = (self.read[units] > self.clocks.floor[warp][:, None]) | (self.lasting[units] > 0)
        if not late.any():
            return
        n, k = np.nonzero(late)
        unit, warp = units[n, k], warp[n]
        width, rows, cta = self.known_at.shape[1], self.reads[unit], unit // self.per_cta
        if len(lanes) == 1:  # a bulk copy, into one CTA
            known = self.clocks.seen[warp[0], self.known_at[cta[0] % self.clocks.ranks]]
            if cta[0] == warp[0] // self.clocks.per:
                known[warp[0] % self.clocks.per] = LARGEST
            bad = rows[:, :width] > known
        else:
            bad = rows[:, :width] > self.clocks.seen[warp[:, None], self.known_at[cta % self.clocks.ranks]]
            mine = cta == warp // self.clocks.per
            bad[np.arange(len(unit))[mine], (warp % self.clocks.per)[mine]] = False
        if bad.any():
            first, column = (int(part) for part in np.unravel_index(int(np.argmax(bad)), bad.shape))
            self._still_read(b, ins, int(lanes[n[first]]), int(unit[first]), column, int(rows[first, column]), does)
        for column in (self.bulk_column, self.remote_column) if self.clocks.ranks > 1 else (self.bulk_column,):
            self._check_column(b, ins, lanes[n], unit, rows[:, column], column, does)

    def _check_column(self, b: Batch, ins: Instruction, lanes: Any, unit: Any, ticks: Any, column: int, does: str) -> None:
        """The same for the columns that any warp may have read in: bulk copies, and threads of other CTAs."""
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
            self._still_read(b, ins, int(lanes[first]), int(unit[first]), column, int(ticks[first]), does)

    def _still_read(self, b: Batch, ins: Instruction, lane: int, unit: int, column: int, tick: int, does: str) -> None:
        clocks = self.clocks
        of, at = self.ticks.line(tick, "of"), self.ticks.line(tick, "at")
        if clocks.per <= column < self.bulk_column:
            cta, group = unit // self.per_cta, column - clocks.per
            first = cta * clocks.per + 4 * group
            over = (clocks.seen[first : first + 4, self.known_at[cta % clocks.ranks, column]] >= tick).all()
            if not over:
                self._report(b, ins, lane, unit, does, f"which the wgmma{of} still reads (nothing waited for that multiplication),", WAIT_FIRST, "wgmma_in_flight")
            self._report(b, ins, lane, unit, does, f"which the wgmma{of} read, with nothing to order the two,", HINT)
        if column == self.bulk_column:
            issuer = self.ticks.lanes.get(tick, 0) >> 5
            waited = clocks.seen[issuer, clocks.bulk + clocks.own[issuer]] >= tick
            said = f"which the bulk store{of} {'read, with nothing to order the two,' if waited else 'still reads (nothing waited for it),'}"
            self._report(b, ins, lane, unit, does, said, READ_FIRST)
        reader = int(self.remote[unit]) if column == self.remote_column else unit // self.per_cta * clocks.per + column
        block, thread = b.where(reader << 5)
        whose = f" of block {block}" if block != b.where(lane)[0] else ""
        self._report(b, ins, lane, unit, does, f"which a thread of the warp of thread {thread}{whose} read{at}, with no barrier between,", HINT)

    def _wrote(self, b: Batch, unit: int) -> str:
        tick = int(self.written[unit])
        wrote = self.ticks.instructions[tick]
        block, thread = b.where(int(self.writer[unit]))
        whose = f" of block {block}" if b.cluster_size > 1 else ""
        if wrote is not None and wrote.opcode == "cp" and "bulk" in wrote.mods:
            return f"which the TMA load{self.ticks.line(tick, 'of')} by thread {thread}{whose} wrote, with no wait for its mbarrier between,"
        verb = "initialised" if wrote is not None and wrote.opcode == "mbarrier" else "wrote"
        return f"which thread {thread}{whose} {verb}{self.ticks.line(tick, 'at')}, with no barrier between,"

    def _same_access(self, b: Batch, ins: Instruction, lanes: Any, units: Any, twice: Any, values: Any) -> None:
        parts = values.reshape(*units.shape, -1)
        last = {int(unit): part.tobytes() for unit, part in zip(units.reshape(-1), parts.reshape(-1, parts.shape[-1]), strict=True)}
        for n, k in zip(*np.nonzero(twice), strict=True):
            if last[int(units[n, k])] != parts[n, k].tobytes():
                thread = b.where(int(self.writer[units[n, k]]))[1]
                self._report(b, ins, int(lanes[n]), int(units[n, k]), "written", f"which thread {thread} writes at the same time, with no barrier between,", HINT)

    def _report(self, b: Batch, ins: Instruction, lane: int, unit: int, does: str, other: str, hint: str, kind: str = "shared_race") -> None:
        if ins.opcode == "wgmma" or (ins.opcode == "cp" and "bulk" in ins.mods):
            does += f" by a {'wgmma' if ins.opcode == 'wgmma' else 'TMA load' if does == 'overwritten' else 'bulk store'}, issued"
        offset = unit * self.unit % b.shared_bytes
        where = f" of block {b.where(unit // self.per_cta * b.padded)[0]}" if b.cluster_size > 1 else ""
        said = "" if kind != "shared_race" else "a race in shared memory: "
        raise b.fault(kind, f"{said}offset {offset} of shared memory{where}, {other} is {does}", ins.line, lane, offset, hint=hint)


def columns_of(warps: int) -> int:
    """Columns of what is remembered of reads: the CTA's warps, its warpgroups' wgmma, bulk copies, threads of other CTAs."""
    return warps - (-warps // 4) + 2


def most_ctas(plan: Plan, shared_bytes: int, padded: int) -> int:
    """How many CTAs a batch may have, so that what it remembers fits in `MOST_BYTES`."""
    return max(MOST_BYTES // (max(shared_bytes, 1) // plan.shared * 4 * (columns_of(padded >> 5) + 4) + 1), 1)
