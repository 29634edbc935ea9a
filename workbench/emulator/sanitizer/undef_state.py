"""Undefined bits as values: one integer per lane and register, and the operations that combine them.

Bits 0-7 of a state mark the undefined bytes; the bits above hold the line that used them first. None is the state of a
register whose every byte is defined in every lane.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from workbench.emulator.arrays import Array, Lanes
from workbench.emulator.execution.batch import Batch
from workbench.emulator.execution.copies import UNDEFINED
from workbench.emulator.ptx.syntax import Operand, Reg

BYTES = 0xFF
State: TypeAlias = Array | None
Refuse: TypeAlias = Callable[[Batch, Lanes, Array, str], None]
"""Faults if a state has undefined bytes; the text names what depends on them."""
Follow: TypeAlias = Callable[[Batch, Lanes, Refuse], list[State]]
"""Carries undefined bits through an instruction: the state of each register that it writes, over the active lanes."""


def operand_state(b: Batch, i: Lanes, operand: Operand) -> State:
    """The state of an operand over the active lanes."""
    if not isinstance(operand, Reg):
        return None
    found = b.undefined.get(operand.name)
    return found if found is None or i is None else found[i]


def join(parts: Sequence[State]) -> State:
    """The union of undefined bytes of several states, with the latest first use."""
    result = None
    for part in parts:
        if part is not None:
            result = part if result is None else (result | part) & BYTES | np.maximum(result >> 8, part >> 8) << 8
    return result


def computed_state(state: State, line: int | None) -> State:
    """The state of a result that was computed from `state`: all bytes undefined; the first use is this one or an
    earlier one.
    """
    if state is None:
        return None
    return np.where(state & BYTES, BYTES | np.where(state >> 8, state >> 8, line or 0) << 8, 0)


def move_bytes(state: State, shift: int, keep: int) -> State:
    """Byte marks shifted up by `shift` bytes (down if negative), masked by `keep`."""
    if state is None:
        return None
    marks = state & BYTES
    marks = (marks << shift if shift >= 0 else marks >> -shift) & keep
    return np.where(marks, state & ~np.int64(BYTES) | marks, 0)


def state_array(state: State, b: Batch, i: Lanes) -> Array:
    """The state as an array over the active lanes."""
    return np.zeros(b.lanes if i is None else len(i), dtype=np.int64) if state is None else state


def memory_marks(b: Batch, i: Lanes, place: str, at: Array) -> tuple[Array, Array] | None:
    """(marks by byte, first byte of each lane) of shared or local memory; None if nothing undefined was stored."""
    if not b.undefined_stored or place not in ("shared", "local"):
        return None
    lanes = b.all_lanes(i)
    if place == "local":
        return None if b.undefined_local is None else (b.undefined_local, lanes * b.local_stride + (at & 0xFFFFFF))
    return b.shared_written, b.cta[lanes] * b.shared_bytes + at


def mark_bytes(marks: Array, start: Array, size: int, state: Array) -> None:
    """Mark the undefined bytes of a value stored at `start`."""
    index = start[:, None] + np.arange(size)
    bad = (state[:, None] >> np.arange(size)) & 1 != 0
    marks[index] = marks[index] & np.uint8(0xFF ^ UNDEFINED) | np.where(bad, np.uint8(UNDEFINED), np.uint8(0))
