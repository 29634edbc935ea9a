"""Rules for undefined bits in loads and stores of shared and local memory, whose bytes are marked.

Input: an instruction. Output: a rule, `undef_state.Follow`.
"""

from __future__ import annotations

import numpy as np

from workbench.emulator.arrays import Lanes
from workbench.emulator.execution.batch import WARP, Batch
from workbench.emulator.execution.copies import UNDEFINED
from workbench.emulator.execution.operands import size_of
from workbench.emulator.isa.access import address, broadcast, resolve_space
from workbench.emulator.ptx.instruction import Instruction
from workbench.emulator.ptx.syntax import Mem, Vec
from workbench.emulator.sanitizer.undef_state import (
    BYTES,
    Follow,
    Refuse,
    State,
    join,
    mark_bytes,
    memory_marks,
    operand_state,
    state_array,
)


def load(ins: Instruction) -> Follow:
    """A load from shared or local memory gets the marks of the bytes that it reads."""
    targets = ins.operands[0].items if isinstance(ins.operands[0], Vec) else (ins.operands[0],)
    source = ins.operands[1]
    assert isinstance(source, Mem)
    space = ins.form.space
    size = 16 if ins.mods[-1] == "b128" else size_of("b16" if ins.mods[-1] == "bf16" else ins.mods[-1])
    where = address(source, space) if space != "param" else None

    def follow(b: Batch, i: Lanes, refuse: Refuse) -> list[State]:
        if where is None:
            return [None] * len(targets)
        place, at = resolve_space(space, broadcast(b, i, where(b, i)))
        memory = memory_marks(b, i, place, at)
        if memory is None:
            return [None] * len(targets)
        marks, start = memory
        found: list[State] = []
        for n in range(len(targets)):
            index = np.clip(start[:, None] + n * size + np.arange(size), 0, len(marks) - 1)
            bad = ((marks[index] & UNDEFINED != 0) * (1 << np.arange(size))).sum(axis=1) & BYTES
            found.append(np.where(bad, bad | b.undefined_line << 8, 0))
        return found

    return follow


def store(ins: Instruction) -> Follow:
    """A store marks undefined bytes in shared and local memory; in global memory they are an error, also by a generic
    address.
    """
    target, source = ins.operands[:2]
    items = source.items if isinstance(source, Vec) else (source,)
    if not isinstance(target, Mem) or ins.form.space == "param" or ins.form.asynchronous:
        return lambda b, i, refuse: []
    space = ins.form.space
    where, size = address(target, space), size_of("b16" if ins.mods[-1] == "bf16" else ins.mods[-1])

    def follow(b: Batch, i: Lanes, refuse: Refuse) -> list[State]:
        states = [operand_state(b, i, item) for item in items]
        place, at = resolve_space(space, broadcast(b, i, where(b, i)))
        if place == "global":
            stored = state_array(join(states), b, i)
            refuse(b, i, np.where(stored & BYTES & ((1 << size) - 1), stored, 0), "what is stored to global memory")
            return []
        found = join(states)
        if found is not None and (found & BYTES).any():
            if b.undefined_local is None:
                b.undefined_local = np.zeros(len(b.local), dtype=np.uint8)
            b.undefined_stored, b.undefined_line = True, int((found >> 8).max())
        memory = memory_marks(b, i, place, at)
        if memory is not None:
            marks, start = memory
            for n, state in enumerate(states):
                mark_bytes(marks, start + n * size, size, state_array(state, b, i))
        return []

    return follow


def load_matrix(ins: Instruction) -> Follow:
    """ldmatrix of undefined bytes is an error, like ldmatrix of shared memory that nothing wrote."""
    source = ins.operands[1]
    assert isinstance(source, Mem)
    where = address(source, "shared")
    targets = len(ins.operands[0].items) if isinstance(ins.operands[0], Vec) else 1
    rows = 8 * targets

    def follow(b: Batch, i: Lanes, refuse: Refuse) -> list[State]:
        memory = memory_marks(b, i, "shared", broadcast(b, i, where(b, i)))
        if memory is not None:
            marks, start = memory
            index = np.clip(start[:, None] + np.arange(16), 0, len(marks) - 1)
            bad = (marks[index] & UNDEFINED != 0).any(axis=1) & (b.all_lanes(i) % WARP < rows)
            refuse(b, i, np.where(bad, 1 | b.undefined_line << 8, 0), "ldmatrix")
        return [None] * targets

    return follow
