"""Warp-wide instructions: shuffle, vote, match, redux, elect, activemask."""

from __future__ import annotations

import numpy as np

from workbench.emulator.arrays import Lanes, Value
from workbench.emulator.execution.batch import WARP, Batch
from workbench.emulator.execution.operands import Fn, getter, setter
from workbench.emulator.ptx.instruction import Instruction
from workbench.emulator.ptx.syntax import Vec


def shuffle(ins: Instruction) -> Fn:
    """shfl.sync.{up,down,bfly,idx}.b32 d{|p}, a, b, c, membermask (PTX ISA, shfl.sync: segment mask in the upper bits
    of c).
    """
    mode = next(m for m in ins.mods if m in ("up", "down", "bfly", "idx"))
    target = ins.operands[0]
    puts = target.items if isinstance(target, Vec) else (target,)
    put = setter(puts[0], 4)
    put_predicate = setter(puts[1], 0) if len(puts) > 1 else None
    a, lane_operand, clamp = (
        getter(ins.operands[1], "b32"),
        getter(ins.operands[2], "u32"),
        getter(ins.operands[3], "u32"),
    )

    def run(b: Batch, i: Lanes) -> None:
        lanes = b.all_lanes(i)
        lane = lanes % WARP
        amount = lane_operand(b, i).astype(np.int64) & 31
        c = clamp(b, i).astype(np.int64)
        segment, limit = (c >> 8) & 31, c & 31
        top = (lane & segment) | (limit & ~segment)
        low = lane & segment
        if mode == "up":
            source = lane - amount
            ok = source >= top
        elif mode == "down":
            source = lane + amount
            ok = source <= top
        elif mode == "bfly":
            source = lane ^ amount
            ok = source <= top
        else:
            source = low | (amount & ~segment)
            ok = source <= top
        source = np.where(ok, source, lane)
        value = a(b, None)
        if isinstance(value, np.ndarray) and value.ndim:
            put(b, i, value[lanes - lane + source])
        else:
            put(b, i, value)
        if put_predicate is not None:
            put_predicate(b, i, ok)

    return run


def _group_by_warp(b: Batch, i: Lanes, flag: Value) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(warps, 32) of the flag and of the active lanes, plus the warp of each active lane."""
    lanes = b.all_lanes(i)
    full = np.zeros(b.lanes, dtype=bool)
    full[lanes] = flag
    active = np.zeros(b.lanes, dtype=bool)
    active[lanes] = True
    return full.reshape(-1, WARP), active.reshape(-1, WARP), lanes // WARP


def vote(ins: Instruction) -> Fn:
    """vote.sync.{all,any,uni,ballot}; activemask."""
    weights = np.uint64(1) << np.arange(WARP, dtype=np.uint64)
    if ins.opcode == "activemask":
        put = setter(ins.operands[0], 4)

        def active_mask(b: Batch, i: Lanes) -> None:
            _, active, warp = _group_by_warp(b, i, True)
            put(b, i, (active * weights).sum(axis=1).astype(np.uint32)[warp])

        return active_mask
    mode = ins.mods[1] if ins.mods[0] == "sync" else ins.mods[0]
    get = getter(ins.operands[1], "pred")
    put = setter(ins.operands[0], 4 if mode == "ballot" else 0)

    def run(b: Batch, i: Lanes) -> None:
        flag, active, warp = _group_by_warp(b, i, get(b, i))
        if mode == "ballot":
            put(b, i, ((flag & active) * weights).sum(axis=1).astype(np.uint32)[warp])
        else:
            every, some = (flag | ~active).all(axis=1), (flag & active).any(axis=1)
            put(b, i, {"all": every, "any": some, "uni": every | ~some}[mode][warp])

    return run


def reduce_sync(ins: Instruction) -> Fn:
    """redux.sync.op.type d, a, mask."""
    op, kind = ins.mods[1], ins.mods[-1]
    put, get = setter(ins.operands[0], 4), getter(ins.operands[1], kind)
    function = {
        "add": np.add,
        "min": np.minimum,
        "max": np.maximum,
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
    }[op]

    def run(b: Batch, i: Lanes) -> None:
        lanes = b.all_lanes(i)
        value = get(b, i)
        value = value if isinstance(value, np.ndarray) and value.ndim else np.full(len(lanes), value)
        warps, start = np.unique(lanes // WARP, return_index=True)
        result = function.reduceat(value, start)
        put(b, i, result[np.searchsorted(warps, lanes // WARP)])

    return run


def match(ins: Instruction) -> Fn:
    """match.any.sync.type d, a, mask: lanes with the same value; match.all.sync.type d|p, a, mask: all lanes, if they
    have the same value.
    """
    kind, every = ins.mods[-1], "all" in ins.mods
    target = ins.operands[0]
    puts = target.items if isinstance(target, Vec) else (target,)
    put, get = setter(puts[0], 4), getter(ins.operands[1], kind)
    put_predicate = setter(puts[1], 0) if len(puts) > 1 else None

    def run(b: Batch, i: Lanes) -> None:
        lanes = b.all_lanes(i)
        value = np.zeros(b.lanes, dtype=np.uint64)
        value[lanes] = get(b, i)
        active = np.zeros(b.lanes, dtype=bool)
        active[lanes] = True
        grid = value.reshape(-1, WARP)
        same = (grid[:, :, None] == grid[:, None, :]) & active.reshape(-1, 1, WARP)
        weights = np.uint64(1) << np.arange(WARP, dtype=np.uint64)
        found = (same * weights).sum(axis=2).astype(np.uint32).reshape(-1)[lanes]
        if every:
            whole = (active.reshape(-1, WARP) * weights).sum(axis=1).astype(np.uint32)[lanes // WARP]
            found = np.where(found == whole, found, np.uint32(0))
        put(b, i, found)
        if put_predicate is not None:
            put_predicate(b, i, found != 0)

    return run


def elect(ins: Instruction) -> Fn:
    """elect.sync d|p, mask: the lowest active lane of each warp."""
    target = ins.operands[0]
    assert isinstance(target, Vec)
    put, put_predicate = setter(target.items[0], 4), setter(target.items[1], 0)

    def run(b: Batch, i: Lanes) -> None:
        _, active, warp = _group_by_warp(b, i, True)
        leader = np.argmax(active, axis=1)[warp]
        put(b, i, leader.astype(np.uint32))
        put_predicate(b, i, b.all_lanes(i) % WARP == leader)

    return run
