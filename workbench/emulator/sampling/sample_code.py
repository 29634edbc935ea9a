"""The code of a sample that only counts: instructions whose values nothing needs are counted, not executed."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.emulator.execution.dispatch import count_nothing, decode_counted
from workbench.emulator.execution.operands import Fn
from workbench.emulator.ptx.instruction import Instruction
from workbench.emulator.sampling.flag_waits import find_flag_waits
from workbench.emulator.sampling.loop_registers import LoopRegisters
from workbench.emulator.sampling.needed_values import NeededValues


class SampleCode:
    """A function for each instruction, whether bulk copies must move their bytes, and the branches back of waits that
    end at once; `whole` executes in full.
    """

    def __init__(self, instructions: list[Instruction], whole: Sequence[Fn]) -> None:
        needed = NeededValues(instructions)
        executed = [needed.executes(ins) for ins in instructions]
        multiplies = any(now and ins.form.role == "wgmma" for ins, now in zip(instructions, executed, strict=True))
        self.registers = LoopRegisters([ins for ins, now in zip(instructions, executed, strict=True) if now])
        self.moves_data = "shared" in needed.spaces
        self.ended_waits = find_flag_waits(instructions)
        self.code: list[Fn] = []
        for ins, run, now in zip(instructions, whole, executed, strict=True):
            if ins.form.role == "wgmma_group" and not multiplies:
                self.code.append(count_nothing)  # its groups are those of the timeline
            else:
                self.code.append(run if now else decode_counted(ins))


__all__ = ["SampleCode"]
