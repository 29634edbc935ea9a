"""Finds barriers that only some threads of a warp reach. That is undefined, though it may seem to work (PTX ISA,
barrier: `.aligned` needs every thread of the warp at the same barrier).
"""

from __future__ import annotations

import numpy as np

from workbench.emulator.arrays import Array
from workbench.emulator.execution.batch import BARRIER_WAIT, WARP, Batch
from workbench.emulator.ptx.instruction import Instruction

HINT = "no barrier inside a branch that only some threads of a warp take: move it out of the `if`"


def check_threads_ended(b: Batch, lanes: Array, instructions: list[Instruction]) -> None:
    """Fault if a thread ends while others of its warp wait at a barrier that it never reaches."""
    waits = (b.waiting >= 0) & (b.waiting < BARRIER_WAIT)
    if not waits.any():
        return
    gone = np.unique(lanes // WARP)
    left = waits.reshape(-1, WARP)[gone]
    if not left.any():
        return
    row = int(np.argmax(left.any(axis=1)))
    lane = int(gone[row]) * WARP + int(np.argmax(left[row]))
    if _is_aligned(b, lane, instructions):
        other = int(lanes[np.argmax(lanes // WARP == gone[row])])
        raise _divergence_fault(b, lane, f"thread {b.coordinates(other)[1]} of the same warp ends without reaching it")


def check_barrier_completed(b: Batch, free: Array, instructions: list[Instruction]) -> None:
    """Fault if a completed barrier has threads of one warp at two places of the program, or lacks some that have not
    ended.
    """
    warps = np.unique(np.nonzero(free)[0] // WARP)
    here, alive, pc = free.reshape(-1, WARP)[warps], b.alive.reshape(-1, WARP)[warps], b.pc.reshape(-1, WARP)[warps]
    first = np.argmax(here, axis=1)
    place = pc[np.arange(len(warps)), first]
    apart = (alive & ~here) | (here & (pc != place[:, None]))
    if not apart.any():
        return
    row = int(np.argmax(apart.any(axis=1)))
    lane, other = int(warps[row]) * WARP + int(first[row]), int(warps[row]) * WARP + int(np.argmax(apart[row]))
    if _is_aligned(b, lane, instructions):
        elsewhere = f"waits at line {int(b.waiting_line[other])}" if b.waiting[other] >= 0 else "is not there"
        raise _divergence_fault(b, lane, f"thread {b.coordinates(other)[1]} of the same warp {elsewhere}")


def _is_aligned(b: Batch, lane: int, instructions: list[Instruction]) -> bool:
    return instructions[int(b.pc[lane]) - 1].form.aligned


def _divergence_fault(b: Batch, lane: int, how: str) -> Exception:
    return b.fault(
        "barrier_divergence",
        f"a barrier that only a part of a warp reaches: {how}; it is reached",
        int(b.waiting_line[lane]) or None,
        lane,
        hint=HINT,
    )
