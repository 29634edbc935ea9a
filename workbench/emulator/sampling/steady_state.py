"""Skips the middle of long loops in a sample of CTAs that is followed in time.

At a loop's head, two periods of P passes each are compared. They must have run the same instructions (but for repeated
waits) in about the same time, and have changed each register that counts and decides control flow by the same amount.
The loop is in a steady state in two cases:

- The batch's state comes round: the same warps stand at the same instructions, the mbarriers expect the same, and what
  turns (loop_registers.py) is as before. Phases may flip from period to period; then an even number of periods is
  skipped.
- All warps keep pace: the clock of each has gone on by the same time, so that producers and consumers made as many
  passes. Then whole passes can be left out for all of them, whatever stage the pipelines are at.

Then m periods are skipped: registers that count go on by m times their change, clocks and counts too. m follows from
the comparisons that decide control flow: none of integers may change its outcome in a skipped period, floats that are
compared must not change, and one period is left. Data in memory are not changed, so results are wrong afterwards, as in
any sample; loads that decide control flow are taken as constant.
"""

from __future__ import annotations

import itertools
from collections import Counter, deque
from dataclasses import dataclass

import numpy as np

from workbench.emulator.arrays import Array, Lanes, Value
from workbench.emulator.execution.batch import BARRIER_WAIT, WARP, Batch
from workbench.emulator.execution.counters import Counts
from workbench.emulator.ptx.instruction import Instruction
from workbench.emulator.sampling.comparisons import Comparisons
from workbench.emulator.sampling.loop_registers import LoopRegisters
from workbench.emulator.timing.cta_timeline import UNROLLED, TimelineMark, WarpTimeline

MOST_PASSES = 64  # the longest period that is looked for
MOST_AT_PACE = 8  # the same if all warps keep pace
LEAST = 32  # passes of a loop in another one that are worth a skip, which may hide the outer loop's steady state
MANY = 64  # periods that are not skipped at once if something jumps
UNSTEADY = 0.02  # largest difference between times of two periods or of two warps, relative
UNEVEN = 0.02  # largest difference between executed instructions of two periods if something jumps, relative
EVIDENCE = 4  # periods whose mean counts if something jumps in a loop of loops
PHASELESS = np.int64((1 << 63) - 1)  # an mbarrier's word without its phase's parity


@dataclass(frozen=True, slots=True)
class Pass:
    """The state of a batch when a loop's head begins."""

    fixed: int  # a hash of what must come round
    phases: Array  # the parity of each mbarrier's phase
    alive: Array  # whether each warp has not ended
    registers: dict[str, Value]
    compared: int  # comparisons before it
    counts: Counts
    mark: TimelineMark


class SteadyState:
    """Watches one batch. The interpreter calls `enter_block` for each block, `compare` for each instruction in
    `compared`.
    """

    def __init__(
        self, b: Batch, instructions: list[Instruction], registers: LoopRegisters, timeline: WarpTimeline
    ) -> None:
        self.b, self.registers, self.timeline = b, registers, timeline
        backward = [(ins.target, n) for n, ins in enumerate(instructions) if 0 <= ins.target <= n]
        waits = [(head, n) for head, n in backward if instructions[head].form.parks]
        heads = {head: n for head, n in sorted(backward) if (head, n) not in waits}  # a wait is part of another loop
        # of each loop's head, those of the loops in it
        self.heads = {head: {inner for inner in heads if head < inner <= last} for head, last in heads.items()}
        nested = set().union(*self.heads.values())
        self.least = {head: LEAST if head in nested else 1 for head in heads}  # passes that are worth a skip
        self.once = np.ones(len(instructions), dtype=bool)  # what a wait does not repeat
        for head, n in waits:
            self.once[head : n + 1] = False
        self.comparisons = Comparisons(b, instructions, registers)
        self.compared, self.compare = self.comparisons.compared, self.comparisons.note
        self.free = sorted(self.comparisons.free)
        # of each loop's head and the lanes that enter it
        self.passes: dict[tuple[int, bytes], deque[Pass]] = {}
        self.barriers = np.flatnonzero(b.barriers)  # indices of the mbarriers' words
        self.skipped: Counter[int] = Counter()  # passes by the loop's first instruction

    def enter_block(self, start: int, idx: Lanes) -> None:
        """These lanes begin the block at `start`."""
        if start not in self.heads:
            return
        lanes = b"" if idx is None else idx.tobytes()
        for inner in self.heads[start]:  # so that each pass of this loop skips as many passes of those in it
            self.passes.pop((inner, lanes), None)
        passes = self.passes.setdefault((start, lanes), deque(maxlen=2 * MOST_PASSES + 1))
        now = self._take_pass()
        if passes and len(passes[0].phases) != len(now.phases):
            passes.clear()
        passes.append(now)
        whole = UNROLLED if start in self.timeline.loops else 1  # the timeline schedules so many passes together
        for period in range(whole, (len(passes) - 1) // 2 + 1, whole):
            count = self._count_skipped(passes, period, idx, start)
            if count * period >= self.least[start]:
                alike = self._count_alike(passes, period, start)
                self._go_on([*passes][-1 - alike * period :: period], count)
                self.skipped[start] += count * period
                del self.passes[start, lanes]
                return

    def _take_pass(self) -> Pass:
        b = self.b
        if np.count_nonzero(b.barriers) != len(self.barriers):
            self.barriers = np.flatnonzero(b.barriers)
        words = b.shared.view(np.int64)[self.barriers]
        fixed = (
            b.pc,
            b.waiting,
            np.where(b.waiting == BARRIER_WAIT, b.waiting_for, 0),
            b.alive,
            words & PHASELESS,
            b.arrived,
            b.barrier_count,
            b.cluster_arrived,
        )
        return Pass(
            fixed=hash(b"".join(part.tobytes() for part in fixed)),
            phases=words < 0,
            alive=b.alive[::WARP].copy(),
            registers=dict(b.registers),  # registers are never changed in place
            compared=len(self.comparisons.log),
            counts=b.counting.snapshot(),
            mark=self.timeline.take_mark(),
        )

    def _count_skipped(self, passes: deque[Pass], period: int, idx: Lanes, start: int) -> int:
        """The number of periods to skip; 0 if there is no steady state."""
        first, middle, last = (passes[-1 - back * period] for back in (2, 1, 0))
        comes_round = first.fixed == middle.fixed == last.fixed
        may_keep_pace = period <= MOST_AT_PACE and self.registers.may_stay
        if not comes_round and not may_keep_pace:
            return 0
        flips = first.phases ^ middle.phases
        comes_round = comes_round and np.array_equal(flips, middle.phases ^ last.phases)
        one, two = middle.mark.now - first.mark.now, last.mark.now - middle.mark.now
        longest = max(float(one.max()), float(two.max()), 1.0)
        keeps_pace = may_keep_pace and min(one[last.alive].min(), two[last.alive].min()) >= longest * (1 - UNSTEADY)
        if not (comes_round or keeps_pace) or np.abs(two - one).max() > UNSTEADY * longest:
            return 0
        if not self._count_alike(passes, period, start) or not self._counts_steadily(first, middle, last):
            return 0
        waits_alike = not ((last.counts.lanes - 2 * middle.counts.lanes + first.counts.lanes) * ~self.once).any()
        rounds = self._count_rounds(first, middle, last, flips) if comes_round and waits_alike else 0
        if not (rounds or keeps_pace) or not _has_rhythm(list(passes), period, idx, turns=not rounds):
            return 0
        ends = (first.compared, middle.compared, last.compared)
        count = self.comparisons.count_unchanged(*ends, turning=bool(rounds))
        if count > MANY and self._jumps(passes, period) and not self.skipped[start]:  # another mean for the rest
            count //= 2
        return count // max(rounds, 1) * max(rounds, 1)

    def _jumps(self, passes: deque[Pass], period: int) -> bool:
        """Whether something that jumps decided what ran in the last period."""
        last, before = (passes[at].counts.lanes for at in (-1, -1 - period))
        return bool((last - before)[self.free].any())

    def _count_alike(self, passes: deque[Pass], period: int, start: int) -> int:
        """The number of periods that ran the same instructions, or nearly the same where something jumps; 0 if too few
        did.
        """
        jumps, needed = self._jumps(passes, period), 2
        if jumps:
            needed = EVIDENCE if self.heads[start] else max(2, MOST_AT_PACE // period)
        if len(passes) <= needed * period:
            return 0
        counts = [one.counts.lanes * self.once for one in [*passes][-1::-period][: needed + 1]]
        last, *others = (now - before for now, before in itertools.pairwise(counts))
        most = UNEVEN * int(last.sum()) if jumps else 0
        return needed if all(np.abs(last - other).sum() <= most for other in others) else 0

    def _counts_steadily(self, first: Pass, middle: Pass, last: Pass) -> bool:
        """Whether each register that decides control flow, but neither turns nor jumps, has the same change in both
        periods.
        """
        found = self.registers
        return all(
            _step(*(one.registers.get(name) for one in (first, middle, last))) is not None
            for name in found.control - found.turning - (found.jumping - found.counting)
            if name in last.registers
        )

    def _count_rounds(self, first: Pass, middle: Pass, last: Pass, flips: Array) -> int:
        """The number of periods after which what turns comes round: 1, or 2 if phases flip; 0 if it does not."""
        rounds = 2 if flips.any() else 1
        for name in self.registers.control & self.registers.turning & last.registers.keys():
            values = [one.registers.get(name) for one in (first, middle, last)]
            if not _are_equal(values[0], values[2]):
                return 0
            rounds = rounds if _are_equal(values[0], values[1]) else 2
        return rounds

    def _go_on(self, passes: list[Pass], count: int) -> None:
        """Change registers, counts and clocks as `count` more periods would; the last ones began and ended with these
        passes. What turns stays as it is.
        """
        first, middle, last = passes[-3:]
        with np.errstate(over="ignore"):
            for name, value in last.registers.items():
                step = _step(first.registers.get(name), middle.registers.get(name), value)
                if step is None or name in self.registers.turning:
                    continue
                if value.dtype != np.bool_ and np.any(step):
                    self.b.registers[name] = value + step * step.dtype.type(count)
        self.b.counting.extrapolate(passes[0].counts, last.counts, count, len(passes) - 1)
        self.timeline.extrapolate([one.mark for one in passes[:-1]], count)


def _has_rhythm(passes: list[Pass], period: int, idx: Lanes, *, turns: bool) -> bool:
    """Whether each pass took the time of the one a period before it, by the clocks of the warps that ran them, for a
    period at least. A pipeline that is not yet steady may be even for as long as it has stages; so if `turns`, the
    passes are those in which it turned twice.
    """
    seen = max(period, 2 * _count_stages(passes) if turns else 0)
    if len(passes) <= seen + period:
        return False
    warps = slice(None) if idx is None else np.unique(idx // WARP)
    times = np.diff(np.stack([one.mark.now[warps] for one in passes[-seen - period - 1 :]]), axis=0)
    longest = max(float(times[-period:].sum(axis=0).max()), 1.0)
    return bool(np.abs(times[period:] - times[:-period]).max() <= UNSTEADY * longest)


def _count_stages(passes: list[Pass]) -> int:
    """The number of passes after which as many again complete phases of the same mbarriers; all if there is none."""
    flips = np.stack([one.phases ^ other.phases for one, other in itertools.pairwise(reversed(passes))])
    flipped = np.logical_or.accumulate(flips, axis=0)
    return next(
        (n for n in range(1, len(flips) // 2 + 1) if np.array_equal(flipped[n - 1], flipped[2 * n - 1])), len(passes)
    )


def _are_equal(one: Value | None, other: Value | None) -> bool:
    return one is other or (one is not None and other is not None and np.array_equal(one, other))


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


__all__ = ["SteadyState"]
