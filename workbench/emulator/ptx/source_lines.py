"""Source lines for instructions that have none of their own.

CuTe DSL gives only the line of a function, often of another one, to much of a loop's control, to atomics and to what
LLVM moved. Such an instruction gets the line of a statement that is executed with it or before it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True)
class ControlFlow:
    """Basic blocks in the order of the text: index of the first instruction of each, and the blocks that may follow."""

    starts: Sequence[int]
    successors: Sequence[Sequence[int]]


def find_blocks(count: int, jumps: Mapping[int, Collection[int]], ends: Collection[int]) -> ControlFlow:
    """The blocks of `count` instructions.

    jumps: for each instruction that may jump, the instructions where it may go. ends: instructions that the next one
    never follows.
    """
    after = (number + 1 for number in (*jumps, *ends))
    leaders = {0, *after, *(target for targets in jumps.values() for target in targets)}
    starts = sorted(leader for leader in leaders if leader < count)
    successors: list[Sequence[int]] = []
    for _, end in pairwise([*starts, count]):
        last = end - 1
        targets = [*jumps.get(last, ()), *([end] if last not in ends else [])]
        successors.append([bisect_right(starts, target) - 1 for target in dict.fromkeys(targets) if target < count])
    return ControlFlow(starts, successors)


def choose_donors(has_line: Sequence[bool], flow: ControlFlow) -> list[int]:
    """For each instruction the index of the one whose line it gets: its own if it has a line.

    That is the last one with a line before it in its basic block, else the first after it in the block. Where the block
    has none, it is one of the innermost loop around the block that has any, or of the whole kernel: the last one of the
    immediate dominator (the condition of an `if`), else the last before it in the text, else the first. At least one
    instruction must have a line.
    """
    bounds = list(pairwise([*flow.starts, len(has_line)]))
    with_line = [[n for n in range(*block) if has_line[n]] for block in bounds]
    outside = _OtherBlocks(flow, with_line) if not all(with_line) else None
    donors: list[int] = []
    for block, (start, end) in enumerate(bounds):
        inside = with_line[block]
        if inside:
            donors += (inside[max(bisect_right(inside, n) - 1, 0)] for n in range(start, end))
        elif outside is not None:
            donors += [outside.find_donor(block)] * (end - start)
    return donors


class _OtherBlocks:
    """Finds donors in other blocks."""

    def __init__(self, flow: ControlFlow, with_line: Sequence[Sequence[int]]) -> None:
        self.with_line = with_line
        self.dominators = find_dominators(flow)
        everything = set(range(len(flow.starts)))
        self.regions = [*sorted(find_loops(flow, self.dominators), key=len), everything]  # the innermost loops first
        self.donors = [[block for block in sorted(region) if with_line[block]] for region in self.regions]

    def find_donor(self, block: int) -> int:
        """The instruction whose line those of a block without any get."""
        region, blocks = next(
            (region, blocks)
            for region, blocks in zip(self.regions, self.donors, strict=True)
            if block in region and blocks
        )
        above = self.dominators[block]
        if above is not None and above in region and self.with_line[above]:
            return self.with_line[above][-1]
        before = bisect_right(blocks, block)
        return self.with_line[blocks[before - 1]][-1] if before else self.with_line[blocks[0]][0]


def find_loops(flow: ControlFlow, dominators: Sequence[int | None]) -> list[set[int]]:
    """The blocks of each natural loop; loops with the same first block are one."""
    predecessors: list[list[int]] = [[] for _ in flow.starts]
    for block, successors in enumerate(flow.successors):
        for successor in successors:
            predecessors[successor].append(block)
    found: dict[int, set[int]] = {}
    for block, successors in enumerate(flow.successors):
        for head in successors:
            if not _dominates(head, block, dominators):
                continue
            loop, waiting = found.setdefault(head, {head}), [block]
            while waiting:
                one = waiting.pop()
                if one not in loop:
                    loop.add(one)
                    waiting += predecessors[one]
    return list(found.values())


def _dominates(head: int, block: int | None, dominators: Sequence[int | None]) -> bool:
    while block is not None and block != head:
        block = dominators[block]
    return block == head


def find_dominators(flow: ControlFlow) -> list[int | None]:
    """The immediate dominator of each block; None for the first block and for blocks that nothing reaches.

    Source: Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm", 2001.
    """
    order = _reverse_postorder(flow)
    rank = {block: n for n, block in enumerate(order)}
    predecessors: dict[int, list[int]] = {block: [] for block in order}
    for block in order:
        for successor in flow.successors[block]:
            predecessors[successor].append(block)
    found: dict[int, int] = {0: 0}
    changed = True
    while changed:
        changed = False
        for block in order[1:]:
            common: int | None = None
            for other in (one for one in predecessors[block] if one in found):
                common = other if common is None else _common_dominator(common, other, found, rank)
            assert common is not None  # a predecessor comes first in reverse postorder
            changed |= found.get(block) != common
            found[block] = common
    return [found.get(block) if block else None for block in range(len(flow.starts))]


def _common_dominator(one: int, other: int, found: Mapping[int, int], rank: Mapping[int, int]) -> int:
    """The nearest block that dominates both."""
    while one != other:
        if rank[one] > rank[other]:
            one = found[one]
        else:
            other = found[other]
    return one


def _reverse_postorder(flow: ControlFlow) -> list[int]:
    """The blocks that the first one reaches, each before its successors unless a loop goes back."""
    done: list[int] = []
    seen = {0}
    stack = [(0, iter(flow.successors[0]))]
    while stack:
        block, following = stack[-1]
        successor = next((one for one in following if one not in seen), None)
        if successor is None:
            done.append(block)
            stack.pop()
        else:
            seen.add(successor)
            stack.append((successor, iter(flow.successors[successor])))
    return done[::-1]
