"""How long a CTA takes by itself: its warps followed in time, instruction by instruction, as if nothing else ran on the SM.

Each warp has a clock. Within a basic block an instruction starts when its operands are ready, whatever the order (ptxas reorders there); a block
ends when its last instruction has started, because a warp issues in order. Operands are ready a latency after the instruction that makes them started.
A barrier takes its warps to the latest of their clocks, an mbarrier's wait to the latest arrival, a wait for cp.async or wgmma to the end of what it
covers. Limits of throughput are not in it: those are the other terms of the time model (analysis/model.py), but for wgmma, which one unit per SM executes in turn.

Latencies in cycles of the SM clock, all inferred: round numbers of the size that microbenchmarks of Hopper find (such as Luo et al., "Benchmarking and Dissecting the
Nvidia Hopper GPU Architecture via Microbenchmarking", 2024), not taken over from a table; the one past L1 stands for L2 and DRAM together. wgmma takes n / 2 cycles for
m64nN and 32 bytes of k, from the data sheet's dense rate: 2048 fp16 FMAs a cycle and SM.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from workbench.emulator.access import address
from workbench.emulator.cached import LINE, OWNER, SECTOR, Cache, Places, sectors
from workbench.emulator.ptx import Instruction, Mem, Name, Reg, Vec
from workbench.records import Paced

if TYPE_CHECKING:
    from workbench.emulator.state import Batch

WARP = 32
ARITHMETIC, DOUBLE, INTEGER, SPECIAL, CONVERT, EXCHANGE = 4, 16, 5, 23, 8, 24
SHARED, L1_HIT, BEYOND, TMA_LATENCY, ATOMIC, BARRIER = 30, 40, 560, 700, 600, 20
MMA, WGMMA_START = 33, 32
ALL: Any = slice(None)
WAITING = ("mbarrier", "wgmma", "bar", "barrier", "fence", "membar", "atom", "red")
UNROLLED = 4  # turns of a plain loop that ptxas schedules together (inferred)
FREE = ("mov", "cvta", "pragma", "prefetch", "prefetchu", "discard", "setmaxnreg", "griddepcontrol")  # ptxas folds them, or nothing waits for them


@dataclass(frozen=True, slots=True)
class Step:
    """What following needs of one instruction: registers read and written, latency, cycles that issuing it takes."""

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    latency: float
    issue: int
    kind: str = ""  # of those that need more than a latency


def _names(operand: object) -> tuple[str, ...]:
    if isinstance(operand, Reg):
        return (operand.name,)
    if isinstance(operand, Name):
        return ()
    if isinstance(operand, Vec):
        return tuple(name for item in operand.items for name in _names(item))
    if isinstance(operand, Mem):
        return _names(operand.base) + tuple(name for item in operand.coordinates or () for name in _names(item))
    return ()


NO_TARGET = ("st", "red", "bra", "bar", "barrier", "ret", "exit", "cp", "fence", "membar", "stmatrix", "prefetch", "nanosleep", "call", "trap")


def step(ins: Instruction) -> Step:
    """The static part of following one instruction."""
    mods, op = ins.mods, ins.opcode
    targets: tuple[str, ...] = ()
    operands = list(ins.operands)
    if op not in NO_TARGET and operands and not isinstance(operands[0], Mem) and not (op in ("mbarrier", "wgmma") and mods[0] in ("init", "inval", "fence", "commit_group", "wait_group")):
        targets = _names(operands[0])
        operands = operands[1:]  # wgmma reads its accumulator too, but the unit itself forwards it
    sources = tuple(name for operand in operands for name in _names(operand)) + ((str(ins.guard),) if ins.guard else ())
    kind, latency = _kind(ins)
    free = op in FREE or (op == "ld" and "param" in mods)
    wide = kind == "" and any(m in ("s64", "u64", "b64") for m in mods)
    return Step(sources, targets, 0 if free else latency, 0 if free else 2 if wide else 1, kind)


def _kind(ins: Instruction) -> tuple[str, float]:
    op, mods = ins.opcode, ins.mods
    if op in ("ld", "ldu"):
        return ("load" if "param" not in mods and "shared" not in mods and "local" not in mods else "", SHARED)
    if op == "wgmma":
        return {"fence": ("", 0), "commit_group": ("commit", 0), "wait_group": ("wait", 0)}.get(mods[0], ("wgmma", 0))
    if op == "cp":
        if "bulk" in mods:
            return ("bulk_commit" if "commit_group" in mods else "bulk_wait" if "wait_group" in mods else "bulk_load" if "mbarrier" in ins.text else "bulk_store"), 0
        return ("copy_commit" if "commit_group" in mods else "copy_wait" if "wait_group" in mods or "wait_all" in mods else "copy"), 0
    if op in ("atom", "red"):
        return "", 2 * SHARED if "shared" in mods else ATOMIC
    if op == "mma":
        return "", MMA
    if op in ("shfl", "redux", "match", "vote", "elect"):
        return "", EXCHANGE
    if op == "ldmatrix":
        return "", SHARED
    if "f64" in mods:
        return "", DOUBLE
    if op in ("ex2", "lg2", "rcp", "rsqrt", "sin", "cos", "tanh", "sqrt", "div", "rem"):
        return "", SPECIAL
    return "", CONVERT if op == "cvt" else ARITHMETIC if any(m in ("f32", "f16", "f16x2", "bf16x2", "bf16") for m in mods) else INTEGER


def wgmma_cycles(ins: Instruction) -> float:
    """Cycles that an SM's tensor cores take for m64nN and 32 bytes of k: n / 2."""
    shape = next(m for m in ins.mods if m.startswith("m64n"))
    return int(shape[4:].split("k")[0]) / 2


def _plain_loops(instructions: list[Instruction], steps: list[Step]) -> dict[int, int]:
    """First instruction of each innermost loop that waits for nothing but memory, by each instruction in it."""
    found: dict[int, int] = {}
    backward = [(ins.target, n) for n, ins in enumerate(instructions) if ins.opcode == "bra" and 0 <= ins.target <= n]
    for first, last in backward:
        inner = any(first <= target and end < last for target, end in backward)
        if not inner and not any(steps[n].kind.endswith("wait") or instructions[n].opcode in WAITING for n in range(first, last + 1)):
            found.update(dict.fromkeys(range(first, last + 1), first))
    return found


class Pace:
    """The clocks of a batch's warps; `executed` is called for every instruction that the interpreter runs."""

    def __init__(self, b: Batch, steps: list[Step], instructions: list[Instruction], l1_bytes: int, l2_bytes: int) -> None:
        self.places = Places([a.start for a in b.memory.allocations], [a.size for a in b.memory.allocations])
        self.b, self.steps, self.instructions = b, steps, instructions
        self.l1, self.l2 = Cache(b.count, l1_bytes), Cache(b.count, l2_bytes)
        self.requests = self.looked_up = self.lines = self.missed = self.l2_missed = self.written = 0
        self.beyond: list[Any] = []  # keys of what had to come from beyond L1
        self.loops = _plain_loops(instructions, steps)
        self.loop, self.turns = -1, 0
        self.warps = b.lanes // WARP
        self.now = np.zeros(self.warps)
        self.ready: dict[str, Any] = {}
        self.stalls = np.zeros(len(instructions))
        self.issued = 0.0
        self.here: Any = ALL
        self.base = self.last = self.now
        self.count = 0
        self.late: Any = None
        self.groups: dict[str, list[tuple[Any, Any]]] = {"wgmma": [], "copy": [], "bulk": []}  # committed: (warps as a mask, their end)
        self.open: dict[str, Any] = {name: np.zeros(self.warps) for name in self.groups}
        self.unit = np.zeros(b.count)  # when a CTA's tensor cores are free
        self.mbarriers = np.zeros(len(b.shared) // 8)
        self.due: dict[tuple[int, int], float] = {}
        self._barrier_of = {n: address(ins.operands[2], "shared") for n, ins in enumerate(instructions) if steps[n].kind == "bulk_load" and isinstance(ins.operands[2], Mem)}
        self._barrier_of.update({n: address(ins.operands[3], "shared") for n, ins in enumerate(instructions) if steps[n].kind == "bulk_load" and n not in self._barrier_of and isinstance(ins.operands[3], Mem)})

    def enter(self, start: int, idx: Any) -> None:
        """These lanes begin the basic block at `start`. A few turns of an innermost loop with no barrier or wait count as one block: ptxas unrolls it."""
        loop = self.loops.get(start, -1)
        here: Any = ALL if idx is None else np.unique(idx // WARP)
        same = loop >= 0 and loop == self.loop and (here is self.here or (here is not ALL and self.here is not ALL and np.array_equal(here, self.here)))
        self.turns = 0 if not same else self.turns + (start == loop)
        self.loop, self.here = loop, here
        if same and (start != loop or self.turns % UNROLLED):
            return
        self.base = self.now[self.here].copy()
        self.last = self.base
        self.count = 0

    def accessed(self, ins: Instruction, lanes: Any, where: Any, size: int, write: bool) -> None:
        """Lanes access global memory: lines that L1 looks up and, of loads, which warps wait for more than L1."""
        cta = self.b.cta[lanes]
        keys, parts = sectors(cta, self.places.of(where), size)
        unique, inverse = np.unique(keys, return_inverse=True)
        if ins.opcode == "cp" and "ca" not in ins.mods:
            self._from_l2(unique)
            return
        warp = np.repeat(lanes // WARP, parts)
        asked = np.unique((warp << OWNER) + (keys & ((1 << OWNER) - 1)))
        self.requests += int(np.unique(lanes // WARP).size)
        self.lines += len(np.unique(asked // (LINE // SECTOR)))
        if write:
            self.written += len(unique)
            return
        self.looked_up += len(asked)
        missed = self.l1.load(unique)
        self.missed += int(missed.sum())
        self._from_l2(unique[missed])
        late = np.zeros(self.warps, dtype=bool)
        late[warp[missed[inverse.reshape(-1)]]] = True
        self.late = late

    def _from_l2(self, keys: Any) -> None:
        if len(keys):
            self.beyond.append(keys)
            self.l2_missed += int(self.l2.load(keys).sum())

    def executed(self, n: int, active: Any) -> None:
        """The lanes of the block executed instruction `n`."""
        step = self.steps[n]
        start = self.base
        for name in step.sources:
            ready = self.ready.get(name)
            if ready is not None:
                start = np.maximum(start, ready[self.here])
        if step.kind:
            latency = self._special(n, step, start, active)
            start = np.maximum(start, latency) if step.kind in ("wait", "copy_wait", "bulk_wait") else start
            end = start + (0 if step.kind in ("wait", "copy_wait", "bulk_wait") else latency)
        else:
            end = start + step.latency
        self.stalls[n] += float(np.maximum(start - np.maximum(self.last, self.base + self.count), 0).sum())
        self.last = np.maximum(self.last, start)
        self.count += step.issue
        self.issued += step.issue * len(self.base)
        for name in step.targets:
            ready = self.ready.get(name)
            if ready is None:
                ready = self.ready[name] = np.zeros(self.warps)
            ready[self.here] = end

    def leave(self) -> None:
        """The block is over: a warp goes on when its last instruction has been issued."""
        self.now[self.here] = np.maximum(self.base + self.count, self.last)

    def _special(self, n: int, step: Step, start: Any, active: Any) -> Any:
        if step.kind == "load":
            latency = np.full(self.warps, float(L1_HIT))
            if self.late is not None:
                latency[self.late] = BEYOND
                self.late = None
            return latency[self.here]
        name = "copy" if step.kind.startswith("copy") else "bulk" if step.kind.startswith("bulk") else "wgmma"
        if step.kind.endswith("commit"):
            mask = np.zeros(self.warps, dtype=bool)
            mask[self.here] = True
            self.groups[name].append((mask, self.open[name].copy()))
            self.open[name][self.here] = 0
            return 0.0
        if step.kind.endswith("wait"):
            return self._group_end(name, self.instructions[n])
        if step.kind == "wgmma":
            return self._wgmma(n, start)
        if step.kind == "bulk_load":
            return self._bulk_load(n, start, active)
        self.open[name][self.here] = np.maximum(self.open[name][self.here], start + (BEYOND if step.kind == "copy" else TMA_LATENCY))
        return 0.0

    def _group_end(self, name: str, ins: Instruction) -> Any:
        """When all but the newest groups of these warps are over."""
        left = int(ins.operands[0].value) if ins.operands else 0  # type: ignore[attr-defined]
        seen = np.zeros(self.warps, dtype=np.int64)
        end = np.zeros(self.warps)
        mine = np.zeros(self.warps, dtype=bool)
        mine[self.here] = True
        for mask, when in reversed(self.groups[name]):
            covered = mask & mine & (seen >= left)
            end[covered] = np.maximum(end[covered], when[covered])
            seen += mask
        if "wait_all" in ins.mods:
            end = np.maximum(end, np.where(mine, self.open[name], 0))
        self.groups[name] = self.groups[name][-64:]
        return end[self.here]

    def _wgmma(self, n: int, start: Any) -> Any:
        """One unit per SM: the warpgroups of a CTA take turns. Its end is what a wait for the group sees."""
        cycles = wgmma_cycles(self.instructions[n])
        warps = np.arange(self.warps)[self.here]
        end = np.empty(len(warps))
        cta = self.b.cta[warps * WARP]
        for first in range(0, len(warps), 4):
            begin = max(float(start[first : first + 4].max()), self.unit[cta[first]])
            self.unit[cta[first]] = begin + cycles
            end[first : first + 4] = begin + cycles + WGMMA_START
        self.open["wgmma"][warps] = np.maximum(self.open["wgmma"][warps], end)
        return end - start

    def _bulk_load(self, n: int, start: Any, active: Any) -> float:
        b, of = self.b, self._barrier_of.get(n)
        lanes = b.all_lanes(active)
        if of is None or not len(lanes):
            return 0.0
        where = np.broadcast_to(np.asarray(of(b, active)), lanes.shape)
        clock = np.zeros(self.warps)
        clock[self.here] = start
        for lane, at in zip(lanes.tolist(), where.tolist(), strict=True):
            self.due[int(b.cta[lane]) // b.cluster_size, int(at) & 0xFFFFFF] = float(clock[lane // WARP]) + TMA_LATENCY
        return 0.0

    def arrived(self, lanes: Any, index: Any, ins: Instruction) -> None:
        """Lanes, or copies that they issued, arrive at mbarriers (indices of words)."""
        when = self.now[lanes // WARP]
        if ins.opcode == "cp" and "bulk" in ins.mods:
            offset = index * 8 % self.b.shared_bytes
            when = np.array([self.due.get((int(self.b.cta[lane]) // self.b.cluster_size, int(at)), 0.0) for lane, at in zip(lanes, offset, strict=True)])
        np.maximum.at(self.mbarriers, index, when)

    def waited(self, lanes: Any, index: Any) -> None:
        """Lanes go on past an mbarrier."""
        np.maximum.at(self.now, lanes // WARP, self.mbarriers[index])

    def met(self, free: Any) -> None:
        """Lanes (a mask) are released by a barrier of their CTA together."""
        lanes = np.nonzero(free)[0]
        latest = np.zeros(self.b.count)
        np.maximum.at(latest, self.b.cta[lanes], self.now[lanes // WARP])
        warps = np.unique(lanes // WARP)
        waited = latest[self.b.cta[warps * WARP]] + BARRIER
        self.now[warps] = waited

    def result(self) -> Paced:
        """What was seen: cycles of a CTA, hits, stalls by line."""
        per_cta = self.now.reshape(self.b.count, -1).max(axis=1)
        lines: dict[int, float] = {}
        for n in np.nonzero(self.stalls)[0].tolist():
            line = self.instructions[n].line or 0
            lines[line] = lines.get(line, 0.0) + float(self.stalls[n])
        warps = max(self.warps, 1)
        return Paced(
            ctas=self.b.count, cycles=float(per_cta.mean()), issue=self.issued / self.b.count, l1_requests=self.requests, l1_sectors=self.looked_up, l1_lines=self.lines, l1_missed=self.missed,
            written=self.written, wgmma=any(step.kind == "wgmma" for step in self.steps), l2_missed=self.l2_missed, touched=len(np.unique(np.concatenate(self.beyond))) if self.beyond else 0,
            stalls=tuple(sorted(((line, round(cycles / warps, 1)) for line, cycles in lines.items()), key=lambda item: -item[1])),
        )  # fmt: skip
