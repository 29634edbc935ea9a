"""Skips the middle of long loops in a sample of CTAs that is followed in time.

A loop is in a steady state when the batch's state at its head repeats: after P passes the same warps stand at the same
instructions, the mbarriers are in the same phases, and each register that decides control flow has changed by the same
amount as in the P passes before (0, or the step of an induction variable). P is one pass or several: the stages of a
pipeline come round after as many, their phases after twice as many.

Then m periods are skipped: registers go on by m times their change, clocks and counts too. m follows from the
comparisons that decide control flow: none of integers may change its outcome in a skipped period, floats that are
compared must not change, and one period is left. Data in memory are not changed, so results are wrong afterwards, as in
any sample; loads that decide control flow are taken as constant.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass

import numpy as np

from workbench.emulator.arrays import Array, Lanes, Value
from workbench.emulator.execution.batch import Batch
from workbench.emulator.execution.counters import Counts
from workbench.emulator.execution.operands import Get, getter
from workbench.emulator.ptx.instruction import Instruction
from workbench.emulator.ptx.syntax import Vec
from workbench.emulator.timing.cta_timeline import UNROLLED, TimelineMark, WarpTimeline

MOST_PASSES = 64  # the longest period that is looked for
UNSTEADY = 0.02  # largest change of a period's time from one period to the next, relative
# types of comparisons, and how their operands are read: bits may be those of negative integers
COMPARED = {f"{sign}{size}": f"{'u' if sign == 'u' else 's'}{size}" for sign in "bus" for size in (16, 32, 64)}
COMPARED |= {kind: kind for kind in ("f16", "bf16", "f32", "f64")}


def find_control_registers(instructions: list[Instruction]) -> frozenset[str]:
    """Registers that decide which instructions run, directly or through others; a loaded value depends on nothing."""
    found = {name for ins in instructions for name in ins.guards}
    found |= {name for ins in instructions if ins.form.parks or ins.form.ends_block for name in ins.values}
    while True:
        more = {
            name
            for ins in instructions
            if ins.form.role != "load" and not found.isdisjoint(ins.writes)
            for name in ins.values
        }
        if more <= found:
            return frozenset(found)
        found |= more


@dataclass(frozen=True, slots=True)
class Pass:
    """The state of a batch when a loop's head begins."""

    fixed: int  # a hash of what must be the same
    registers: dict[str, Value]
    compared: int  # comparisons before it
    counts: Counts
    mark: TimelineMark


class SteadyState:
    """Watches one batch. The interpreter calls `enter_block` for each block, `compare` for each instruction in
    `compared`.
    """

    def __init__(self, b: Batch, instructions: list[Instruction], timeline: WarpTimeline) -> None:
        self.b, self.timeline = b, timeline
        self.heads = {ins.target for n, ins in enumerate(instructions) if 0 <= ins.target <= n}
        self.control = find_control_registers(instructions)
        self.compared = {
            n: _operands(ins)
            for n, ins in enumerate(instructions)
            if ins.opcode in ("setp", "min", "max")
            and ins.mods[-1] in COMPARED
            and not self.control.isdisjoint(ins.writes)
        }
        # of each loop's head and the lanes that enter it
        self.passes: dict[tuple[int, bytes], deque[Pass]] = {}
        self.log: list[tuple[int, Array]] = []  # all comparisons: instruction, left operand minus right one
        self.skipped: Counter[int] = Counter()  # passes by the loop's first instruction

    def compare(self, n: int, active: Lanes) -> None:
        """Instruction `n` compares two numbers of these lanes."""
        left, right = (np.asarray(get(self.b, active)) for get in self.compared[n])
        wide = np.float64 if left.dtype.kind == "f" else np.int64
        self.log.append((n, left.astype(wide) - right.astype(wide)))

    def enter_block(self, start: int, idx: Lanes) -> None:
        """These lanes begin the block at `start`."""
        if start not in self.heads:
            return
        key = (start, b"" if idx is None else idx.tobytes())
        passes = self.passes.setdefault(key, deque(maxlen=2 * MOST_PASSES + 1))
        passes.append(self._take_pass())
        whole = UNROLLED if start in self.timeline.loops else 1  # the timeline schedules so many passes together
        for period in range(whole, (len(passes) - 1) // 2 + 1, whole):
            first, middle, last = (passes[-1 - back * period] for back in (2, 1, 0))
            if first.fixed == middle.fixed == last.fixed and self._is_steady(first, middle, last):
                if count := self._skippable(first, middle, last):
                    self._go_on(first, middle, last, count)
                    self.skipped[start] += count * period
                    del self.passes[key]
                return

    def _take_pass(self) -> Pass:
        b = self.b
        words = b.shared.view(np.int64)[b.barriers.astype(bool)]
        same = (b.pc, b.waiting, b.waiting_for, b.alive, words, b.arrived, b.barrier_count, b.cluster_arrived)
        return Pass(
            fixed=hash(b"".join(part.tobytes() for part in same)),
            registers=dict(b.registers),  # registers are never changed in place
            compared=len(self.log),
            counts=b.counting.snapshot(),
            mark=self.timeline.take_mark(),
        )

    def _is_steady(self, first: Pass, middle: Pass, last: Pass) -> bool:
        """Whether both periods ran the same instructions in about the same time, and every register that decides
        control flow changed by the same amount in both.
        """
        one, two = middle.counts.lanes - first.counts.lanes, last.counts.lanes - middle.counts.lanes
        if not np.array_equal(one, two):
            return False
        return self.timeline.change_of_pace(first.mark, middle.mark, last.mark) <= UNSTEADY and all(
            _step(*(one.registers.get(name) for one in (first, middle, last))) is not None
            for name in self.control
            if name in last.registers
        )

    def _skippable(self, first: Pass, middle: Pass, last: Pass) -> int:
        """The number of periods in which no comparison changes its outcome, less one; 0 if none is known to end."""
        # ordered by instruction, because groups of warps may take turns in another order
        one = sorted(self.log[first.compared : middle.compared], key=lambda item: item[0])
        two = sorted(self.log[middle.compared : last.compared], key=lambda item: item[0])
        if [n for n, _ in one] != [n for n, _ in two]:
            return 0
        most: int | None = None
        for (_, before), (_, now) in zip(one, two, strict=True):
            if before.shape != now.shape:
                return 0
            change = now - before
            if now.dtype.kind == "f" and not np.array_equal(now, before):
                return 0
            if ((now == 0) & (change != 0)).any():
                return 0
            nears = (now != 0) & (np.sign(change) == -np.sign(now))
            if nears.any():
                left = int(((np.abs(now) - 1) // np.maximum(np.abs(change), 1))[nears].min())
                most = left if most is None else min(most, left)
        return max((most or 0) - 1, 0)

    def _go_on(self, first: Pass, middle: Pass, last: Pass, count: int) -> None:
        """Change registers, counts and clocks as `count` more periods would."""
        with np.errstate(over="ignore"):
            for name, value in last.registers.items():
                step = _step(first.registers.get(name), middle.registers.get(name), value)
                if step is not None and value.dtype != np.bool_ and np.any(step):
                    self.b.registers[name] = value + step * step.dtype.type(count)
        self.b.counting.extrapolate(middle.counts, last.counts, count)
        self.timeline.extrapolate(middle.mark, count)


def _operands(ins: Instruction) -> tuple[Get, Get]:
    """The two operands of a comparison, or of min and max."""
    assert not isinstance(ins.operands[1], Vec)
    left, right = (getter(operand, COMPARED[ins.mods[-1]]) for operand in ins.operands[1:3])
    return left, right


def _step(first: Value | None, middle: Value | None, last: Value | None) -> Value | None:
    """The change of a register in each of two periods; None if they differ."""
    if first is None or middle is None or last is None:
        return None
    if not first.dtype == middle.dtype == last.dtype or not np.shape(first) == np.shape(middle) == np.shape(last):
        return None
    if last.dtype == np.bool_:
        return last if np.array_equal(first, middle) and np.array_equal(middle, last) else None
    with np.errstate(over="ignore"):
        one, two = middle - first, last - middle
    return two if np.array_equal(one, two) else None


__all__ = ["SteadyState", "find_control_registers"]
