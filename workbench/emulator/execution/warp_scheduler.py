"""Chooses the threads that run next: those at the smallest instruction, unless they spin; then others get a turn.

Warps that wait for others in a loop (a spin lock, a look-back at other CTAs' results) would otherwise run for ever,
since the loop comes before the code that the others have to run. After PATIENCE jumps back, the warps in the loop rest
until all others wait, have ended, or have looped as long. If no others are left, asynchronous copies, which otherwise
complete when nothing can run, may complete: `idle`. The compiled engine follows the same rule
(compiled/runtime/schedule.py), so that atomics happen in the same order.
"""

from __future__ import annotations

import numpy as np

from workbench.emulator.arrays import Array
from workbench.emulator.execution.batch import Batch

PATIENCE = 64  # consecutive jumps back before others get a turn


class WarpScheduler:
    """Chooses what runs next in one batch."""

    def __init__(self) -> None:
        self.resting: Array | None = None  # lanes of resting warps
        self.before = -1
        self.backs = 0
        self.idle = False  # whether all runnable warps have looped for long

    def choose(self, b: Batch, runnable: Array) -> tuple[int, Array]:
        """The instruction that runs next, and the lanes that run it; `runnable` has at least one."""
        if self.resting is not None:
            awake = runnable & ~self.resting
            if awake.any():
                runnable = awake
            else:
                self.resting, self.before = None, -1
        low, idle = int(b.pc[runnable].min()), False
        self.backs += low <= self.before
        if self.backs > PATIENCE:
            self.backs = 0
            looping = np.repeat((runnable & (b.pc == low)).reshape(-1, 32).any(axis=1), 32)
            others = runnable & ~looping
            if others.any():
                self.resting = looping if self.resting is None else self.resting | looping
                runnable = others
                low = int(b.pc[runnable].min())
            else:
                self.resting, idle = None, True
        self.before, self.idle = low, idle
        return low, runnable & (b.pc == low)
