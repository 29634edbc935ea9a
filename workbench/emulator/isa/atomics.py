"""atom and red on global and shared memory."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from workbench.emulator.arrays import Array, Lanes, Value
from workbench.emulator.execution.batch import Batch
from workbench.emulator.execution.operands import Fn, Unknown, bits, getter, setter, size_of
from workbench.emulator.isa.access import (
    address,
    broadcast,
    global_allocation,
    read_global,
    read_shared,
    resolve_space,
    shared_index,
    write_global,
    write_shared,
)
from workbench.emulator.isa.floats import to_bf16
from workbench.emulator.ptx.instruction import Instruction
from workbench.emulator.ptx.syntax import Mem

PACKED = ("f16x2", "bf16x2")
ATOMIC: dict[str, Callable[[Value, Value], Value]] = {
    "add": lambda o, a: o + a,
    "min": lambda o, a: np.minimum(o, a),
    "max": lambda o, a: np.maximum(o, a),
    "and": lambda o, a: o & a,
    "or": lambda o, a: o | a,
    "xor": lambda o, a: o ^ a,
    "exch": lambda o, a: a,
    "inc": lambda o, a: np.where(o >= a, o.dtype.type(0), o + o.dtype.type(1)),
    "dec": lambda o, a: np.where((o == 0) | (o > a), a, o - o.dtype.type(1)),
}


def atomic(ins: Instruction) -> Fn:
    """atom and red on global and shared memory. Lanes go in order, so the result is deterministic; floats are rounded
    after each addition.
    """
    op, kind = _operation(ins)
    reduction = ins.form.role == "reduction"
    operands = ins.operands if reduction else ins.operands[1:]
    put = None if reduction else setter(ins.operands[0], size_of(kind))
    space = ins.form.space
    assert isinstance(operands[0], Mem)
    where = address(operands[0], space)
    value_of = getter(operands[1], kind)
    swap_of = getter(operands[2], kind) if op == "cas" else None
    size = size_of(kind)

    def run(b: Batch, i: Lanes) -> None:
        lanes = b.all_lanes(i)
        place, at = resolve_space(space, broadcast(b, i, where(b, i)))
        b.count_memory(ins, place, i, at, size, True)
        values = broadcast(b, i, value_of(b, i))
        swap = broadcast(b, i, swap_of(b, i)) if swap_of else None
        reader, writer = (read_shared, write_shared) if place == "shared" else (read_global, write_global)
        reader(b, lanes, at, size, 1, ins)
        location = shared_index(b, lanes, at, size, True, ins) if place == "shared" else at
        rank = _rank_repeats(location)
        if b.races is not None:
            _note_atomic(b, lanes, location, place, size, rank, ins)
        old = np.empty(len(lanes), dtype=values.dtype)
        for turn in range(int(rank.max()) + 1):
            now = np.nonzero(rank == turn)[0]
            before = as_values(reader(b, lanes[now], at[now], size, 1, ins)[:, 0], kind, values.dtype)
            old[now] = before
            if swap is None:
                after = ATOMIC[op](before, values[now])
            else:
                after = np.where(before == values[now], swap[now], before)
            writer(b, lanes[now], at[now], [as_bits(after.astype(values.dtype), kind, size)], size, ins)
        if put is not None:
            put(b, i, as_bits(old, kind, size))

    return run


def count_access(ins: Instruction) -> Fn:
    """atom or red that is only counted; memory stays as it is."""
    operand = ins.operands[0 if ins.form.role == "reduction" else 1]
    assert isinstance(operand, Mem)
    where, size = address(operand, ins.form.space), size_of(_operation(ins)[1])

    def run(b: Batch, i: Lanes) -> None:
        place, at = resolve_space(ins.form.space, broadcast(b, i, where(b, i)))
        b.count_memory(ins, place, i, at, size, True)

    return run


def _operation(ins: Instruction) -> tuple[str, str]:
    """(operation, PTX type) of an atomic; raises `Unknown` for pairs and vectors."""
    op = next(m for m in ins.mods if m in ATOMIC or m == "cas")
    kind = next(m for m in reversed(ins.mods) if m in PACKED or m == "bf16" or (m[0] in "usbf" and m[-1].isdigit()))
    if kind in PACKED or any(m in ("v2", "v4", "v8") for m in ins.mods):
        raise Unknown(ins.text)
    return op, kind


def _note_atomic(b: Batch, lanes: Array, at: Array, place: str, size: int, rank: Array, ins: Instruction) -> None:
    """Report an atomic to the race checks; `at` are offsets in the batch's shared memory or global addresses, `rank` is
    each lane's turn at its address.
    """
    assert b.races is not None
    if place == "shared":
        b.races.atomic(b, lanes, at, size, ins)
        return
    for found, pick in global_allocation(b, lanes, at, size, True, ins):
        b.races.atomic_global(b, lanes[pick], found, at[pick] - found.start, size, rank[pick], ins)


def as_values(raw: Array, kind: str, dtype: np.dtype[np.generic]) -> Value:
    """Memory's bits as the numbers that an atomic computes with; bfloat16 becomes float32."""
    return (raw.astype(np.uint32) << np.uint32(16)).view(np.float32) if kind == "bf16" else raw.view(dtype)


def as_bits(values: Array, kind: str, size: int) -> Value:
    """The numbers as memory's bits."""
    return to_bf16(values) if kind == "bf16" else bits(values, size)


def _rank_repeats(key: Array) -> Array:
    """For each element, the number of earlier elements with the same key."""
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    start = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    first = np.maximum.accumulate(np.where(start, np.arange(len(key)), 0))
    rank = np.empty(len(key), dtype=np.int64)
    rank[order] = np.arange(len(key)) - first
    return rank
