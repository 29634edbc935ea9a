"""Finds the instructions that must be checked because they use registers of a wgmma before it is waited for.

The accumulator of a wgmma, and A when it comes from registers, belong to the multiplication until a wait_group covers
its group. Before that it is an error to read or write the accumulator, or to write A; another wgmma of the same shape
may use the same accumulator. Registers that other instructions wrote need a wgmma.fence before wgmma uses them, and so
does a warp's first wgmma.

The compiler moves copies, constants and arithmetic behind fences that the program has before them. So a copy of an
accumulator in flight is itself in flight. A fence is only reported as missing where it is needed: after a load into the
registers, or after the wait for the accumulator that they were computed from.
"""

from __future__ import annotations

from workbench.emulator.arrays import Lanes
from workbench.emulator.execution.batch import Batch
from workbench.emulator.execution.operands import Fn
from workbench.emulator.ptx.instruction import Instruction
from workbench.emulator.ptx.syntax import FloatBits, Imm, Vec, value_registers


def is_copy(ins: Instruction) -> bool:
    """Whether it is a copy or a conversion; the compiler may move these before the program's wait."""
    return (
        ins.form.role in ("move", "conversion")
        and len(ins.operands) == 2
        and not isinstance(ins.operands[1], (Imm, FloatBits))
    )


class WgmmaWatch:
    """The registers of a kernel that wgmma uses, directly or through copies, and the checks of each instruction."""

    def __init__(self, instructions: list[Instruction]) -> None:
        multiplications = [ins for ins in instructions if ins.form.role == "wgmma"]
        self.any = bool(multiplications)
        used = {
            name
            for ins in multiplications
            for operand in ins.operands[:2]
            if isinstance(operand, Vec)
            for name in value_registers(operand)
        }
        copies = [ins for ins in instructions if is_copy(ins)] if multiplications else []
        self.in_flight = _closure(used, [(ins.reads, ins.writes) for ins in copies])
        self.inputs = _closure(used, [(ins.writes, ins.reads) for ins in copies])

    def wrap(self, ins: Instruction, run: Fn) -> Fn:
        """`run` with the checks before it and the notes after it."""
        if not self.any or ins.form.role in ("wgmma", "wgmma_group"):
            return run
        sources = [name for name in ins.reads if name in self.in_flight]
        targets = [name for name in ins.writes if name in self.in_flight]
        changes = [name for name in ins.writes if name in self.inputs]
        if not sources and not targets and not changes:
            return run
        if is_copy(ins):
            return _wrap_copy(run, ins.reads, targets, changes)
        pinned = ins.form.pinned

        def run_checked(b: Batch, i: Lanes) -> None:
            if b.wgmma.busy:
                b.wgmma.check(b, i, sources, targets, ins)
            run(b, i)
            if changes:
                b.wgmma.note_change(b, i, changes, None if pinned else sources)

        return run_checked


def _wrap_copy(run: Fn, sources: tuple[str, ...], targets: list[str], changes: list[str]) -> Fn:
    """A copy, whose target gets the state of its sources."""

    def run_copy(b: Batch, i: Lanes) -> None:
        run(b, i)
        b.wgmma.note_copy(b, i, sources, targets, changes)

    return run_copy


def _closure(names: set[str], edges: list[tuple[tuple[str, ...], tuple[str, ...]]]) -> set[str]:
    """The names, and all names that edges (from, to) reach from them."""
    known, grown = set(names), True
    while grown:
        before = len(known)
        for sources, targets in edges:
            if not known.isdisjoint(sources):
                known.update(targets)
        grown = len(known) > before
    return known
