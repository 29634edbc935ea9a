"""Finds the values that a sample of CTAs must compute: those that decide which instructions run and where they access
memory.

Input: a kernel's instructions. Output: for each of them, whether it must be executed in full. Any other instruction is
only counted and followed in time. Every address, every guard and every operand of a barrier, a bulk copy and a branch
is needed; so is what they are computed from. A load whose result is needed makes the stores to its state space needed,
those to global memory if they may go to the same tensor (tensors.py). The analysis goes by register names, state spaces
and parameters, so it may keep too much, but too little only if two parameters point to the same memory.
"""

from __future__ import annotations

from workbench.emulator.ptx.instruction import Instruction
from workbench.emulator.sampling.tensors import GLOBAL, Tensors

RESULTS = frozenset(  # roles whose only effect is on the registers that they write
    ("arithmetic", "move", "address", "conversion", "warp", "load", "matrix_load", "mma", "wgmma")
)
STORES = frozenset(("store", "matrix_store", "copy", "atomic", "reduction"))  # roles that write to a state space
MEMORY = frozenset(("global", "shared", "local"))


class NeededValues:
    """The registers, and the state spaces and tensors (`spaces`), whose values a kernel's control flow and its
    addresses depend on.
    """

    def __init__(self, instructions: list[Instruction]) -> None:
        self.registers: set[str] = set()
        self.spaces: set[str] = set()
        self.tensors = Tensors(instructions)
        for ins in instructions:
            self.registers.update(ins.guards, ins.addresses)
            if ins.form.role == "copy":  # its size decides what it counts
                self.registers.update(ins.values)
        before = -1
        while before != len(self.registers) + len(self.spaces):
            before = len(self.registers) + len(self.spaces)
            for ins in instructions:
                if self.executes(ins):
                    self.registers.update(ins.values)
                    self.spaces |= self._read_spaces(ins)

    def executes(self, ins: Instruction) -> bool:
        """Whether an instruction must be executed in full."""
        form = ins.form
        if (form.asynchronous and form.role in ("store", "reduction")) or form.carry_in or form.carry_out:
            return True
        if form.role not in RESULTS and form.role not in STORES:
            return True
        if not self.registers.isdisjoint(ins.writes):
            return True
        return form.role in STORES and self._reaches(self._places(ins, form.space.split(">")[-1]))

    def _reaches(self, places: frozenset[str]) -> bool:
        """Whether an access of these state spaces and tensors may be one of those that are needed."""
        if not self.spaces.isdisjoint(places):
            return True
        tensors = self.spaces - MEMORY
        return ("global" in self.spaces and not places <= MEMORY) or ("global" in places and bool(tensors))

    def _read_spaces(self, ins: Instruction) -> frozenset[str]:
        """State spaces that an executed instruction reads; of a bulk copy, only if its target's values are needed."""
        role, space = ins.form.role, ins.form.space
        source, _, target = space.partition(">")
        if role in ("copy", "bulk_copy"):
            return MEMORY & {source} if target in self.spaces else frozenset()
        reads = role in ("load", "matrix_load", "wgmma", "atomic", "reduction")
        return self._places(ins, space) if reads else frozenset()

    def _places(self, ins: Instruction, space: str) -> frozenset[str]:
        """The state spaces and tensors that an address may be in; parameters and constants cannot be written."""
        if space not in ("global", "generic"):
            return MEMORY & {space}
        return self.tensors.find(ins) | (MEMORY - GLOBAL if space == "generic" else frozenset())


__all__ = ["NeededValues"]
