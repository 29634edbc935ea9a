"""Loads, stores, atomics and asynchronous copies, with every address checked and every request counted."""

from __future__ import annotations

from typing import Any

import numpy as np

from workbench.emulator.deferred import IN_FLIGHT, UNFENCED, WRITTEN
from workbench.emulator.floats import to_bf16
from workbench.emulator.launch import Allocation
from workbench.emulator.operands import UNSIGNED, Fn, Unknown, bits, getter, setter, size_of
from workbench.emulator.printing import store_param
from workbench.emulator.ptx import Instruction, Mem, Name, Reg, Vec
from workbench.emulator.state import CONST_WINDOW, LOCAL_WINDOW, RANK_SHIFT, SHARED_WINDOW, Batch, Lanes, Value
from workbench.emulator.views import missed

SPACES = ("global", "shared", "local", "param", "const")


def address(operand: Mem, space: str) -> Any:
    """A function (batch, idx) -> int64 addresses, one per active lane (or one for all)."""
    offset = operand.offset
    base = operand.base
    if isinstance(base, Reg):
        name = base.name
        narrow = space == "shared"

        def read(b: Batch, i: Lanes) -> Value:
            value = b.read(name, i)
            if narrow and value.dtype == np.uint32:
                return (value.astype(np.int64) + offset) & 0xFFFF_FFFF  # 32-bit addresses wrap around
            value = value.astype(np.int64) if narrow or value.dtype != np.uint64 else value.view(np.int64)
            return value + offset if offset else value

        return read
    if base is None:
        return lambda b, i: np.int64(offset)
    symbol = str(base)

    def fixed(b: Batch, i: Lanes) -> Value:
        if symbol in b.symbols:
            return np.int64(b.symbols[symbol] + offset)
        table = b.kernel.shared if space == "shared" else b.kernel.local
        return np.int64(table.get(symbol, b.kernel.shared_bytes) + offset)

    return fixed


def _spread(b: Batch, i: Lanes, value: Value) -> Any:
    """The value as a full array over the active lanes."""
    count = b.lanes if i is None else len(i)
    return value if isinstance(value, np.ndarray) and value.ndim else np.full(count, value)


def _first(bad: Any, b: Batch, i: Lanes) -> tuple[int, int]:
    at = int(np.argmax(bad))
    return at, int(at if i is None else i[at])


def global_allocation(b: Batch, i: Lanes, where: Any, size: int, write: bool, ins: Instruction) -> list[tuple[Allocation, Any]]:
    """The allocations that the addresses fall into, each with the selection of lanes; faults on any bad address."""
    off = where & (size - 1)
    if off.any():
        at, lane = _first(off != 0, b, i)
        verb = "written" if write else "read"
        raise b.fault("misaligned", f"{size} bytes {verb} at an address that is not a multiple of {size}: {b.memory.nearest(int(where[at]))}", ins.line, lane, int(where[at]),
                      hint="a vector access needs its address aligned to its whole width; check offsets and assumed_align")  # fmt: skip
    low, high = int(where.min()), int(where.max())
    found = b.memory.find(low)
    if found is not None and high + size <= found.end:
        _within_views(found, b, i, where, size, write, ins)
        return [(_writable(found, b, i, where, write, ins), slice(None))]
    parts = []
    left = np.ones(len(where), dtype=bool)
    while left.any():
        at = int(np.argmax(left))
        found = b.memory.find(int(where[at]))
        if found is None or int(where[at]) + size > found.end:
            lane = int(at if i is None else i[at])
            verb = "write of" if write else "read of"
            raise b.fault("out_of_bounds", f"{verb} {size} bytes is out of bounds: {b.memory.nearest(int(where[at]))}", ins.line, lane, int(where[at]),
                          hint="guard the access with the tensor's true extent (predication), odd sizes included")  # fmt: skip
        inside = left & (where >= found.start) & (where + size <= found.end)
        pick = np.nonzero(inside)[0]
        _within_views(found, b, b.all_lanes(i)[pick], where[pick], size, write, ins)
        parts.append((_writable(found, b, i, where, write, ins), pick))
        left &= ~inside
    return parts


def _within_views(found: Allocation, b: Batch, i: Lanes, where: Any, size: int, write: bool, ins: Instruction) -> None:
    """Fault on an access inside a storage of which the launch got only a part, outside that part."""
    if not found.narrow:
        return
    bad = missed(found.views, where, size)
    if bad.any():
        at, lane = _first(bad, b, i)
        raise b.fault("out_of_bounds", f"{'write' if write else 'read'} of {size} bytes is out of bounds of the tensor, inside its storage: {b.memory.nearest(int(where[at]))}", ins.line, lane, int(where[at]),
                      hint="the tensor is a slice of a larger one: guard the access with its own extents, and use its own strides")  # fmt: skip


def _writable(found: Allocation, b: Batch, i: Lanes, where: Any, write: bool, ins: Instruction) -> Allocation:
    if write and not found.writable:
        raise b.fault("write_to_constant", f"a write to read-only {found.name}", ins.line, int(0 if i is None else i[0]), int(where[0]))
    return found


def read_global(b: Batch, i: Lanes, where: Any, size: int, vector: int, ins: Instruction) -> Any:
    """Bits read by each lane: array (lanes, vector) of unsigned `size`-byte elements."""
    kind = UNSIGNED[size]
    out = np.empty((len(where), vector), dtype=kind)
    for found, pick in global_allocation(b, i, where, size * vector, False, ins):
        _check_written(b, i, where[pick], found, size * vector, ins, pick)
        offset = where[pick] - found.start
        if b.races is not None:
            b.races.load_global(b, b.all_lanes(i)[pick], found, offset, size * vector, ins)
        if (found.start % size) == 0 and found.size >= size:
            view = found.data[: found.size // size * size].view(kind)
            index = offset // size
            for n in range(vector):
                out[pick, n] = view[index + n]
        else:
            for n in range(vector):
                raw = np.stack([found.data[offset + n * size + k] for k in range(size)], axis=-1)
                out[pick, n] = np.ascontiguousarray(raw).view(kind)[:, 0]
    return out


def _check_written(b: Batch, i: Lanes, where: Any, found: Allocation, size: int, ins: Instruction, pick: Any) -> None:
    if found.written is None:
        return
    offset = where - found.start
    ok = np.ones(len(offset), dtype=bool)
    for k in range(size):
        ok &= found.written[offset + k] != 0
    if not ok.all():
        at = int(np.argmax(~ok))
        lanes = b.all_lanes(i)[pick]
        raise b.fault("uninitialised", f"read of {size} bytes that nothing wrote, at byte {int(offset[at])} of {found.name}", ins.line, int(lanes[at]), int(where[at]),
                      hint="write every element before it is read; torch.empty leaves memory undefined")  # fmt: skip


def write_global(b: Batch, i: Lanes, where: Any, values: list[Any], size: int, ins: Instruction) -> None:
    """Store each lane's elements; later lanes win where addresses collide."""
    kind = UNSIGNED[size]
    for found, pick in global_allocation(b, i, where, size * len(values), True, ins):
        offset = where[pick] - found.start
        view = found.data[: found.size // size * size].view(kind)
        index = offset // size
        if b.races is not None:
            together = np.stack([np.broadcast_to(value, where.shape)[pick].astype(kind) for value in values], axis=1)
            b.races.store_global(b, b.all_lanes(i)[pick], found, offset, size * len(values), ins, together.view(np.uint8))
        for n, value in enumerate(values):
            stored = value[pick] if isinstance(value, np.ndarray) and value.ndim else value
            if b.standstill is not None:
                b.changes += bool((view[index + n] != stored).any())
            view[index + n] = stored
        if found.written is not None:
            for k in range(size * len(values)):
                found.written[offset + k] = 1


def _shared_index(b: Batch, i: Lanes, where: Any, size: int, write: bool, ins: Instruction) -> Any:
    """Byte offsets in the batch's shared memory, of the lanes' own CTAs or of others of their clusters; faults on any bad address."""
    cta, remote = b.cta if i is None else b.cta[i], where >> RANK_SHIFT
    if b.cluster_size > 1 and remote.any():
        cta = np.where(remote > 0, cta // b.cluster_size * b.cluster_size + remote - 1, cta)
        where = where & ((1 << RANK_SHIFT) - 1)
    bad = (where < 0) | (where + size > b.shared_limit)
    if bad.any():
        at, lane = _first(bad, b, i)
        raise b.fault("shared_out_of_bounds", f"shared-memory {'write' if write else 'read'} of {size} bytes at offset {int(where[at])}, but the CTA has {b.shared_limit} bytes", ins.line, lane, int(where[at]))
    off = where & (size - 1)
    if off.any():
        at, lane = _first(off != 0, b, i)
        raise b.fault("misaligned", f"shared-memory access of {size} bytes at offset {int(where[at])}, which is not a multiple of {size}", ins.line, lane, int(where[at]))
    return cta * b.shared_bytes + where


def read_shared(b: Batch, i: Lanes, where: Any, size: int, vector: int, ins: Instruction) -> Any:
    """Bits read from the lanes' own CTA's shared memory; faults on bytes that nothing wrote."""
    at = _shared_index(b, i, where, size * vector, False, ins)
    kind = UNSIGNED[size]
    view, shadow = b.shared.view(kind), b.shared_written.view(kind)
    index = at // size
    out = np.empty((len(where), vector), dtype=kind)
    full = np.array([1] * size, dtype=np.uint8).view(kind)[0]
    for n in range(vector):
        missing = (shadow[index + n] & full) != full
        if missing.any():
            bad, lane = _first(missing, b, i)
            if (b.shared_written[int(at[bad]) + n * size : int(at[bad]) + (n + 1) * size] & IN_FLIGHT).any():
                raise b.fault("copy_in_flight", f"read of shared memory at offset {int(where[bad]) + n * size} that an asynchronous copy in flight is writing", ins.line, lane, int(where[bad]),
                              hint="wait for the copy first: cp_async_wait_group and a barrier, or the mbarrier of the TMA load")  # fmt: skip
            message = f"read of shared memory that nothing wrote, at offset {int(where[bad]) + n * size}"
            if b.request.strict_shared:
                raise b.fault("uninitialised", message, ins.line, lane, int(where[bad]), hint="a missing store or barrier, or a copy that is not complete")
            b.notice("uninitialised", message, ins.line, lane, int(where[bad]))
        out[:, n] = view[index + n]
    if b.races is not None:
        b.races.load(b, b.all_lanes(i), at, size * vector, ins)
    return out


def write_shared(b: Batch, i: Lanes, where: Any, values: list[Any], size: int, ins: Instruction) -> None:
    """Store to shared memory and note the bytes as written."""
    at = _shared_index(b, i, where, size * len(values), True, ins)
    kind = UNSIGNED[size]
    index = at // size
    full = np.array([WRITTEN | (UNFENCED if b.async_proxy else 0)] * size, dtype=np.uint8).view(kind)[0]
    if b.races is not None:
        together = np.stack([np.broadcast_to(value, at.shape).astype(kind) for value in values], axis=1)
        b.races.store(b, b.all_lanes(i), at, size * len(values), ins, together.view(np.uint8))
    for n, value in enumerate(values):
        b.shared.view(kind)[index + n] = value
        b.shared_written.view(kind)[index + n] = full


def _local(b: Batch, i: Lanes, where: Any, size: int, ins: Instruction) -> Any:
    """Byte offsets of the lanes' own local memory; faults outside the thread's frame (an index past a register array)."""
    lanes = b.all_lanes(i)
    offset = where & 0xFFFFFF
    bad = (offset + size > b.local_stride) | (offset & (min(size, 16) - 1) != 0)
    if bad.any():
        at, lane = _first(bad, b, i)
        raise b.fault("local_out_of_bounds", f"{size} bytes at offset {int(offset[at])} of the thread's local memory, which has {b.kernel.local_bytes} bytes", ins.line, lane, int(where[at]),
                      hint="an index outside a register tensor, or one that is misaligned")  # fmt: skip
    return lanes * b.local_stride + (where & 0xFFFFFF)


def load(ins: Instruction) -> Fn:
    """ld{.space}{.cache}{.vec}.type; ldu; ld.param reads the launch's bytes."""
    space = next((m for m in ins.mods if m in SPACES), "generic")
    kind = ins.mods[-1]
    size = 16 if kind == "b128" else size_of("b16" if kind == "bf16" else kind)
    vector = next((int(m[1:]) for m in ins.mods if m in ("v2", "v4", "v8")), 1)
    targets = ins.operands[0].items if isinstance(ins.operands[0], Vec) else (ins.operands[0],)
    source = ins.operands[1]
    assert isinstance(source, Mem)
    signed = kind[0] == "s" and size < 8  # the register may be wider than what is loaded: the sign fills it
    puts = [setter(target, 8 if signed else 4 if size < 2 else size) for target in targets]
    if space == "param" and not isinstance(source.base, Reg):  # through a register: the parameter's address in memory, see Machine.run
        return _load_param(puts, source, size, vector, signed)
    where = address(source, space)

    def run(b: Batch, i: Lanes) -> None:
        place, at = _place(space, _spread(b, i, where(b, i)))
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


def _read(b: Batch, i: Lanes, at: Any, size: int, vector: int, space: str, ins: Instruction) -> Any:
    if space == "shared":
        return read_shared(b, i, at, size, vector, ins)
    if space == "local":
        index = _local(b, i, at, size * vector, ins) // size
        return np.stack([b.local.view(UNSIGNED[size])[index + n] for n in range(vector)], axis=-1)
    return read_global(b, i, at, size, vector, ins)


def _place(space: str, at: Any) -> tuple[str, Any]:
    """The state space that addresses mean, and the addresses in it; those of one instruction are all of one space."""
    if space != "generic":
        return space, at
    window = int(at[0]) >> 56 if len(at) else 0
    if window == SHARED_WINDOW >> 56:
        return "shared", at - SHARED_WINDOW
    if window == LOCAL_WINDOW >> 56:
        return "local", at - LOCAL_WINDOW
    return "global", at


def _load_param(puts: list[Any], source: Mem, size: int, vector: int, signed: bool) -> Fn:
    name, offset = str(source.base), source.offset

    def run(b: Batch, i: Lanes) -> None:
        data = b.params[name]
        for n, put in enumerate(puts):
            raw = data[offset + n * size : offset + (n + 1) * size]
            put(b, i, np.int64(int.from_bytes(raw, "little", signed=True)).view(np.uint64) if signed else UNSIGNED[max(size, 2) if size != 1 else 4](int.from_bytes(raw, "little")))

    return run


def store(ins: Instruction) -> Fn:
    """st{.space}{.cache}{.vec}.type."""
    if "async" in ins.mods:
        from workbench.emulator.cluster import store_async

        return store_async(ins)
    space = next((m for m in ins.mods if m in SPACES), "generic")
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
        place, at = _place(space, _spread(b, i, where(b, i)))
        b.count_memory(ins, place, i, at, size * len(gets), True)
        values = [_spread(b, i, get(b, i)) for get in gets]
        if place == "shared":
            write_shared(b, i, at, values, size, ins)
        elif place == "local":
            index = _local(b, i, at, size * len(values), ins) // size
            for n, value in enumerate(values):
                b.local.view(UNSIGNED[size])[index + n] = value
        else:
            write_global(b, i, at, values, size, ins)

    return run


def convert_address(ins: Instruction) -> Fn:
    """cvta{.to}.space: shared and local have windows of their own in the generic space."""
    space = next(m for m in ins.mods if m in (*SPACES, "shared", "local", "global", "const", "param"))
    window = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "const": CONST_WINDOW}.get(space, 0)
    put = setter(ins.operands[0], 8)
    get = getter(ins.operands[1], "u64")
    shift = np.uint64(window)
    if "to" in ins.mods:
        return lambda b, i: put(b, i, get(b, i) - shift)
    return lambda b, i: put(b, i, get(b, i) + shift)


def copy_async(ins: Instruction) -> Fn:
    """cp.async.{ca,cg}.shared.global [d], [s], size{, src-size}: read at once, written at the wait that covers it; its groups and waits."""
    if "commit_group" in ins.mods:
        return lambda b, i: b.copies.commit(b.all_lanes(i))
    if "wait_group" in ins.mods or "wait_all" in ins.mods:
        newest = int(ins.operands[0].value) if "wait_group" in ins.mods else None  # type: ignore[attr-defined]
        return lambda b, i: b.copies.wait(b.all_lanes(i), newest)
    if "shared" not in ins.mods or "bulk" in ins.mods:
        raise Unknown(ins.text)
    target, source = ins.operands[0], ins.operands[1]
    assert isinstance(target, Mem) and isinstance(source, Mem)
    to, frm = address(target, "shared"), address(source, "global")
    size = int(ins.operands[2].value)  # type: ignore[attr-defined]
    if size not in (4, 8, 16):
        raise Unknown(ins.text)
    ignore = getter(ins.operands[3], "u32") if len(ins.operands) > 3 and isinstance(ins.operands[3], Reg) else None
    fixed = int(ins.operands[3].value) if len(ins.operands) > 3 and not isinstance(ins.operands[3], Reg) else size  # type: ignore[attr-defined]

    def run(b: Batch, i: Lanes) -> None:
        lanes = b.all_lanes(i)
        into, at = _spread(b, i, to(b, i)), _spread(b, i, frm(b, i))
        count = _spread(b, i, ignore(b, i)).astype(np.int64) if ignore else np.full(len(lanes), fixed)
        part = np.zeros((len(lanes), size // 4), dtype=np.uint32)
        whole = count == size
        if whole.any():
            some = np.nonzero(whole)[0]
            b.count_memory(ins, "global", lanes[some], at[some], size, False)
            part[some] = read_global(b, lanes[some], at[some], 4, size // 4, ins) if size == 4 else _aligned(b, lanes[some], at[some], size, ins)
        for n in np.nonzero(~whole & (count > 0))[0]:
            raw = read_global(b, lanes[n : n + 1], at[n : n + 1], 1, int(count[n]), ins)
            part[n] = np.frombuffer(raw.tobytes().ljust(size, b"\0"), dtype=np.uint32)
        b.count_memory(ins, "shared", lanes, into, size, True)
        at = _shared_index(b, lanes, into, size, True, ins)
        words = at[:, None] // 4 + np.arange(size // 4)
        if b.races is not None:
            b.races.issue(b, lanes, at, size, ins)
        b.shared_written.view(np.uint32)[words] = IN_FLIGHT * 0x01010101

        def finish(pick: Any) -> None:
            if b.races is not None:
                b.races.store(b, lanes[pick], at[pick], size, ins, np.ascontiguousarray(part[pick]).view(np.uint8))
            b.shared.view(np.uint32)[words[pick]] = part[pick]
            b.shared_written.view(np.uint32)[words[pick]] = WRITTEN * 0x01010101

        b.copies.add(ins, lanes, finish)

    return run


def _aligned(b: Batch, lanes: Any, at: Any, size: int, ins: Instruction) -> Any:
    return read_global(b, lanes, at, 4, size // 4, ins)


ATOMIC: dict[str, Any] = {
    "add": lambda o, a: o + a, "min": lambda o, a: np.minimum(o, a), "max": lambda o, a: np.maximum(o, a), "and": lambda o, a: o & a,
    "or": lambda o, a: o | a, "xor": lambda o, a: o ^ a, "exch": lambda o, a: a,
    "inc": lambda o, a: np.where(o >= a, o.dtype.type(0), o + o.dtype.type(1)), "dec": lambda o, a: np.where((o == 0) | (o > a), a, o - o.dtype.type(1)),
}  # fmt: skip


def atomic(ins: Instruction) -> Fn:
    """atom and red on global and shared memory, lanes in order (deterministic); add.f32 and friends rounded per addition."""
    op = next(m for m in ins.mods if m in ATOMIC or m == "cas")
    kind = next(m for m in reversed(ins.mods) if (m[0] in "usbf" and m[-1].isdigit()) or m in ("f16x2", "bf16x2", "bf16"))
    if kind in ("f16x2", "bf16x2") or any(m in ("v2", "v4", "v8") for m in ins.mods):
        raise Unknown(ins.text)
    reduction = ins.opcode == "red"
    operands = ins.operands if reduction else ins.operands[1:]
    put = None if reduction else setter(ins.operands[0], size_of(kind))
    space = "shared" if "shared" in ins.mods else "global" if "global" in ins.mods else "generic"
    assert isinstance(operands[0], Mem)
    where = address(operands[0], space)
    value_of = getter(operands[1], kind)
    swap_of = getter(operands[2], kind) if op == "cas" else None
    size = size_of(kind)

    def run(b: Batch, i: Lanes) -> None:
        lanes = b.all_lanes(i)
        place, at = _place(space, _spread(b, i, where(b, i)))
        b.count_memory(ins, place, i, at, size, True)
        values = _spread(b, i, value_of(b, i))
        old = np.empty(len(lanes), dtype=values.dtype)
        swap = _spread(b, i, swap_of(b, i)) if swap_of else None
        reader, writer = (read_shared, write_shared) if place == "shared" else (read_global, write_global)
        reader(b, lanes, at, size, 1, ins)
        key = at if place != "shared" else at + b.cta[lanes] * (1 << 32)
        rank = _ranks(key)
        if b.races is not None:
            _note_atomic(b, lanes, at, place, size, rank, ins)
        for turn in range(int(rank.max()) + 1):
            now = np.nonzero(rank == turn)[0]
            before = _as_values(reader(b, lanes[now], at[now], size, 1, ins)[:, 0], kind, values.dtype)
            old[now] = before
            after = np.where(before == values[now], swap[now], before) if swap is not None else ATOMIC[op](before, values[now])
            writer(b, lanes[now], at[now], [_as_bits(after.astype(values.dtype), kind, size)], size, ins)
        if put is not None:
            put(b, i, _as_bits(old, kind, size))

    return run


def _note_atomic(b: Batch, lanes: Any, at: Any, place: str, size: int, rank: Any, ins: Instruction) -> None:
    """Tell the races of an atomic; `rank` is each lane's turn at its address."""
    assert b.races is not None
    if place == "shared":
        b.races.atomic(b, lanes, _shared_index(b, lanes, at, size, True, ins), size, ins)
        return
    for found, pick in global_allocation(b, lanes, at, size, True, ins):
        b.races.record.atomic(b, b.races, lanes[pick], found, at[pick] - found.start, size, rank[pick], ins)


def _as_values(raw: Any, kind: str, dtype: Any) -> Any:
    """Memory's bits as the numbers that an atomic computes with: bfloat16 as float32."""
    return (raw.astype(np.uint32) << np.uint32(16)).view(np.float32) if kind == "bf16" else raw.view(dtype)


def _as_bits(values: Any, kind: str, size: int) -> Any:
    return to_bf16(values) if kind == "bf16" else bits(values, size)


def _ranks(key: Any) -> Any:
    """For each element, how many earlier ones have the same key."""
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    start = np.concatenate([[True], ordered[1:] != ordered[:-1]])
    first = np.maximum.accumulate(np.where(start, np.arange(len(key)), 0))
    rank = np.empty(len(key), dtype=np.int64)
    rank[order] = np.arange(len(key)) - first
    return rank


def space_test(ins: Instruction) -> Fn:
    """isspacep.space p, a."""
    window = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "const": CONST_WINDOW}.get(ins.mods[0], 0) >> 56
    put, get = setter(ins.operands[0], 0), getter(ins.operands[1], "u64")
    return lambda b, i: put(b, i, (get(b, i) >> np.uint64(56)) == np.uint64(window))


__all__ = ["Name", "atomic", "convert_address", "copy_async", "load", "space_test", "store"]
