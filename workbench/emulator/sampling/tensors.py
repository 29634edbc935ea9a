"""Tells apart the tensors that a kernel accesses, by the pointers among its parameters.

Input: a kernel's instructions. Output: for each access of global memory, the parameters that its address may be derived
from. Pointers pass through additions, moves and choices, but not through products, shifts and conversions. Different
parameters are taken for different memory.
"""

from __future__ import annotations

from workbench.emulator.ptx.instruction import Instruction
from workbench.emulator.ptx.syntax import Mem, Reg
from workbench.emulator.sampling.loop_registers import PURE

GLOBAL = frozenset(("global",))  # any tensor
CUT = frozenset(("mul", "shl", "shr", "div", "rem", "setp", "set", "popc", "clz"))  # opcodes whose result is no pointer


class Tensors:
    """The tensors behind the addresses of a kernel."""

    def __init__(self, instructions: list[Instruction]) -> None:
        self.roots: dict[str, frozenset[str]] = {}  # of each register that may hold a pointer
        steps = [(ins, names) for ins in instructions if (names := _pointer_sources(ins)) is not None]
        changed = True
        while changed:
            changed = False
            for ins, names in steps:
                found = _origin(ins).union(*(self.roots.get(name, frozenset()) for name in names))
                for name in ins.writes:
                    old = self.roots.get(name, frozenset())
                    if not found <= old:
                        self.roots[name], changed = old | found, True

    def find(self, ins: Instruction) -> frozenset[str]:
        """The tensors that an instruction may access; GLOBAL if they are not known."""
        base = next((operand.base for operand in ins.operands if isinstance(operand, Mem)), None)
        roots = self.roots.get(base.name, frozenset()) if isinstance(base, Reg) else frozenset[str]()
        return GLOBAL if not roots or not roots.isdisjoint(GLOBAL) else roots


def _pointer_sources(ins: Instruction) -> tuple[str, ...] | None:
    """The registers whose pointers an instruction passes on; None if its result is none."""
    if ins.form.role in ("load", "atomic"):
        return () if any(mod.endswith("64") for mod in ins.mods) else None
    if ins.form.role not in PURE or ins.opcode in CUT or (ins.opcode == "cvt" and ins.mods[-1] != ins.mods[-2]):
        return None
    if ins.opcode in ("mad", "fma"):
        last = ins.operands[-1]
        return (last.name,) if isinstance(last, Reg) else None
    return ins.values


def _origin(ins: Instruction) -> frozenset[str]:
    """The parameter that an instruction loads, or GLOBAL for a pointer from memory."""
    if ins.form.role not in ("load", "atomic"):
        return frozenset()
    source = next((operand for operand in ins.operands if isinstance(operand, Mem)), None)
    if ins.form.space != "param" or source is None or isinstance(source.base, Reg):
        return GLOBAL
    return frozenset((f"{source.base}+{source.offset}",))


__all__ = ["GLOBAL", "Tensors"]
