"""Finds loops that only wait for a value in global memory: a flag of stream-K, a lock, a barrier over the grid.

A sample of CTAs does not hold the CTAs that set the value, and those that it holds run in no order of time. So such a
wait ends at its first test in a sample that is followed in time: the value counts as arrived.
"""

from __future__ import annotations

from workbench.emulator.ptx.instruction import Instruction
from workbench.emulator.sampling.loop_registers import PURE

BODY = PURE | {"load", "atomic", "branch", "fence", "hint"}  # roles of a wait's instructions


def find_flag_waits(instructions: list[Instruction]) -> frozenset[int]:
    """The backward branches of such loops."""
    return frozenset(
        n
        for n, ins in enumerate(instructions)
        if 0 <= ins.target <= n and ins.guard is not None and _only_waits(instructions[ins.target : n], ins.guard)
    )


def _only_waits(body: list[Instruction], guard: str) -> bool:
    """Whether a pass of the loop has no effect but the next test: the guard of the branch back depends on strong loads
    from a fixed address, and on nothing that an earlier pass has computed.
    """
    if any(ins.form.role not in BODY for ins in body):
        return False
    changes = {name for ins in body for name in ins.writes}
    fresh, polled = set[str](), set[str]()  # registers of this pass alone, and those that depend on a strong load
    for ins in body:
        reads = changes.intersection((*ins.reads, *ins.guards))
        strong = ins.form.role == "atomic" or (ins.form.role == "load" and ins.form.strong)
        polls = strong and ins.form.space in ("global", "generic")
        if ins.guard is None and ((polls and not reads) or (ins.form.role in PURE and fresh.issuperset(reads))):
            fresh.update(ins.writes)
            if polls or not polled.isdisjoint(reads):
                polled.update(ins.writes)
        else:
            fresh.difference_update(ins.writes)
    return guard in fresh & polled


__all__ = ["find_flag_waits"]
