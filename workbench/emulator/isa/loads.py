"""Loads, stores, and instructions about state spaces."""

from __future__ import annotations

import numpy as np

from workbench.emulator.arrays import Array, Lanes
from workbench.emulator.execution.batch import CONST_WINDOW, LOCAL_WINDOW, SHARED_WINDOW, Batch
from workbench.emulator.execution.operands import UNSIGNED, Fn, Put, bits, getter, setter, size_of
from workbench.emulator.isa.access import (
    SPACES,
    address,
    broadcast,
    global_allocation,
    local_index,
    read_global,
    read_shared,
    resolve_space,
    write_global,
    write_shared,
)
from workbench.emulator.isa.sm90.cluster import store_async
from workbench.emulator.isa.vprintf import store_param
from workbench.emulator.ptx.instruction import Instruction
from workbench.emulator.ptx.syntax import Mem, Reg, Vec


def load(ins: Instruction) -> Fn:
    """ld{.space}{.cache}{.vec}.type; ldu; ld.param reads the launch's bytes."""
    space = ins.form.space
    kind = ins.mods[-1]
    size = 16 if kind == "b128" else size_of("b16" if kind == "bf16" else kind)
    vector = next((int(m[1:]) for m in ins.mods if m in ("v2", "v4", "v8")), 1)
    targets = ins.operands[0].items if isinstance(ins.operands[0], Vec) else (ins.operands[0],)
    source = ins.operands[1]
    assert isinstance(source, Mem)
    signed = kind[0] == "s" and size < 8  # the register may be wider than what is loaded: the sign fills it
    puts = [setter(target, 8 if signed else 4 if size < 2 else size) for target in targets]
    if space == "param" and not isinstance(
        source.base, Reg
    ):  # through a register: the parameter's address in memory, see Machine.run
        return _load_param(puts, source, size, vector, signed)
    where = address(source, space)

    def run(b: Batch, i: Lanes) -> None:
        place, at = resolve_space(space, broadcast(b, i, where(b, i)))
        b.count_memory(ins, place, i, at, size * vector, False)
        values = _read(b, i, at, size, vector, place, ins)
        for n, put in enumerate(puts):
            value = values[:, n]
            if signed:
                value = value.view(np.dtype(f"i{size}")).astype(np.int64)
            elif size < 2:
                value = value.astype(np.uint32)
            put(b, i, bits(value, value.dtype.itemsize))

    return run


def count_access(ins: Instruction) -> Fn:
    """A load or a store that is only counted; nothing is read or written. Addresses of global memory are checked."""
    if ins.form.space not in ("global", "shared", "generic"):
        return lambda b, i: None
    write = ins.form.role == "store"
    operand, registers = (ins.operands[0], ins.operands[1]) if write else (ins.operands[1], ins.operands[0])
    assert isinstance(operand, Mem)
    kind = ins.mods[-1]
    size = 16 if kind == "b128" else size_of("b16" if kind == "bf16" else kind)
    whole = size * (len(registers.items) if isinstance(registers, Vec) else 1)
    where = address(operand, ins.form.space)

    def run(b: Batch, i: Lanes) -> None:
        place, at = resolve_space(ins.form.space, broadcast(b, i, where(b, i)))
        b.count_memory(ins, place, i, at, whole, write)
        if place == "global":
            global_allocation(b, i, at, whole, write, ins)

    return run


def _read(b: Batch, i: Lanes, at: Array, size: int, vector: int, space: str, ins: Instruction) -> Array:
    if space == "shared":
        return read_shared(b, i, at, size, vector, ins)
    if space == "local":
        index = local_index(b, i, at, size * vector, ins) // size
        return np.stack([b.local.view(UNSIGNED[size])[index + n] for n in range(vector)], axis=-1)
    return read_global(b, i, at, size, vector, ins)


def _load_param(puts: list[Put], source: Mem, size: int, vector: int, signed: bool) -> Fn:
    name, offset = str(source.base), source.offset

    def run(b: Batch, i: Lanes) -> None:
        data = b.params[name]
        for n, put in enumerate(puts):
            raw = data[offset + n * size : offset + (n + 1) * size]
            put(
                b,
                i,
                np.int64(int.from_bytes(raw, "little", signed=True)).view(np.uint64)
                if signed
                else UNSIGNED[max(size, 2) if size != 1 else 4](int.from_bytes(raw, "little")),
            )

    return run


def store(ins: Instruction) -> Fn:
    """st{.space}{.cache}{.vec}.type."""
    if "async" in ins.mods:
        return store_async(ins)
    space = ins.form.space
    kind = ins.mods[-1]
    size = size_of("b16" if kind == "bf16" else kind)
    target, source = ins.operands[0], ins.operands[1]
    assert isinstance(target, Mem)
    sources = source.items if isinstance(source, Vec) else (source,)
    gets = [getter(item, f"b{8 * size}") for item in sources]
    if space == "param":
        return store_param(ins)
    where = address(target, space)

    def run(b: Batch, i: Lanes) -> None:
        place, at = resolve_space(space, broadcast(b, i, where(b, i)))
        b.count_memory(ins, place, i, at, size * len(gets), True)
        values = [broadcast(b, i, get(b, i)) for get in gets]
        if place == "shared":
            write_shared(b, i, at, values, size, ins)
        elif place == "local":
            index = local_index(b, i, at, size * len(values), ins) // size
            for n, value in enumerate(values):
                b.local.view(UNSIGNED[size])[index + n] = value
        else:
            write_global(b, i, at, values, size, ins)

    return run


def convert_address(ins: Instruction) -> Fn:
    """cvta{.to}.space: shared and local memory have their own windows in the generic space."""
    space = next(m for m in ins.mods if m in (*SPACES, "shared", "local", "global", "const", "param"))
    window = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "const": CONST_WINDOW}.get(space, 0)
    put = setter(ins.operands[0], 8)
    get = getter(ins.operands[1], "u64")
    shift = np.uint64(window)
    if "to" in ins.mods:
        return lambda b, i: put(b, i, get(b, i) - shift)
    return lambda b, i: put(b, i, get(b, i) + shift)


def space_test(ins: Instruction) -> Fn:
    """isspacep.space p, a."""
    window = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "const": CONST_WINDOW}.get(ins.mods[0], 0) >> 56
    put, get = setter(ins.operands[0], 0), getter(ins.operands[1], "u64")
    return lambda b, i: put(b, i, (get(b, i) >> np.uint64(56)) == np.uint64(window))
