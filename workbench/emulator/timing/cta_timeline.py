"""How long one CTA takes alone on an SM: its warps are followed in time, instruction by instruction.

Input: a batch whose instructions the interpreter runs one after the other. Output: `records.CtaTimeline`.

Each warp has a clock. Within a basic block an instruction starts when its operands are ready, in any order (ptxas
reorders there). A block ends when its last instruction has started, because a warp issues in order. Operands are ready
a latency after the start of the instruction that makes them. A barrier sets its warps to the latest of their clocks, an
mbarrier's wait to the latest arrival, a wait for cp.async or wgmma to the end of the covered groups. Limits of
throughput are not included: they are other terms of the time model (analysis/time_model). The exception is wgmma, which
one unit per SM executes in turn.

Latencies come from the table of instructions and from the constants below, in cycles of the SM clock and inferred in
the same way; the one past L1 stands for L2 and DRAM together. wgmma takes n / 2 cycles for m64nN and 32 bytes of k,
from the data sheet's dense rate: 2048 fp16 FMAs per cycle and SM.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from workbench.emulator.arrays import Array, Lanes
from workbench.emulator.execution.batch import WARP, Batch
from workbench.emulator.isa.access import address
from workbench.emulator.ptx.instruction import Instruction
from workbench.emulator.ptx.syntax import Mem, immediate_value
from workbench.emulator.timing.cache_model import AddressMap, Cache
from workbench.emulator.timing.traffic import Memory, TrafficMark
from workbench.records import CtaTimeline

L1_HIT, BEYOND, TMA_LATENCY, BARRIER, WGMMA_START = 40, 560, 700, 20, 32
ALL = slice(None)
STORE = "store global"
MATH, MEMORY, BARRIERS = range(3)  # what a warp waits for: rows of `WarpTimeline.waits`
REASONS = ("math", "memory", "barrier")
Name = TypeVar("Name", int, str)
UNROLLED = 4  # iterations of a plain loop that ptxas schedules together (inferred)
KEPT_GROUPS = 64  # stored groups of committed copies and multiplications


@dataclass(frozen=True, slots=True)
class Step:
    """The facts about one instruction that the timeline needs: registers read and written, latency, issue cycles."""

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    latency: float
    issue: int
    kind: str = ""  # `Form.timing`, for instructions that need more than a latency

    @property
    def waits(self) -> bool:
        """Whether it waits for groups of copies or multiplications."""
        return self.kind.endswith("wait")


def make_step(ins: Instruction) -> Step:
    """The step of an instruction; a wgmma's unit forwards its accumulator itself."""
    form = ins.form
    sources = tuple(name for name in ins.reads if name not in ins.writes) if form.role == "wgmma" else ins.reads
    return Step(sources + ins.guards, ins.writes, form.latency, form.issue, form.timing)


def wgmma_cycles(ins: Instruction) -> float:
    """Cycles that an SM's tensor cores take for m64nN and 32 bytes of k: n / 2."""
    shape = next(m for m in ins.mods if m.startswith("m64n"))
    return int(shape[4:].split("k")[0]) / 2


def _find_plain_loops(instructions: list[Instruction], steps: list[Step]) -> dict[int, int]:
    """For each instruction in an innermost loop that ptxas unrolls: the loop's first instruction.

    Such a loop waits only for memory, has no branch but the one back, and writes nothing to global memory: ptxas keeps
    loops with guarded parts as they are, and moves no load above a store that it could read from (seen in SASS).
    """
    found: dict[int, int] = {}
    backward = [(ins.target, n) for n, ins in enumerate(instructions) if 0 <= ins.target <= n]
    for first, last in backward:
        inner = any(first <= target and end < last for target, end in backward)
        if any(ins.target >= 0 or ins.form.counter_class == STORE for ins in instructions[first:last]):
            continue
        if not inner and not any(steps[n].waits or instructions[n].form.waits for n in range(first, last + 1)):
            found.update(dict.fromkeys(range(first, last + 1), first))
    return found


@dataclass(frozen=True, slots=True)
class TimelineMark:
    """A moment of a timeline: clocks of the warps, stalls by instruction, issue slots, and the traffic."""

    now: Array
    stalls: Array
    waits: Array
    issued: float
    traffic: TrafficMark


class WarpTimeline:
    """The clocks of a batch's warps; the interpreter calls `execute` for each instruction that it runs."""

    def __init__(
        self, b: Batch, steps: list[Step], instructions: list[Instruction], *, l1_bytes: int, l2_bytes: int
    ) -> None:
        self.b, self.steps, self.instructions = b, steps, instructions
        allocations = b.memory.allocations
        address_map = AddressMap([a.start for a in allocations], [a.size for a in allocations])
        self.memory = Memory(Cache(b.count, l1_bytes), Cache(b.count, l2_bytes), address_map)
        self.loops = _find_plain_loops(instructions, steps)
        self.loop, self.turns = -1, 0
        self.warps = b.lanes // WARP
        self.now = np.zeros(self.warps)
        self.ready: dict[str, Array] = {}  # of registers
        self.latest: dict[str, float] = {}  # no warp's entry in `ready` is later
        self.shared: set[str] = set()  # registers of one accumulator, which share an array in `ready`
        self.stalls = np.zeros(len(instructions))
        self.waits = np.zeros(len(REASONS))  # cycles of all warps by reason
        self.from_memory: set[str] = set()  # registers that a load wrote last
        self.executed = self.active = 0  # warp-instructions, and the threads that were active in them
        self.issued = 0.0
        self.here: Array | slice = ALL  # the warps of the current block
        self.base: Array = self.now
        self.earliest = 0.0  # of `base`
        self.ends: dict[float, Array] = {}  # `base` plus a latency
        self.last: Array = self.now
        self.count = 0
        self.late: Array | None = None  # whether each warp's load goes beyond L1
        # committed: (warps as a mask, their end)
        self.groups: dict[str, list[tuple[Array, Array]]] = {"wgmma": [], "copy": [], "bulk": []}
        self.open: dict[str, Array] = {name: np.zeros(self.warps) for name in self.groups}
        self.unit = np.zeros(b.count)  # when a CTA's tensor cores are free
        self.mbarriers = np.zeros(len(b.shared) // 8)
        self.due: dict[tuple[int, int], float] = {}
        self._barrier_of = {}
        for n, ins in enumerate(instructions):
            if steps[n].kind == "bulk_load":
                barrier = next((operand for operand in ins.operands[2:4] if isinstance(operand, Mem)), None)
                if barrier is not None:
                    self._barrier_of[n] = address(barrier, "shared")

    def enter(self, start: int, idx: Lanes) -> None:
        """These lanes begin the basic block at `start`.

        A few iterations of an innermost loop without barrier or wait count as one block, since ptxas unrolls it.
        """
        loop = self.loops.get(start, -1)
        here: Array | slice = ALL if idx is None else np.unique(idx // WARP)
        same = loop >= 0 and loop == self.loop and self._are_current_warps(here)
        self.turns = 0 if not same else self.turns + (start == loop)
        self.loop, self.here = loop, here
        if same and (start != loop or self.turns % UNROLLED):
            return
        self.base = self.now[self.here].copy()
        self.earliest = float(self.base.min())
        self.ends = {0: self.base}
        self.last = self.base
        self.count = 0

    def _are_current_warps(self, warps: Array | slice) -> bool:
        """Whether these are the warps of the previous block."""
        if isinstance(warps, slice) or isinstance(self.here, slice):
            return warps is self.here
        return np.array_equal(warps, self.here)

    def access_memory(self, ins: Instruction, lanes: Array, where: Array, size: int, write: bool) -> None:
        """Lanes access global memory: count the lines that L1 looks up, and note the warps whose loads wait for more
        than L1.
        """
        by_l1 = ins.form.role != "copy" or "ca" in ins.mods
        late = self.memory.access(self.b.cta[lanes], lanes // WARP, where, size, write=write, by_l1=by_l1)
        if late is not None:
            self.late = np.zeros(self.warps, dtype=bool)
            self.late[late] = True

    def execute(self, n: int, active: Lanes) -> None:
        """The lanes of the block executed instruction `n`."""
        step = self.steps[n]
        start = self.base
        for name in step.sources:
            if self.latest.get(name, 0.0) > self.earliest:
                start = np.maximum(start, self.ready[name][self.here])
        if step.waits:
            end = start = np.maximum(start, self._group_end(_group_name(step), self.instructions[n]))
        elif step.kind:
            end = start + self._special_latency(n, step, start, active)
        elif start is not self.base:
            end = start + step.latency
        else:
            if step.latency not in self.ends:
                self.ends[step.latency] = start + step.latency
            end = self.ends[step.latency]
        if start is not self.base:
            stalled = float(np.maximum(start - np.maximum(self.last, self.base + self.count), 0).sum())
            self.stalls[n] += stalled
            self.waits[self._find_reason(step)] += stalled
            self.last = np.maximum(self.last, start)
        change = self.from_memory.update if step.kind == "load" else self.from_memory.difference_update
        change(step.targets)
        self.count += step.issue
        self.issued += step.issue * len(self.base)
        self.executed += len(self.base)
        self.active += self.b.lanes if active is None else len(active)
        if step.targets and (end is not self.base or any(self.latest.get(n, 0) > self.earliest for n in step.targets)):
            self._set_ready(step.targets, end)

    def _find_reason(self, step: Step) -> int:
        """What an instruction waits for: the operand that is ready last decides."""
        if step.waits:
            return MATH if _group_name(step) == "wgmma" else MEMORY
        last = max(step.sources, key=lambda name: self.latest.get(name, 0.0))
        return MEMORY if last in self.from_memory else MATH

    def _set_ready(self, names: tuple[str, ...], end: Array) -> None:
        """The warps of the block have these registers at `end`."""
        highest = float(end.max())
        together = len(names) > 1 and all(self.ready.get(name) is self.ready.get(names[0]) for name in names)
        for name in names:
            ready = self.ready.get(name)
            if ready is None:
                ready = self.ready[name] = np.zeros(self.warps)
            elif name in self.shared and not together:
                ready = self.ready[name] = ready.copy()
                self.shared.discard(name)
            ready[self.here] = end
            self.latest[name] = max(self.latest.get(name, 0.0), highest)
            if together:
                self.ready.update(dict.fromkeys(names, ready))
                self.latest.update(dict.fromkeys(names, self.latest[name]))
                self.shared.update(names)
                break

    def end_block(self) -> None:
        """End the block: a warp goes on when its last instruction has been issued."""
        self.now[self.here] = np.maximum(self.base + self.count, self.last)

    def _special_latency(self, n: int, step: Step, start: Array, active: Lanes) -> Array | float:
        """The latency of an instruction for which the table's is not enough."""
        if step.kind == "load":
            latency = np.full(self.warps, float(L1_HIT))
            if self.late is not None:
                latency[self.late] = BEYOND
                self.late = None
            return latency[self.here]
        if step.kind == "wgmma":
            return self._wgmma_latency(n, start)
        if step.kind == "bulk_load":
            return self._start_bulk_load(n, start, active)
        name = _group_name(step)
        if step.kind.endswith("commit"):
            mask = np.zeros(self.warps, dtype=bool)
            mask[self.here] = True
            self.groups[name].append((mask, self.open[name].copy()))
            self.open[name][self.here] = 0
            return 0.0
        end = start + (BEYOND if step.kind == "copy" else TMA_LATENCY)
        self.open[name][self.here] = np.maximum(self.open[name][self.here], end)
        return 0.0

    def _group_end(self, name: str, ins: Instruction) -> Array:
        """The time when all but the newest groups of these warps have ended."""
        left = immediate_value(ins.operands[0]) if ins.operands else 0
        seen = np.zeros(self.warps, dtype=np.int64)
        end = np.zeros(self.warps)
        mine = np.zeros(self.warps, dtype=bool)
        mine[self.here] = True
        for mask, when in reversed(self.groups[name]):
            covered = mask & mine & (seen >= left)
            end[covered] = np.maximum(end[covered], when[covered])
            seen += mask
            if (seen[mine] > left).all():  # a warp's groups end in order
                break
        if "wait_all" in ins.mods:
            end = np.maximum(end, np.where(mine, self.open[name], 0))
        self.groups[name] = self.groups[name][-KEPT_GROUPS:]
        return end[self.here]

    def _wgmma_latency(self, n: int, start: Array) -> Array:
        """The latency of a wgmma until its group's wait; the warpgroups of a CTA take turns on the SM's one unit."""
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

    def _start_bulk_load(self, n: int, start: Array, active: Lanes) -> float:
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

    def arrive(self, lanes: Array, index: Array, ins: Instruction) -> None:
        """Lanes, or copies that they issued, arrive at mbarriers (indices of words)."""
        when = self.now[lanes // WARP]
        if ins.form.role == "bulk_copy":
            offset = index * 8 % self.b.shared_bytes
            when = np.array(
                [
                    self.due.get((int(self.b.cta[lane]) // self.b.cluster_size, int(at)), 0.0)
                    for lane, at in zip(lanes, offset, strict=True)
                ]
            )
        np.maximum.at(self.mbarriers, index, when)

    def finish_wait(self, lanes: Array, index: Array) -> None:
        """Lanes go on after their wait at an mbarrier, mostly for a bulk copy."""
        before = float(self.now.sum())
        np.maximum.at(self.now, lanes // WARP, self.mbarriers[index])
        self.waits[MEMORY] += float(self.now.sum()) - before

    def release(self, free: Array) -> None:
        """A barrier of their CTA releases these lanes (a mask) together."""
        lanes = np.nonzero(free)[0]
        latest = np.zeros(self.b.count)
        np.maximum.at(latest, self.b.cta[lanes], self.now[lanes // WARP])
        warps = np.unique(lanes // WARP)
        waited = latest[self.b.cta[warps * WARP]] + BARRIER
        self.waits[BARRIERS] += float((waited - self.now[warps]).sum())
        self.now[warps] = waited

    def take_mark(self) -> TimelineMark:
        """This moment, for `extrapolate`."""
        return TimelineMark(
            self.now.copy(), self.stalls.copy(), self.waits.copy(), self.issued, self.memory.take_mark()
        )

    def extrapolate(self, marks: list[TimelineMark], count: int) -> None:
        """Let `count` more periods pass, each as the last ones, which began at these marks. All clocks of a CTA go on
        together.
        """
        first = marks[0]
        cta = self.b.cta[np.arange(self.warps) * WARP]
        passed = np.zeros(self.b.count)
        np.maximum.at(passed, cta, (self.now - first.now) / len(marks))
        of_cta = passed * count
        of_warp = of_cta[cta]
        self.now += of_warp
        for times in ({id(one): one for one in (*self.ready.values(), *self.open.values())}).values():
            times += of_warp
        self.latest = {name: when + float(of_warp.max()) for name, when in self.latest.items()}
        self.groups = {name: [(mask, end + of_warp) for mask, end in known] for name, known in self.groups.items()}
        self.unit += of_cta
        self.mbarriers += np.repeat(of_cta, self.b.shared_bytes // 8)
        of_cluster = of_cta[:: self.b.cluster_size]
        self.due = {key: when + float(of_cluster[key[0]]) for key, when in self.due.items()}
        self.stalls += (self.stalls - first.stalls) * count / len(marks)
        self.waits += (self.waits - first.waits) * count / len(marks)
        self.issued += (self.issued - first.issued) * count / len(marks)
        self.memory.extrapolate([mark.traffic for mark in marks], count)

    def result(self) -> CtaTimeline:
        """The timeline: cycles of a CTA, hits, stalls by line."""
        per_cta = self.now.reshape(self.b.count, -1).max(axis=1)
        lines: dict[int, float] = {}
        for ins, cycles in zip(self.instructions, self.stalls.tolist(), strict=True):
            lines[ins.line or 0] = lines.get(ins.line or 0, 0.0) + cycles
        warps = max(self.warps, 1)
        return CtaTimeline(
            ctas=self.b.count,
            cycles=float(per_cta.mean()),
            issue=self.issued / self.b.count,
            l1_requests=self.memory.requests,
            l1_sectors=self.memory.looked_up,
            l1_lines=self.memory.lines,
            l1_missed=self.memory.missed,
            written=self.memory.written,
            wgmma=any(step.kind == "wgmma" for step in self.steps),
            l2_missed=self.memory.l2_missed,
            touched=self.memory.touched,
            stalls=_longest_first({line: cycles / warps for line, cycles in lines.items()}),
            waits=_longest_first(
                {name: cycles / warps for name, cycles in zip(REASONS, self.waits.tolist(), strict=True)}
            ),
            active_threads=self.active / self.executed if self.executed else None,
        )


def _longest_first(cycles: dict[Name, float]) -> tuple[tuple[Name, float], ...]:
    """Cycles by name, without those that are 0."""
    found = [(name, round(value, 1)) for name, value in cycles.items() if value]
    return tuple(sorted(found, key=lambda item: -item[1]))


def _group_name(step: Step) -> str:
    """The kind of groups that an instruction commits or waits for."""
    return "copy" if step.kind.startswith("copy") else "bulk" if step.kind.startswith("bulk") else "wgmma"
