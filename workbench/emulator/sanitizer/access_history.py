"""The access history of shared memory, and the messages of races in it.

Each unit stores its last writer, and the time of each warp's last read; the checks are in shared_races.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workbench.emulator.arrays import Array
from workbench.emulator.execution.batch import Batch
from workbench.emulator.ptx.instruction import Instruction
from workbench.emulator.ptx.syntax import SIZES
from workbench.emulator.sanitizer.global_accesses import BatchKnowledge
from workbench.emulator.sanitizer.global_races import Record
from workbench.emulator.sanitizer.vector_clocks import Clocks

THREAD_ACCESSES = ("load", "store", "atomic", "reduction")
WORD = 4
MOST_BYTES = 128 << 20  # limit for a batch's access history; batches are made smaller to keep it
HINT = (
    "a barrier between the accesses: cute.arch.sync_threads() after writing before others read, and after reading"
    " before it is overwritten; or the mbarrier or named barrier that both sides share"
)
WAIT_FIRST = (
    "cute.nvgpu.warpgroup.wait_group(n) until that multiplication is done, before the stage is released"
    " (consumer_release) or overwritten"
)
READ_FIRST = (
    "cute.arch.cp_async_bulk_wait_group(0, read=True) by the thread that issued the store, then a barrier, before the"
    " buffer is overwritten"
)


@dataclass(frozen=True, slots=True)
class Plan:
    """Facts about a kernel's instructions that the search for races needs: the smallest access in shared and in global
    memory (bytes, at most a word), whether TMA or wgmma read shared memory, and whether atomics on shared memory order
    other accesses (there is a fence or an acquire).
    """

    shared: int
    everywhere: int
    asynchronous: bool
    fences: bool


def make_plan(instructions: list[Instruction]) -> Plan:
    """The plan of a kernel."""
    unit = {"shared": WORD, "global": WORD}
    for ins in instructions:
        form = ins.form
        if form.role in THREAD_ACCESSES and form.space not in ("param", "local", "const"):
            size = SIZES.get(next((m for m in reversed(ins.mods) if m in SIZES), "b32"), WORD)
            for space in unit if form.space == "generic" else (form.space,):
                unit[space] = min(unit[space], size)
    fences = any(
        ins.form.role == "fence" or (ins.form.role in THREAD_ACCESSES and ins.form.orders) for ins in instructions
    )
    return Plan(unit["shared"], unit["global"], any(ins.form.async_proxy for ins in instructions), fences)


class AccessHistory:
    """The accesses to each unit of a batch's shared memory: who and when."""

    def __init__(self, b: Batch, plan: Plan, record: Record) -> None:
        self.plan, self.record, self.ticks = plan, record, record.ticks
        self.clocks = clocks = Clocks(b, record.ticks)
        self.known = BatchKnowledge(
            clocks,
            b.blocks[b.cta] * b.padded + b.thread,
            record.cluster_and_rank(b.blocks)[0][:: b.cluster_size],
            np.zeros(b.lanes // 32, dtype=np.int32),
        )
        self.enabled = clocks.warps > 1 or plan.asynchronous
        self.unit, self.per_cta = plan.shared, b.shared_bytes // plan.shared
        count = b.count * self.per_cta if self.enabled else 0
        self.bulk_column, self.remote_column = clocks.cta_warps + clocks.groups, clocks.cta_warps + clocks.groups + 1
        self.writer, self.written = np.zeros(count, dtype=np.int32), np.zeros(count, dtype=np.int32)
        # newest by a warp of the CTA; newest by any other column
        self.read, self.lasting = np.zeros(count, dtype=np.int32), np.zeros(count, dtype=np.int32)
        self.reads = np.zeros((count, column_count(clocks.cta_warps)), dtype=np.int32)
        self.remote = np.zeros(count if clocks.ranks > 1 else 0, dtype=np.int32)
        rank = np.arange(clocks.ranks)[:, None]
        self.known_at = np.concatenate(
            [
                rank * clocks.cta_warps + np.arange(clocks.cta_warps),
                clocks.wgmma + rank * clocks.groups + np.arange(clocks.groups),
            ],
            axis=1,
        )  # (rank, column of `reads`) -> column of the clocks

    def units(self, at: Array, size: int) -> Array:
        """Numbers of the units of each access, (lanes, units per access)."""
        first = at // self.unit
        return first[:, None] + np.arange(max(size // self.unit, 1)) if size > self.unit else first[:, None]

    def report_reader(
        self, b: Batch, ins: Instruction, lane: int, unit: int, column: int, tick: int, does: str
    ) -> None:
        """Raise the fault of a write to a unit that was read at `tick`, in `column` of `reads`."""
        clocks = self.clocks
        of, at = self.ticks.line_phrase(tick, "of"), self.ticks.line_phrase(tick, "at")
        if clocks.cta_warps <= column < self.bulk_column:
            cta, group = unit // self.per_cta, column - clocks.cta_warps
            first = cta * clocks.cta_warps + 4 * group
            over = (clocks.seen[first : first + 4, self.known_at[cta % clocks.ranks, column]] >= tick).all()
            if not over:
                self.report(
                    b,
                    ins,
                    lane,
                    unit,
                    does,
                    f"which the wgmma{of} still reads (nothing waited for that multiplication),",
                    WAIT_FIRST,
                    "wgmma_in_flight",
                )
            self.report(b, ins, lane, unit, does, f"which the wgmma{of} read, with nothing to order the two,", HINT)
        if column == self.bulk_column:
            issuer = self.ticks.lanes.get(tick, 0) >> 5
            waited = clocks.seen[issuer, clocks.bulk + clocks.own[issuer]] >= tick
            said = (
                f"which the bulk store{of}"
                f" {'read, with nothing to order the two,' if waited else 'still reads (nothing waited for it),'}"
            )
            self.report(b, ins, lane, unit, does, said, READ_FIRST)
        reader = (
            int(self.remote[unit]) if column == self.remote_column else unit // self.per_cta * clocks.cta_warps + column
        )
        block, thread = b.coordinates(reader << 5)
        whose = f" of block {block}" if block != b.coordinates(lane)[0] else ""
        self.report(
            b,
            ins,
            lane,
            unit,
            does,
            f"which a thread of the warp of thread {thread}{whose} read{at}, with no barrier between,",
            HINT,
        )

    def describe_writer(self, b: Batch, unit: int) -> str:
        """The part of a message about the last write to a unit."""
        tick = int(self.written[unit])
        wrote = self.ticks.instructions[tick]
        block, thread = b.coordinates(int(self.writer[unit]))
        whose = f" of block {block}" if b.cluster_size > 1 else ""
        if wrote is not None and wrote.form.role == "bulk_copy":
            return (
                f"which the TMA load{self.ticks.line_phrase(tick, 'of')} by thread {thread}{whose} wrote, with no wait"
                " for its mbarrier between,"
            )
        verb = "initialised" if wrote is not None and wrote.form.role == "mbarrier" else "wrote"
        return f"which thread {thread}{whose} {verb}{self.ticks.line_phrase(tick, 'at')}, with no barrier between,"

    def report(
        self,
        b: Batch,
        ins: Instruction,
        lane: int,
        unit: int,
        does: str,
        other: str,
        hint: str,
        kind: str = "shared_race",
    ) -> None:
        """Raise the fault of a race at a unit; `other` describes the other access."""
        if ins.form.async_proxy:
            wgmma = ins.form.role == "wgmma"
            does += f" by a {'wgmma' if wgmma else 'TMA load' if does == 'overwritten' else 'bulk store'}, issued"
        offset = unit * self.unit % b.shared_bytes
        where = f" of block {b.coordinates(unit // self.per_cta * b.padded)[0]}" if b.cluster_size > 1 else ""
        said = "" if kind != "shared_race" else "a race in shared memory: "
        raise b.fault(
            kind, f"{said}offset {offset} of shared memory{where}, {other} is {does}", ins.line, lane, offset, hint=hint
        )


def column_count(warps: int) -> int:
    """Columns of `reads`: the CTA's warps, its warpgroups' wgmma, bulk copies, threads of other CTAs."""
    return warps - (-warps // 4) + 2


def max_ctas(plan: Plan, shared_bytes: int, padded: int) -> int:
    """The largest number of CTAs in a batch whose access history fits in `MOST_BYTES`."""
    return max(MOST_BYTES // (max(shared_bytes, 1) // plan.shared * 4 * (column_count(padded >> 5) + 4) + 1), 1)
