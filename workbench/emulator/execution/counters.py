"""Counts instructions, FLOPs, bytes, sectors and wavefronts: per instruction while a launch runs, then per
source line.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workbench.emulator.arrays import Array
from workbench.emulator.execution.launch import GridRequest
from workbench.emulator.ptx.instruction import Instruction
from workbench.records import Finding, Launch, LineCounts

SECTOR, BANKS, WORD = 32, 32, 4
# types of matrix instructions in PTX -> torch dtypes ("tfloat32" for TF32)
OPERAND_TYPES = {
    "f64": "float64",
    "f32": "float32",
    "tf32": "tfloat32",
    "f16": "float16",
    "bf16": "bfloat16",
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
    "s32": "int32",
    "s8": "int8",
    "u8": "int8",
}
COUNTS = tuple(name for name in LineCounts.__dataclass_fields__ if name != "line")


@dataclass(frozen=True, slots=True)
class Counts:
    """All counts of a launch so far."""

    lanes: Array
    extra_flops: Array
    memory: dict[tuple[int, bool], Array]


class Counting:
    """Counters of one launch. They are cheap per instruction, and summed by line at the end."""

    def __init__(self, instructions: list[Instruction], *, enabled: bool) -> None:
        self.instructions = instructions
        self.enabled = enabled
        self.lanes = np.zeros(len(instructions), dtype=np.int64)
        self.position = {id(ins): n for n, ins in enumerate(instructions)}
        # key: instruction, and whether the row is for shared memory; an asynchronous copy has two rows
        self.memory: dict[tuple[int, bool], Array] = {}
        self.extra_flops = np.zeros(len(instructions), dtype=np.int64)
        self.bulk_bytes = 0

    def snapshot(self) -> Counts:
        """A copy of all counts, for `restore`."""
        memory = {place: row.copy() for place, row in self.memory.items()}
        return Counts(self.lanes.copy(), self.extra_flops.copy(), memory)

    def restore(self, state: Counts) -> None:
        """Go back to the counts of a snapshot."""
        self.lanes, self.extra_flops, self.memory = state.lanes, state.extra_flops, state.memory

    def extrapolate(self, before: Counts, now: Counts, count: int, periods: int) -> None:
        """Add `count` times the mean of what was counted in the periods between two snapshots. Nothing was counted
        since the second one.
        """
        self.lanes += (now.lanes - before.lanes) * count // periods
        self.extra_flops += (now.extra_flops - before.extra_flops) * count // periods
        for place, row in now.memory.items():
            old = before.memory.get(place, np.zeros_like(row))
            self.memory[place][:4] += (row[:4] - old[:4]) * count // periods

    def count_executed(self, n: int, lanes: int) -> None:
        """Count instruction `n` for `lanes` threads."""
        self.lanes[n] += lanes

    def count_memory_access(
        self, ins: Instruction, space: str, warps: Array, where: Array, size: int, write: bool
    ) -> None:
        """Count one access of each lane: bytes, requests, and sectors or wavefronts beside their ideal number."""
        n = self.position[id(ins)]
        row = self.memory.setdefault(
            (n, space == "shared"), np.zeros(5, dtype=np.int64)
        )  # bytes, requests, units, ideal, is_write
        row[4] = int(write)
        requests = int(np.count_nonzero(warps[1:] != warps[:-1])) + 1 if len(warps) else 0
        row[0] += len(where) * size
        row[1] += requests
        if space == "shared":
            units, ideal = count_wavefronts(warps, where, size, write)
        else:
            units, ideal = count_sectors(warps, where, size)
        row[2] += units
        row[3] += ideal

    def count_bulk(self, ins: Instruction, *, read: int = 0, written: int = 0) -> None:
        """Count the bytes of global memory that one bulk copy moves, in whole sectors; it is never uncoalesced."""
        if self.enabled:
            row = self.memory.setdefault((self.position[id(ins)], False), np.zeros(5, dtype=np.int64))
            units = -(-(read + written) // SECTOR)
            self.bulk_bytes += read + written
            for at, value in enumerate((read + written, 1, units, units)):
                row[at] += value
            row[4] = int(written > 0)

    def scale(self, whole: int, part: int) -> None:
        """Scale the counts of `part` CTAs to `whole` CTAs."""
        self.lanes, self.extra_flops = self.lanes * whole // part, self.extra_flops * whole // part
        for row in self.memory.values():
            row[:4] = row[:4] * whole // part

    def build_launch(self, name: str, request: GridRequest, printed: str) -> Launch:
        """Builds the launch record: totals, counts per line and per class, and advice."""
        sums: dict[int, list[int]] = {}
        classes: dict[str, int] = {}
        for n in np.nonzero(self.lanes)[0].tolist():
            ins, count = self.instructions[n], int(self.lanes[n])
            kind = ins.form.counter_class
            classes[kind] = classes.get(kind, 0) + count
            row = sums.setdefault(ins.line or 0, [0] * len(COUNTS))
            for at, value in self._instruction_counts(n, ins, count):
                row[at] += value
        lines = {line: LineCounts(line=line, **dict(zip(COUNTS, row, strict=True))) for line, row in sums.items()}
        total = LineCounts(line=0)
        for counts in lines.values():
            total = add_counts(total, counts)
        ordered = tuple(lines[key] for key in sorted(lines))
        return Launch(
            kernel=name,
            grid=request.grid,
            block=request.block,
            cluster=request.cluster,
            dynamic_shared_bytes=request.dynamic_shared_bytes,
            total=total,
            lines=ordered,
            classes=tuple(sorted(classes.items(), key=lambda item: -item[1])),
            tensor_flops=self._sum_tensor_flops(),
            findings=find_advice(name, ordered),
            printed=printed,
        )

    def _sum_tensor_flops(self) -> tuple[tuple[str, int], ...]:
        """FLOPs of matrix instructions by the torch dtype of their operands."""
        found: dict[str, int] = {}
        for n in np.nonzero(self.extra_flops)[0].tolist():
            types = [name for name in self.instructions[n].mods if name in OPERAND_TYPES]
            kind = OPERAND_TYPES[types[1]]  # the first is the result's
            found[kind] = found.get(kind, 0) + int(self.extra_flops[n])
        return tuple(sorted(found.items(), key=lambda item: -item[1]))

    def _instruction_counts(self, n: int, ins: Instruction, count: int) -> list[tuple[int, int]]:
        """The counts of one instruction as (position in COUNTS, value)."""
        flops = int(self.extra_flops[n]) + count * ins.form.flops
        found = {"instructions": count, "flops": flops}
        if (memory := self.memory.get((n, True))) is not None:
            _, requests, units, ideal, _ = (int(v) for v in memory)
            found.update(shared_requests=requests, shared_wavefronts=units, shared_ideal_wavefronts=ideal)
        if (memory := self.memory.get((n, False))) is not None:
            size, requests, units, ideal, write = (int(v) for v in memory)
            found.update(
                {"global_write_bytes" if write else "global_read_bytes": size},
                global_requests=requests,
                global_sectors=units,
                global_ideal_sectors=ideal,
            )
        return [(COUNTS.index(name), value) for name, value in found.items()]


def add_counts(a: LineCounts, b: LineCounts) -> LineCounts:
    """The counts of two lines together, under the first one's number."""
    return LineCounts(line=a.line, **{name: getattr(a, name) + getattr(b, name) for name in COUNTS})


def _count_distinct(warps: Array, key: Array) -> int:
    both = np.sort(warps * (1 << 48) + key)
    return int(np.count_nonzero(both[1:] != both[:-1])) + 1 if len(both) else 0


def count_sectors(warps: Array, where: Array, size: int) -> tuple[int, int]:
    """Distinct 32-byte sectors per warp request, and the fewest that the distinct bytes would need."""
    count = _count_distinct(warps, where >> 5)
    if size > SECTOR:
        count *= size // SECTOR
    order = np.sort(warps * (1 << 48) + where // size)
    fresh = np.concatenate([[True], order[1:] != order[:-1]])
    per_warp = (
        np.bincount(((order >> 48) - (order[0] >> 48))[fresh].astype(np.int64))
        if len(order)
        else np.zeros(0, dtype=np.int64)
    )
    return count, int(np.sum(-(-per_warp * size // SECTOR)))


def _reads_in_pairs(where: Array) -> Array:
    """For each whole warp (rows of 32 addresses): whether every lane reads the same as its neighbour, or as its
    neighbour but one.
    """
    fours = where.reshape(-1, 8, 4)
    found: Array = (fours[:, :, 0::2] == fours[:, :, 1::2]).all(axis=(1, 2))
    found |= (fours[:, :, :2] == fours[:, :, 2:]).all(axis=(1, 2))
    return found


def count_wavefronts(warps: Array, where: Array, size: int, write: bool) -> tuple[int, int]:
    """Shared-memory wavefronts, and the fewest possible: the most distinct words in one bank, per quarter warp for 16
    bytes and half warp for 8.

    Loads of a whole warp whose lanes read the same in pairs take half as many parts. Source: measured on an H200, 168
    patterns (tests/bench/wavefronts_on_gpu.py).
    """
    parts = max(1, size // WORD)
    start = np.concatenate([[True], warps[1:] != warps[:-1]]) if len(warps) else np.zeros(0, dtype=bool)
    position = (
        np.arange(len(warps)) - np.maximum.accumulate(np.where(start, np.arange(len(warps)), 0)) if parts > 1 else 0
    )
    group = warps * 4 + position * parts // 32
    if parts > 1 and not write:
        ends = np.append(np.nonzero(start)[0], len(warps))
        whole = np.nonzero(np.diff(ends) == 32)[0]
        if len(whole):
            lanes = ends[whole][:, None] + np.arange(32)
            lanes = lanes[_reads_in_pairs(where[lanes])]
            group[lanes] = warps[lanes] * 4 + np.arange(32) * (parts // 2) // 32
    words = (where[:, None] // WORD + np.arange(parts)[None, :]).reshape(-1)
    owner = np.repeat(group, parts)
    key: Array = np.unique(owner * (1 << 40) + words)
    bank = (key >> 40) * BANKS + (key & ((1 << 40) - 1)) % BANKS
    banks, counts = np.unique(bank, return_counts=True)
    _, start = np.unique(banks // BANKS, return_index=True)
    worst = np.maximum.reduceat(counts, start)
    distinct = np.add.reduceat(counts, start)
    return int(worst.sum()), int(np.sum(-(-distinct // BANKS)))


def find_advice(kernel: str, lines: tuple[LineCounts, ...]) -> tuple[Finding, ...]:
    """Advice by line: uncoalesced global access and shared-memory bank conflicts. It does not fail a kernel."""
    found = []
    for row in lines:
        if row.global_ideal_sectors and row.global_sectors > 1.2 * row.global_ideal_sectors:
            ratio = row.global_sectors / row.global_ideal_sectors
            found.append(
                Finding(
                    kind="uncoalesced",
                    severity="advice",
                    kernel=kernel,
                    line=row.line,
                    count=row.global_requests,
                    message=(
                        f"global access touches {ratio:.1f}x the sectors it needs ({row.global_sectors} against"
                        f" {row.global_ideal_sectors})"
                    ),
                )
            )
        if row.shared_ideal_wavefronts and row.shared_wavefronts > 1.2 * row.shared_ideal_wavefronts:
            ratio = row.shared_wavefronts / row.shared_ideal_wavefronts
            found.append(
                Finding(
                    kind="bank_conflict",
                    severity="advice",
                    kernel=kernel,
                    line=row.line,
                    count=row.shared_requests,
                    message=(
                        f"shared-memory access takes {ratio:.1f}x the wavefronts it needs ({row.shared_wavefronts}"
                        f" against {row.shared_ideal_wavefronts})"
                    ),
                )
            )
    return tuple(found)
