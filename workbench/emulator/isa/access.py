"""Reads and writes of shared, global and local memory for the lanes of a batch.

Every address is checked, and reads of unwritten bytes are found.
"""

from __future__ import annotations

import numpy as np

from workbench.emulator.arrays import Array, Lanes, Value
from workbench.emulator.execution.batch import LOCAL_WINDOW, RANK_SHIFT, SHARED_WINDOW, Batch
from workbench.emulator.execution.copies import IN_FLIGHT, UNFENCED, WRITTEN
from workbench.emulator.execution.launch import Allocation
from workbench.emulator.execution.operands import UNSIGNED, Get
from workbench.emulator.execution.tensor_views import find_misses
from workbench.emulator.ptx.instruction import Instruction
from workbench.emulator.ptx.syntax import Mem, Reg

SPACES = ("global", "shared", "local", "param", "const")


def address(operand: Mem, space: str) -> Get:
    """A function (batch, idx) -> int64 addresses, one per active lane, or one for all."""
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


def broadcast(b: Batch, i: Lanes, value: Value) -> Array:
    """The value as a full array over the active lanes."""
    count = b.lanes if i is None else len(i)
    return value if isinstance(value, np.ndarray) and value.ndim else np.full(count, value)


def _first_bad(bad: Array, b: Batch, i: Lanes) -> tuple[int, int]:
    at = int(np.argmax(bad))
    return at, int(at if i is None else i[at])


def resolve_space(space: str, at: Array) -> tuple[str, Array]:
    """The state space of addresses, and the addresses in it; all addresses of one instruction are in one space."""
    if space != "generic":
        return space, at
    window = int(at[0]) >> 56 if len(at) else 0
    if window == SHARED_WINDOW >> 56:
        return "shared", at - SHARED_WINDOW
    if window == LOCAL_WINDOW >> 56:
        return "local", at - LOCAL_WINDOW
    return "global", at


def global_allocation(
    b: Batch, i: Lanes, where: Array, size: int, write: bool, ins: Instruction
) -> list[tuple[Allocation, Array | slice]]:
    """The allocations of the addresses, each with the selection of its lanes; faults on any bad address."""
    off = where & (size - 1)
    if off.any():
        at, lane = _first_bad(off != 0, b, i)
        verb = "written" if write else "read"
        raise b.fault(
            "misaligned",
            f"{size} bytes {verb} at an address that is not a multiple of {size}:"
            f" {b.memory.describe_nearest(int(where[at]))}",
            ins.line,
            lane,
            int(where[at]),
            hint="a vector access needs its address aligned to its whole width; check offsets and assumed_align",
        )
    low, high = int(where.min()), int(where.max())
    found = b.memory.find(low)
    if found is not None and high + size <= found.end:
        _check_views(found, b, i, where, size, write, ins)
        return [(_check_writable(found, b, i, where, write, ins), slice(None))]
    parts: list[tuple[Allocation, Array | slice]] = []
    left = np.ones(len(where), dtype=bool)
    while left.any():
        at = int(np.argmax(left))
        found = b.memory.find(int(where[at]))
        if found is None or int(where[at]) + size > found.end:
            lane = int(at if i is None else i[at])
            verb = "write of" if write else "read of"
            raise b.fault(
                "out_of_bounds",
                f"{verb} {size} bytes is out of bounds: {b.memory.describe_nearest(int(where[at]))}",
                ins.line,
                lane,
                int(where[at]),
                hint="guard the access with the tensor's true extent (predication), odd sizes included",
            )
        inside = left & (where >= found.start) & (where + size <= found.end)
        pick = np.nonzero(inside)[0]
        _check_views(found, b, b.all_lanes(i)[pick], where[pick], size, write, ins)
        parts.append((_check_writable(found, b, i, where, write, ins), pick))
        left &= ~inside
    return parts


def _check_views(found: Allocation, b: Batch, i: Lanes, where: Array, size: int, write: bool, ins: Instruction) -> None:
    """Fault on an access to a storage outside the tensors that the launch got."""
    if not found.narrow:
        return
    bad = find_misses(found.views, where, size)
    if bad.any():
        at, lane = _first_bad(bad, b, i)
        raise b.fault(
            "out_of_bounds",
            f"{'write' if write else 'read'} of {size} bytes is out of bounds of the tensor, inside its storage:"
            f" {b.memory.describe_nearest(int(where[at]))}",
            ins.line,
            lane,
            int(where[at]),
            hint=(
                "the tensor is a slice of a larger one: guard the access with its own extents, and use its own strides"
            ),
        )


def _check_writable(found: Allocation, b: Batch, i: Lanes, where: Array, write: bool, ins: Instruction) -> Allocation:
    if write and not found.writable:
        raise b.fault(
            "write_to_constant",
            f"a write to read-only {found.name}",
            ins.line,
            int(0 if i is None else i[0]),
            int(where[0]),
        )
    return found


def read_global(b: Batch, i: Lanes, where: Array, size: int, vector: int, ins: Instruction) -> Array:
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


def _check_written(
    b: Batch, i: Lanes, where: Array, found: Allocation, size: int, ins: Instruction, pick: Array | slice
) -> None:
    if found.written is None:
        return
    offset = where - found.start
    ok = np.ones(len(offset), dtype=bool)
    for k in range(size):
        ok &= found.written[offset + k] != 0
    if not ok.all():
        at = int(np.argmax(~ok))
        lanes = b.all_lanes(i)[pick]
        raise b.fault(
            "uninitialised",
            f"read of {size} bytes that nothing wrote, at byte {int(offset[at])} of {found.name}",
            ins.line,
            int(lanes[at]),
            int(where[at]),
            hint="write every element before it is read; torch.empty leaves memory undefined",
        )


def write_global(b: Batch, i: Lanes, where: Array, values: list[Array], size: int, ins: Instruction) -> None:
    """Store each lane's elements; later lanes win where addresses collide."""
    kind = UNSIGNED[size]
    for found, pick in global_allocation(b, i, where, size * len(values), True, ins):
        offset = where[pick] - found.start
        view = found.data[: found.size // size * size].view(kind)
        index = offset // size
        if b.races is not None:
            together = np.stack([np.broadcast_to(value, where.shape)[pick].astype(kind) for value in values], axis=1)
            b.races.store_global(
                b, b.all_lanes(i)[pick], found, offset, size * len(values), ins, together.view(np.uint8)
            )
        for n, value in enumerate(values):
            stored = value[pick] if isinstance(value, np.ndarray) and value.ndim else value
            if b.livelock is not None:
                b.changes += bool((view[index + n] != stored).any())
            view[index + n] = stored
        if found.written is not None:
            for k in range(size * len(values)):
                found.written[offset + k] = 1


def owning_cta(b: Batch, i: Lanes, where: Array) -> tuple[Array, Array]:
    """(the CTA whose shared memory each lane addresses, the offset in it)."""
    cta = b.cta if i is None else b.cta[i]
    if b.cluster_size > 1:
        remote = where >> RANK_SHIFT
        if remote.any():
            cta = np.where(remote > 0, cta // b.cluster_size * b.cluster_size + remote - 1, cta)
            where = where & ((1 << RANK_SHIFT) - 1)
    return cta, where


def shared_index(b: Batch, i: Lanes, where: Array, size: int, write: bool, ins: Instruction) -> Array:
    """Byte offsets in the batch's shared memory, of the lanes' own CTAs or of others in their clusters; faults on any
    bad address.
    """
    cta, where = owning_cta(b, i, where)
    bad = (where < 0) | (where + size > b.shared_limit)
    if bad.any():
        at, lane = _first_bad(bad, b, i)
        raise b.fault(
            "shared_out_of_bounds",
            f"shared-memory {'write' if write else 'read'} of {size} bytes at offset {int(where[at])}, but the CTA"
            f" has {b.shared_limit} bytes",
            ins.line,
            lane,
            int(where[at]),
        )
    off = where & (size - 1)
    if off.any():
        at, lane = _first_bad(off != 0, b, i)
        raise b.fault(
            "misaligned",
            f"shared-memory access of {size} bytes at offset {int(where[at])}, which is not a multiple of {size}",
            ins.line,
            lane,
            int(where[at]),
        )
    return cta * b.shared_bytes + where


def read_shared(b: Batch, i: Lanes, where: Array, size: int, vector: int, ins: Instruction) -> Array:
    """Bits read from shared memory; faults on bytes that nothing wrote."""
    at = shared_index(b, i, where, size * vector, False, ins)
    kind = UNSIGNED[size]
    view, shadow = b.shared.view(kind), b.shared_written.view(kind)
    index = at // size
    out = np.empty((len(where), vector), dtype=kind)
    full = np.array([1] * size, dtype=np.uint8).view(kind)[0]
    for n in range(vector):
        missing = (shadow[index + n] & full) != full
        if missing.any():
            bad, lane = _first_bad(missing, b, i)
            if (b.shared_written[int(at[bad]) + n * size : int(at[bad]) + (n + 1) * size] & IN_FLIGHT).any():
                raise b.fault(
                    "copy_in_flight",
                    f"read of shared memory at offset {int(where[bad]) + n * size} that an asynchronous copy in"
                    " flight is writing",
                    ins.line,
                    lane,
                    int(where[bad]),
                    hint="wait for the copy first: cp_async_wait_group and a barrier, or the mbarrier of the TMA load",
                )
            message = f"read of shared memory that nothing wrote, at offset {int(where[bad]) + n * size}"
            if b.request.strict_shared:
                raise b.fault(
                    "uninitialised",
                    message,
                    ins.line,
                    lane,
                    int(where[bad]),
                    hint="a missing store or barrier, or a copy that is not complete",
                )
            b.notice("uninitialised", message, ins.line, lane, int(where[bad]))
        out[:, n] = view[index + n]
    if b.races is not None:
        b.races.load(b, b.all_lanes(i), at, size * vector, ins)
    return out


def write_shared(b: Batch, i: Lanes, where: Array, values: list[Array], size: int, ins: Instruction) -> None:
    """Store to shared memory and mark the bytes as written."""
    at = shared_index(b, i, where, size * len(values), True, ins)
    kind = UNSIGNED[size]
    index = at // size
    full = np.array([WRITTEN | (UNFENCED if b.async_proxy else 0)] * size, dtype=np.uint8).view(kind)[0]
    if b.races is not None:
        together = np.stack([np.broadcast_to(value, at.shape).astype(kind) for value in values], axis=1)
        b.races.store(b, b.all_lanes(i), at, size * len(values), ins, together.view(np.uint8))
    for n, value in enumerate(values):
        b.shared.view(kind)[index + n] = value
        b.shared_written.view(kind)[index + n] = full


def local_index(b: Batch, i: Lanes, where: Array, size: int, ins: Instruction) -> Array:
    """Byte offsets in the lanes' own local memory; faults outside the thread's frame (an index past a register
    array).
    """
    lanes = b.all_lanes(i)
    offset = where & 0xFFFFFF
    bad = (offset + size > b.local_stride) | (offset & (min(size, 16) - 1) != 0)
    if bad.any():
        at, lane = _first_bad(bad, b, i)
        raise b.fault(
            "local_out_of_bounds",
            f"{size} bytes at offset {int(offset[at])} of the thread's local memory, which has {b.kernel.local_bytes}"
            " bytes",
            ins.line,
            lane,
            int(where[at]),
            hint="an index outside a register tensor, or one that is misaligned",
        )
    index: Array = lanes * b.local_stride + (where & 0xFFFFFF)
    return index
